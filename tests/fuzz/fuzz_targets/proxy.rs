//! Headers of the PROXY protocol: whole, in pieces, and with whatever follows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::net::proxy_protocol;

fuzz_target!(|data: &[u8]| {
    proxy_protocol::properties(data);
});
