//! Overflow at the threshold, and the limit of requests in flight.

use super::*;

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
