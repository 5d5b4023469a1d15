//! Points, and the runs that measure them.

use std::fmt;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Outcome<T> = Result<T, Failure>;

/// Which way a value is better.
#[derive(Clone, Copy)]
pub enum Better {
    Lower,
    Higher,
}

/// What was measured.
pub struct Point {
    name: String,
    unit: String,
    better: Better,
    value: f64,
}

impl Point {
    pub fn new(name: &str, unit: &str, better: Better, value: f64) -> Point {
        Point {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            value,
        }
    }

    /// A cost.
    pub fn cost(name: &str, unit: &str, value: f64) -> Point {
        Point::new(name, unit, Better::Lower, value)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let better = match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        let Point {
            name, unit, value, ..
        } = self;
        write!(f, "{name}\t{unit}\t{better}\t{value:.4}")
    }
}

/// Points that are measured together.
pub struct Run {
    pub name: &'static str,
    /// That it takes about: the longest begin first.
    pub seconds: u32,
    /// With a seed.
    pub body: Box<dyn Fn(u64) -> Outcome<Vec<Point>> + Sync>,
}

impl Run {
    pub fn new(
        name: &'static str,
        seconds: u32,
        body: impl Fn(u64) -> Outcome<Vec<Point>> + Sync + 'static,
    ) -> Run {
        Run {
            name,
            seconds,
            body: Box::new(body),
        }
    }
}
