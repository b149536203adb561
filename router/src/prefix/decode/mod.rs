//! Content codings of a body (RFC 9110 section 8.4), decoded for the decision only: the instance gets
//! the body as it came.
//!
//! A body is decoded as it arrives, at most as far as the decision needs, and within bounds: what comes
//! out is passed on at once and never kept, a stream that grows beyond all proportion is given up, and a
//! decoder's own memory is at most its window (16 MiB for br, 8 MiB for zstd, 32 KiB for the others).

mod brotli;
mod deflate;
mod gzip;
mod zstd;

use self::{brotli::Brotli, deflate::Deflate, gzip::Gzip, zstd::Zstd};

/// Codings that may be applied to a body one after the other.
pub const MAX_CODINGS: usize = 4;
/// Bytes that may come out of any body, however short.
const FREE: u64 = 1 << 20;
/// Bytes that may come out for each that goes in, beyond [`FREE`]. Prompts are compressed to a third, a line
/// of a log over and over to a hundredth.
const RATIO: u64 = 200;
/// Bytes of a body that are decoded at a time.
const BLOCK: usize = 1 << 10;
/// Bytes that come out at a time.
const PIECE: usize = 16 << 10;

/// Why a body cannot be decoded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A coding that is not known, or too many of them.
    Unknown,
    /// Bytes that are not of the coding they are said to be of, or that take too much memory.
    Corrupt,
    /// Much more comes out of it than of any prompt.
    Expansion,
    /// As many bytes have come out as were asked for at most.
    Limit,
}

/// One coding being decoded.
trait Decode: Send {
    /// Decodes some of `input` to `out`. Returns how much was read and written; neither when there is no
    /// more to be had without more input.
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, usize), Corrupt>;
}

/// Bytes that a coding does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Corrupt;

/// Decodes a body that arrives in pieces.
pub struct Decoder {
    /// Of the codings the one that was applied last comes first.
    stages: Vec<Stage>,
    /// Bytes of a block that is not complete.
    pending: Vec<u8>,
    /// Bytes of the body, in whole blocks.
    read: u64,
    enough: bool,
    /// The most that may come out of a stage.
    limit: u64,
    failed: Option<DecodeError>,
}

struct Stage {
    decode: Box<dyn Decode>,
    out: Box<[u8]>,
    /// Bytes that came out.
    made: u64,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let made: Vec<_> = self.stages.iter().map(|stage| stage.made).collect();
        f.debug_struct("Decoder")
            .field("read", &self.read)
            .field("made", &made)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder for a body with these codings (the elements of its `Content-Encoding` fields, in order),
    /// of which at most `limit` bytes come out. `None` when there is nothing to decode.
    pub fn new<'a>(codings: impl Iterator<Item = &'a [u8]>, limit: u64) -> Option<Self> {
        let mut decoder = Self {
            stages: Vec::new(),
            pending: Vec::new(),
            read: 0,
            enough: false,
            limit,
            failed: None,
        };
        for name in codings.filter(|name| !name.eq_ignore_ascii_case(b"identity")) {
            match stage(name) {
                Some(decode) if decoder.stages.len() < MAX_CODINGS => {
                    let out = vec![0; PIECE].into();
                    decoder.stages.insert(0, Stage { decode, out, made: 0 });
                }
                _ => decoder.failed = Some(DecodeError::Unknown),
            }
        }
        (decoder.failed.is_some() || !decoder.stages.is_empty()).then_some(decoder)
    }

    /// Why nothing more can be decoded.
    pub fn failed(&self) -> Option<DecodeError> {
        self.failed
    }

    /// Takes the next bytes of the body. `take` gets what comes out, and says whether it has enough; then
    /// nothing more is decoded. Returns whether more input is of use.
    ///
    /// Decoders get blocks of the same bytes however the body was cut, so that what comes out of a body
    /// that is faulty is the same as well. What is left at the end, [`Decoder::end`] decodes.
    pub fn feed(&mut self, mut input: &[u8], take: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        while !input.is_empty() && self.failed.is_none() && !self.enough {
            if self.pending.is_empty()
                && let Some((block, rest)) = input.split_at_checked(BLOCK)
            {
                self.block(block, take);
                input = rest;
                continue;
            }
            let (now, rest) = input.split_at(input.len().min(BLOCK - self.pending.len()));
            self.pending.extend_from_slice(now);
            input = rest;
            if self.pending.len() == BLOCK {
                self.flush(take);
            }
        }
        self.failed.is_none() && !self.enough
    }

    /// Takes the end of the body.
    pub fn end(&mut self, take: &mut dyn FnMut(&[u8]) -> bool) {
        if self.failed.is_none() && !self.enough {
            self.flush(take);
        }
    }

    fn flush(&mut self, take: &mut dyn FnMut(&[u8]) -> bool) {
        let block = std::mem::take(&mut self.pending);
        self.block(&block, take);
        self.pending = block;
        self.pending.clear();
    }

    fn block(&mut self, block: &[u8], take: &mut dyn FnMut(&[u8]) -> bool) {
        self.read += BLOCK as u64;
        let natural = FREE + RATIO * self.read;
        let bound = match self.limit <= natural {
            true => (self.limit, DecodeError::Limit),
            false => (natural, DecodeError::Expansion),
        };
        match decode(&mut self.stages, block, bound, take) {
            Ok(enough) => self.enough = enough,
            Err(error) => self.failed = Some(error),
        }
    }
}

/// A decoder of the coding of this name (case does not matter, RFC 9110 section 8.4.1).
fn stage(name: &[u8]) -> Option<Box<dyn Decode>> {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if is("gzip") || is("x-gzip") {
        Some(Box::new(Gzip::default()))
    } else if is("deflate") {
        Some(Box::new(Deflate::default()))
    } else if is("br") {
        Some(Box::new(Brotli::default()))
    } else if is("zstd") {
        Some(Box::new(Zstd::default()))
    } else {
        None
    }
}

/// Leads input through all stages. Returns whether `take` has enough.
fn decode(
    stages: &mut [Stage],
    mut input: &[u8],
    bound: (u64, DecodeError),
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, DecodeError> {
    let [stage, rest @ ..] = stages else { return Ok(take(input)) };
    loop {
        let step = stage.decode.step(input, &mut stage.out);
        let (read, made) = step.map_err(|Corrupt| DecodeError::Corrupt)?;
        let room = bound.0 - stage.made;
        let within = (made as u64).min(room);
        stage.made += within;
        if within > 0 && decode(rest, &stage.out[..within as usize], bound, take)? {
            return Ok(true);
        }
        if made as u64 > room {
            return Err(bound.1);
        }
        if read == 0 && made == 0 {
            return Ok(false);
        }
        input = &input[read..];
    }
}

#[cfg(test)]
mod tests;
