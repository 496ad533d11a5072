//! Dead letters: tasks that failed for good.

use super::Pulsar;
use super::tasks::named;
use crate::output::{TableRow, Tone, text};
use crate::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use longhaul::TaskRef;
use longhaul::ops::{DeadLetter, DeadLetterFilter, DeadLetters, Replayed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Letters per page.
const PAGE: usize = 1_000;

/// Lists and handles dead letters.
pub(crate) trait LetterService {
    /// Dead letters that match a filter, oldest first, up to `limit`.
    async fn letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        limit: usize,
    ) -> anyhow::Result<LetterPage>;
    /// The dead letter of a task.
    async fn letter(&self, task: &TaskRef) -> anyhow::Result<Option<Letter>>;
    /// Submits the task of a dead letter again.
    async fn replay(&self, task: &TaskRef, reason: &str) -> anyhow::Result<Replayed>;
    /// Replays all letters that match a filter.
    async fn replay_all(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<Replays>;
    /// Marks the dead letter of a task as handled; `false` if there is none.
    async fn purge_letter(&self, task: &TaskRef, reason: &str) -> anyhow::Result<bool>;
    /// Marks all letters that match a filter as handled.
    async fn purge_letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<LetterPurges>;
}

pub(crate) type Replays = BoxStream<'static, anyhow::Result<(String, Replayed)>>;
pub(crate) type LetterPurges = BoxStream<'static, anyhow::Result<String>>;

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

impl LetterFilter {
    /// The library's filter.
    fn of_library(&self) -> DeadLetterFilter {
        let mut filter = DeadLetterFilter::new();
        if let Some(text) = &self.contains {
            filter = filter.reason(text);
        }
        for tag in &self.tags {
            filter = filter.tag(tag);
        }
        if let Some(it) = &self.task_type {
            filter = filter.task_type(it);
        }
        if let Some(it) = &self.key {
            filter = filter.key(it);
        }
        match &self.published {
            Some(range) => filter.published(range.clone()),
            None => filter,
        }
    }
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
    fn of(letter: DeadLetter) -> Self {
        // Lists are short: properties are shown only for a single letter.
        let is_whole = letter.payload.is_some();
        let of_replay = |id| named(&TaskRef { id, ..letter.task.clone() });
        let mut it = Self {
            task: named(&letter.task),
            published_ms: letter.published_ms,
            attempts: letter.attempts,
            replay_of: letter.replay_of.map(of_replay),
            reason: letter.reason,
            detail: letter.detail,
            task_type: letter.task_type,
            key: letter.key,
            tags: letter.tags,
            payload_bytes: letter.payload_bytes,
            properties: if is_whole { letter.properties } else { BTreeMap::new() },
            ..Self::default()
        };
        it.set_payload(letter.payload);
        it
    }

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

impl LetterService for Pulsar {
    async fn letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        limit: usize,
    ) -> anyhow::Result<LetterPage> {
        let (library, filter) = (self.shelves(queue).await?, filter.of_library());
        let (mut letters, mut next) = (Vec::new(), None);
        loop {
            let wanted = limit.saturating_sub(letters.len()).min(PAGE);
            let page = library.list(&filter, next, wanted).await?;
            letters.extend(page.letters.into_iter().map(Letter::of));
            next = page.next;
            if next.is_none() || letters.len() >= limit {
                return Ok(LetterPage { letters, has_more: next.is_some() });
            }
        }
    }

    async fn letter(&self, task: &TaskRef) -> anyhow::Result<Option<Letter>> {
        let letter = self.shelves(&task.topic).await?.show(task).await?;
        Ok(letter.map(Letter::of))
    }

    async fn replay(&self, task: &TaskRef, reason: &str) -> anyhow::Result<Replayed> {
        Ok(self.shelves(&task.topic).await?.replay(task, reason).await?)
    }

    async fn replay_all(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<Replays> {
        let replays = self.shelves(queue).await?.replay_all(filter.of_library(), reason);
        Ok(replays.map_ok(|(task, it)| (named(&task), it)).map_err(Into::into).boxed())
    }

    async fn purge_letter(&self, task: &TaskRef, reason: &str) -> anyhow::Result<bool> {
        Ok(self.shelves(&task.topic).await?.purge_one(task, reason).await?)
    }

    async fn purge_letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<LetterPurges> {
        let purges = self.shelves(queue).await?.purge(filter.of_library(), reason);
        Ok(purges.map_ok(|task| named(&task)).map_err(Into::into).boxed())
    }
}

impl Pulsar {
    /// The dead letters of an existing queue.
    async fn shelves(&self, queue: &str) -> anyhow::Result<DeadLetters> {
        self.require(queue).await?;
        Ok(self.client.queue(queue).dead_letters().await?)
    }
}
