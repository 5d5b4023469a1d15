//! Numbers by Zipf's law, exactly, by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion
//! to generate variates from monotone discrete distributions", 1996): no table, constant time.

use rand::Rng;

/// Draws ranks below a limit: rank `k` (from 0) with a probability proportional to
/// `(k + 1) ^ -theta`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    ranks: f64,
    theta: f64,
    integral_first: f64,
    integral_last: f64,
    shift: f64,
}

impl Zipf {
    /// Of `ranks` ranks, at least one.
    #[must_use]
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        let ranks = ranks.max(1) as f64;
        Zipf {
            ranks,
            theta,
            integral_first: integral(1.5, theta) - 1.0,
            integral_last: integral(ranks + 0.5, theta),
            shift: 2.0 - inverse(integral(2.5, theta) - 2f64.powf(-theta), theta),
        }
    }

    /// The next rank.
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        loop {
            let range = self.integral_first - self.integral_last;
            let u = self.integral_last + rng.random::<f64>() * range;
            let x = inverse(u, self.theta);
            let k = (x + 0.5).floor().clamp(1.0, self.ranks);
            let accepted =
                k - x <= self.shift || u >= integral(k + 0.5, self.theta) - k.powf(-self.theta);
            if accepted {
                return k as u64 - 1;
            }
        }
    }
}

/// The integral of `t ^ -theta` from 1 to `x`, also where theta is close to 1.
fn integral(x: f64, theta: f64) -> f64 {
    let log = x.ln();
    let y = (1.0 - theta) * log;
    let ratio = if y.abs() > 1e-8 {
        y.exp_m1() / y
    } else {
        1.0 + y / 2.0
    };
    ratio * log
}

fn inverse(x: f64, theta: f64) -> f64 {
    let y = (x * (1.0 - theta)).max(-1.0);
    let ratio = if y.abs() > 1e-8 {
        y.ln_1p() / y
    } else {
        1.0 - y / 2.0
    };
    (ratio * x).exp()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn shares_are_those_of_the_law() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (ranks, theta) in [
            (1u64, 0.99),
            (10, 0.5),
            (1000, 0.99),
            (1000, 1.0),
            (50, 2.0),
        ] {
            let zipf = Zipf::new(ranks, theta);
            let weights: Vec<f64> = (1..=ranks).map(|k| (k as f64).powf(-theta)).collect();
            let total: f64 = weights.iter().sum();
            let draws = 200_000;
            let mut counts = vec![0u32; ranks as usize];
            for _ in 0..draws {
                counts[zipf.draw(&mut rng) as usize] += 1;
            }
            for (count, weight) in counts.iter().zip(&weights).take(20) {
                let expected = f64::from(draws) * weight / total;
                let off = (f64::from(*count) - expected).abs();
                assert!(
                    off < 5.0 * expected.sqrt() + 1.0,
                    "{ranks} {theta}: {count}, {expected}"
                );
            }
        }
    }
}
