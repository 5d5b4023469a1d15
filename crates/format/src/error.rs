//! What is wrong with bytes.

/// Shorthand.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// Why bytes are not the structure they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The structure does not begin with its magic.
    #[error("not a {what}: wrong magic")]
    Magic {
        /// The structure expected.
        what: &'static str,
    },
    /// The checksum does not match.
    #[error("{what}: checksum mismatch")]
    Checksum {
        /// The structure.
        what: &'static str,
    },
    /// Intact, but not the one that was looked for.
    #[error("{what}: {field} is {found}, expected {expected}")]
    Mismatch {
        /// The structure.
        what: &'static str,
        /// The field that differs.
        field: &'static str,
        /// Value read.
        found: u64,
        /// Value wanted.
        expected: u64,
    },
    /// The bytes end too early, or a length points past them.
    #[error("{what}: truncated")]
    Truncated {
        /// The structure.
        what: &'static str,
    },
    /// A field holds a value it may not hold.
    #[error("{what}: {field} has the impossible value {value}")]
    Value {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Written by a newer Persimmon.
    #[error(
        "format version {found} is newer than this program understands ({supported}); use a newer persimmon"
    )]
    NewerVersion {
        /// Version read.
        found: u32,
        /// Newest version known.
        supported: u32,
    },
    /// Uses features this program does not know.
    #[error(
        "the volume uses features {unknown:#x} that this program does not know; use a newer persimmon"
    )]
    UnknownFeatures {
        /// The unknown bits.
        unknown: u64,
    },
    /// Lacks features that every volume of this format has.
    #[error(
        "the volume is without the features {missing:#x}, which every volume of this format has"
    )]
    MissingFeatures {
        /// The missing bits.
        missing: u64,
    },
}

impl FormatError {
    /// Whether the bytes are intact, and this program is the wrong one to read them.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            FormatError::NewerVersion { .. }
                | FormatError::UnknownFeatures { .. }
                | FormatError::MissingFeatures { .. }
        )
    }
}
