//! Receive windows between two connections with different scales (RFC 7323 section 2).
//!
//! Edges are positions in the spliced range: 64-bit, relative to its first byte.

/// The bytes that a window field means.
#[inline(always)]
pub const fn bytes(raw: u16, scale: u8) -> i64 {
    (raw as i64) << (scale & 15)
}

/// The window field for a number of bytes: rounded down, 65,535 at most, 0 for a negative number.
#[inline(always)]
pub const fn raw(bytes: i64, scale: u8) -> u16 {
    let units = if bytes < 0 { 0 } else { bytes >> (scale & 15) };
    if units > u16::MAX as i64 { u16::MAX } else { units as u16 }
}

/// A window field that means `most` bytes at most, or a unit if that is more; with `most` zero, the field
/// as it is.
#[inline(always)]
pub const fn at_most(field: u16, most: u32, scale: u8) -> u16 {
    let units = most >> (scale & 15);
    let units = if units == 0 { 1 } else { units };
    if most != 0 && field as u32 > units { units as u16 } else { field }
}

/// The edge to promise a sender: as far as the receiver's (`edge`) and `limit` both reach, and never
/// left of what was `promised` before.
#[inline(always)]
pub const fn promise(promised: i64, edge: i64, limit: i64) -> i64 {
    let reach = if edge < limit { edge } else { limit };
    if reach > promised { reach } else { promised }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn windows_are_limited() {
        assert_eq!(at_most(500, 0, 3), 500);
        assert_eq!(at_most(500, 799, 3), 99);
        assert_eq!(at_most(50, 799, 3), 50);
        assert_eq!(at_most(0, 799, 3), 0);
        assert_eq!(at_most(2, 799, 10), 1);
        assert_eq!(at_most(65_535, u32::MAX, 0), 65_535);
    }

    proptest! {
        #[test]
        fn converted_windows_lose_less_than_a_unit(window in 0i64..1 << 31, scale in 0u8..15) {
            let back = bytes(raw(window, scale), scale);
            prop_assert!(back <= window);
            if window >> scale <= 65_535 {
                prop_assert!(window - back < 1 << scale);
            }
        }

        #[test]
        fn the_promise_never_moves_left_nor_beyond_the_receiver(
            edges in proptest::collection::vec((0i64..1 << 20, 0i64..1 << 20), 1..20)
        ) {
            let (mut promised, mut farthest) = (0, 0);
            for (edge, limit) in edges {
                let next = promise(promised, edge, limit);
                farthest = edge.max(farthest);
                prop_assert!(next >= promised && next <= farthest);
                promised = next;
            }
        }
    }
}
