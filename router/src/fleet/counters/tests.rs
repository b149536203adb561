use std::collections::HashSet;

use super::*;

/// Two tables of `len` slots, as of two processes, each of which counts the other's requests.
fn pair(len: u32) -> (Counters, Counters) {
    let table = || -> (Counters, Arc<Foreign>) {
        let words: Arc<[AtomicU32]> = (0..2 * len).map(|_| AtomicU32::new(0)).collect();
        let base = NonNull::from(&*words).cast();
        // SAFETY: so many zeroed words, eight bytes apart, kept alive by the clones of their owner.
        unsafe {
            let own = Counters::mapped(base, 8, len, Box::new(Arc::clone(&words)));
            (own, Arc::new(Foreign::mapped(base, 8, len, Box::new(words))))
        }
    };
    let ((one, one_seen), (two, two_seen)) = (table(), table());
    one.count_other(two_seen);
    two.count_other(one_seen);
    (one, two)
}

#[test]
fn what_counts_is_what_all_processes_have() {
    let (one, two) = pair(2);
    let (here, there) = (one.take().expect("free"), two.take().expect("free"));
    assert_eq!(here.increment_below(3), Some(1));
    assert_eq!(there.increment_below(3), Some(2));
    assert_eq!((here.get(), there.get()), (2, 2));
    assert!(!here.increment_from(1) && here.increment_from(2));
    assert_eq!((here.increment_below(3), there.increment_below(3)), (None, None));
    assert_eq!((here.get(), one.total(), two.total()), (3, 2, 1), "a refusal leaves nothing");
    let other = one.take().expect("free");
    assert_eq!(other.get(), 0, "another instance's slot");
    // The other process dies: whatever it had in flight is gone.
    one.forget_others();
    assert_eq!((here.get(), here.increment_below(3)), (2, Some(3)));
    (0..3).for_each(|_| here.decrement());
    there.decrement();
    assert_eq!((one.faults(), two.faults()), (0, 0));
}

#[test]
fn two_processes_together_never_exceed_a_limit() {
    const LIMIT: u32 = 7;
    let (one, two) = pair(1);
    let (one, two) = (one.take().expect("free"), two.take().expect("free"));
    let barrier = std::sync::Barrier::new(8);
    let taken: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (counter, barrier) = (if n % 2 == 0 { &one } else { &two }, &barrier);
                scope.spawn(move || {
                    let mut taken = 0;
                    barrier.wait();
                    for round in 0..20_000 {
                        let seen = counter.get();
                        let got = match round % 2 {
                            0 => counter.increment_below(LIMIT),
                            _ if seen < LIMIT => counter.increment_from(seen).then_some(seen + 1),
                            _ => None,
                        };
                        if let Some(count) = got {
                            assert!(count <= LIMIT);
                            taken += 1;
                            counter.decrement();
                        }
                    }
                    taken
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(taken > 0);
    assert_eq!((one.get(), two.get()), (0, 0));
}

#[test]
fn slots_are_kept_for_who_has_them_elsewhere() {
    let counters = Counters::heap(6);
    let kept = [("a", 4), ("b", 0), ("too high", 6), ("twice", 4), ("b", 1)];
    counters.keep_for(kept.map(|(place, slot)| (place.to_owned(), slot)));
    assert_eq!(counters.free(), 6);
    let a = counters.take_for("a").expect("kept");
    assert_eq!(a.slot(), 4);
    let others: Vec<_> = (0..4).map(|_| counters.take_for("c").expect("free")).collect();
    assert_eq!(others.iter().map(Counter::slot).collect::<Vec<_>>(), [1, 2, 3, 5]);
    counters.take().expect_err("the last one is kept");
    // One that was kept is kept again: the other process still has requests in it.
    drop(a);
    counters.take_for("c").expect_err("both are kept");
    let all: HashSet<_> = counters.kept().into_iter().collect();
    assert_eq!(all, HashSet::from([("a".to_owned(), 4), ("b".to_owned(), 0)]));
    counters.forget_others();
    assert_eq!((counters.free(), counters.kept().len()), (2, 0));
    drop(others);
    assert_eq!(counters.free(), 6);
}

#[test]
fn slots_are_lent_until_none_is_left_and_come_back() {
    let counters = Counters::heap(3);
    let taken: Vec<_> = (0..3).map(|_| counters.take().expect("free")).collect();
    assert_eq!(counters.take().expect_err("all are taken"), NoSlot { slots: 3 });
    assert_eq!(taken.iter().map(Counter::slot).collect::<Vec<_>>(), [0, 1, 2]);
    drop(taken);
    assert_eq!((counters.free(), counters.faults()), (3, 0));
    // The one unused for longest is next, so that a stray release would show.
    drop(counters.take());
    assert_eq!(counters.take().expect("free").slot(), 1);
}

#[test]
fn the_limit_is_exact_under_64_threads() {
    let counter = Counters::heap(1).take().expect("free");
    let barrier = std::sync::Barrier::new(64);
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    (0..100).filter(|_| counter.increment_below(1000).is_some()).count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).sum()
    });
    assert_eq!((taken, counter.get()), (1000, 1000));
    (0..1000).for_each(|_| counter.decrement());
}

#[test]
fn the_edges_of_the_count_hold() {
    let counters = Counters::heap(1);
    let counter = counters.take().expect("free");
    assert_eq!(counter.increment_below(0), None);
    assert!(!counter.increment_from(7) && counter.increment_from(0));
    counter.decrement();
    counter.decrement();
    assert_eq!((counter.get(), counters.faults()), (0, 1), "a second release changes nothing");
    counter.word().store(u32::MAX, Relaxed);
    assert!(counter.increment_below(u32::MAX).is_none() && !counter.increment_from(u32::MAX));
}

#[test]
fn a_slot_that_does_not_end_at_zero_is_not_lent_again() {
    let counters = Counters::heap(2);
    let counter = counters.take().expect("free");
    assert_eq!(counter.increment_below(9), Some(1));
    drop(counter);
    assert_eq!((counters.free(), counters.faults(), counters.total()), (1, 1, 1));
    let next = counters.take().expect("one is left");
    assert_eq!((next.slot(), next.get()), (1, 0));
    assert!(counters.take().is_err());
}

#[test]
fn mapped_memory_is_used_in_its_own_stride_and_kept_alive() {
    let words: Arc<[AtomicU32]> = (0..8).map(|_| AtomicU32::new(0)).collect();
    let base = NonNull::from(&*words).cast();
    // SAFETY: four zeroed words, eight bytes apart, kept alive by the clone of their owner.
    let counters = unsafe { Counters::mapped(base, 8, 4, Box::new(Arc::clone(&words))) };
    let taken: Vec<_> = (0..4).map(|_| counters.take().expect("free")).collect();
    drop(counters);
    for counter in &taken {
        assert_eq!(counter.increment_below(5), Some(1));
    }
    let seen: Vec<_> = words.iter().map(|word| word.load(Relaxed)).collect();
    assert_eq!(seen, [1, 0, 1, 0, 1, 0, 1, 0]);
    // As a kernel program does it.
    words[2].fetch_sub(1, Relaxed);
    assert_eq!(taken[1].get(), 0);
    taken.iter().filter(|c| c.slot() != 1).for_each(Counter::decrement);
    drop(taken);
    assert_eq!(Arc::strong_count(&words), 1, "the owner goes with the last counter");
}
