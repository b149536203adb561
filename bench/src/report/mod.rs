//! Figures and how they are shown.

mod table;

use serde::Serialize;

pub use table::Table;

/// Quantiles of a set of measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many there were.
    pub count: usize,
    /// Half are below.
    pub p50: f64,
    /// 90 of 100 are below.
    pub p90: f64,
    /// 99 of 100 are below.
    pub p99: f64,
    /// 999 of 1,000 are below.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    /// Of values in any unit; sorts them.
    pub fn of(values: &mut [f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |q: f64| values[(last as f64 * q).round() as usize];
        Self {
            count: values.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        }
    }

    /// Of nanoseconds, in microseconds.
    pub fn of_ns(values: &mut Vec<u64>) -> Self {
        let mut micros: Vec<f64> =
            std::mem::take(values).into_iter().map(|ns| ns as f64 / 1000.0).collect();
        Self::of(&mut micros)
    }
}

/// The middle one of some values; 0 for none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    if values.is_empty() {
        return 0.0;
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// A number as people write it: three significant digits, thousands separated.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(w, f)| (w, f));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() {
        format!("{sign}{grouped}")
    } else {
        format!("{sign}{grouped}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        let mut values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let quantiles = Quantiles::of(&mut values);
        assert_eq!((quantiles.p50, quantiles.p99, quantiles.max), (50.0, 99.0, 100.0));
        assert_eq!(Quantiles::of(&mut []), Quantiles::default());
    }

    #[test]
    fn the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([1.0, 2.0]), 1.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(number(0.974), "0.97");
        assert_eq!(number(81.24), "81.2");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(-1234.0), "-1,234");
        assert_eq!(number(99.96), "100");
    }
}
