//! From allow and deny lists to the entries of the program's trie.
//!
//! A trie answers with the longest prefix alone. So an entry carries what all shorter prefixes
//! around it say as well, and one look-up tells everything about a source.

use std::collections::BTreeMap;

use ipnet::IpNet;
use router_ebpf::guard_rules::{FAMILY_BITS, Family, KEY, key_any, key_v4, key_v6, listed};

/// A prefix: address key and length in bits, the family's bits included. Sorts before all prefixes
/// within it, and after all around it.
pub(super) type Prefix = ([u8; KEY], u32);

/// The trie's entries, with their [`listed`] bits.
///
/// A source may connect if `allow` is empty or has it, and `deny` does not have it: deny wins,
/// whichever prefix is longer. An allow list of one family alone keeps the other out.
pub(super) fn entries(allow: &[IpNet], deny: &[IpNet]) -> BTreeMap<Prefix, u32> {
    let mut entries = BTreeMap::<Prefix, u32>::new();
    if allow.is_empty() {
        for family in [Family::V4, Family::V6] {
            entries.insert((key_any(family, 0), FAMILY_BITS), listed::ALLOW);
        }
    }
    for (nets, bit) in [(allow, listed::ALLOW), (deny, listed::DENY)] {
        for net in nets {
            *entries.entry(prefix(*net)).or_default() |= bit;
        }
    }
    let mut around: Vec<(Prefix, u32)> = Vec::new();
    for (prefix, bits) in &mut entries {
        while around.last().is_some_and(|(outer, _)| !contains(*outer, *prefix)) {
            around.pop();
        }
        *bits |= around.last().map_or(0, |(_, bits)| *bits);
        around.push((*prefix, *bits));
    }
    entries
}

fn prefix(net: IpNet) -> Prefix {
    // Packets of IPv4 clients carry IPv4 addresses, however the configuration writes them.
    if let IpNet::V6(v6) = net
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Some(length) = v6.prefix_len().checked_sub(96)
        && let Ok(v4) = ipnet::Ipv4Net::new(v4, length)
    {
        return prefix(v4.into());
    }
    match net.trunc() {
        IpNet::V4(net) => {
            (key_v4(net.addr().octets(), 0), FAMILY_BITS + u32::from(net.prefix_len()))
        }
        IpNet::V6(net) => {
            (key_v6(net.addr().octets(), 0), FAMILY_BITS + u32::from(net.prefix_len()))
        }
    }
}

fn contains((outer, length): Prefix, (inner, inner_length): Prefix) -> bool {
    let (whole, rest) = ((length / 8) as usize, length % 8);
    length <= inner_length
        && outer[..whole] == inner[..whole]
        && (rest == 0 || (outer[whole] ^ inner[whole]) >> (8 - rest) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// What the kernel's trie answers.
    fn longest(entries: &BTreeMap<Prefix, u32>, address: IpAddr) -> u32 {
        let host = prefix(address.into());
        let matching = entries.iter().filter(|(prefix, _)| contains(**prefix, host));
        matching.max_by_key(|(prefix, _)| prefix.1).map_or(0, |(_, bits)| *bits)
    }

    fn admits(allow: &[&str], deny: &[&str], address: &str) -> bool {
        let entries = entries(&nets(allow), &nets(deny));
        longest(&entries, address.parse().unwrap()) == listed::ALLOW
    }

    #[test]
    fn no_lists_admit_everyone() {
        assert!(admits(&[], &[], "192.0.2.1"));
        assert!(admits(&[], &[], "2001:db8::1"));
    }

    #[test]
    fn a_deny_list_refuses_whom_it_names() {
        assert!(!admits(&[], &["10.0.0.0/8"], "10.255.0.1"));
        assert!(admits(&[], &["10.0.0.0/8"], "11.0.0.1"));
        assert!(!admits(&[], &["2001:db8::/33"], "2001:db8:7fff::1"));
        assert!(admits(&[], &["2001:db8::/33"], "2001:db8:8000::1"));
    }

    #[test]
    fn an_allow_list_refuses_everyone_else() {
        assert!(admits(&["10.0.0.0/8"], &[], "10.1.2.3"));
        assert!(!admits(&["10.0.0.0/8"], &[], "11.1.2.3"));
        assert!(!admits(&["10.0.0.0/8"], &[], "2001:db8::1"), "the other family as well");
        assert!(admits(&["0.0.0.0/0", "::/0"], &[], "2001:db8::1"));
    }

    #[test]
    fn deny_wins_whichever_prefix_is_longer() {
        assert!(!admits(&["10.1.0.0/16"], &["10.0.0.0/8"], "10.1.0.1"));
        assert!(!admits(&["10.0.0.0/8"], &["10.1.0.0/16"], "10.1.0.1"));
        assert!(admits(&["10.0.0.0/8"], &["10.1.0.0/16"], "10.2.0.1"));
        assert!(!admits(&["10.0.0.7/32"], &["10.0.0.7/32"], "10.0.0.7"));
    }

    #[test]
    fn mapped_addresses_are_those_of_ipv4() {
        assert!(!admits(&[], &["::ffff:10.0.0.0/104"], "10.9.9.9"));
        assert!(admits(&[], &["::ffff:10.0.0.0/104"], "11.9.9.9"));
        assert!(!admits(&[], &["::ffff:192.0.2.1/128"], "192.0.2.1"));
    }

    fn net() -> impl Strategy<Value = IpNet> {
        // Few address bits, so that prefixes nest.
        let v4 = (any::<u32>(), 0u8..=32).prop_map(|(bits, length)| {
            IpNet::new(IpAddr::V4((bits & 0xc000_0003).into()), length).unwrap()
        });
        let v6 = (any::<u128>(), 0u8..=128).prop_map(|(bits, length)| {
            IpNet::new(IpAddr::V6((bits & (3 << 126 | 3)).into()), length).unwrap()
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn the_trie_says_what_the_lists_say(
            allow in proptest::collection::vec(net(), 0..8),
            deny in proptest::collection::vec(net(), 0..8),
            source in net(),
        ) {
            let address = source.addr();
            let on = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
            let expected = (allow.is_empty() || on(&allow)) && !on(&deny);
            let found = longest(&entries(&allow, &deny), address);
            prop_assert_eq!(found == listed::ALLOW, expected);
            prop_assert_eq!(found & listed::DENY != 0, on(&deny));
        }
    }
}
