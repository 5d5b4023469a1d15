//! Quota is turned off, and on again, when all is counted anew; and grace times change. Limits and projects stay.

use persimmon_format::quota::{Grace, OwnerKind};

use super::{Errno, Model};

/// How far the count of what owners take has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Nothing is counted, and nobody is limited.
    #[default]
    Off,
    /// Some may not be counted yet: nobody is limited.
    Begun,
    /// All is counted.
    All,
}

/// The quota of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// It was turned on once: there may be projects.
    pub has_projects: bool,
    /// What is counted.
    pub counting: Counting,
    /// Grace times of users, groups and projects.
    pub graces: [Grace; 3],
}

impl Quota {
    pub(super) fn grace(&self, kind: OwnerKind) -> Grace {
        let [users, groups, projects] = self.graces;
        match kind {
            OwnerKind::User => users,
            OwnerKind::Group => groups,
            OwnerKind::Project => projects,
        }
    }

    /// A mount may go on with a count.
    pub(super) fn admits(&self, found: &Quota) -> bool {
        let counting = match self.counting {
            Counting::Begun if found.counting == Counting::All => Counting::All,
            counting => counting,
        };
        Quota { counting, ..*self } == *found
    }
}

impl Model {
    /// Whether limits count now.
    pub(super) fn enforces_limits(&self) -> bool {
        self.now().quota().counting == Counting::All
    }

    pub(super) fn check_has_projects(&self) -> Result<(), Errno> {
        match self.now().quota().has_projects {
            true => Ok(()),
            false => Err(libc::EOPNOTSUPP),
        }
    }

    /// Whether there is a count that may be complete by now.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.now().quota().counting == Counting::Begun
    }

    /// Takes over that all is counted.
    pub fn adopt_counting(&mut self, found: Counting) {
        if self.counts() && found == Counting::All {
            self.change_quota(|quota| quota.counting = Counting::All);
        }
    }

    pub(super) fn turn_quota_on(&mut self, anew: bool) {
        // Footers tell it before anything is counted.
        if !self.now().quota().has_projects {
            self.change_quota(|quota| quota.has_projects = true);
        }
        if anew || self.now().quota().counting == Counting::Off {
            self.change_quota(|quota| quota.counting = Counting::Begun);
        }
    }

    pub(super) fn turn_quota_off(&mut self) -> Result<(), Errno> {
        self.check_has_projects()?;
        self.change_quota(|quota| quota.counting = Counting::Off);
        Ok(())
    }

    pub(super) fn set_grace(&mut self, kind: OwnerKind, grace: Grace) -> Result<(), Errno> {
        self.check_has_projects()?;
        self.change_quota(|quota| {
            let kinds = OwnerKind::ALL.iter().zip(&mut quota.graces);
            kinds
                .filter(|(other, _)| **other == kind)
                .for_each(|(_, known)| *known = grace);
        });
        Ok(())
    }

    fn change_quota(&mut self, change: impl FnOnce(&mut Quota)) {
        self.enter(|tree| {
            let mut quota = *tree.quota();
            change(&mut quota);
            tree.set_quota(quota);
        });
    }
}
