//! Which snapshots are kept: of each of the last so many hours, days, weeks, months or years that have any, the newest. A pure function of
//! the times when they were taken.

use std::str::FromStr;

use crate::fs::civil;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// 1 January 1970 was a Thursday: so many days before it a week began, which begins on Monday.
const DAYS_INTO_WEEK: i64 = 3;

/// A period of time, by UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

const PERIODS: [(&str, Period); 5] = [
    ("hourly", Period::Hour),
    ("daily", Period::Day),
    ("weekly", Period::Week),
    ("monthly", Period::Month),
    ("yearly", Period::Year),
];

impl Period {
    /// Which one a time is in: later ones have larger numbers.
    fn of(self, seconds: i64) -> i64 {
        let day = seconds.div_euclid(DAY);
        match self {
            Period::Hour => seconds.div_euclid(HOUR),
            Period::Day => day,
            Period::Week => day.saturating_add(DAYS_INTO_WEEK).div_euclid(7),
            Period::Month => {
                let (year, month, _) = civil(day);
                year.saturating_mul(12).saturating_add(month)
            }
            Period::Year => civil(day).0,
        }
    }
}

/// How many of each period are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention(Vec<(Period, usize)>);

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Retention, String> {
        let mut rules: Vec<(Period, usize)> = Vec::new();
        for rule in text.split(',') {
            let (name, count) = rule
                .split_once(':')
                .ok_or_else(|| format!("'{rule}' is not PERIOD:COUNT, as in daily:7"))?;
            let known = PERIODS.iter().find(|(known, _)| *known == name);
            let (_, period) = known.ok_or_else(|| {
                let names = PERIODS.map(|(name, _)| name).join(", ");
                format!("'{name}' is none of {names}")
            })?;
            let count: usize = count
                .parse()
                .map_err(|_| format!("'{count}' is not a number of snapshots"))?;
            if rules.iter().any(|(other, _)| other == period) {
                return Err(format!("{name} is said twice"));
            }
            rules.push((*period, count));
        }
        // Whoever keeps none of anything means something else.
        if rules.iter().all(|(_, count)| *count == 0) {
            return Err("nothing would be kept".into());
        }
        Ok(Retention(rules))
    }
}

impl Retention {
    /// Which of the snapshots that were taken at these times, in seconds since 1970 and in any order, are kept.
    pub fn keeps(&self, times: &[i64]) -> Vec<bool> {
        let mut newest_first: Vec<usize> = (0..times.len()).collect();
        let time = |at: &usize| times.get(*at).copied().unwrap_or(i64::MIN);
        newest_first.sort_by_key(|at| std::cmp::Reverse((time(at), *at)));
        let mut keeps = vec![false; times.len()];
        for (period, count) in &self.0 {
            let mut last = None;
            let mut kept = 0;
            for at in &newest_first {
                let of = period.of(time(at));
                if kept == *count {
                    break;
                }
                if last != Some(of) {
                    last = Some(of);
                    kept += 1;
                    if let Some(keep) = keeps.get_mut(*at) {
                        *keep = true;
                    }
                }
            }
        }
        keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that are kept, of snapshots taken at these times.
    fn kept(rules: &str, times: &[i64]) -> Vec<i64> {
        let keeps = rules.parse::<Retention>().unwrap().keeps(times);
        let times = times.iter().zip(keeps);
        times
            .filter(|(_, keep)| *keep)
            .map(|(time, _)| *time)
            .collect()
    }

    /// 1 January 2024, a Monday.
    const NEW_YEAR: i64 = 1_704_067_200;

    #[test]
    fn the_newest_of_each_period_is_kept() {
        let half_hours: Vec<i64> = (0..10).map(|at| NEW_YEAR + at * 1800).collect();
        let hour = |hour: i64| NEW_YEAR + hour * HOUR + 1800;
        assert_eq!(kept("hourly:3", &half_hours), [hour(2), hour(3), hour(4)]);
        assert_eq!(kept("hourly:100", &half_hours).len(), 5);
        assert_eq!(kept("daily:7", &half_hours), [hour(4)]);
        assert_eq!(kept("hourly:0,daily:1", &half_hours), [hour(4)]);
    }

    /// Also if nobody took any for long: what is kept is by how many there are, not by how old they are.
    #[test]
    fn periods_without_a_snapshot_do_not_count() {
        let times = [NEW_YEAR, NEW_YEAR + 100 * DAY, NEW_YEAR + 101 * DAY];
        assert_eq!(kept("daily:2", &times), times[1..]);
        assert_eq!(kept("daily:3", &times), times);
    }

    #[test]
    fn weeks_begin_on_monday_and_months_are_those_of_the_calendar() {
        let sunday = NEW_YEAR - 1;
        assert_eq!(kept("weekly:2", &[sunday, NEW_YEAR]), [sunday, NEW_YEAR]);
        let same_week = [NEW_YEAR, NEW_YEAR + 7 * DAY - 1];
        assert_eq!(kept("weekly:2", &same_week), same_week[1..]);
        // 29 February and 1 March, 31 December and 1 January.
        let leap_day = NEW_YEAR + 59 * DAY;
        assert_eq!(kept("monthly:9", &[leap_day, leap_day + DAY]).len(), 2);
        assert_eq!(kept("monthly:9", &[leap_day - DAY, leap_day]), [leap_day]);
        assert_eq!(kept("yearly:9", &[sunday, NEW_YEAR]).len(), 2);
        assert_eq!(kept("yearly:9", &[NEW_YEAR, leap_day]), [leap_day]);
    }

    /// One that several rules keep counts for each, and each rule looks at all.
    #[test]
    fn rules_add_up() {
        let days: Vec<i64> = (0..60).map(|at| NEW_YEAR + at * DAY).collect();
        let all = kept("hourly:24,daily:7,weekly:4,monthly:12", &days);
        // The last 24 hours with any are the last 24 days; before that, January's last is kept.
        let due: Vec<i64> = (0..60)
            .filter(|at| *at == 30 || *at >= 36)
            .map(|at| NEW_YEAR + at * DAY)
            .collect();
        assert_eq!(all, due);
    }

    /// In any order, twice at one time, and before 1970.
    #[test]
    fn odd_times_are_sorted_out() {
        let times = [NEW_YEAR, -1, NEW_YEAR + 5, NEW_YEAR, i64::MIN, i64::MAX];
        assert_eq!(kept("daily:2", &times), [NEW_YEAR + 5, i64::MAX]);
        assert_eq!(kept("daily:9", &times).len(), 4);
        assert_eq!(kept("hourly:1", &[7, 7]), [7]);
        assert!(kept("daily:1", &[]).is_empty());
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        for text in [
            "",
            "daily",
            "daily:x",
            "daily:-1",
            "dayly:7",
            "daily:0",
            "daily:1,daily:2",
        ] {
            assert!(text.parse::<Retention>().is_err(), "{text}");
        }
    }
}
