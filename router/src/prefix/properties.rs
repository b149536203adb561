//! What must hold for every body, whoever made it up: for property tests and fuzzing.

use super::{
    Api, Decider, Known, Scanner,
    scanner::{Prefix, reference},
};
use crate::config::PrefixEnd;

/// The APIs that are scanned, each in its own way.
pub const APIS: [Api; 14] = [
    Api::ChatCompletions,
    Api::Completions,
    Api::Responses,
    Api::Embeddings,
    Api::Messages,
    Api::Generate,
    Api::Invocations,
    Api::Other,
    Api::Pooling,
    Api::CountTokens,
    Api::Rerank,
    Api::Score,
    Api::Tokenize,
    Api::Speech,
];

/// Scans a body whole and in pieces of these sizes, over and over; the result is the same, its memory
/// is bounded by the length, and where the body is valid JSON a tree says the same.
pub fn scan(api: Api, prefix_length: usize, sizes: &[usize], body: &[u8]) {
    for end in [PrefixEnd::Length, PrefixEnd::FirstUserMessage] {
        scan_to(end, api, prefix_length, sizes, body);
    }
}

fn scan_to(end: PrefixEnd, api: Api, prefix_length: usize, sizes: &[usize], body: &[u8]) {
    let mut scanner = Scanner::new(api, prefix_length);
    scanner.end_at(end);
    scanner.feed(body);
    let whole = scanner.finish();
    assert!(whole.text.len() <= 24 * prefix_length + 48, "{} bytes", whole.text.len());
    assert!(whole.units <= prefix_length);
    assert_eq!(in_pieces(end, api, prefix_length, sizes, body), whole);
    if let Some(expected) = reference::prefix(api, prefix_length, end, body) {
        assert_eq!(whole, expected, "{}", String::from_utf8_lossy(body));
    }
}

/// As [`scan`], of a line of settings and the body: a byte for the API, two for the prefix length,
/// then the sizes of the pieces up to the line's end.
pub fn scan_seed(data: &[u8]) {
    let [api, high, low, rest @ ..] = data else { return };
    let line = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    let (sizes, body) = rest.split_at(line);
    let api = APIS[usize::from(*api) % APIS.len()];
    let length = usize::from(u16::from_be_bytes([*high, *low])) % 13_000;
    let sizes: Vec<_> = sizes.iter().map(|&size| usize::from(size)).collect();
    scan(api, length, &sizes, body.get(1..).unwrap_or_default());
}

/// Decides about a body whole and in pieces of these sizes, over and over: what is found is the same.
pub fn decide(coding: &str, known: Known<'_>, sizes: &[usize], body: &[u8]) {
    let fields = || [(&b"content-encoding"[..], coding.as_bytes())].into_iter();
    let mut whole = Decider::new(known, fields());
    whole.feed(body);
    let mut cut = Decider::new(known, fields());
    let mut rest = body;
    for size in sizes.iter().chain(&[1]).cycle() {
        let (now, later) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        // Going on although it has enough must not matter.
        let _ = cut.feed(now);
        if later.is_empty() {
            break;
        }
        rest = later;
    }
    assert_eq!(cut.finish(), whole.finish());
}

/// As [`decide`], of a line of settings and the body: a byte for the coding, one for the bytes that are
/// looked at, then the sizes of the pieces up to the line's end.
pub fn decide_seed(data: &[u8]) {
    const CODINGS: [&str; 6] = ["gzip", "deflate", "br", "zstd", "gzip, gzip", "gzip, zstd, br"];
    let [coding, bytes, rest @ ..] = data else { return };
    let line = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    let (sizes, body) = rest.split_at(line);
    let known = Known {
        api: Api::ChatCompletions,
        prefix_length: 20,
        decision_bytes: 1 << (bytes % 24),
        skip: &[b"current time:"[..].into()].into(),
        end: if bytes & 0x80 == 0 { PrefixEnd::Length } else { PrefixEnd::FirstUserMessage },
        model: false,
        tenant: false,
    };
    let sizes: Vec<_> = sizes.iter().map(|&size| usize::from(size)).collect();
    let coding = CODINGS[usize::from(*coding) % CODINGS.len()];
    decide(coding, known, &sizes, body.get(1..).unwrap_or_default());
}

fn in_pieces(
    end: PrefixEnd,
    api: Api,
    prefix_length: usize,
    sizes: &[usize],
    body: &[u8],
) -> Prefix {
    let mut scanner = Scanner::new(Api::Other, 7);
    // In use again, after something else.
    scanner.feed(b"{\"messages\":[{\"content\":\"\\");
    scanner.reset(api, prefix_length);
    scanner.end_at(end);
    let mut rest = body;
    for size in sizes.iter().chain(&[1]).cycle() {
        let (now, later) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        // Stopping where it says so, as the gateway does, must not matter.
        if scanner.feed(now) || later.is_empty() {
            break;
        }
        rest = later;
    }
    scanner.finish()
}
