//! Reads the Prometheus text format.

use std::collections::BTreeMap;

/// One line of a metrics page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name, with `_bucket`, `_sum` or `_count` for a histogram.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// A metrics page.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Every line, in order.
    pub samples: Vec<Sample>,
}

impl Metrics {
    /// # Panics
    /// When a line is not in the format.
    pub fn parse(text: &str) -> Self {
        let samples = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| parse_line(line).unwrap_or_else(|| panic!("no metric: {line:?}")))
            .collect();
        Self { samples }
    }

    /// Label values that are the gateway's own words are all written in one style.
    ///
    /// # Panics
    /// When one is not in snake_case.
    pub fn assert_names(&self) {
        const GIVEN: [&str; 5] = ["endpoint_name", "variant", "instance_url", "version", "le"];
        for sample in &self.samples {
            for (label, value) in &sample.labels {
                let name =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                let good = !value.is_empty() && value.bytes().all(name);
                assert!(good || GIVEN.contains(&&**label), "{label}={value:?} in {}", sample.name);
            }
        }
    }

    /// The sum of all samples of `name` that have all of `labels`.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// The samples of `name` that have all of `labels`.
    pub fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(*key).is_some_and(|has| has == value))
        })
    }
}

fn parse_line(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match series.split_once('{') {
        None => (series, BTreeMap::new()),
        Some((name, rest)) => (name, parse_labels(rest.strip_suffix('}')?)?),
    };
    Some(Sample { name: name.to_owned(), labels, value })
}

fn parse_labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (key, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(key.to_owned(), value);
        text = rest[end + 1..].trim_start_matches(',');
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_values_are_read() {
        let metrics = Metrics::parse(
            "# HELP a x\na{b=\"c,d\",e=\"f\\\"g\"} 2\na{b=\"h\"} 3\nplain 1.5e3\nq_bucket{le=\"+Inf\"} 4\n",
        );
        assert_eq!(metrics.sum("a", &[]), 5.0);
        assert_eq!(metrics.sum("a", &[("b", "c,d"), ("e", "f\"g")]), 2.0);
        assert_eq!(metrics.sum("plain", &[]), 1500.0);
        assert_eq!(metrics.sum("q_bucket", &[("le", "+Inf")]), 4.0);
    }
}
