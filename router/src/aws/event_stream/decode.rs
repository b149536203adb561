//! Reads event streams back: strictly, so that nothing that is not meant goes through. The gateway itself
//! reads none.

use super::{CRC, PRELUDE};

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Names and values of its headers, all strings.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Message {
    /// The value of the header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// All messages of a stream.
///
/// # Errors
/// What is wrong, if it has anything else.
pub fn messages(mut bytes: &[u8]) -> Result<Vec<Message>, &'static str> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let prelude = take(&mut bytes, PRELUDE)?;
        let word = |at: usize| {
            let word = [prelude[at], prelude[at + 1], prelude[at + 2], prelude[at + 3]];
            u32::from_be_bytes(word) as usize
        };
        let (total, headers) = (word(0), word(4));
        if crc32fast::hash(&prelude[..8]) as usize != word(8) {
            return Err("the prelude's checksum");
        }
        let rest = total.checked_sub(PRELUDE + CRC + headers).ok_or("lengths")?;
        let fields = take(&mut bytes, headers)?;
        let payload = take(&mut bytes, rest)?;
        let crc = take(&mut bytes, CRC)?;
        if crc32fast::hash(&[prelude, fields, payload].concat()).to_be_bytes() != crc {
            return Err("the message's checksum");
        }
        all.push(Message { headers: strings(fields)?, payload: payload.to_vec() });
    }
    Ok(all)
}

fn strings(mut fields: &[u8]) -> Result<Vec<(String, String)>, &'static str> {
    let mut all = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| "text");
    while !fields.is_empty() {
        let length = take(&mut fields, 1)?[0];
        let name = text(take(&mut fields, length.into())?)?;
        let [7, high, low] = take(&mut fields, 3)? else { return Err("not a string") };
        let length = usize::from(*high) << 8 | usize::from(*low);
        all.push((name, text(take(&mut fields, length)?)?));
    }
    Ok(all)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("cut short")?;
    *bytes = rest;
    Ok(taken)
}
