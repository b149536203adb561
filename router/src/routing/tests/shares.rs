//! Which share of the keys is whose, and which keys move.

use super::*;

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
