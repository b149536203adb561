//! Copies of an inference component: first the home, then its host, then another one.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::Strategy,
    fleet::{Variant, testing},
    routing::{PrefixKey, Reason, Ticket, choose},
};

/// Component `c` with so many copies on each host.
fn component(threshold: u32, copies: &[u32]) -> Arc<Variant> {
    let mut config = testing::config(Strategy::PrefixAware, threshold, &vec![1.0; copies.len()]);
    let places: Vec<_> = copies
        .iter()
        .enumerate()
        .flat_map(|(host, copies)| (0..*copies).map(move |slot| (host, slot)))
        .collect();
    testing::components(&mut config, &[("c", &places)]);
    let fleet = testing::fleet(config);
    Arc::clone(&fleet.endpoints()[0].components["c"])
}

fn take(variant: &Variant, key: u64) -> (Ticket, Reason) {
    let mut rng = fastrand::Rng::with_seed(key);
    let choice = choose(variant, Some(PrefixKey(key)), &[], &mut rng).expect("all can serve");
    (choice.ticket, choice.reason)
}

#[test]
fn a_home_at_the_threshold_hands_over_to_its_host_and_then_to_another() {
    for key in 0..200 {
        let component = component(2, &[3, 3]);
        let tickets: Vec<_> = (0..13).map(|_| take(&component, key)).collect();
        let home = tickets[0].0.instance().clone();
        let reasons: Vec<_> = tickets.iter().map(|(_, reason)| *reason).collect();
        use Reason::{Home, Overflow, SameHost, Saturated};
        let expected = [&[Home; 2][..], &[SameHost; 4], &[Overflow; 6], &[Saturated]].concat();
        assert_eq!(reasons, expected, "{key}");
        for (ticket, reason) in &tickets {
            let instance = ticket.instance();
            match reason {
                Home => assert_eq!(instance.id, home.id),
                SameHost => assert!(instance.host == home.host && instance.id != home.id),
                Overflow => assert_ne!(instance.host, home.host),
                _ => {}
            }
            assert!(instance.in_flight() <= 3);
        }
    }
}

#[test]
fn hosts_with_one_copy_each_are_as_instances_are() {
    let component = component(1, &[1, 1, 1]);
    let reasons: Vec<_> = (0..4).map(|_| take(&component, 7)).collect();
    let reasons: Vec<_> = reasons.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [Reason::Home, Reason::Overflow, Reason::Overflow, Reason::Saturated]);
}

/// Each copy is a home of its share of prefixes, and one more takes its share from all.
#[test]
fn prefixes_are_shared_by_copies_and_few_move() {
    const KEYS: u64 = 4_000;
    let homes = |component: &Variant| -> Vec<String> {
        (0..KEYS).map(|key| take(component, key).0.instance().url.clone()).collect()
    };
    let (before, after) = (homes(&component(9, &[2, 2])), homes(&component(9, &[2, 2, 1])));
    let mut counts: HashMap<&str, u64> = HashMap::new();
    before.iter().for_each(|home| *counts.entry(home).or_default() += 1);
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| count.abs_diff(KEYS / 4) < KEYS / 20), "{counts:?}");
    let moved: Vec<_> =
        before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    assert!(moved.iter().all(|(_, after)| after.contains("10.0.0.3")), "to the new copy alone");
    assert!((moved.len() as u64).abs_diff(KEYS / 5) < KEYS / 25, "{}", moved.len());
}
