//! Arithmetic on 32-bit sequence numbers, which wrap (RFC 9293 section 3.4).

/// How far `to` is after `from`, in bytes; negative when it is before. Right while the two are less
/// than 2 GiB apart.
#[inline(always)]
pub const fn distance(from: u32, to: u32) -> i64 {
    to.wrapping_sub(from) as i32 as i64
}

/// Whether `a` comes before `b`.
#[inline(always)]
pub const fn before(a: u32, b: u32) -> bool {
    distance(b, a) < 0
}

/// The later of two numbers.
#[inline(always)]
pub const fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// `number`, moved by `bytes`.
#[inline(always)]
pub const fn shift(number: u32, bytes: i64) -> u32 {
    number.wrapping_add(bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shift_and_distance_are_inverse(from: u32, bytes in -(1i64 << 31)..(1i64 << 31)) {
            let to = shift(from, bytes);
            prop_assert_eq!(distance(from, to), bytes);
            prop_assert_eq!(before(to, from), bytes < 0);
            if bytes > -(1 << 31) {
                prop_assert_eq!(later(from, to), if bytes < 0 { from } else { to });
            }
        }
    }
}
