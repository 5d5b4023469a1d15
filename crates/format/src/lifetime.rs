//! Lifetimes: how long users say that what they write will live.

/// A write lifetime hint, as `F_SET_RW_HINT` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lifetime {
    /// Told not to be known: as if nothing was told, and passed on as such.
    None,
    /// Short.
    Short,
    /// Medium.
    Medium,
    /// Long.
    Long,
    /// Extremely long.
    Extreme,
}

impl Lifetime {
    /// All of them.
    #[must_use]
    pub fn all() -> [Lifetime; 5] {
        [
            Lifetime::None,
            Lifetime::Short,
            Lifetime::Medium,
            Lifetime::Long,
            Lifetime::Extreme,
        ]
    }

    /// For people, and the value of the extended attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Lifetime::None => "none",
            Lifetime::Short => "short",
            Lifetime::Medium => "medium",
            Lifetime::Long => "long",
            Lifetime::Extreme => "extreme",
        }
    }

    /// The kernel's number (`RWH_WRITE_LIFE_NONE` and on): 1 to 5. Its 0 is "not set".
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Lifetime::None => 1,
            Lifetime::Short => 2,
            Lifetime::Medium => 3,
            Lifetime::Long => 4,
            Lifetime::Extreme => 5,
        }
    }

    /// The lifetime with the kernel's number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Lifetime> {
        let has = |lifetime: &Lifetime| u64::from(lifetime.number()) == number;
        Lifetime::all().into_iter().find(has)
    }

    /// From a name, or the kernel's number in decimal.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Lifetime> {
        let is = |lifetime: &Lifetime| {
            lifetime.name().as_bytes() == text || [b'0' + lifetime.number()] == text
        };
        Lifetime::all().into_iter().find(is)
    }

    /// As an inode stores it: 1 to 4, and 5 for none. 0 is an inode that was told nothing.
    #[must_use]
    pub fn stored(lifetime: Option<Lifetime>) -> u8 {
        match lifetime {
            None => 0,
            Some(Lifetime::Short) => 1,
            Some(Lifetime::Medium) => 2,
            Some(Lifetime::Long) => 3,
            Some(Lifetime::Extreme) => 4,
            Some(Lifetime::None) => 5,
        }
    }

    /// From an inode. It is a hint: what has no meaning was not told.
    #[must_use]
    pub fn from_stored(stored: u8) -> Option<Lifetime> {
        let is = |lifetime: &Lifetime| Lifetime::stored(Some(*lifetime)) == stored;
        Lifetime::all().into_iter().find(is)
    }

    /// The class of zones for it, as in [`crate::table::ZitEntry::lifetime`]; nothing for data that
    /// goes where its estimate says.
    #[must_use]
    pub fn class(self) -> Option<u8> {
        match self {
            Lifetime::None => None,
            lifetime => Some(Lifetime::stored(Some(lifetime))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lifetime;

    #[test]
    fn names_and_numbers_come_back() {
        for lifetime in Lifetime::all() {
            let number = lifetime.number();
            assert_eq!(Lifetime::from_number(number.into()), Some(lifetime));
            assert_eq!(Lifetime::parse(lifetime.name().as_bytes()), Some(lifetime));
            assert_eq!(
                Lifetime::parse(number.to_string().as_bytes()),
                Some(lifetime)
            );
            let stored = Lifetime::stored(Some(lifetime));
            assert_eq!(Lifetime::from_stored(stored), Some(lifetime));
            assert_eq!(lifetime.class().is_some(), lifetime != Lifetime::None);
        }
        for wrong in [&b""[..], b"0", b"6", b"Short", b"short\n", b"12", b"-1"] {
            assert_eq!(Lifetime::parse(wrong), None);
        }
        for stored in [0, 6, 255] {
            assert_eq!(Lifetime::from_stored(stored), None);
        }
        assert_eq!(Lifetime::from_number(0), None);
    }
}
