//! `br`: RFC 7932.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::{Corrupt, Decode};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// `br`.
pub(super) struct Brotli {
    state: Box<State>,
    ended: bool,
}

impl Default for Brotli {
    fn default() -> Self {
        let alloc = StandardAlloc::default;
        // Strict: no windows above the 16 MiB of the RFC.
        Self { state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())), ended: false }
    }
}

impl Decode for Brotli {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize), Corrupt> {
        if self.ended {
            // What follows the stream's end is nobody's.
            return Ok((input.len(), 0));
        }
        let (mut left, mut read) = (input.len(), 0);
        let (mut room, mut made) = (out.len(), 0);
        let mut total = 0;
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            input,
            &mut room,
            &mut made,
            out,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => return Err(Corrupt),
            BrotliResult::ResultSuccess => self.ended = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Ok((read, made))
    }
}
