//! Instances that are excluded, down, or draining.

use super::*;

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
