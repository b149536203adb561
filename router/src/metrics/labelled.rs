//! Counters by a label whose values are known beforehand.

use std::{collections::HashMap, sync::Mutex};

use prometheus::{IntCounter, IntCounterVec};

use super::lock;

/// One counter per value of the last label; the labels before it are fixed.
///
/// The values known at the start are found by comparing addresses, which costs a nanosecond or two;
/// any other value goes through the family's own map.
#[derive(Debug)]
pub(super) struct ByLabel {
    family: IntCounterVec,
    fixed: Vec<String>,
    known: Box<[(&'static str, IntCounter)]>,
}

impl ByLabel {
    pub(super) fn new(family: &IntCounterVec, fixed: &[&str], values: &[&'static str]) -> ByLabel {
        let counter =
            |value: &'static str| (value, family.with_label_values(&with_last(fixed, value)));
        ByLabel {
            family: family.clone(),
            fixed: fixed.iter().map(|label| (*label).to_owned()).collect(),
            known: values.iter().copied().map(counter).collect(),
        }
    }

    /// Counts one.
    pub(super) fn inc(&self, value: &'static str) {
        let same = |known: &&(&'static str, IntCounter)| std::ptr::eq(known.0, value);
        let equal = |known: &&(&'static str, IntCounter)| known.0 == value;
        match self.known.iter().find(same).or_else(|| self.known.iter().find(equal)) {
            Some((_, counter)) => counter.inc(),
            None => self.counter(value).inc(),
        }
    }

    /// Lets the page show a value that was not known at the start, with the count it has.
    pub(super) fn show(&self, value: &'static str) {
        self.counter(value);
    }

    fn counter(&self, value: &'static str) -> IntCounter {
        let fixed: Vec<&str> = self.fixed.iter().map(String::as_str).collect();
        self.family.with_label_values(&with_last(&fixed, value))
    }
}

fn with_last<'a>(fixed: &[&'a str], last: &'a str) -> Vec<&'a str> {
    let mut labels = fixed.to_vec();
    labels.push(last);
    labels
}

/// A counter that follows one kept elsewhere: by the kernel, or by an instance.
///
/// The other one may start again from zero (an instance restarts); this one never goes back, so
/// that rates stay right.
#[derive(Debug)]
pub(super) struct Mirror {
    counter: IntCounter,
    last: Mutex<u64>,
}

impl Mirror {
    pub(super) fn new(counter: IntCounter) -> Mirror {
        Mirror { counter, last: Mutex::new(0) }
    }

    /// Takes over the other counter's value.
    pub(super) fn set(&self, total: u64) {
        let mut last = lock(&self.last);
        self.counter.inc_by(if total >= *last { total - *last } else { total });
        *last = total;
    }
}

/// [`Mirror`]s by label values that are met at run time.
#[derive(Debug)]
pub(super) struct Mirrors {
    family: IntCounterVec,
    known: Mutex<HashMap<Vec<&'static str>, Mirror>>,
}

impl Mirrors {
    pub(super) fn new(family: IntCounterVec) -> Mirrors {
        Mirrors { family, known: Mutex::default() }
    }

    pub(super) fn set(&self, labels: &[&'static str], total: u64) {
        lock(&self.known)
            .entry(labels.to_vec())
            .or_insert_with(|| Mirror::new(self.family.with_label_values(labels)))
            .set(total);
    }
}
