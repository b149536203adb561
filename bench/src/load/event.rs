//! Timed events: server-sent events of a fixed size that hold when they were sent.
//!
//! `data: TTTTTTTTTTTTTTTT NNNNNNNN xxx…x` and an empty line, where T is the monotonic clock in
//! nanoseconds and N the number of the event in its stream, both hexadecimal.

use std::str::FromStr;

use rustix::time::{ClockId, clock_gettime};

/// Bytes of an event that carry meaning; the smallest event has the empty line behind them.
const HEADER: usize = 32;
/// Smallest size of an event, in bytes.
pub const MIN_SIZE: usize = HEADER + 2;
/// Largest size of an event, in bytes.
pub const MAX_SIZE: usize = 16 << 20;

/// Nanoseconds of a clock that all processes of the machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// An event of `size` bytes, to be stamped.
pub fn blank(size: usize) -> Vec<u8> {
    let mut event = vec![b'x'; size.max(MIN_SIZE)];
    event[..HEADER].copy_from_slice(b"data: 0000000000000000 00000000 ");
    let end = event.len() - 2;
    event[end..].copy_from_slice(b"\n\n");
    event
}

/// Puts the time and the number into a blank event.
pub fn stamp(event: &mut [u8], number: u32, now: u64) {
    hex(&mut event[6..22], now);
    hex(&mut event[23..31], u64::from(number));
}

fn hex(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

/// What was asked of the backend, in the request header [`Plan::HEADER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Events to send.
    pub events: u32,
    /// Bytes of each.
    pub size: usize,
    /// Microseconds from one to the next; 0 sends as fast as the connection takes them.
    pub gap_us: u64,
    /// Microseconds to wait before the first, so that streams do not tick in step.
    pub phase_us: u64,
    /// Chunked if true, else with a content length.
    pub chunked: bool,
    /// After the last event, keep the response open until the client leaves.
    pub hold: bool,
}

impl Plan {
    /// Name of the header.
    pub const HEADER: &str = "x-bench-plan";
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { events, size, gap_us, phase_us, chunked, hold } = self;
        write!(f, "{events} {size} {gap_us} {phase_us} {} {}", *chunked as u8, *hold as u8)
    }
}

impl FromStr for Plan {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a plan is: events size gap_us phase_us chunked hold";
        let numbers: Vec<u64> =
            text.split_ascii_whitespace().filter_map(|part| part.parse().ok()).collect();
        let &[events, size, gap_us, phase_us, chunked, hold] = &numbers[..] else {
            return Err(FORM);
        };
        let size = size as usize;
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
            return Err("an event has 34 bytes to 16 MiB");
        }
        let events = u32::try_from(events).map_err(|_| FORM)?;
        Ok(Self { events, size, gap_us, phase_us, chunked: chunked != 0, hold: hold != 0 })
    }
}

/// Finds events in the payload of a response, however it is cut into reads.
#[derive(Debug)]
pub struct Reader {
    size: usize,
    at: usize,
    header: [u8; HEADER],
    number: u32,
}

/// The payload is not the events that were asked for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the payload is not event {0} at its place: bytes were lost, added or changed")]
pub struct Corrupt(pub u32);

impl Reader {
    /// A reader of events of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self { size, at: 0, header: [0; HEADER], number: 0 }
    }

    /// Takes payload; calls `complete` with the time of sending of each event that is complete.
    ///
    /// # Errors
    /// When an event is out of order or has no header.
    pub fn feed(&mut self, mut data: &[u8], mut complete: impl FnMut(u64)) -> Result<(), Corrupt> {
        while !data.is_empty() {
            if self.at < HEADER {
                let take = data.len().min(HEADER - self.at);
                self.header[self.at..self.at + take].copy_from_slice(&data[..take]);
            }
            let take = data.len().min(self.size - self.at);
            self.at += take;
            data = &data[take..];
            if self.at == self.size {
                complete(self.finish()?);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<u64, Corrupt> {
        let number =
            |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let corrupt = Corrupt(self.number);
        if &self.header[..6] != b"data: "
            || number(&self.header[23..31]) != Some(self.number.into())
        {
            return Err(corrupt);
        }
        self.at = 0;
        self.number = self.number.wrapping_add(1);
        number(&self.header[6..22]).ok_or(corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_they_are_cut() {
        let mut bytes = Vec::new();
        for number in 0..3 {
            let mut event = blank(50);
            stamp(&mut event, number, 1000 + u64::from(number));
            bytes.extend(event);
        }
        for cut in 1..60 {
            let (mut reader, mut times) = (Reader::new(50), Vec::new());
            for piece in bytes.chunks(cut) {
                reader.feed(piece, |time| times.push(time)).unwrap();
            }
            assert_eq!(times, [1000, 1001, 1002]);
        }
        let mut reader = Reader::new(50);
        assert_eq!(reader.feed(&bytes[50..100], |_| {}), Err(Corrupt(0)));
    }

    #[test]
    fn a_plan_survives_its_header() {
        let plan =
            Plan { events: 5, size: 200, gap_us: 10, phase_us: 3, chunked: true, hold: false };
        assert_eq!(plan.to_string().parse(), Ok(plan));
        assert!("1 2 3".parse::<Plan>().is_err());
        assert!("1 2 3 4 1 0".parse::<Plan>().is_err());
    }
}
