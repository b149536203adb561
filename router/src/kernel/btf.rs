//! Where a kernel structure has a member, read from the kernel's own type information (BTF).
//!
//! The loader library relocates accesses of C programs only; programs in Rust get offsets as
//! constants when they are loaded. Format: Documentation/bpf/btf.rst of the kernel.

use std::{fs, io};

const MAGIC: u16 = 0xeb9f;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// Type information of the running kernel.
pub(super) struct Btf {
    bytes: Vec<u8>,
    types: std::ops::Range<usize>,
    strings: std::ops::Range<usize>,
}

impl Btf {
    /// Reads that of the running kernel.
    pub(super) fn of_kernel() -> io::Result<Self> {
        Self::parse(fs::read("/sys/kernel/btf/vmlinux")?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not in BTF format"))
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let word = |at: usize| word(&bytes, at).map(|value| value as usize);
        let header = word(4)?;
        let section = |offset: usize, length: usize| {
            let start = header.checked_add(word(offset)?)?;
            let end = start.checked_add(word(length)?)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let types = section(8, 12)?;
        let strings = section(16, 20)?;
        Some(Self { types, strings, bytes })
    }

    fn name(&self, offset: u32) -> &[u8] {
        let strings = &self.bytes[self.strings.clone()];
        let rest = strings.get(offset as usize..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The offset of a structure's member in bytes. Members of unnamed inner structures are not
    /// looked at. A bit field has none.
    pub(super) fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        let mut at = self.types.start;
        while at + 12 <= self.types.end {
            let name = word(&self.bytes, at)?;
            let info = word(&self.bytes, at + 4)?;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            at += 12;
            if kind == KIND_STRUCT && self.name(name) == structure.as_bytes() {
                for entry in (at..at + 12 * count).step_by(12) {
                    if self.name(word(&self.bytes, entry)?) == member.as_bytes() {
                        let bits = word(&self.bytes, entry + 8)?;
                        // With the top bit set, the upper byte of an offset is a bit field's width.
                        let field = info >> 31 == 1 && bits >> 24 != 0;
                        return (!field && bits % 8 == 0).then_some(bits / 8);
                    }
                }
            }
            at += match kind {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * count,
                KIND_ENUM | KIND_FUNC_PROTO => 8 * count,
                _ => 0,
            };
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_members_of_the_running_kernel() {
        let Ok(btf) = Btf::of_kernel() else {
            return crate::testing::skip("this kernel has no type information");
        };
        assert_eq!(btf.member_offset("tcp_skb_cb", "seq"), Some(0));
        assert!(btf.member_offset("tcp_sock", "write_seq").is_some_and(|offset| offset > 0));
        assert!(btf.member_offset("tcp_sock", "copied_seq").is_some());
        assert_eq!(btf.member_offset("tcp_sock", "no such member"), None);
        assert!(btf.member_offset("task_struct", "pid").is_some());
        assert_eq!(btf.member_offset("task_struct", "sched_migrated"), None, "a bit");
        assert_eq!(btf.member_offset("no such structure", "seq"), None);
    }

    #[test]
    fn damaged_information_is_no_panic() {
        assert!(Btf::parse(vec![]).is_none());
        assert!(Btf::parse(vec![0x9f, 0xeb]).is_none());
        let mut bytes = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        for value in [0u32, 16, 16, 4] {
            bytes.extend(value.to_ne_bytes());
        }
        // One structure that claims more members than there are bytes.
        for value in [1u32, KIND_STRUCT << 24 | 9, 8, 0] {
            bytes.extend(value.to_ne_bytes());
        }
        bytes.extend(b"\0ab\0");
        let btf = Btf::parse(bytes).expect("a sound header");
        assert_eq!(btf.member_offset("ab", "c"), None);
    }
}
