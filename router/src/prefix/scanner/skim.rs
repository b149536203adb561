//! Passing over JSON that does not matter, fast.
//!
//! Nothing is validated: brackets are counted whatever their kind, so that the cost is that of
//! finding quotes and brackets.

/// Passes over the inside of a string. Returns where `input` goes on behind the closing quote; `None`
/// when the string does not end within.
///
/// `escaped` says whether the byte before `input` makes its first one literal, and is kept for the
/// next call.
pub(super) fn string(input: &[u8], escaped: &mut bool) -> Option<usize> {
    // Only quotes are looked for: escapes are far more frequent in prompts. Whether a quote is
    // escaped is decided by the backslashes before it. They are counted back to the last quote at
    // most, so the cost stays linear.
    let mut from = 0;
    loop {
        let end = quote(&input[from..]).map(|at| from + at);
        let before = &input[from..end.unwrap_or(input.len())];
        let odd = if before.last() == Some(&b'\\') || before.is_empty() {
            let run = before.iter().rev().take_while(|&&b| b == b'\\').count();
            let carried = run == before.len() && from == 0 && *escaped;
            (run + usize::from(carried)) % 2 == 1
        } else {
            false
        };
        match end {
            None => {
                *escaped = odd;
                return None;
            }
            Some(at) if odd => from = at + 1,
            Some(at) => {
                *escaped = false;
                return Some(at + 1);
            }
        }
    }
}

/// The first quote. Names and roles are short, and there a plain loop beats the start-up of a vector
/// search.
#[inline]
fn quote(input: &[u8]) -> Option<usize> {
    const SHORT: usize = 12;
    let short = &input[..input.len().min(SHORT)];
    match short.iter().position(|&b| b == b'"') {
        None if input.len() > SHORT => memchr::memchr(b'"', &input[SHORT..]).map(|at| SHORT + at),
        found => found,
    }
}

/// A nested value that is being passed over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nest {
    /// Brackets open.
    pub(super) depth: u64,
    in_string: bool,
    escaped: bool,
}

impl Nest {
    /// Inside `depth` brackets, outside of strings.
    pub(super) fn new(depth: u64) -> Self {
        Self { depth, in_string: false, escaped: false }
    }

    /// Passes over `input`. Returns where it goes on behind the bracket that closes the value; `None`
    /// when the value does not end within.
    pub(super) fn skip(&mut self, input: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.in_string {
                at += string(&input[at..], &mut self.escaped)?;
                self.in_string = false;
            }
            loop {
                at += structural(&input[at..])?;
                let byte = input[at];
                at += 1;
                match byte {
                    b'"' => {
                        self.in_string = true;
                        break;
                    }
                    b'{' | b'[' => self.depth += 1,
                    _ => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return Some(at);
                        }
                    }
                }
            }
        }
    }
}

/// Where the next quote or bracket is.
#[inline]
fn structural(input: &[u8]) -> Option<usize> {
    // Bytes of a line of prose between two structural ones are few; long runs are numbers, and
    // those are passed in blocks that the compiler turns into vector code.
    const NEAR: usize = 16;
    const BLOCK: usize = 32;
    let near = &input[..input.len().min(NEAR)];
    if let Some(at) = near.iter().position(|&b| is_structural(b)) {
        return Some(at);
    }
    let mut at = near.len();
    while let Some(block) = input.get(at..at + BLOCK) {
        if block.iter().fold(false, |any, &b| any | is_structural(b)) {
            break;
        }
        at += BLOCK;
    }
    input[at..].iter().position(|&b| is_structural(b)).map(|rest| at + rest)
}

#[inline(always)]
fn is_structural(byte: u8) -> bool {
    // '[' and '{', ']' and '}' differ in one bit.
    let folded = byte | 0x20;
    byte == b'"' || folded == b'{' || folded == b'}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_an_unescaped_quote() {
        for (input, end) in [
            (&br#"abc"x"#[..], Some(4)),
            (br#"""#, Some(1)),
            (br#"\""x"#, Some(3)),
            (br#"\\"x"#, Some(3)),
            (br#"\\\""x"#, Some(5)),
            (br#"a\n\"b\"c"d"#, Some(10)),
            (br#"abc\"#, None),
            (b"a long string that has its quote past the short loop\" and goes on", Some(53)),
        ] {
            let mut escaped = false;
            assert_eq!(string(input, &mut escaped), end, "{input:?}");
            // One byte at a time.
            let mut escaped = false;
            let mut found = None;
            for (i, byte) in input.iter().enumerate() {
                if string(&[*byte], &mut escaped).is_some() {
                    found = Some(i + 1);
                    break;
                }
            }
            assert_eq!(found, end, "{input:?} by bytes");
        }
    }

    #[test]
    fn nests_end_at_their_last_bracket() {
        let input =
            br#"{"a":[1,2,{"]":"}\""}],"b":[3333333333,4444444444,5555555555,66666666,7777777]},"#;
        assert_eq!(Nest::new(0).skip(input), Some(input.len() - 1));
        let mut nest = Nest::new(0);
        let by_bytes = input.iter().position(|b| nest.skip(&[*b]).is_some());
        assert_eq!(by_bytes, Some(input.len() - 2));
        let deep = [b'['; 1_000_000];
        let mut nest = Nest::new(0);
        assert_eq!(nest.skip(&deep), None);
        assert_eq!(nest.depth, 1_000_000);
    }
}
