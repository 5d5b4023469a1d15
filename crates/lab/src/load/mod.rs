//! What is written when write amplification, pace and wear are measured: loads, as lists of what
//! to do next without end. The same for the engine ([`crate::measure`]) and for the reference
//! ([`crate::placement`]).

mod files;
mod pieces;
mod popularity;
mod trace;
mod zipf;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

pub use files::{FileChange, FileLife, Files, Shape};
pub use pieces::Pieces;
pub use popularity::{Popularity, Scatter};
pub use trace::{Trace, TraceChange};
pub use zipf::Zipf;

/// The exponent that YCSB made usual.
pub const THETA_DEFAULT: f64 = 0.99;

/// A kind of load.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Blocks of one file are overwritten, which one as `Popularity` says.
    Overwrite(Popularity),
    /// Pieces of one file are overwritten, at places that are multiples of their sizes: each alike.
    Pieces,
    /// Files are made and deleted.
    Files(Shape),
    /// What was recorded elsewhere is written again, from its beginning when it ends.
    Replay(Arc<Trace>),
}

impl Load {
    /// Its names, for help texts.
    pub const NAMES: &'static str = "uniform, zipf[:THETA], hotcold, pieces, churn, untar[:directories], compaction[:unhinted], replay:FILE";
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let (name, parameter) = match text.split_once(':') {
            Some((name, parameter)) => (name, Some(parameter)),
            None => (text, None),
        };
        let load = match (name, parameter) {
            ("zipf", theta) => {
                let theta = theta.map_or(Ok(THETA_DEFAULT), str::parse);
                let theta = theta.map_err(|_| "THETA is a number".to_owned())?;
                if !(0.01..=4.0).contains(&theta) {
                    return Err("THETA is between 0.01 and 4".into());
                }
                Load::Overwrite(Popularity::Zipf { theta })
            }
            ("replay", Some(path)) => Load::Replay(Arc::new(Trace::read(Path::new(path))?)),
            ("replay", None) => return Err("replay:FILE replays which trace?".into()),
            ("compaction", Some("unhinted")) => Load::Files(Shape::Compaction { hints: false }),
            ("untar", Some("directories")) => Load::Files(Shape::Untar { directories: true }),
            (_, Some(_)) => return Err(format!("{name} takes no parameter")),
            ("uniform", None) => Load::Overwrite(Popularity::Uniform),
            ("hotcold", None) => Load::Overwrite(Popularity::HotCold {
                hot_blocks: 0.1,
                hot_writes: 0.9,
            }),
            ("pieces", None) => Load::Pieces,
            ("churn", None) => Load::Files(Shape::Churn),
            ("untar", None) => Load::Files(Shape::Untar { directories: false }),
            ("compaction", None) => Load::Files(Shape::Compaction { hints: true }),
            _ => return Err(format!("loads: {}", Load::NAMES)),
        };
        Ok(load)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Overwrite(Popularity::Uniform) => write!(f, "uniform"),
            Load::Overwrite(Popularity::Zipf { theta }) => write!(f, "zipf:{theta}"),
            Load::Overwrite(Popularity::HotCold { .. }) => write!(f, "hotcold"),
            Load::Pieces => write!(f, "pieces"),
            Load::Replay(trace) => write!(f, "replay:{}", trace.name),
            Load::Files(Shape::Churn) => write!(f, "churn"),
            Load::Files(Shape::Untar { directories: false }) => write!(f, "untar"),
            Load::Files(Shape::Untar { directories: true }) => write!(f, "untar:directories"),
            Load::Files(Shape::Compaction { hints: true }) => write!(f, "compaction"),
            Load::Files(Shape::Compaction { hints: false }) => write!(f, "compaction:unhinted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in [
            "uniform",
            "zipf:0.99",
            "zipf:1.2",
            "hotcold",
            "pieces",
            "churn",
            "untar",
            "untar:directories",
            "compaction",
            "compaction:unhinted",
        ] {
            let load: Load = name.parse().unwrap();
            assert_eq!(load.to_string(), name);
        }
        assert_eq!("zipf".parse::<Load>(), "zipf:0.99".parse());
        for wrong in ["", "zip", "zipf:x", "zipf:0", "churn:3", "compaction:x"] {
            assert!(wrong.parse::<Load>().is_err(), "{wrong}");
        }
    }
}
