//! TCP timestamps (RFC 7323 section 3) of a connection that two senders speak on.
//!
//! A receiver drops segments whose value is older than what it has seen (PAWS), so values towards
//! one peer never go back, whoever they come from; and an echoed value must be one that the sender
//! has sent.

use super::seq::{before, later};

/// The timestamps option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock, in a unit of its own.
    pub value: u32,
    /// TSecr: the other side's value that the sender has seen last.
    pub echo: u32,
}

/// The value for a packet that a socket sends itself while its connection is not spliced. `offset`
/// is what is added to the socket's values for good, `last` the latest value that the peer was sent:
/// when another sender's clock was faster, the offset grows.
#[inline(always)]
pub fn own(value: u32, offset: &mut u32, last: &mut u32) -> u32 {
    let shifted = value.wrapping_add(*offset);
    if before(shifted, *last) {
        *offset = offset.wrapping_add(last.wrapping_sub(shifted));
    } else {
        *last = shifted;
    }
    *last
}

/// A bound that lies so far back is moved along: values compare rightly over half their range alone,
/// which a clock in microseconds goes through in 35 minutes.
const MAX_COMPARABLE_AGE: u32 = 1 << 30;

/// `bound`, but not too far before `now` to be compared with it.
#[inline(always)]
const fn near(bound: u32, now: u32) -> u32 {
    if now.wrapping_sub(bound) as i32 > MAX_COMPARABLE_AGE as i32 {
        now.wrapping_sub(MAX_COMPARABLE_AGE)
    } else {
        bound
    }
}

/// The value for a packet of the other connection: shifted, and not before `floor`, the last value
/// that went out with a packet of the socket itself; which is moved along with `last`, the last value
/// of all.
#[inline(always)]
pub fn forwarded(value: u32, offset: u32, floor: &mut u32, last: u32) -> u32 {
    *floor = near(*floor, last);
    later(value.wrapping_add(offset), *floor)
}

/// The echo for the one whose values were shifted by `offset`: shifted back, and within what it has
/// sent, `oldest..=newest`; `oldest` is moved along.
#[inline(always)]
pub fn echo(echo: u32, offset: u32, oldest: &mut u32, newest: u32) -> u32 {
    *oldest = near(*oldest, newest);
    let back = later(echo.wrapping_sub(offset), *oldest);
    if before(newest, back) { newest } else { back }
}

/// The echo for a socket whose values were shifted by `offset`: not after the `newest` it has sent.
#[inline(always)]
pub const fn own_echo(echo: u32, offset: u32, newest: u32) -> u32 {
    let back = echo.wrapping_sub(offset);
    if before(newest, back) { newest } else { back }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn echoes_stay_within_what_was_sent() {
        assert_eq!(echo(1050, 1000, &mut 40, 60), 50);
        assert_eq!(echo(1030, 1000, &mut 40, 60), 40);
        assert_eq!(echo(1070, 1000, &mut 40, 60), 60);
        assert_eq!(echo(5, 10, &mut (u32::MAX - 20), u32::MAX - 2), u32::MAX - 4);
    }

    /// A stream goes on for weeks, or the clock counts microseconds.
    #[test]
    fn bounds_are_moved_along() {
        let (mut floor, mut oldest, mut last) = (1000, 1000, 1000);
        let mut clock = 1000u32;
        for _ in 0..20 {
            clock = clock.wrapping_add(1 << 29);
            let value = forwarded(clock, 7, &mut floor, last);
            assert_eq!(value, clock.wrapping_add(7));
            last = value;
            assert_eq!(echo(value, 7, &mut oldest, clock), clock);
        }
    }

    proptest! {
        #[test]
        fn own_values_never_go_back(
            start: u32, steps in proptest::collection::vec((0u32..100, any::<bool>()), 0..50)
        ) {
            let (mut offset, mut last, mut clock) = (0, start, start);
            for (step, other) in steps {
                let previous = last;
                clock = clock.wrapping_add(step);
                if other {
                    // Another sender, with a faster clock.
                    last = last.wrapping_add(2 * step);
                } else {
                    prop_assert_eq!(own(clock, &mut offset, &mut last), last);
                }
                prop_assert!(!before(last, previous));
            }
        }
    }
}
