use std::io::Write;

use proptest::prelude::*;

use super::*;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

fn bare(data: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

/// In blocks that are not compressed (RFC 7932 section 9.2).
fn brotli(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // The first bit says how large the window is.
    let mut used = 1;
    for block in data.chunks(1 << 16) {
        let header = ((block.len() as u32 - 1) << 3 | 1 << 19) << used;
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(block);
        used = 0;
    }
    out.push(3 << used);
    out
}

/// Bytes written in hexadecimal.
fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// [`PROMPT`], by Google's encoder.
const BROTLI_PROMPT: &str = "1b4a00402c0eec86cfcf70545d68a8b3730978d5227b5b3f136d6daeafbadafa148b4e8a\
    80e481434e04b2b624fc3c86ba93d9ac2ad52af0f0615a4b41f00877d4d03b18b303";
/// 64 MiB of zeros, by Google's encoder.
const BROTLI_BOMB: &str = "cbffff3ff82700e2b14020f7fe8fffff7ff04f00c4611180eefd1fffffffe09f0088c30200dd\
    fb3ffeffffc13f0110870500baf77ffcffff837f02200e0b0074effff8ffff07ff04401c1600e8defff1ffff0ffe0980\
    382c00d0bdffe3ffff1ffc1300715800a07bff37";

type Encode = fn(&[u8]) -> Vec<u8>;
const CODINGS: [(&str, Encode); 6] = [
    ("gzip", gzip),
    ("X-GZip", gzip),
    ("deflate", zlib),
    ("deflate", bare),
    ("br", brotli),
    ("zstd", zstd),
];

/// Decodes in pieces of these sizes, over and over; what came out, and why it stopped.
fn decoded(
    codings: &[&str],
    limit: u64,
    sizes: &[usize],
    body: &[u8],
) -> (Vec<u8>, Option<DecodeError>) {
    let mut decoder =
        Decoder::new(codings.iter().map(|name| name.as_bytes()), limit).expect("a coding");
    let mut out = Vec::new();
    let mut rest = body;
    for size in sizes.iter().chain(&[1 << 20]).cycle() {
        let (now, later) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        let more = decoder.feed(now, &mut |bytes| {
            out.extend_from_slice(bytes);
            false
        });
        rest = later;
        if !more || rest.is_empty() {
            break;
        }
    }
    decoder.end(&mut |bytes| {
        out.extend_from_slice(bytes);
        false
    });
    (out, decoder.failed())
}

const PROMPT: &str =
    r#"{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;

#[test]
fn each_coding_gives_the_body() {
    let long = PROMPT.repeat(3000);
    for (name, encode) in CODINGS {
        for text in [PROMPT, &long, ""] {
            let whole = decoded(&[name], u64::MAX, &[], &encode(text.as_bytes()));
            assert_eq!(whole, (text.as_bytes().to_vec(), None), "{name}, {} bytes", text.len());
        }
    }
    assert_eq!(decoded(&["br"], 1000, &[1], &hex(BROTLI_PROMPT)).0, PROMPT.as_bytes());
    // In the order in which they were applied.
    let both = brotli(&gzip(PROMPT.as_bytes()));
    assert_eq!(decoded(&["gzip", "identity", "br"], 1000, &[], &both).0, PROMPT.as_bytes());
    // Members and frames behind each other, and one to be skipped.
    let twice = [gzip(b"ab"), gzip(b"c")].concat();
    assert_eq!(decoded(&["gzip"], 1000, &[], &twice), (b"abc".to_vec(), None));
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(b"a"), &zstd(b"b")];
    assert_eq!(decoded(&["zstd"], 1000, &[], &skipped.concat()), (b"ab".to_vec(), None));
    // A member with all that a header can have.
    let mut header = vec![0x1f, 0x8b, 8, 31, 0, 0, 0, 0, 0, 255, 2, 0, 1, 2];
    header.extend_from_slice(b"name\0comment\0cc");
    let named = [&header[..], &gzip(b"text")[10..]].concat();
    assert_eq!(decoded(&["gzip"], 1000, &[], &named), (b"text".to_vec(), None));
}

#[test]
fn what_cannot_be_decoded_is_said() {
    for (name, _) in CODINGS {
        let (out, failed) = decoded(&[name], 1 << 20, &[], b"{\"messages\":[]} \xff\xff\xff\xff");
        assert_eq!(failed, Some(DecodeError::Corrupt), "{name}: {out:?}");
    }
    for codings in [&["compress"][..], &["gzip", "aws-chunked"], &["gzip"; 5]] {
        let (out, failed) = decoded(codings, 1 << 20, &[], &gzip(b"x"));
        assert_eq!((out, failed), (vec![], Some(DecodeError::Unknown)));
    }
    assert!(Decoder::new([&b"identity"[..]].into_iter(), 1).is_none());
    assert!(Decoder::new(std::iter::empty(), 1).is_none());
    // Windows beyond what a sender of HTTP may use.
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 1, 0, 0];
    assert_eq!(decoded(&["zstd"], 1 << 20, &[], &wide).1, Some(DecodeError::Corrupt));
    // What came before the fault is there.
    let cut = [&gzip(b"good")[..], b"bad"].concat();
    assert_eq!(decoded(&["gzip"], 99, &[], &cut), (b"good".to_vec(), Some(DecodeError::Corrupt)));
}

#[test]
fn bombs_are_given_up() {
    let zeros = vec![0; 64 << 20];
    let bombs: [(&[&str], Vec<u8>); 5] = [
        (&["gzip"], gzip(&zeros)),
        (&["br"], hex(BROTLI_BOMB)),
        (&["zstd"], zstd(&zeros)),
        (&["gzip", "gzip"], gzip(&gzip(&zeros))),
        // Nothing comes out of the inner one at all.
        (&["zstd", "gzip"], {
            let skip = [&[0x50, 0x2a, 0x4d, 0x18][..], &u32::to_le_bytes(60 << 20)].concat();
            gzip(&[&skip[..], &zeros[..60 << 20]].concat())
        }),
    ];
    for (codings, bomb) in bombs {
        let (out, failed) = decoded(codings, u64::MAX, &[], &bomb);
        assert_eq!(failed, Some(DecodeError::Expansion), "{codings:?}");
        assert!(out.len() as u64 <= FREE + RATIO * (bomb.len() + BLOCK) as u64, "{}", out.len());
        let (out, failed) = decoded(codings, 1000, &[3], &bomb);
        assert_eq!(failed, Some(DecodeError::Limit), "{codings:?}");
        assert!(out.len() <= 1000);
    }
}

#[test]
fn enough_is_enough() {
    let body = gzip(&vec![b'x'; 1 << 20]);
    let mut decoder = Decoder::new([&b"gzip"[..]].into_iter(), u64::MAX).expect("a coding");
    let mut seen = 0;
    let more = decoder.feed(&body, &mut |bytes| {
        seen += bytes.len();
        true
    });
    assert!(!more && decoder.failed().is_none() && seen <= PIECE);
}

/// What fuzzing starts from, and what it found before, also where there is no fuzzer.
#[test]
fn the_seeds_of_fuzzing() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fuzz/seeds/decoder");
    for entry in std::fs::read_dir(dir).unwrap() {
        crate::prefix::properties::decide_seed(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        parts in proptest::collection::vec((any::<u8>(), 1usize..3000), 0..20),
        which in proptest::collection::vec(0usize..CODINGS.len(), 1..3),
        damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        limit in prop_oneof![Just(u64::MAX), 0u64..5000],
        sizes in proptest::collection::vec(prop_oneof![1usize..9, 1usize..3000], 1..20),
    ) {
        let text: Vec<u8> = parts.iter().flat_map(|(byte, n)| {
            (0..*n).map(move |at| byte.wrapping_add((at % 7) as u8))
        }).collect();
        let mut body = text.clone();
        for which in &which {
            body = CODINGS[*which].1(&body);
        }
        if let Some((at, byte)) = damage && !body.is_empty() {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let names: Vec<_> = which.iter().map(|which| CODINGS[*which].0).collect();
        let whole = decoded(&names, limit, &[], &body);
        prop_assert_eq!(&decoded(&names, limit, &sizes, &body), &whole);
        if damage.is_none() && limit == u64::MAX {
            prop_assert_eq!(whole, (text, None));
        }
    }

    #[test]
    fn any_bytes_are_read(
        body in proptest::collection::vec(any::<u8>(), 0..300),
        magic in any::<bool>(),
        which in 0usize..CODINGS.len(),
        sizes in proptest::collection::vec(1usize..40, 1..5),
    ) {
        let (name, encode) = CODINGS[which];
        let body = if magic { [&encode(b"")[..4.min(encode(b"").len())], &body].concat() } else { body };
        let whole = decoded(&[name], 1 << 20, &[], &body);
        prop_assert_eq!(decoded(&[name], 1 << 20, &sizes, &body), whole);
    }
}
