//! Everything at once: many threads, any state, fleets and health that change meanwhile.

use super::*;

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
