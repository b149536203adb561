//! Addresses that cannot be listened on together.

use std::net::{IpAddr, SocketAddr};

/// Whether both cannot be bound: one is the other, or covers it. Port 0 is a different one each time.
/// `[::]` serves IPv4 as well.
pub(super) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |all: IpAddr, one: IpAddr| {
        let one = one.to_canonical();
        all.to_canonical() == one || all.is_unspecified() && (all.is_ipv6() || one.is_ipv4())
    };
    a.port() == b.port() && a.port() != 0 && (covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

/// What is wrong with the admin address beside those for clients, if anything.
pub(super) fn admin_conflict(admin: Option<SocketAddr>, listen: &[SocketAddr]) -> Option<String> {
    let admin = admin?;
    let other = listen.iter().find(|address| overlap(admin, **address))?;
    Some(format!("{admin} is taken by {other}, where clients are served: use another port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_when_one_covers_the_other() {
        let overlap =
            |a: &str, b: &str| overlap(a.parse().expect("valid"), b.parse().expect("valid"));
        for (a, b, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!((overlap(a, b), overlap(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
