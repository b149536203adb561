use proptest::prelude::*;

use super::*;

fn source(header: &[u8]) -> Result<Option<String>, ProxyHeaderError> {
    let parsed = parse(header)?.expect("complete");
    assert_eq!(parsed.len, header.len());
    Ok(parsed.source.map(|source| source.to_string()))
}

fn line(text: &str) -> Result<Option<String>, ProxyHeaderError> {
    source(format!("{text}\r\n").as_bytes())
}

/// A header of version 2.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    out.extend([command, family]);
    out.extend((rest.len() as u16).to_be_bytes());
    out.extend(rest);
    out
}

const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdd, 0xd5, 0x00, 0x50];

#[test]
fn lines_of_version_1() {
    for (text, expected) in [
        ("PROXY TCP4 192.0.2.1 198.51.100.2 56789 80", Some("192.0.2.1:56789")),
        ("PROXY TCP4 255.255.255.255 0.0.0.0 0 65535", Some("255.255.255.255:0")),
        ("PROXY TCP6 2001:db8::1 ::1 4711 443", Some("[2001:db8::1]:4711")),
        ("PROXY UNKNOWN", None),
        ("PROXY UNKNOWN ffff::1 ffff::2 65535 65535", None),
        ("PROXY UNKNOWN whatever", None),
    ] {
        assert_eq!(line(text), Ok(expected.map(str::to_owned)), "{text}");
    }
    let longest = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                   ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535";
    assert!(longest.len() + 2 <= MAX_LINE && line(longest).is_ok());
}

#[test]
fn malformed_lines() {
    for text in [
        "PROXY ",
        "PROXY TCP",
        "PROXY tcp4 192.0.2.1 198.51.100.2 56789 80",
        "PROXY TCP5 192.0.2.1 198.51.100.2 56789 80",
        "PROXY UNKNOWN2",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56789",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56789 80 ",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56789 80 x",
        "PROXY TCP4  192.0.2.1 198.51.100.2 56789 80",
        "PROXY TCP4 192.0.2.01 198.51.100.2 56789 80",
        "PROXY TCP4 192.0.2.256 198.51.100.2 56789 80",
        "PROXY TCP4 192.0.2 198.51.100.2 56789 80",
        "PROXY TCP4 192.0.2.1 198.51.100.2 65536 80",
        "PROXY TCP4 192.0.2.1 198.51.100.2 -1 80",
        "PROXY TCP4 192.0.2.1 198.51.100.2 +1 80",
        "PROXY TCP4 192.0.2.1 198.51.100.2 01 80",
        "PROXY TCP4 2001:db8::1 ::1 4711 443",
        "PROXY TCP6 192.0.2.1 198.51.100.2 56789 80",
        "PROXY TCP6 2001:db8::1%eth0 ::1 4711 443",
        "PROXY TCP4 192.0.2.1 198.51.100.2 56789 80\n",
        "PROXY TCP4 192.0.2.1\t198.51.100.2 56789 80",
    ] {
        assert_eq!(line(text), Err(ProxyHeaderError::Line), "{text}");
    }
    assert_eq!(parse(b"PROXY UNKNOWN \xff\r\n"), Err(ProxyHeaderError::Line));
    // Without an end.
    assert_eq!(parse(&[b"PROXY UNKNOWN ", &[b'x'; 92][..]].concat()), Ok(None));
    assert_eq!(parse(&[b"PROXY UNKNOWN ", &[b'x'; 93][..]].concat()), Err(ProxyHeaderError::Line));
}

#[test]
fn version_2_over_tcp() {
    assert_eq!(source(&binary(0x21, 0x11, &V4)), Ok(Some("192.0.2.1:56789".into())));
    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    v6[15] = 1;
    v6[32..34].copy_from_slice(&4711_u16.to_be_bytes());
    assert_eq!(source(&binary(0x21, 0x21, &v6)), Ok(Some("[2001:db8::1]:4711".into())));
    // Additional fields are passed over, as large as they come.
    for more in [1, 500, usize::from(u16::MAX) - 12] {
        let rest = [&V4[..], &vec![0xff; more]].concat();
        assert_eq!(source(&binary(0x21, 0x11, &rest)), Ok(Some("192.0.2.1:56789".into())));
    }
    // Whose connection it is is not told.
    for (command, family, rest) in [
        (0x20, 0x00, &[][..]),
        (0x20, 0x11, &V4),
        (0x20, 0xff, &[1, 2, 3]),
        (0x21, 0x00, &[]),
        (0x21, 0x00, &[1, 2, 3]),
        (0x21, 0x31, &[0; 216]),
    ] {
        assert_eq!(source(&binary(command, family, rest)), Ok(None), "{command:x} {family:x}");
    }
}

#[test]
fn version_2_with_something_wrong() {
    use ProxyHeaderError::{Missing, Short, Unknown};
    for (command, family, rest, error) in [
        (0x11, 0x11, &V4[..], Unknown),
        (0x31, 0x11, &V4, Unknown),
        (0x22, 0x11, &V4, Unknown),
        (0x2f, 0x11, &V4, Unknown),
        (0x21, 0x12, &V4, Unknown),
        (0x21, 0x22, &[0; 36], Unknown),
        (0x21, 0x41, &V4, Unknown),
        (0x21, 0x01, &V4, Unknown),
        (0x21, 0x11, &V4[..11], Short),
        (0x21, 0x21, &[0; 35], Short),
        (0x21, 0x11, &[], Short),
    ] {
        let header = binary(command, family, rest);
        assert_eq!(parse(&header), Err(error), "{command:x} {family:x}");
    }
    for other in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\r\n\r\n\r\n", b"PROXX ", b"\x16\x03\x01", b"proxy "]
    {
        assert_eq!(parse(other), Err(Missing), "{other:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        properties(&bytes);
    }

    #[test]
    fn nearly_version_1(
        text in "PROXY (TCP4|TCP6|UNKNOWN|TCP)( [0-9a-f:.]{1,15}){0,3}( [0-9]{1,6}){0,3}( |\r|x)?\r?\n?.{0,20}",
    ) {
        properties(text.as_bytes());
    }

    #[test]
    fn nearly_version_2(
        command in prop_oneof![Just(0x20_u8), Just(0x21), any::<u8>()],
        family in prop_oneof![Just(0x11_u8), Just(0x21), Just(0x31), any::<u8>()],
        rest in prop::collection::vec(any::<u8>(), 0..300),
        behind in prop::collection::vec(any::<u8>(), 0..20),
        cut in 0_usize..40,
    ) {
        let mut bytes = binary(command, family, &rest);
        bytes.extend(behind);
        properties(&bytes);
        properties(&bytes[..bytes.len().saturating_sub(cut)]);
    }

    /// Another's headers say here what they say there.
    #[test]
    fn as_another_parser_reads_it(
        source: SocketAddr, destination: SocketAddr, behind in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let (source, destination) = match (source, destination) {
            (SocketAddr::V4(a), SocketAddr::V4(b)) => (SocketAddr::from(a), SocketAddr::from(b)),
            (a, b) => {
                let v6 = |address: SocketAddr| match address.ip() {
                    IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
                    IpAddr::V6(ip) => SocketAddr::new(ip.into(), address.port()),
                };
                (v6(a), v6(b))
            }
        };
        let text = ppp::v1::Addresses::from((source, destination)).to_string();
        let addresses = ppp::v2::Addresses::from((source, destination));
        let version = ppp::v2::Version::Two | ppp::v2::Command::Proxy;
        let bytes = ppp::v2::Builder::with_addresses(version, ppp::v2::Protocol::Stream, addresses)
            .write_tlv(ppp::v2::Type::NoOp, &[1, 2, 3])
            .and_then(|builder| builder.build())
            .expect("a header");
        for header in [text.into_bytes(), bytes] {
            let mut sent = header.clone();
            sent.extend(&behind);
            let parsed = parse(&sent).expect("valid").expect("complete");
            prop_assert_eq!((parsed.len, parsed.source), (header.len(), Some(source)));
        }
    }
}
