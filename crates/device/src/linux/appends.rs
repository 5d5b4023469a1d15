//! Appends of a zone that the drive places: any number at the same time, no write beside them.

/// Appends under way in a zone.
#[derive(Debug, Default)]
pub struct Appends {
    under_way: u32,
    /// One has failed, so where the write pointer is is not known. None begins before it is.
    has_failed: bool,
    /// Where the last one landed that has completed.
    last: Option<u32>,
}

/// How many appends a drive had to do at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Appends completed.
    pub completed: u64,
    /// For each of them the appends that were under way in its zone when it completed, itself
    /// included: divided by `completed`, the mean.
    pub together: u64,
    /// The most that were under way in a zone.
    pub most: u32,
    /// Appends that completed after one that landed behind them.
    pub overtaken: u64,
}

impl Appends {
    /// How many are under way.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether what waits may begin: another append, or a write.
    pub fn lets_begin(&self, is_append: bool) -> bool {
        self.under_way == 0 || is_append && !self.has_failed
    }

    /// One begins.
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// One is over; `landed` is where it landed if it did. Whether the drive is to be asked now
    /// where the write pointer is.
    pub fn end(&mut self, landed: Option<&u32>, depth: &mut Depth) -> bool {
        depth.completed += 1;
        depth.together += u64::from(self.under_way);
        depth.most = depth.most.max(self.under_way);
        match landed {
            Some(block) => {
                depth.overtaken += u64::from(self.last.is_some_and(|last| last > *block));
                self.last = Some(*block);
            }
            None => self.has_failed = true,
        }
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way > 0 {
            return false;
        }
        std::mem::take(&mut self.has_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_the_drive_is_asked_when_nothing_is_under_way() {
        let (mut appends, mut depth) = (Appends::default(), Depth::default());
        for _ in 0..3 {
            assert!(appends.lets_begin(true));
            appends.begin();
        }
        assert!(!appends.lets_begin(false));
        assert!(!appends.end(Some(&4), &mut depth));
        assert!(!appends.end(None, &mut depth));
        assert!(!appends.lets_begin(true));
        assert!(appends.end(Some(&0), &mut depth));
        assert!(appends.lets_begin(true) && appends.lets_begin(false));
        let expected = Depth {
            completed: 3,
            together: 6,
            most: 3,
            overtaken: 1,
        };
        assert_eq!(depth, expected);
    }
}
