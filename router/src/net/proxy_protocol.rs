//! The header that a load balancer puts in front of a connection's bytes, to say whose they are: the PROXY
//! protocol, versions 1 and 2.
//!
//! Source of every rule: `doc/proxy-protocol.txt` of HAProxy. Whether there is a header is known before
//! the first byte, and never guessed: a client could write one as well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What version 2 begins with (section 2.2).
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest line of version 1, its CRLF included (section 2.1).
const MAX_LINE: usize = 107;
/// Bytes of version 2 in front of the addresses.
const FIXED: usize = 16;

/// Longest header: what version 2 can announce.
pub const MAX_HEADER_BYTES: usize = FIXED + u16::MAX as usize;

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Bytes of the header: the client's own follow.
    pub len: usize,
    /// Where the connection comes from. `None` where the proxy speaks for itself (`LOCAL`, as in health
    /// checks) or does not know (`UNKNOWN`): the connection is what it looks like then.
    pub source: Option<SocketAddr>,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// They begin otherwise.
    #[error("it does not begin with a PROXY protocol header")]
    Missing,
    /// A line of version 1 with something wrong.
    #[error("the line of its PROXY protocol header is malformed")]
    Line,
    /// A version, command or family that version 2 does not have, or not over TCP.
    #[error("its PROXY protocol header has an unknown version, command or address family")]
    Unknown,
    /// The addresses are longer than what is announced.
    #[error("its PROXY protocol header is too short for its addresses")]
    Short,
}

/// Reads the header at the start of `buf`; `None` means that more bytes are needed.
///
/// # Errors
/// There is none, or a wrong one: the connection cannot be served. Told as early as it can be known.
pub fn parse(buf: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let begins = |with: &[u8]| {
        let both = buf.len().min(with.len());
        buf[..both] == with[..both]
    };
    if begins(SIGNATURE) {
        version_2(buf)
    } else if begins(b"PROXY ") {
        version_1(buf)
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

fn version_1(buf: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let seen = &buf[..buf.len().min(MAX_LINE)];
    let Some(end) = seen.windows(2).position(|two| two == b"\r\n") else {
        return if buf.len() < MAX_LINE { Ok(None) } else { Err(ProxyHeaderError::Line) };
    };
    let line = std::str::from_utf8(&seen[..end]).map_err(|_| ProxyHeaderError::Line)?;
    let mut words = line.split(' ').skip(1);
    let source = match words.next() {
        // Whatever else stands in the line is to be ignored.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(addresses::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(addresses::<Ipv6Addr>(words)?),
        _ => return Err(ProxyHeaderError::Line),
    };
    Ok(Some(ProxyHeader { len: end + 2, source }))
}

/// Reads `source destination port port`, and gives the source.
fn addresses<'a, A: std::str::FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<SocketAddr, ProxyHeaderError> {
    let mut address = || words.next()?.parse::<A>().ok();
    let both = (address(), address());
    let port = |word: &str| {
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        let plain = digits && (word == "0" || !word.starts_with('0'));
        word.parse::<u16>().ok().filter(|_| plain)
    };
    let mut port = || words.next().and_then(port);
    let ports = (port(), port());
    match (both, ports, words.next()) {
        ((Some(source), Some(_)), (Some(port), Some(_)), None) => {
            Ok(SocketAddr::new(source.into(), port))
        }
        _ => Err(ProxyHeaderError::Line),
    }
}

fn version_2(buf: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    use ProxyHeaderError::{Short, Unknown};
    let is_local = match buf.get(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(Unknown),
    };
    // Bytes of the addresses, by family and transport; of a LOCAL connection both are to be ignored.
    let bytes = match buf.get(13) {
        None => return Ok(None),
        Some(_) if is_local => 0,
        Some(0x00) => 0,
        Some(0x11) => 12,
        Some(0x21) => 36,
        // A UNIX socket of the proxy's host: nothing to be told apart by.
        Some(0x31) => 0,
        Some(_) => return Err(Unknown),
    };
    let Some(announced) = buf.get(14..16) else { return Ok(None) };
    let announced = usize::from(u16::from_be_bytes([announced[0], announced[1]]));
    if announced < bytes {
        return Err(Short);
    }
    let len = FIXED + announced;
    let Some(rest) = buf.get(FIXED..len) else { return Ok(None) };
    let source = match bytes {
        12 => Some((first::<4>(rest)?.into(), first::<2>(&rest[8..])?)),
        36 => Some((first::<16>(rest)?.into(), first::<2>(&rest[32..])?)),
        _ => None,
    };
    let source =
        source.map(|(ip, port): (IpAddr, _)| SocketAddr::new(ip, u16::from_be_bytes(port)));
    Ok(Some(ProxyHeader { len, source }))
}

fn first<const N: usize>(bytes: &[u8]) -> Result<[u8; N], ProxyHeaderError> {
    bytes.first_chunk().copied().ok_or(ProxyHeaderError::Short)
}

/// What must hold for every input: for property tests and fuzzing.
///
/// # Panics
/// When it does not.
#[cfg(any(test, fuzzing))]
pub fn properties(buf: &[u8]) {
    let whole = parse(buf);
    if let Ok(Some(header)) = whole {
        assert!(header.len <= buf.len() && header.len <= MAX_HEADER_BYTES);
        // What follows changes nothing, and nothing short of it is enough.
        assert_eq!(parse(&buf[..header.len]), whole);
    }
    // What is known early stays true.
    for end in (0..buf.len().min(2000)).step_by(1 + buf.len() / 200) {
        match parse(&buf[..end]) {
            Ok(None) => {}
            early => assert_eq!(early, whole, "at {end}"),
        }
    }
    if whole == Ok(None) {
        assert!(buf.len() < MAX_HEADER_BYTES, "it waits for no end");
    }
}

#[cfg(test)]
#[path = "proxy_protocol_tests.rs"]
mod tests;
