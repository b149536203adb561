//! The chunked coding, written a second time: an oracle must not share code with what it judges.

/// Finds the end of a chunked body that arrives in pieces.
#[derive(Debug, Default)]
pub struct Scan {
    at: usize,
    trailers: bool,
}

impl Scan {
    /// Says how long the body at the start of `buf` is, once all of it is there. `buf` must grow
    /// only at its end between calls.
    ///
    /// # Errors
    /// When the bytes are no chunked body.
    pub fn end(&mut self, buf: &[u8]) -> Result<Option<usize>, String> {
        loop {
            let Some(line_end) = find(&buf[self.at.min(buf.len())..], b"\r\n") else {
                return Ok(None);
            };
            let line = &buf[self.at..self.at + line_end];
            let next = self.at + line_end + 2;
            if self.trailers {
                self.at = next;
                if line.is_empty() {
                    return Ok(Some(next));
                }
                continue;
            }
            let size = size(line)?;
            if size == 0 {
                self.trailers = true;
                self.at = next;
                continue;
            }
            if buf.len() < next + size + 2 {
                return Ok(None);
            }
            if &buf[next + size..next + size + 2] != b"\r\n" {
                return Err(format!("no CRLF behind the chunk at {}", self.at));
            }
            self.at = next + size + 2;
        }
    }
}

fn size(line: &[u8]) -> Result<usize, String> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| usize::from_str_radix(text, 16).ok())
        .ok_or_else(|| format!("no chunk size: {:?}", String::from_utf8_lossy(line)))
}

/// Where `needle` first stands in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(offset) = hay[from..].iter().position(|&byte| byte == first) {
        let at = from + offset;
        if hay[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// The payload of a complete chunked body, and its trailer lines.
///
/// # Panics
/// When it is not one.
pub fn decode(raw: &[u8]) -> (Vec<u8>, Vec<String>) {
    let mut payload = Vec::new();
    let mut at = 0;
    loop {
        let end = at + find(&raw[at..], b"\r\n").expect("a chunk-size line");
        let size = size(&raw[at..end]).expect("a chunk size");
        at = end + 2;
        if size == 0 {
            break;
        }
        payload.extend_from_slice(&raw[at..at + size]);
        at += size;
        assert_eq!(&raw[at..at + 2], b"\r\n", "behind a chunk");
        at += 2;
    }
    let rest = std::str::from_utf8(&raw[at..]).expect("trailers in ASCII");
    let trailers: Vec<String> =
        rest.split("\r\n").filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (payload, trailers)
}

/// A chunked body with one chunk for each piece.
pub fn encode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&chunk(piece));
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// One chunk.
pub fn chunk(piece: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", piece.len()).into_bytes();
    out.extend_from_slice(piece);
    out.extend_from_slice(b"\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_at_every_cut() {
        let mut body = encode([&b"hello"[..], &[0; 300], b"\r\n0\r\n\r\n"]);
        body.truncate(body.len() - 2);
        body.extend_from_slice(b"A: b\r\n\r\n");
        for cut in 0..body.len() {
            let mut scan = Scan::default();
            assert_eq!(scan.end(&body[..cut]).unwrap(), None, "cut {cut}");
            assert_eq!(scan.end(&body).unwrap(), Some(body.len()), "cut {cut}");
        }
        let (payload, trailers) = decode(&body);
        assert_eq!(payload.len(), 5 + 300 + 7);
        assert_eq!(trailers, ["A: b"]);
    }
}
