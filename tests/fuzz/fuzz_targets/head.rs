//! Request and response heads: whole and in pieces, and as they are sent on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::http::properties;

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"HTTP/") {
        properties::response(data);
    } else {
        properties::request(data);
    }
});
