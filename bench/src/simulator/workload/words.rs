//! Text that means nothing, in several languages and scripts.

/// What a text is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Portuguese: Latin letters with accents.
    Portuguese,
    /// Russian: two bytes a letter.
    Russian,
    /// Chinese: three bytes a character, no spaces.
    Chinese,
    /// Japanese, in two syllabaries and Chinese characters.
    Japanese,
    /// Arabic: written from right to left.
    Arabic,
    /// Hindi: signs that combine.
    Hindi,
    /// Program text: quotes, backslashes, line breaks.
    Code,
}

impl Language {
    /// All of them, by how often they are drawn: the first half of a mixed fleet's prompts is English.
    pub const ALL: [Self; 8] = [
        Self::English,
        Self::Portuguese,
        Self::Russian,
        Self::Chinese,
        Self::Japanese,
        Self::Arabic,
        Self::Hindi,
        Self::Code,
    ];

    /// English half of the time, else one of the others.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        match rng.bool() {
            true => Self::English,
            false => Self::ALL[rng.usize(1..Self::ALL.len())],
        }
    }

    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::English => &[
                "the", "model", "answers", "every", "question", "with", "care", "and", "cites",
                "its", "source", "always", "before", "it", "goes", "on", "to", "what", "follows",
                "from", "there",
            ],
            Self::Portuguese => &[
                "o", "atalho", "é", "mais", "curto", "não", "há", "pressa", "então", "você", "lê",
                "até", "o", "fim", "da", "página", "sem", "avançar", "além", "dela",
            ],
            Self::Russian => &[
                "это",
                "короткий",
                "путь",
                "через",
                "лес",
                "и",
                "мы",
                "идём",
                "по",
                "нему",
                "каждый",
                "день",
                "до",
                "самого",
                "конца",
            ],
            Self::Chinese => &[
                "我们", "每天", "走", "这条", "小路", "穿过", "森林", "直到", "尽头", "，", "然后",
                "回家", "。", "问题", "有", "答案",
            ],
            Self::Japanese => &[
                "私たち",
                "は",
                "毎日",
                "この",
                "近道",
                "を",
                "通って",
                "森",
                "の",
                "むこう",
                "へ",
                "行きます",
                "。",
                "ルーター",
                "が",
                "選ぶ",
                "、",
            ],
            Self::Arabic => &[
                "نسير",
                "كل",
                "يوم",
                "في",
                "هذا",
                "الطريق",
                "القصير",
                "عبر",
                "الغابة",
                "حتى",
                "النهاية",
                "ثم",
                "نعود",
            ],
            Self::Hindi => &[
                "हम",
                "हर",
                "दिन",
                "इस",
                "छोटे",
                "रास्ते",
                "से",
                "जंगल",
                "के",
                "पार",
                "जाते",
                "हैं",
                "और",
                "लौटते",
            ],
            Self::Code => &[
                "let",
                "x",
                "=",
                "map.get(\"key\")?;",
                "\n    if",
                "path.contains(\"\\\\\")",
                "{",
                "return",
                "Err(\"no such\\n\");",
                "}",
                "// why\n",
                "for",
                "(i, c)",
                "in",
                "text.chars()",
                "\t+=",
            ],
        }
    }

    const fn space(self) -> &'static str {
        match self {
            Self::Chinese | Self::Japanese => "",
            _ => " ",
        }
    }
}

/// A text of this many characters, or a few more, that begins with a mark of its own, so that no two seeds give texts
/// that begin alike.
pub fn text(seed: u64, language: Language, characters: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = format!("[{:016x}]", rng.u64(..));
    let mut length = text.len();
    while length < characters {
        let word = language.words()[rng.usize(..language.words().len())];
        text.push_str(language.space());
        text.push_str(word);
        length += language.space().len() + word.chars().count();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_as_long_as_asked_and_begin_differently() {
        for language in Language::ALL {
            let (one, other) = (text(1, language, 500), text(2, language, 500));
            assert!((500..530).contains(&one.chars().count()), "{language:?}");
            assert_ne!(one[..10], other[..10]);
            assert_eq!(one, text(1, language, 500));
        }
    }
}
