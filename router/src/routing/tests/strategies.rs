//! Choices that no prefix makes.

use super::*;

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
            bad.note_failure(FailureKind::Status, blame(failed));
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
