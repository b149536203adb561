//! The prefix of a body: whole and in pieces, and beside a tree where the body is valid JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::prefix::properties;

fuzz_target!(|data: &[u8]| properties::scan_seed(data));
