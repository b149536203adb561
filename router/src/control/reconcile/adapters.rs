//! Which copies of its base load an adapter.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::control::resources::CopyPlace;

/// How much more than its fair share of adapters a host may have.
const MAX_SHARE: f64 = 1.25;

/// An adapter that wants a place.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) copies: usize,
}

/// The set of each adapter, all of one base: as many of the hosts that the base has copies on as the adapter is to
/// have copies.
///
/// Hosts are ranked for each adapter by its name and their URLs (rendezvous hashing), so that a host that comes or
/// goes changes the sets that it gets into or was in, and hardly any other. No host has more than
/// [`MAX_SHARE`] of the average as long as there is another one: the next in the ranking takes it then.
pub(super) fn sets(adapters: &[Wanted<'_>], base: &[CopyPlace]) -> Vec<Vec<CopyPlace>> {
    let mut hosts: Vec<&CopyPlace> = Vec::new();
    for place in base {
        if hosts.iter().all(|it| it.host != place.host) {
            hosts.push(place);
        }
    }
    if hosts.is_empty() {
        return adapters.iter().map(|_| Vec::new()).collect();
    }
    let size = |adapter: &Wanted<'_>| adapter.copies.min(hosts.len());
    let total: usize = adapters.iter().map(size).sum();
    let most = (MAX_SHARE * total as f64 / hosts.len() as f64).ceil() as usize;
    let mut loads: HashMap<&str, usize> = HashMap::new();
    let mut set = |adapter: &Wanted<'_>| -> Vec<CopyPlace> {
        let seed = xxh3_64_with_seed(adapter.name.as_bytes(), 0);
        let mut ranked: Vec<_> = hosts
            .iter()
            .map(|place| (xxh3_64_with_seed(place.host.as_bytes(), seed), *place))
            .collect();
        ranked.sort_unstable_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        let load = |loads: &HashMap<&str, usize>, host: &str| loads.get(host).copied().unwrap_or(0);
        let (room, full): (Vec<_>, Vec<_>) =
            ranked.into_iter().partition(|(_, place)| load(&loads, &place.host) < most);
        let chosen: Vec<_> = room.into_iter().chain(full).take(size(adapter)).collect();
        for (_, place) in &chosen {
            *loads.entry(&place.host).or_default() += 1;
        }
        chosen.into_iter().map(|(_, place)| place.clone()).collect()
    };
    adapters.iter().map(&mut set).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn hosts(numbers: impl IntoIterator<Item = usize>) -> Vec<CopyPlace> {
        let place = |n| CopyPlace { host: format!("http://10.0.{n}.1:8000"), slot: 0 };
        numbers.into_iter().map(place).collect()
    }

    fn of(adapters: usize, copies: usize, base: &[CopyPlace]) -> Vec<Vec<CopyPlace>> {
        let names: Vec<_> = (0..adapters).map(|n| format!("adapter-{n}")).collect();
        let wanted: Vec<_> = names.iter().map(|name| Wanted { name, copies }).collect();
        sets(&wanted, base)
    }

    fn loads(sets: &[Vec<CopyPlace>]) -> BTreeMap<&str, usize> {
        let mut loads = BTreeMap::new();
        sets.iter().flatten().for_each(|place| *loads.entry(&*place.host).or_default() += 1);
        loads
    }

    /// Places of `after` that are not in `before`.
    fn moved(before: &[Vec<CopyPlace>], after: &[Vec<CopyPlace>]) -> usize {
        let pairs = before.iter().zip(after);
        pairs.map(|(before, after)| after.iter().filter(|it| !before.contains(it)).count()).sum()
    }

    #[test]
    fn hundreds_of_adapters_are_balanced_over_tens_of_hosts() {
        for (adapters, copies, count) in [(300, 2, 20), (500, 1, 30), (200, 3, 10), (40, 1, 40)] {
            let sets = of(adapters, copies, &hosts(0..count));
            let loads = loads(&sets);
            let average = (adapters * copies) as f64 / count as f64;
            let most = *loads.values().max().expect("some");
            assert!(most as f64 <= (1.25 * average).ceil(), "{most} of {average}");
            if average >= 10.0 {
                assert_eq!(loads.len(), count, "every host has some");
                let least = *loads.values().min().expect("some");
                assert!(least as f64 >= 0.5 * average, "{least} of {average}");
            }
        }
    }

    #[test]
    fn a_host_that_comes_takes_its_share_and_one_that_goes_leaves_it() {
        for count in [5, 10, 20, 40] {
            let (adapters, copies) = (400, 2);
            let few = of(adapters, copies, &hosts(0..count));
            let more = of(adapters, copies, &hosts(0..=count));
            let total = (adapters * copies) as f64;
            let share = total / (count + 1) as f64;
            let came = moved(&few, &more) as f64;
            // Hosts that are full send some on, and another one changes whom.
            assert!((0.6 * share..2.0 * share).contains(&came), "{came} of {share}, {count} hosts");
            assert!((moved(&more, &few) as f64) < 2.0 * share);
        }
    }

    #[test]
    fn a_set_has_no_host_twice_and_no_more_than_there_are() {
        let twice = [hosts(0..2), hosts(0..2)].concat();
        let sets = of(5, 3, &twice);
        assert!(sets.iter().all(|set| set.len() == 2 && set[0].host != set[1].host));
        assert_eq!(of(2, 1, &[]), [vec![], vec![]]);
    }

    proptest! {
        /// The sets depend on who is there, and not on how it came to that.
        #[test]
        fn the_order_of_hosts_does_not_matter(
            order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle(), adapters in 1usize..60
        ) {
            prop_assert_eq!(of(adapters, 2, &hosts(order)), of(adapters, 2, &hosts(0..12)));
        }
    }
}
