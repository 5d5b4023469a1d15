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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use persimmon_format::quota::{Limit, Owner};

    use super::*;
    use crate::model::{Limits, Observed, Tree};
    use crate::workload::Op;

    fn model(ops: &[Op]) -> Model {
        let mut model = Model::new(Tree::new(0o755, 0));
        for op in ops {
            model.apply(op, 0).unwrap();
        }
        model
    }

    fn create(path: &str) -> Op {
        Op::Create {
            path: path.into(),
            mode: 0o644,
        }
    }

    fn limit(inodes: u64) -> Op {
        let limits = Limits {
            inodes: Limit {
                soft: 0,
                hard: inodes,
            },
            ..Limits::default()
        };
        let kind = OwnerKind::User;
        Op::Limit {
            owner: Owner { kind, id: 0 },
            limits,
        }
    }

    #[test]
    fn limits_count_once_all_is_counted() {
        let mut model = model(&[create("/a")]);
        assert_eq!(model.apply(&limit(1), 0), Err(libc::EOPNOTSUPP));
        assert_eq!(model.apply(&Op::QuotaOff, 0), Err(libc::EOPNOTSUPP));
        let on = Op::QuotaOn { anew: false };
        model.apply(&on, 0).unwrap();
        model.apply(&limit(1), 0).unwrap();
        let must = |model: &Model| model.must_exceed(&create("/b"), 0);
        assert!(model.counts() && !must(&model));
        model.adopt_counting(Counting::Begun);
        assert!(!must(&model));
        model.adopt_counting(Counting::All);
        assert!(must(&model));
        // It is on already.
        model.apply(&on, 0).unwrap();
        assert!(must(&model));
        model.apply(&Op::QuotaOn { anew: true }, 0).unwrap();
        assert!(!must(&model));
        model.adopt_counting(Counting::All);
        model.apply(&Op::QuotaOff, 0).unwrap();
        assert!(!must(&model));
        model.adopt_counting(Counting::All);
        assert!(!must(&model), "off is not adopted");
        model.apply(&on, 0).unwrap();
        model.adopt_counting(Counting::All);
        // The limit stayed.
        assert!(must(&model));
    }

    #[test]
    fn a_crash_leaves_a_count_that_a_mount_may_go_on_with() {
        let mut model = model(&[Op::QuotaOn { anew: false }]);
        let fits = |model: &Model, counting| {
            let mut found = Observed::of(model.now());
            found.quota.counting = counting;
            found.find_in(&[Arc::new(model.now().clone())]).is_ok()
        };
        assert!(fits(&model, Counting::Begun) && fits(&model, Counting::All));
        assert!(!fits(&model, Counting::Off));
        model.adopt_counting(Counting::All);
        assert!(fits(&model, Counting::All));
        assert!(!fits(&model, Counting::Begun) && !fits(&model, Counting::Off));
        let mut found = Observed::of(model.now());
        found.quota.graces[1].bytes += 1;
        assert!(found.find_in(&model.admissible()).is_err());
    }

    #[test]
    fn of_a_tree_that_gets_a_project_the_top_has_it_first() {
        let mkdir = Op::Mkdir {
            path: "/d".into(),
            mode: 0o755,
        };
        let make = [mkdir, create("/d/a"), create("/d/b"), create("/c")];
        let mut model = model(&make);
        let give = Op::SetProjectBelow {
            path: "/d".into(),
            project: 7,
        };
        assert_eq!(model.apply(&give, 0), Err(libc::EOPNOTSUPP));
        model.apply(&Op::QuotaOn { anew: false }, 0).unwrap();
        model.acknowledge(&Op::Sync);
        let before = Observed::of(model.now());
        model.apply(&give, 0).unwrap();
        let states = model.admissible();
        let fits = |paths: &[&str]| {
            let mut found = before.clone();
            for path in paths {
                found.nodes.get_mut(*path).unwrap().project = 7;
            }
            found.find_in(&states).is_ok()
        };
        assert!(fits(&[]) && fits(&["/d"]) && fits(&["/d", "/d/b"]));
        assert!(fits(&["/d", "/d/a", "/d/b"]));
        assert!(!fits(&["/d/a"]) && !fits(&["/d", "/c"]));
        model.acknowledge(&Op::Sync);
        let states = model.admissible();
        assert!(before.find_in(&states).is_err());
        assert_eq!(
            Observed::of(model.now()).nodes["/d/a"].project,
            7,
            "all have it"
        );
    }
}
