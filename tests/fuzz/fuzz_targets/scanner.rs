//! The prefix of a body: whole and in pieces, and beside a tree where the body is valid JSON.
//!
//! The input is a line of settings and the body: a byte for the API, two for the prefix length, then
//! the sizes of the pieces up to the line's end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::prefix::properties;

fuzz_target!(|data: &[u8]| {
    let [api, high, low, rest @ ..] = data else { return };
    let line = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    let (sizes, body) = rest.split_at(line);
    let api = properties::APIS[usize::from(*api) % properties::APIS.len()];
    let length = usize::from(u16::from_be_bytes([*high, *low])) % 3000;
    let sizes: Vec<_> = sizes.iter().map(|&size| usize::from(size)).collect();
    properties::scan(api, length, &sizes, body.get(1..).unwrap_or_default());
});
