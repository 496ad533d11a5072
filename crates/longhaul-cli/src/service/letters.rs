//! Dead letters: tasks that failed for good.

use crate::output::{TableRow, Tone, text};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::ops::Replayed;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What became of each letter; an error ends it early.
pub(crate) type Replays = Vec<anyhow::Result<(String, Replayed)>>;

/// What was purged, in words; an error ends it early.
pub(crate) type LetterPurges = Vec<anyhow::Result<String>>;

/// A page of letters.
#[derive(Clone, Debug)]
pub(crate) struct LetterPage {
    pub(crate) letters: Vec<Letter>,
    /// Whether there are more.
    pub(crate) has_more: bool,
}

/// A filter of dead letters; by default it matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LetterFilter {
    pub(crate) contains: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) task_type: Option<String>,
    pub(crate) key: Option<String>,
    /// In ms since the epoch.
    pub(crate) published: Option<RangeInclusive<u64>>,
}

/// A dead letter.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Letter {
    pub(crate) task: String,
    pub(crate) published_ms: u64,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replay_of: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) task_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    pub(crate) payload_bytes: usize,
    /// If it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_base64: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) properties: BTreeMap<String, String>,
    #[serde(skip)]
    pub(crate) bytes: Option<Bytes>,
}

impl Letter {
    /// Sets the payload, as text if it is text.
    pub(crate) fn set_payload(&mut self, bytes: Option<Bytes>) {
        match bytes.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => self.payload = Some(text.to_owned()),
            Some(Err(_)) => self.payload_base64 = bytes.as_ref().map(|it| STANDARD.encode(it)),
            None => {}
        }
        self.bytes = bytes;
    }

    /// The fields for people.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let properties = self.properties.iter().map(|(name, value)| format!("{name}={value}"));
        let bytes = format!("({} bytes: --payload prints them)", self.payload_bytes);
        vec![
            ("task", self.task.clone()),
            ("failed", times::iso(self.published_ms)),
            ("attempts", self.attempts.to_string()),
            ("reason", self.reason.clone()),
            ("detail", text(&self.detail)),
            ("type", text(&self.task_type)),
            ("key", text(&self.key)),
            ("tags", self.tags.join(", ")),
            ("replay of", text(&self.replay_of)),
            ("payload", self.payload.clone().unwrap_or(bytes)),
            ("properties", properties.collect::<Vec<_>>().join("\n")),
        ]
    }
}

impl TableRow for Letter {
    const HEADS: &'static [&'static str] = &["TASK", "FAILED", "ATTEMPTS", "TYPE", "KEY", "REASON"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.task.clone(),
            times::iso(self.published_ms),
            self.attempts.to_string(),
            self.task_type.clone().unwrap_or_default(),
            self.key.clone().unwrap_or_default(),
            text::short(self.detail.as_ref().unwrap_or(&self.reason), 120),
        ]
    }

    fn tone(&self) -> Tone {
        Tone::Plain
    }
}
