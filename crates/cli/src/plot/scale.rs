//! Axes: from values to places, and the values that are written beside them.

/// Decades of "nines" shown at most.
const NINES_MAX: i32 = 9;

#[derive(Clone, Copy, Debug)]
enum Scale {
    Linear,
    Log,
    /// Shares, each nine as far from the one before.
    Nines,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it measures, with its unit.
    pub title: String,
    /// Values that are marked, and how they are written.
    pub ticks: Vec<(f64, String)>,
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// Even, from `low` to `high` or a little more, with about so many marks.
    pub fn linear(title: &str, low: f64, high: f64, marks: u32) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        let step = step(high - low, marks);
        // A little beyond a mark is no reason for another.
        let steps = ((high - low) / step - 0.02).ceil().max(1.0);
        let top = high.max(low + steps * step);
        let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
        let ticks = (0..=steps as u32)
            .map(|n| low + f64::from(n) * step)
            .map(|value| (value, format!("{value:.decimals$}")))
            .collect();
        Axis {
            title: title.to_owned(),
            ticks,
            scale: Scale::Linear,
            low,
            high: top,
        }
    }

    /// Even, ends exactly at `high`: for what goes on to there and not further.
    pub fn course(title: &str, low: f64, high: f64, marks: u32) -> Axis {
        let mut axis = Axis::linear(title, low, high, marks);
        axis.high = if high > low { high } else { low + 1.0 };
        axis.ticks.retain(|(value, _)| *value <= high * 1.0001);
        axis
    }

    /// By powers of ten, from the one below `low` to the one above `high`; `written` writes a value.
    pub fn powers(title: &str, low: f64, high: f64, written: impl Fn(f64) -> String) -> Axis {
        let first = low.max(1e-9).log10().floor() as i32;
        let last = (high.max(1e-9).log10().ceil() as i32).max(first + 1);
        let ticks = (first..=last)
            .map(|power| 10f64.powi(power))
            .map(|value| (value, written(value)))
            .collect();
        Axis {
            title: title.to_owned(),
            ticks,
            scale: Scale::Log,
            low: 10f64.powi(first),
            high: 10f64.powi(last),
        }
    }

    /// A row for each name, the first one highest; it has the values from how many follow to one more.
    pub fn rows(names: &[String]) -> Axis {
        let rows = names.len() as f64;
        let mark = |(n, name): (usize, &String)| (rows - n as f64 - 0.5, name.clone());
        Axis {
            title: String::new(),
            ticks: names.iter().enumerate().map(mark).collect(),
            scale: Scale::Linear,
            low: 0.0,
            high: rows.max(1.0),
        }
    }

    /// Shares of so many: 0, 90 %, 99 %, 99.9 % and on, the last one being the whole.
    pub fn nines(title: &str, count: usize) -> Axis {
        let decades = (count.max(10) as f64).log10().ceil() as i32;
        let decades = decades.clamp(2, NINES_MAX);
        let mut ticks = vec![(0.0, "0".to_owned()), (0.5, "50 %".to_owned())];
        ticks.extend((1..decades).map(|nines| {
            let percent = 100.0 - 10f64.powi(2 - nines);
            let decimals = (nines - 2).max(0) as usize;
            (percent / 100.0, format!("{percent:.decimals$} %"))
        }));
        ticks.push((1.0, "longest".to_owned()));
        Axis {
            title: title.to_owned(),
            ticks,
            scale: Scale::Nines,
            low: 0.0,
            high: f64::from(decades),
        }
    }

    /// How far along a value is: 0 to 1 for those that the axis has.
    pub fn place(&self, value: f64) -> f64 {
        let (value, low, high) = match self.scale {
            Scale::Linear => (value, self.low, self.high),
            Scale::Log => (
                value.max(self.low).log10(),
                self.low.log10(),
                self.high.log10(),
            ),
            Scale::Nines => {
                let nines = -(1.0 - value).max(0.1f64.powf(self.high)).log10();
                (nines, self.low, self.high)
            }
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten, so that about so many make `length`.
fn step(length: f64, marks: u32) -> f64 {
    let rough = length / f64::from(marks.max(1));
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|n| n * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn marks_are_round() {
        let axis = Axis::linear("", 0.0, 3.48, 5);
        assert_eq!(marks(&axis), ["0", "1", "2", "3", "4"]);
        assert_eq!(
            marks(&Axis::linear("", 0.0, 0.11, 4)),
            ["0.00", "0.05", "0.10", "0.15"]
        );
        assert_eq!(
            marks(&Axis::course("", 0.0, 2.5, 5)),
            ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]
        );
        assert_eq!(marks(&Axis::linear("", 0.0, 0.0, 2)), ["0.0", "0.5", "1.0"]);
        assert!((axis.place(2.0) - 0.5).abs() < 1e-9);
        assert_eq!((axis.place(-1.0), axis.place(9.0)), (0.0, 1.0));
    }

    #[test]
    fn nines_lie_as_far_apart() {
        let axis = Axis::nines("", 40_000);
        let expected = ["0", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "longest"];
        assert_eq!(marks(&axis), expected);
        assert!((axis.place(0.99) - 0.4).abs() < 1e-9 && (axis.place(0.999) - 0.6).abs() < 1e-9);
        assert_eq!(axis.place(1.0), 1.0);
    }

    #[test]
    fn powers_enclose_the_values() {
        let axis = Axis::powers("", 14.0, 42_800.0, |value| format!("{value}"));
        assert_eq!(marks(&axis), ["10", "100", "1000", "10000", "100000"]);
        assert!((axis.place(1000.0) - 0.5).abs() < 1e-9);
        assert_eq!(axis.place(0.0), 0.0);
    }
}
