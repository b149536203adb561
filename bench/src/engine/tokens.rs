//! A tokenizer that needs no vocabulary.
//!
//! Four characters are one token, counted from the start of each segment of the prompt; the token's
//! id is a hash of its characters. That is close to the ratio of real tokenizers for English, and it
//! keeps what matters here: equal beginnings give equal tokens. Generated words have four
//! characters, so that an answer that comes back as a message of the next turn has the same tokens.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Characters of a token.
pub const TOKEN_CHARS: usize = 4;

/// Appends the tokens of `segment` to `tokens`.
pub fn tokenize(segment: &str, tokens: &mut Vec<u32>) {
    let mut rest = segment;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(TOKEN_CHARS).map_or(rest.len(), |(at, _)| at);
        let (token, tail) = rest.split_at(end);
        tokens.push(xxh3_64(token.as_bytes()) as u32);
        rest = tail;
    }
}

/// The words of generated text.
const WORDS: [&str; 16] = [
    "the ", "sun ", "sea ", "red ", "old ", "key ", "map ", "sky ", "ice ", "oak ", "fox ", "day ",
    "ink ", "ash ", "bay ", "elm ",
];

/// The word at `index` of the answer to a prompt with hash `prompt`.
pub fn word(prompt: u64, index: u32) -> &'static str {
    WORDS[(xxh3_64_with_seed(&index.to_le_bytes(), prompt) % WORDS.len() as u64) as usize]
}

/// A hash of the whole prompt, from which its answer follows.
pub fn fingerprint(tokens: &[u32]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for token in tokens {
        hasher.update(&token.to_le_bytes());
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        tokenize(text, &mut out);
        out
    }

    #[test]
    fn equal_beginnings_have_equal_tokens() {
        let (a, b) = (tokens("the same beginning, one end"), tokens("the same beginning, two"));
        assert_eq!(a[..5], b[..5]);
        assert_ne!(a, b);
        assert_eq!(tokens("").len(), 0);
        assert_eq!(tokens("12345").len(), 2);
    }

    #[test]
    fn characters_count_not_bytes() {
        assert_eq!(tokens("äöüß€").len(), 2);
    }

    #[test]
    fn an_answer_tokenizes_to_one_token_per_word() {
        let answer: String = (0..100).map(|index| word(7, index)).collect();
        assert_eq!(tokens(&answer).len(), 100);
        assert_eq!(tokens(&answer)[3], tokens(word(7, 3))[0]);
    }
}
