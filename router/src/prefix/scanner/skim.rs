//! Passing over JSON that does not matter, fast.
//!
//! Nothing is validated. The brackets that are counted are those of the kind that closes the value, so
//! that the cost is that of finding quotes, and now and then a bracket.

use fearless_simd::{Simd, dispatch};

use super::vector::{self, BLOCK, Block, GROUP, Group, any_quote, parity};

/// Passes over the inside of a string. Returns where `input` goes on behind the closing quote; `None`
/// when the string does not end within.
///
/// `literal` says whether a backslash before `input` makes its first byte literal, and is kept for
/// the next call.
pub(super) fn string(input: &[u8], literal: &mut bool) -> Option<usize> {
    // Names and roles are short, and there a plain loop is done before vectors have started.
    const SHORT: usize = 16;
    for (at, &byte) in input.iter().take(SHORT).enumerate() {
        match byte {
            _ if *literal => *literal = false,
            b'\\' => *literal = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    let rest = input.get(SHORT..)?;
    let mut nest = Nest { in_string: true, literal: *literal, ..Nest::array(1) };
    let end = dispatch!(vector::level(), simd => nest.skip_string(simd, rest));
    *literal = nest.literal;
    end.map(|at| SHORT + at)
}

/// A nested value that is being passed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nest {
    open: u8,
    close: u8,
    /// Brackets open, of the value's kind.
    depth: u64,
    in_string: bool,
    /// A backslash makes the next byte literal.
    literal: bool,
}

impl Nest {
    /// Inside an array, and `depth` arrays altogether.
    pub(super) fn array(depth: u64) -> Self {
        Self { open: b'[', close: b']', depth, in_string: false, literal: false }
    }

    /// Inside an object, and `depth` objects altogether.
    pub(super) fn object(depth: u64) -> Self {
        Self { open: b'{', close: b'}', ..Self::array(depth) }
    }

    /// And inside a string.
    pub(super) fn in_string(self, literal: bool) -> Self {
        Self { in_string: true, literal, ..self }
    }

    /// Passes over `input`. Returns where it goes on behind the bracket that closes the value; `None`
    /// when the value does not end within.
    pub(super) fn skip(&mut self, input: &[u8]) -> Option<usize> {
        dispatch!(vector::level(), simd => self.skip_nest(simd, input))
    }

    #[inline(always)]
    fn skip_nest<S: Simd>(&mut self, simd: S, input: &[u8]) -> Option<usize> {
        /// Blocks passed one by one before something faster is tried again; twice as many each time
        /// that it is not worth it. To look at what each block has would cost more than it spares:
        /// the processor cannot foresee it.
        const FEW: usize = 4;
        const MANY: usize = 32;
        // A copy can live in registers.
        let mut nest = *self;
        let (blocks, rest) = input.as_chunks::<BLOCK>();
        let mut at = 0;
        let mut between = FEW;
        while at < blocks.len() {
            if nest.in_string {
                at += nest.skip_quoteless(simd, &blocks[at..]);
            }
            let some = &blocks[at..blocks.len().min(at + between)];
            for (index, block) in some.iter().enumerate() {
                if let Some(end) = nest.skip_block(&Block::full(simd, block)) {
                    *self = nest;
                    return Some((at + index) * BLOCK + end as usize);
                }
            }
            at += some.len();
            let quiet = nest.skip_quiet(simd, blocks, at);
            between = if quiet == at { MANY.min(between * 2) } else { FEW };
            at = quiet;
        }
        let end = nest.skip_block(&Block::load(simd, rest));
        *self = nest;
        end.map(|end| at * BLOCK + end as usize)
    }

    /// Passes over groups of blocks in which strings begin and end and nothing else happens, from
    /// block `at` on, which is not the first. Returns the block where it stopped.
    #[inline(always)]
    fn skip_quiet<S: Simd>(&mut self, simd: S, blocks: &[[u8; BLOCK]], mut at: usize) -> usize {
        let input = blocks.as_flattened();
        if self.literal != (input[at * BLOCK - 1] == b'\\') {
            // The last of an even number of backslashes: groups take it for one that escapes.
            return at;
        }
        while let Some(window) = input[at * BLOCK - 1..].first_chunk() {
            match vector::group(simd, window, self.open, self.in_string) {
                Group::Quiet { odd } => self.in_string ^= odd,
                Group::Loud => break,
            }
            at += 4;
            self.literal = window[GROUP] == b'\\';
        }
        at
    }

    /// Passes over one block; says where the value ends in it.
    #[inline(always)]
    fn skip_block<S: Simd>(&mut self, block: &Block<S>) -> Option<u32> {
        let quotes = block.is(b'"') & !self.literals(block);
        let before = if self.in_string { u64::MAX } else { 0 };
        self.in_string ^= quotes.count_ones() % 2 == 1;
        let (open, close) = (block.is(self.open), block.is(self.close));
        if open | close == 0 {
            return None;
        }
        // From each opening quote to before the closing one.
        let inside = parity(quotes) ^ before;
        let (open, mut close) = (open & !inside, close & !inside);
        let (opened, closed) = (u64::from(open.count_ones()), u64::from(close.count_ones()));
        if closed < self.depth {
            self.depth += opened;
            self.depth -= closed;
            return None;
        }
        // The value may end here: bracket by bracket.
        let mut depth = self.depth;
        let mut opened_before = 0;
        while close != 0 {
            let at = close.trailing_zeros();
            let opened_here = u64::from((open & vector::low(at)).count_ones());
            depth += opened_here - opened_before;
            opened_before = opened_here;
            depth -= 1;
            if depth == 0 {
                return Some(at + 1);
            }
            close &= close - 1;
        }
        self.depth = depth + opened - opened_before;
        None
    }

    #[inline(always)]
    fn skip_string<S: Simd>(&mut self, simd: S, input: &[u8]) -> Option<usize> {
        let (blocks, rest) = input.as_chunks::<BLOCK>();
        let mut at = self.skip_quoteless(simd, blocks);
        loop {
            let block = match blocks.get(at) {
                Some(block) => Block::full(simd, block),
                None => Block::load(simd, rest),
            };
            let quotes = block.is(b'"') & !self.literals(&block);
            if quotes != 0 {
                self.literal = false;
                return Some(at * BLOCK + quotes.trailing_zeros() as usize + 1);
            }
            if at >= blocks.len() {
                return None;
            }
            at += 1;
            at += self.skip_quoteless(simd, &blocks[at..]);
        }
    }

    /// The bytes of a block that a backslash makes literal.
    #[inline(always)]
    fn literals<S: Simd>(&mut self, block: &Block<S>) -> u64 {
        let (literal, carry) = vector::literals(block.is(b'\\'), self.literal);
        // Behind a short block comes a zero, which is still within.
        self.literal = if block.len == 64 { carry } else { literal >> block.len & 1 == 1 };
        literal
    }

    /// Passes over the part of a string where there is no quote at all, four blocks at a time. Returns
    /// the number of blocks.
    #[inline(always)]
    fn skip_quoteless<S: Simd>(&mut self, simd: S, blocks: &[[u8; BLOCK]]) -> usize {
        let (groups, _) = blocks.as_chunks::<4>();
        let groups = groups.iter().take_while(|group| !any_quote(simd, group)).count();
        let skipped = &blocks[..groups * 4];
        if groups > 0 {
            self.skip_plain(skipped.as_flattened());
        }
        skipped.len()
    }

    /// Passes over a part of a string that has no quote and is not empty.
    #[inline(always)]
    fn skip_plain(&mut self, part: &[u8]) {
        self.literal = part.last() == Some(&b'\\') && {
            let run = part.iter().rev().take_while(|&&b| b == b'\\').count();
            let carried = run == part.len() && self.literal;
            (run + usize::from(carried)) % 2 == 1
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            assert_eq!(string(input, &mut false), end, "{input:?}");
        }
    }

    #[test]
    fn nests_end_at_their_last_bracket() {
        let input = br#""a":[1,2,{"]":"}\""}],"b":[3333333333,4444444444,555555555,66666666]},"#;
        assert_eq!(Nest::object(1).skip(input), Some(input.len() - 1));
        let input = br#"1,{"]":"]\""},[[],2],[3333333333,4444444444,5555555555,66666666,7777]],"#;
        assert_eq!(Nest::array(1).skip(input), Some(input.len() - 1));
        let mut nest = Nest::array(1);
        assert_eq!(nest.skip(&[b'['; 1_000_000]), None);
        assert_eq!(nest.depth, 1_000_001);
    }

    /// The same, one byte after the other.
    fn plain(input: &[u8], nest: &mut Nest) -> Option<usize> {
        for (at, &byte) in input.iter().enumerate() {
            if nest.in_string {
                match byte {
                    _ if nest.literal => nest.literal = false,
                    b'\\' => nest.literal = true,
                    b'"' => nest.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => nest.in_string = true,
                _ if byte == nest.open => nest.depth += 1,
                _ if byte == nest.close => {
                    nest.depth -= 1;
                    if nest.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Bytes as they come in JSON, so backslashes in strings only, and long runs without quotes.
    fn any_json_like() -> impl Strategy<Value = Vec<u8>> {
        let string = proptest::collection::vec(
            prop_oneof![
                3 => Just(b"\\\"".to_vec()),
                3 => Just(b"\\\\".to_vec()),
                3 => "[a-z{}\\[\\]]{0,20}".prop_map(String::into_bytes),
                1 => (200usize..700).prop_map(|n| vec![b'x'; n]),
                1 => (60usize..300).prop_map(|n| b"\\\\".repeat(n)),
            ],
            0..8,
        )
        .prop_map(|parts| [&b"\""[..], &parts.concat(), b"\""].concat());
        let part = prop_oneof![
            4 => string,
            4 => "[\\[\\]{}:, 0-9]{1,30}".prop_map(String::into_bytes),
            1 => (1usize..100).prop_map(|n| vec![b'['; n]),
            1 => (1usize..100).prop_map(|n| vec![b'}'; n]),
        ];
        proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn nests_are_passed_as_if_read_byte_by_byte(
            input in any_json_like(),
            depth in 1u64..20,
            object: bool,
            cut in any::<proptest::sample::Index>(),
        ) {
            let start = if object { Nest::object(depth) } else { Nest::array(depth) };
            let expected = plain(&input, &mut start.clone());
            prop_assert_eq!(start.clone().skip(&input), expected);
            let (first, second) = input.split_at(cut.index(input.len() + 1));
            let mut nest = start;
            let cut = nest.skip(first).or_else(|| nest.skip(second).map(|at| first.len() + at));
            prop_assert_eq!(cut, expected);
        }

        #[test]
        fn strings_are_passed_as_if_read_byte_by_byte(
            input in any_json_like(),
            literal: bool,
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut nest = Nest::array(1).in_string(literal);
            let expected = (0..input.len()).find(|&at| {
                plain(&input[at..=at], &mut nest);
                !nest.in_string
            }).map(|at| at + 1);
            let (first, second) = input.split_at(cut.index(input.len() + 1));
            let mut state = literal;
            let cut = string(first, &mut state)
                .or_else(|| string(second, &mut state).map(|at| first.len() + at));
            prop_assert_eq!(cut, expected);
            prop_assert_eq!(string(&input, &mut literal.clone()), expected);
        }
    }
}
