//! Instances that are overloaded, and how many failed requests may take out.

use super::*;

#[test]
fn an_overloaded_home_overflows_and_is_home_again_when_all_are() {
    let variant = variant(Strategy::PrefixAware, 10, &[1.0; 3]);
    let key = PrefixKey(5);
    let order: Vec<_> = rank(&variant, key).into_iter().map(|(i, _)| i).collect();
    let mut rng = rng();
    let mut take = |exclude: &[InstanceId]| {
        choose(&variant, Some(key), exclude, &mut rng).map(|c| (c.reason, c.ticket.instance().id))
    };
    assert_eq!(take(&[]), Ok((Reason::Home, order[0].id)));
    order[0].note_overload(None);
    assert_eq!(take(&[]), Ok((Reason::Overflow, order[1].id)));
    assert_eq!(take(&[order[1].id]), Ok((Reason::Overflow, order[2].id)));
    order[1].note_overload(None);
    assert_eq!(take(&[]), Ok((Reason::Overflow, order[2].id)));
    let others = [order[1].id, order[2].id];
    assert_eq!(take(&others), Ok((Reason::Home, order[0].id)), "better than nobody");
    order[2].note_overload(None);
    assert_eq!(take(&[]), Ok((Reason::Home, order[0].id)), "all are, so none is preferred");
    down(&order[0]);
    assert_eq!(take(&[]), Ok((Reason::Failover, order[1].id)));
}

#[test]
fn no_strategy_prefers_an_overloaded_instance_and_none_lets_it_idle_for_an_error() {
    for strategy in [Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random] {
        let mut limited = config(strategy, 2, &[1.0; 3]);
        limited.endpoints[0].variants[0].max_in_flight = NonZeroU32::new(4);
        let variant = only_variant(&fleet(limited));
        variant.instances[1].note_overload(None);
        let mut rng = rng();
        let mut take = |n| choose(&variant, Some(PrefixKey(n)), &[], &mut rng);
        let held: Vec<_> = (0..8).map(|n| take(n).expect("room for eight")).collect();
        let loads: Vec<_> = variant.instances.iter().map(|i| i.in_flight()).collect();
        assert_eq!(loads, [4, 0, 4], "{strategy}");
        let last = take(8).expect("it may take some all the same");
        assert_eq!(last.ticket.instance().id, variant.instances[1].id);
        drop((held, last));
    }
}

#[test]
fn passive_checks_leave_a_share_of_the_instances_alone() {
    for (n, percent, expected) in
        [(1, 50, 0), (2, 50, 1), (3, 50, 1), (4, 50, 2), (4, 0, 0), (4, 100, 4), (1, 100, 1)]
    {
        let mut config = config(Strategy::PrefixAware, 10, &vec![1.0; n]);
        config.health.max_ejection_percent = percent;
        let variant = only_variant(&fleet(config));
        for n in 1..=20 {
            variant.instances.iter().for_each(|i| i.note_failure(FailureKind::Status, blame(n)));
        }
        let ejected = variant.instances.iter().filter(|i| i.status().ejected()).count();
        assert_eq!(ejected, expected, "{percent} % of {n}");
    }
    // Those that are down serve nobody, and are no reason to eject more of the others.
    let variant = variant(Strategy::PrefixAware, 10, &[1.0; 4]);
    down(&variant.instances[0]);
    down(&variant.instances[1]);
    for n in 1..=20 {
        variant.instances.iter().for_each(|i| i.note_failure(FailureKind::Status, blame(n)));
    }
    assert_eq!(variant.instances[2..].iter().filter(|i| i.available()).count(), 1);
}

#[test]
fn a_suspect_instance_gets_a_few_requests_until_one_is_answered() {
    use crate::fleet::health::TRIALS;
    for strategy in [Strategy::PrefixAware, Strategy::LeastOutstandingRequests, Strategy::Random] {
        let variant = variant(strategy, 100, &[1.0; 3]);
        let hung = &variant.instances[1];
        let waited = std::time::Duration::from_secs(60);
        for n in 1..=3 {
            assert!(!hung.status().suspect());
            hung.note_unanswered(waited, blame(n));
        }
        assert!(hung.status().suspect() && hung.available(), "{strategy}");
        let mut rng = rng();
        let mut take = |n| choose(&variant, Some(PrefixKey(n)), &[], &mut rng).expect("three");
        let held: Vec<_> = (0..100).map(&mut take).collect();
        assert_eq!(hung.in_flight(), TRIALS, "{strategy}");
        assert!(variant.instances.iter().all(|i| i.in_flight() > 0));
        hung.note_answering();
        assert!(!hung.status().suspect());
        let more: Vec<_> = (0..100).map(&mut take).collect();
        assert!(hung.in_flight() > 10, "{strategy}");
        drop((held, more));
    }
}

#[test]
fn with_others_gone_a_suspect_instance_takes_all() {
    let variant = variant(Strategy::PrefixAware, 100, &[1.0; 2]);
    let waited = std::time::Duration::from_secs(60);
    (1..=3).for_each(|n| variant.instances[0].note_unanswered(waited, blame(n)));
    (1..=3).for_each(|n| variant.instances[1].note_unanswered(waited, blame(n)));
    let suspects = variant.instances.iter().filter(|i| i.status().suspect()).count();
    assert_eq!(suspects, 1, "no more than the share");
    down(&variant.instances[1]);
    let mut rng = rng();
    let held: Vec<_> = (0..20)
        .map(|n| choose(&variant, Some(PrefixKey(n)), &[], &mut rng).expect("better than nobody"))
        .collect();
    assert!(held.iter().all(|c| c.ticket.instance().id == variant.instances[0].id));
}
