//! Who the client is, behind proxies that can be trusted to say so.

use std::net::{IpAddr, SocketAddr};

use super::head::{Fields, list_tokens};

/// The address of the client, by the `X-Forwarded-For` of a request that came from `peer`: of the list
/// that it makes with the peer at its end, the right-most address that is not `trusted`, because what
/// stands before that one anybody can have written. Where all are trusted, the first of them.
///
/// An entry that is no address (`unknown`, a name) ends what can be known: the proxy that added it is
/// the client then. Entries may have a port.
pub fn client(fields: Fields<'_>, peer: IpAddr, trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    let peer = peer.to_canonical();
    if !trusted(peer) {
        return peer;
    }
    // From left to right: the last untrusted address so far, or the first of the trusted ones that
    // nothing but trusted ones follow.
    let mut found = None;
    for entry in fields.all("x-forwarded-for").flat_map(list_tokens) {
        match address(entry) {
            Some(address) if found.is_none() || !trusted(address) => found = Some(address),
            Some(_) => {}
            None => found = None,
        }
    }
    found.unwrap_or(peer)
}

/// Reads an address with or without a port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let address = text
        .parse()
        .or_else(|_| text.parse().map(|address: SocketAddr| address.ip()))
        .or_else(|_| text.trim_start_matches('[').trim_end_matches(']').parse())
        .ok()?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::{Limits, parse_request};

    fn is_trusted(address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10)
    }

    fn client_of(lines: &[&str], peer: &str) -> String {
        let fields: String =
            lines.iter().map(|line| format!("X-Forwarded-For: {line}\r\n")).collect();
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let head = parse_request(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        let peer = peer.parse().expect("an address");
        client(head.headers(text.as_bytes()), peer, is_trusted).to_string()
    }

    #[test]
    fn the_right_most_untrusted_hop_is_the_client() {
        for (lines, peer, expected) in [
            (&[][..], "10.0.0.1", "10.0.0.1"),
            (&["192.0.2.1"], "10.0.0.1", "192.0.2.1"),
            (&["203.0.113.9, 192.0.2.1"], "10.0.0.1", "192.0.2.1"),
            (&["203.0.113.9, 192.0.2.1, 10.0.0.7"], "10.0.0.1", "192.0.2.1"),
            (&["203.0.113.9", "192.0.2.1", "10.0.0.7, 10.0.0.8"], "10.0.0.1", "192.0.2.1"),
            (&["10.0.0.5, 10.0.0.7"], "10.0.0.1", "10.0.0.5"),
            (&["10.9.9.9, 192.0.2.1, 10.0.0.7"], "10.0.0.1", "192.0.2.1"),
            // Written by whoever connected.
            (&["192.0.2.1"], "198.51.100.4", "198.51.100.4"),
            // No address: the one that wrote it is all that is known.
            (&["192.0.2.1, unknown"], "10.0.0.1", "10.0.0.1"),
            (&["192.0.2.1, unknown, 10.0.0.7"], "10.0.0.1", "10.0.0.7"),
            (&["unknown, 192.0.2.1"], "10.0.0.1", "192.0.2.1"),
            (&["", " , 192.0.2.1,"], "10.0.0.1", "192.0.2.1"),
            // Forms.
            (&["192.0.2.1:4711"], "10.0.0.1", "192.0.2.1"),
            (&["2001:db8::1"], "10.0.0.1", "2001:db8::1"),
            (&["[2001:db8::1]:4711"], "::ffff:10.0.0.1", "2001:db8::1"),
            (&["[2001:db8::1]"], "10.0.0.1", "2001:db8::1"),
            (&["::ffff:192.0.2.1"], "10.0.0.1", "192.0.2.1"),
        ] {
            assert_eq!(client_of(lines, peer), expected, "{lines:?} from {peer}");
        }
    }

    proptest! {
        /// As found the other way round, from right to left.
        #[test]
        fn as_from_right_to_left(
            entries in prop::collection::vec(
                prop_oneof!["10\\.0\\.0\\.[0-9]", "192\\.0\\.2\\.[0-9]", Just("unknown".to_owned())],
                0..6,
            )
        ) {
            let mut expected: IpAddr = "10.0.0.1".parse().expect("an address");
            for entry in entries.iter().rev() {
                let Ok(address) = entry.parse() else { break };
                expected = address;
                if !is_trusted(address) {
                    break;
                }
            }
            let list = entries.join(", ");
            prop_assert_eq!(client_of(&[&list], "10.0.0.1"), expected.to_string());
        }
    }
}
