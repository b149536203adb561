//! When sessions begin.

use serde::Serialize;

use crate::simulator::{Micros, SECOND};

/// How many sessions, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// When they begin.
    pub arrivals: Arrivals,
    /// Seconds of virtual time after which none begins any more; those under way end.
    pub seconds: u64,
    /// Of all that is random.
    pub seed: u64,
}

/// When sessions begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// By chance, independently of each other (Poisson), however busy the fleet is.
    Open {
        /// Sessions per second on average.
        per_second: f64,
    },
    /// As many users as this have a session each, one after another.
    Closed {
        /// Users.
        users: usize,
    },
    /// As `Open`, but in every period the first part has a multiple of the rate, at the same average.
    Bursts {
        /// Sessions per second on average.
        per_second: f64,
        /// Seconds of a period.
        period: u64,
        /// Seconds of it in which the rate is high.
        high: u64,
        /// The high rate as a multiple of the low one.
        factor: f64,
    },
}

impl Arrivals {
    /// The moments, in order, at which sessions begin; of `Closed`, the first of each user, which begin
    /// within a second so that they do not march in step.
    pub fn moments(self, load: &Load) -> impl Iterator<Item = Micros> + use<> {
        let mut rng = fastrand::Rng::with_seed(load.seed);
        let end = load.seconds * SECOND;
        let users = match self {
            Self::Closed { users } => users,
            _ => usize::MAX,
        };
        let mut now = 0.0;
        (0..users)
            .map(move |user| match self {
                Self::Closed { users } => user as u64 * SECOND / users as u64,
                Self::Open { per_second } => {
                    now += exponential(&mut rng) / per_second;
                    (now * SECOND as f64) as Micros
                }
                Self::Bursts { per_second, period, high, factor } => {
                    // Time runs through the parts of a period until the drawn amount is used up.
                    let (period, high) = (period as f64, high as f64);
                    let low_rate = per_second * period / (high * factor + period - high);
                    let mut left = exponential(&mut rng);
                    loop {
                        let at = now % period;
                        let (rate, until) = match at < high {
                            true => (low_rate * factor, high),
                            false => (low_rate, period),
                        };
                        if left <= rate * (until - at) {
                            now += left / rate;
                            break;
                        }
                        left -= rate * (until - at);
                        now += until - at;
                    }
                    (now * SECOND as f64) as Micros
                }
            })
            .take_while(move |moment| *moment < end)
    }
}

/// A draw from the exponential distribution with mean 1.
fn exponential(rng: &mut fastrand::Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arrivals: Arrivals) -> Load {
        Load { arrivals, seconds: 1_000, seed: 4 }
    }

    fn moments(arrivals: Arrivals) -> Vec<Micros> {
        arrivals.moments(&load(arrivals)).collect()
    }

    #[test]
    fn as_many_come_as_the_rate_says() {
        let open = moments(Arrivals::Open { per_second: 20.0 });
        // 20,000 with a standard deviation of 141.
        assert!((19_500..20_500).contains(&open.len()), "{}", open.len());
        assert!(open.is_sorted());
        let bursts = Arrivals::Bursts { per_second: 20.0, period: 100, high: 10, factor: 5.0 };
        let bursts = moments(bursts);
        assert!((19_500..20_500).contains(&bursts.len()), "{}", bursts.len());
        let high = bursts.iter().filter(|at| **at / SECOND % 100 < 10).count();
        // 50 of 140 parts.
        let share = high as f64 / bursts.len() as f64;
        assert!((0.34..0.375).contains(&share), "{share}");
        assert_eq!(moments(Arrivals::Closed { users: 4 }), [0, 250_000, 500_000, 750_000]);
    }
}
