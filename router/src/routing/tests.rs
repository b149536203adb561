//! Properties of the choice, over whole fleets.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Barrier},
};

use proptest::prelude::*;

use super::*;
use crate::config::Strategy;
use crate::fleet::{
    Counters, FailureKind, Fleet, InstanceId, Variant,
    testing::{config, down, fleet, only_variant, variant},
};

const KEYS: u64 = 10_000;

/// Keys as prefixes hash to.
fn keys() -> impl Iterator<Item = PrefixKey> {
    (0..KEYS).map(|n| PrefixKey(xxhash_rust::xxh3::xxh3_64(format!("prompt {n}").as_bytes())))
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(7)
}

/// The URL of each key's home.
fn homes(variant: &Variant) -> Vec<String> {
    keys()
        .map(|key| {
            let choice = choose(variant, Some(key), &[], &mut rng()).expect("there are instances");
            assert_eq!(choice.reason, Reason::Home);
            choice.ticket.instance().url.clone()
        })
        .collect()
}

fn equal(n: usize) -> Arc<Variant> {
    variant(Strategy::PrefixAware, 1024, &vec![1.0; n])
}

/// The fleet of `n` instances without the one at `index`.
fn without(n: usize, index: usize) -> Arc<Variant> {
    let mut config = config(Strategy::PrefixAware, 1024, &vec![1.0; n]);
    config.endpoints[0].variants[0].instances.remove(index);
    only_variant(&fleet(config))
}

#[test]
fn removing_or_adding_an_instance_moves_only_its_share() {
    for n in 2..=12 {
        let all = homes(&equal(n));
        for index in 0..n {
            if n == 2 {
                // With one left, routing by prefix does not apply.
                continue;
            }
            let changed = format!("http://10.0.0.{}:8000", index + 1);
            let fewer = homes(&without(n, index));
            let moved: Vec<_> = all.iter().zip(&fewer).filter(|(a, b)| a != b).collect();
            assert!(
                moved.len() as f64 <= 1.3 / n as f64 * KEYS as f64,
                "{} of {KEYS} keys move when one of {n} instances goes",
                moved.len()
            );
            // Read the other way round, this is the instance being added.
            assert!(moved.iter().all(|(home, _)| **home == changed), "a key of another one moved");
        }
    }
}

#[test]
fn two_instances_share_the_keys_and_the_one_left_takes_all() {
    let homes = homes(&equal(2));
    let first = homes.iter().filter(|url| url.contains("10.0.0.1:")).count();
    assert!(first as f64 <= 1.3 / 2.0 * KEYS as f64 && first as f64 >= 0.7 / 2.0 * KEYS as f64);
    let choice = choose(&without(2, 0), keys().next(), &[], &mut rng()).expect("one is left");
    assert_eq!((choice.reason, choice.home), (Reason::Single, None));
}

#[test]
fn seven_equal_instances_get_equal_shares() {
    let mut shares: HashMap<String, u32> = HashMap::new();
    for url in homes(&equal(7)) {
        *shares.entry(url).or_default() += 1;
    }
    assert_eq!(shares.len(), 7);
    for (url, share) in shares {
        let percent = f64::from(share) / KEYS as f64 * 100.0;
        assert!((13.3..=15.4).contains(&percent), "{url} has {percent} %");
    }
}

#[test]
fn shares_follow_the_weights_and_a_changed_weight_moves_keys_one_way() {
    let before = homes(&variant(Strategy::PrefixAware, 1024, &[1.0, 1.0, 1.0, 1.0]));
    let after = homes(&variant(Strategy::PrefixAware, 1024, &[1.0, 1.0, 1.0, 3.0]));
    let heavy = "http://10.0.0.4:8000";
    let share = after.iter().filter(|url| *url == heavy).count() as f64 / KEYS as f64;
    assert!((0.48..0.52).contains(&share), "half of the weight, {share} of the keys");
    let strayed = before.iter().zip(&after).filter(|(a, b)| a != b && *b != heavy).count();
    assert_eq!(strayed, 0, "keys moved between instances whose weights are the same");
}

#[test]
fn every_gateway_ranks_alike_whatever_the_order_of_its_configuration() {
    let forward = equal(9);
    let mut reversed = config(Strategy::PrefixAware, 1024, &[1.0; 9]);
    reversed.endpoints[0].variants[0].instances.reverse();
    let reversed = only_variant(&fleet(reversed));
    for key in keys().take(1000) {
        let urls = |v: &Variant| -> Vec<_> {
            rank(v, key).into_iter().map(|(i, score)| (i.url.clone(), score.to_bits())).collect()
        };
        assert_eq!(urls(&forward), urls(&reversed));
        let choice = choose(&forward, Some(key), &[], &mut rng()).expect("there are instances");
        assert_eq!(choice.ticket.instance().url, urls(&forward)[0].0, "the best score is home");
    }
}

/// The ranking is a promise between gateway versions and machines: these must never change.
#[test]
fn rankings_are_pinned() {
    let variant = variant(Strategy::PrefixAware, 1024, &[1.0, 2.0, 1.0, 0.5]);
    // The last digit of each URL, best first.
    let order = |key| -> Vec<u8> {
        let last = |url: &str| url.as_bytes()["http://10.0.0.".len()] - b'0';
        rank(&variant, PrefixKey(key)).iter().map(|(i, _)| last(&i.url)).collect()
    };
    let orders = [0, 1, 2, 0x0123_4567_89ab_cdef, u64::MAX].map(order);
    assert_eq!(orders.concat(), PINNED);
    let (_, score) = &rank(&variant, PrefixKey(1))[0];
    assert_eq!(score.to_bits(), PINNED_SCORE);
}
const PINNED: &[u8] = &[4, 2, 3, 1, 3, 4, 2, 1, 2, 1, 4, 3, 3, 2, 1, 4, 1, 4, 2, 3];
const PINNED_SCORE: u64 = 4621840727098513545;

#[test]
fn exactly_the_excess_overflows() {
    let variant = variant(Strategy::PrefixAware, 10, &[1.0; 4]);
    let key = keys().next();
    let mut rng = rng();
    let mut take = || choose(&variant, key, &[], &mut rng).expect("there are instances");
    let choices: Vec<_> = (0..25).map(|_| take()).collect();
    let home = choices[0].home.expect("routing by prefix applies");
    for (n, choice) in choices.iter().enumerate() {
        let at_home = choice.ticket.instance().id == home;
        let expected = if n < 10 { Reason::Home } else { Reason::Overflow };
        assert_eq!((choice.reason, at_home), (expected, n < 10), "request {n}");
    }
    // The excess goes to the least busy, so it is spread evenly.
    let mut loads: Vec<_> = variant.instances.iter().map(|i| i.in_flight()).collect();
    loads.sort_unstable();
    assert_eq!(loads, [5, 5, 5, 10]);
}

#[test]
fn exactly_the_excess_overflows_with_64_threads() {
    const THREADS: usize = 64;
    for threshold in [1, 7, 10, 63] {
        for round in 0..50 {
            let variant = variant(Strategy::PrefixAware, threshold, &[1.0; 7]);
            let key = PrefixKey(round);
            let barrier = Barrier::new(THREADS);
            let choices: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|seed| {
                        let (variant, barrier) = (&variant, &barrier);
                        scope.spawn(move || {
                            let mut rng = fastrand::Rng::with_seed(seed as u64);
                            barrier.wait();
                            choose(variant, Some(key), &[], &mut rng).expect("instances")
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().expect("no panic")).collect()
            });
            let count = |reason| choices.iter().filter(|c| c.reason == reason).count();
            let threshold = threshold as usize;
            assert_eq!(count(Reason::Home), threshold);
            // Six other instances take up to the threshold each, the rest is over everywhere.
            let overflow = (THREADS - threshold).min(6 * threshold);
            assert_eq!(count(Reason::Overflow), overflow);
            assert_eq!(count(Reason::Saturated), THREADS - threshold - overflow);
            let loads: Vec<_> = variant.instances.iter().map(|i| i.in_flight()).collect();
            assert_eq!(loads.iter().sum::<u32>() as usize, THREADS);
            if threshold == 1 {
                // All over: every one goes to the least loaded at that moment.
                assert!(loads.iter().all(|n| (9..=10).contains(n)), "{loads:?}");
            }
            drop(choices);
            assert!(variant.instances.iter().all(|i| i.in_flight() == 0));
        }
    }
}

#[test]
fn all_at_the_threshold_the_least_loaded_serves() {
    let variant = variant(Strategy::PrefixAware, 2, &[1.0; 3]);
    let key = PrefixKey(5);
    let mut rng = rng();
    let mut take = || choose(&variant, Some(key), &[], &mut rng).expect("there are instances");
    let mut held: Vec<_> = (0..6).map(|_| take()).collect();
    assert!(variant.instances.iter().all(|i| i.in_flight() == 2));
    // Ties by rank: the home first, then the next.
    let order: Vec<_> = rank(&variant, key).into_iter().map(|(i, _)| i.id).collect();
    for expected in order {
        held.push(take());
        let last = held.last().expect("just pushed");
        assert_eq!((last.reason, last.ticket.instance().id), (Reason::Saturated, expected));
    }
    // One that frees a place is the least loaded.
    let freed = held.remove(3).ticket.instance().id;
    let next = take();
    assert_eq!(next.ticket.instance().id, freed);
}

#[test]
fn one_hot_prefix_leaves_the_affinity_of_others_alone() {
    let variant = variant(Strategy::PrefixAware, 5, &[1.0; 5]);
    let mut rng = rng();
    let hot = PrefixKey(42);
    // Ten times the threshold for one prefix, so that its home is full and the others get some.
    let _storm: Vec<_> =
        (0..10).map(|_| choose(&variant, Some(hot), &[], &mut rng).expect("instances")).collect();
    let full: Vec<_> = variant.instances.iter().filter(|i| i.in_flight() >= 5).collect();
    assert_eq!(full.len(), 1, "only the home of the hot prefix is full");
    for key in keys().take(1000) {
        let choice = choose(&variant, Some(key), &[], &mut rng).expect("instances");
        let home = rank(&variant, key)[0].0.id;
        if home == full[0].id {
            assert_eq!(choice.reason, Reason::Overflow);
        } else {
            assert_eq!((choice.reason, choice.ticket.instance().id), (Reason::Home, home));
        }
    }
}

#[test]
fn an_excluded_or_dead_home_fails_over_to_the_next_rank() {
    let variant = variant(Strategy::PrefixAware, 2, &[1.0; 4]);
    let key = PrefixKey(9);
    let order: Vec<_> = rank(&variant, key).into_iter().map(|(i, _)| i).collect();
    let mut rng = rng();
    {
        let choice = choose(&variant, Some(key), &[order[0].id], &mut rng).expect("three left");
        assert_eq!(choice.reason, Reason::Failover);
        assert_eq!(choice.ticket.instance().id, order[1].id);
        assert_eq!(choice.home, Some(order[0].id));
    }
    down(&order[0]);
    let mut take = || choose(&variant, Some(key), &[], &mut rng).expect("three are left");
    let held: Vec<_> = (0..2).map(|_| take()).collect();
    for choice in &held {
        assert_eq!(choice.reason, Reason::Failover);
        assert_eq!(choice.ticket.instance().id, order[1].id);
    }
    // The threshold holds for the substitute as well.
    let third = take();
    assert_eq!(third.reason, Reason::Overflow);
    assert!(third.ticket.instance().id == order[2].id || third.ticket.instance().id == order[3].id);
    drop((held, third));
    // It comes back, and its keys with it.
    crate::fleet::testing::up(&order[0]);
    let back = take();
    assert_eq!((back.reason, back.ticket.instance().id), (Reason::Home, order[0].id));
}

#[test]
fn a_draining_home_gives_its_keys_to_the_next_rank_for_good() {
    let mut draining = config(Strategy::PrefixAware, 10, &[1.0; 4]);
    draining.endpoints[0].variants[0].instances[1].drain = true;
    let draining = only_variant(&fleet(draining));
    assert_eq!(homes(&draining), homes(&without(4, 1)));
}

#[test]
fn with_fewer_than_two_able_instances_there_is_no_affinity() {
    let variant = variant(Strategy::PrefixAware, 1, &[1.0; 3]);
    down(&variant.instances[0]);
    down(&variant.instances[2]);
    let mut rng = rng();
    // The only one serves, threshold or not.
    let held: Vec<_> = keys()
        .take(20)
        .map(|key| choose(&variant, Some(key), &[], &mut rng).expect("one is left"))
        .collect();
    assert!(held.iter().all(|c| c.reason == Reason::Single && c.home.is_none()));
    assert_eq!(variant.instances[1].in_flight(), 20);
}

#[test]
fn when_nothing_is_well_something_is_tried_and_affinity_is_kept() {
    let variant = equal(3);
    variant.instances.iter().for_each(|i| down(i));
    let mut rng = rng();
    for key in keys().take(100) {
        let choice = choose(&variant, Some(key), &[], &mut rng).expect("tried all the same");
        assert_eq!(choice.reason, Reason::LastResort);
        assert_eq!(choice.ticket.instance().id, rank(&variant, key)[0].0.id);
    }
    // An instance that is well is preferred to all others, also when it failed nobody yet.
    crate::fleet::testing::up(&variant.instances[1]);
    let choice = choose(&variant, keys().next(), &[], &mut rng).expect("one is well");
    assert_eq!(
        (choice.reason, choice.ticket.instance().id),
        (Reason::Single, variant.instances[1].id)
    );
    // Once it has failed this request, the others are better than an error.
    let exclude = [variant.instances[1].id];
    let choice = choose(&variant, keys().next(), &exclude, &mut rng).expect("others are left");
    assert_eq!(choice.reason, Reason::LastResort);
    assert_ne!(choice.ticket.instance().id, exclude[0]);
}

#[test]
fn no_instance_is_an_error_that_says_why() {
    let mut rng = rng();
    let mut fail = |variant: &Variant, exclude: &[InstanceId]| {
        choose(variant, Some(PrefixKey(1)), exclude, &mut rng).expect_err("none can serve")
    };
    for strategy in [Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random] {
        assert_eq!(fail(&variant(strategy, 1, &[]), &[]), NoInstance::None);
        let mut draining = config(strategy, 1, &[1.0, 1.0]);
        draining.endpoints[0].variants[0].instances.iter_mut().for_each(|i| i.drain = true);
        assert_eq!(fail(&only_variant(&fleet(draining)), &[]), NoInstance::None);
        let two = variant(strategy, 1, &[1.0, 1.0]);
        let all: Vec<_> = two.instances.iter().map(|i| i.id).collect();
        assert_eq!(fail(&two, &all), NoInstance::Exhausted);
    }
}

#[test]
fn max_in_flight_is_never_exceeded_and_the_excess_is_refused() {
    for strategy in [Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random] {
        let mut limited = config(strategy, 2, &[1.0; 3]);
        limited.endpoints[0].variants[0].max_in_flight = NonZeroU32::new(4);
        let variant = only_variant(&fleet(limited));
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|seed| {
                    let variant = &variant;
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(seed);
                        choose(variant, Some(PrefixKey(seed % 3)), &[], &mut rng)
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert!(variant.instances.iter().all(|i| i.in_flight() == 4), "{strategy}");
        let refused = results.iter().filter(|r| r.is_err()).count();
        assert_eq!(refused, 32 - 12);
        assert!(results.iter().filter_map(|r| r.as_ref().err()).all(|e| e.status() == 429));
    }
}

#[test]
fn least_outstanding_takes_the_fewest_in_flight_and_breaks_ties_fairly() {
    let variant = variant(Strategy::LeastOutstandingRequests, 1, &[1.0; 4]);
    let mut rng = rng();
    let held: Vec<_> =
        (0..40).map(|_| choose(&variant, None, &[], &mut rng).expect("instances")).collect();
    assert!(held.iter().all(|c| c.reason == Reason::LeastOutstanding));
    assert!(variant.instances.iter().all(|i| i.in_flight() == 10));
    drop(held);
    let mut first = [0; 4];
    for _ in 0..4000 {
        let choice = choose(&variant, None, &[], &mut rng).expect("instances");
        let id = choice.ticket.instance().id;
        first[variant.instances.iter().position(|i| i.id == id).expect("one of them")] += 1;
    }
    assert!(first.iter().all(|n| (850..1150).contains(n)), "ties went {first:?}");
}

#[test]
fn least_outstanding_goes_by_weight() {
    let variant = variant(Strategy::LeastOutstandingRequests, 1, &[3.0, 1.0]);
    let mut rng = rng();
    let _held: Vec<_> =
        (0..40).map(|_| choose(&variant, None, &[], &mut rng).expect("instances")).collect();
    assert_eq!(variant.instances[0].in_flight(), 30);
}

#[test]
fn an_instance_that_fails_fast_does_not_win_least_outstanding() {
    let variant = variant(Strategy::LeastOutstandingRequests, 1, &[1.0; 3]);
    let bad = &variant.instances[0];
    let mut rng = rng();
    // The good ones are busy for long, the bad one is done at once with a 500.
    let mut held = Vec::new();
    let mut failed = 0;
    for _ in 0..300 {
        let choice = choose(&variant, None, &[], &mut rng).expect("instances");
        if choice.ticket.instance().id == bad.id {
            failed += 1;
            bad.note_failure(FailureKind::Status);
        } else {
            held.push(choice);
        }
    }
    assert_eq!(failed, 5, "it is ejected after five failures in a row");
}

#[test]
fn random_is_uniform_over_able_instances() {
    let variant = variant(Strategy::Random, 1, &[1.0; 4]);
    down(&variant.instances[2]);
    let mut rng = rng();
    let mut counts = [0; 4];
    for key in keys().take(3000) {
        let choice = choose(&variant, Some(key), &[], &mut rng).expect("instances");
        assert_eq!(choice.reason, Reason::Random);
        let id = choice.ticket.instance().id;
        counts[variant.instances.iter().position(|i| i.id == id).expect("one of them")] += 1;
    }
    assert_eq!(counts[2], 0);
    assert!([0, 1, 3].iter().all(|i| (880..1120).contains(&counts[*i])), "{counts:?}");
}

#[test]
fn requests_without_a_prefix_go_to_the_least_loaded() {
    let variant = equal(3);
    let mut rng = rng();
    let held: Vec<_> =
        (0..9).map(|_| choose(&variant, None, &[], &mut rng).expect("instances")).collect();
    assert!(held.iter().all(|c| c.reason == Reason::LeastOutstanding && c.home.is_none()));
    assert!(variant.instances.iter().all(|i| i.in_flight() == 3));
}

#[test]
fn after_a_storm_every_counter_is_zero() {
    let counters = Counters::heap(16);
    let config = config(Strategy::PrefixAware, 3, &[1.0; 5]);
    let fleet = Fleet::build(&Arc::new(config), None, &counters, &crate::metrics::Metrics::new())
        .expect("enough counters");
    let variant = only_variant(&fleet);
    std::thread::scope(|scope| {
        for seed in 0..16 {
            let variant = &variant;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut held: Vec<Ticket> = Vec::new();
                for n in 0..20_000 {
                    match rng.u8(..4) {
                        0 if !held.is_empty() => {
                            drop(held.swap_remove(rng.usize(..held.len())));
                        }
                        1 if !held.is_empty() => {
                            let ticket = held.swap_remove(rng.usize(..held.len()));
                            // What the kernel program does at the last byte.
                            ticket.instance().counter().decrement();
                            ticket.released_by_kernel();
                        }
                        _ if held.len() < 8 => {
                            let key = (n % 3 > 0).then(|| PrefixKey(rng.u64(..4)));
                            let exclude = [variant.instances[rng.usize(..5)].id];
                            let exclude = &exclude[..rng.usize(..2)];
                            held.push(choose(variant, key, exclude, &mut rng).expect("any").ticket);
                        }
                        _ => held.clear(),
                    }
                }
            });
        }
    });
    assert_eq!((counters.total(), counters.faults()), (0, 0));
    assert!(variant.instances.iter().all(|i| i.in_flight() == 0));
}

proptest! {
    /// Whatever the fleet's state: a choice is an able instance that was not excluded, counted once;
    /// and it is home exactly when the home can take it.
    #[test]
    fn a_choice_is_always_right(
        weights in prop::collection::vec(0.1..8.0_f64, 1..10),
        states in prop::collection::vec(0..4_u8, 10),
        loads in prop::collection::vec(0..6_u32, 10),
        excluded in prop::collection::vec(any::<bool>(), 10),
        threshold in 1..5_u32,
        strategy in prop::sample::select(&[
            Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random,
        ]),
        key in any::<u64>(),
    ) {
        let mut config = config(strategy, threshold, &weights);
        for (instance, state) in config.endpoints[0].variants[0].instances.iter_mut().zip(&states) {
            instance.drain = *state == 1;
        }
        let variant = only_variant(&fleet(config));
        let mut exclude = Vec::new();
        let mut held = Vec::new();
        for (n, instance) in variant.instances.iter().enumerate() {
            for _ in 0..loads[n] {
                prop_assert!(instance.counter().increment_below(u32::MAX).is_some());
                held.push(Ticket::counted(instance));
            }
            if states[n] == 2 {
                down(instance);
            }
            if excluded[n] {
                exclude.push(instance.id);
            }
        }
        let key = PrefixKey(key);
        let candidate = |i: &&Arc<crate::fleet::Instance>| {
            i.available() && !exclude.contains(&i.id)
        };
        let able = variant.instances.iter().filter(|i| i.available()).count();
        let before: u32 = variant.instances.iter().map(|i| i.in_flight()).sum();
        match choose(&variant, Some(key), &exclude, &mut fastrand::Rng::with_seed(1)) {
            Err(error) => {
                prop_assert_ne!(error, NoInstance::AtLimit);
                let left = |i: &Arc<crate::fleet::Instance>| {
                    !i.is_draining() && !exclude.contains(&i.id)
                };
                prop_assert!(!variant.instances.iter().any(left));
            }
            Ok(choice) => {
                let chosen = choice.ticket.instance();
                prop_assert!(!exclude.contains(&chosen.id) && !chosen.is_draining());
                let any = variant.instances.iter().any(|i| candidate(&i));
                prop_assert_eq!(chosen.available(), any);
                prop_assert_eq!(choice.reason == Reason::LastResort, !any);
                let after: u32 = variant.instances.iter().map(|i| i.in_flight()).sum();
                prop_assert_eq!(after, before + 1);
                if strategy == Strategy::PrefixAware && any && able >= 2 {
                    let ranked = rank(&variant, key);
                    let home = ranked.iter().map(|(i, _)| i).find(|i| !i.is_draining());
                    let home = home.expect("there are able ones");
                    prop_assert_eq!(choice.home, Some(home.id));
                    let first = ranked.iter().map(|(i, _)| i).find(candidate);
                    let first = first.expect("there are candidates");
                    // The choice itself is counted by now.
                    let was = |i: &crate::fleet::Instance| {
                        i.in_flight() - u32::from(i.id == chosen.id)
                    };
                    if was(first) < threshold {
                        prop_assert_eq!(chosen.id, first.id);
                        let expected =
                            if first.id == home.id { Reason::Home } else { Reason::Failover };
                        prop_assert_eq!(choice.reason, expected);
                    } else if variant.instances.iter().filter(candidate).any(|i| was(i) < threshold) {
                        prop_assert_eq!(choice.reason, Reason::Overflow);
                        prop_assert!(was(chosen) < threshold);
                    } else {
                        prop_assert_eq!(choice.reason, Reason::Saturated);
                        let load = |i: &crate::fleet::Instance| f64::from(was(i)) / i.weight();
                        for other in variant.instances.iter().filter(candidate) {
                            prop_assert!(load(chosen) <= load(other));
                        }
                    }
                }
                drop(choice);
                let after: u32 = variant.instances.iter().map(|i| i.in_flight()).sum();
                prop_assert_eq!(after, before);
            }
        }
    }
}

/// A request may wait long for its body, and choose from the fleet that it began with.
#[test]
fn a_request_that_began_before_all_instances_were_replaced_is_still_served() {
    use arc_swap::ArcSwap;

    for strategy in [Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random] {
        let (counters, metrics) = (Counters::heap(8), crate::metrics::Metrics::new());
        let build = |config, previous: Option<&Fleet>| {
            let fleet = Fleet::build(&Arc::new(config), previous, &counters, &metrics);
            Arc::new(fleet.expect("enough counters"))
        };
        let old = build(config(strategy, 10, &[1.0; 3]), None);
        let current = ArcSwap::new(Arc::clone(&old));
        let mut blue = config(strategy, 10, &[1.0; 3]);
        let instances = &mut blue.endpoints[0].variants[0].instances;
        instances.iter_mut().for_each(|i| i.drain = true);
        instances[0].url = "http://10.1.0.1:8000".parse().expect("valid");
        build(blue, Some(&old)).replace(&current);
        let mut rng = rng();
        let mut serve = |fleet: &Fleet| {
            choose(&only_variant(fleet), Some(PrefixKey(3)), &[], &mut rng).map(|c| c.reason)
        };
        assert_eq!(serve(&old), Ok(Reason::LastResort));
        assert_eq!(serve(&current.load()), Err(NoInstance::None), "all are draining");
        // One that is removed, then configured again: at no moment is there nobody.
        let held = build(config(strategy, 10, &[1.0; 1]), Some(&old));
        held.replace(&current);
        assert!(serve(&current.load()).is_ok());
    }
}

#[test]
fn health_that_changes_all_the_time_costs_no_request() {
    for strategy in [Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random] {
        let variant = variant(strategy, 2, &[1.0; 4]);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            for instance in &variant.instances {
                scope.spawn(move || {
                    while !stopped() {
                        crate::fleet::testing::flip(instance);
                    }
                });
            }
            let mut rng = rng();
            let mut held = std::collections::VecDeque::new();
            for n in 0..20_000 {
                let choice = choose(&variant, Some(PrefixKey(n % 5)), &[], &mut rng);
                held.push_back(choice.expect("none is leaving").ticket);
                if held.len() > 12 {
                    held.pop_front();
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(variant.instances.iter().all(|i| i.in_flight() == 0));
    }
}
