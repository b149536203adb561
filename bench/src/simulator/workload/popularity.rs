//! Some things are more popular than others.

/// Draws numbers by popularity: number `n` in proportion to 1 / (n + 1)^exponent (Zipf).
#[derive(Clone, Debug)]
pub struct Popularity(Vec<f64>);

impl Popularity {
    /// Of `count` numbers, at least one. With the exponent 0 all are equal.
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulated = (1..=count.max(1)).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(cumulated.collect())
    }

    /// One of them.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let total = self.0.last().copied().unwrap_or(1.0);
        let at = rng.f64() * total;
        self.0.partition_point(|cumulated| *cumulated <= at).min(self.0.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_most_popular() {
        let popularity = Popularity::new(10, 1.0);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut drawn = [0; 10];
        for _ in 0..10_000 {
            drawn[popularity.draw(&mut rng)] += 1;
        }
        // 1 / (1 + 1/2 + ... + 1/10) of all.
        assert!((3_200..3_650).contains(&drawn[0]), "{drawn:?}");
        assert!(drawn[0] > drawn[1] && drawn[1] > drawn[4] && drawn[9] > 200);
    }
}
