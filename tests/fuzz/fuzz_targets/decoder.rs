//! A body with a content coding: whole and in pieces, within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::prefix::properties;

fuzz_target!(|data: &[u8]| properties::decide_seed(data));
