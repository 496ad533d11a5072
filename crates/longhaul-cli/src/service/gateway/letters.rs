//! Dead letters.

use super::address::QueueAddress;
use super::{GatewayClient, early_end, found};
use crate::service::letters::{Letter, LetterFilter, LetterPage, LetterPurges, Replays};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::TaskRef;
use longhaul::ops::Replayed;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Letters per page.
const PAGE: usize = 1_000;

#[derive(Debug, Deserialize)]
struct ToldShelf {
    dead_letters: Vec<DeadLetterResponse>,
    next: Option<String>,
}

/// A letter in a gateway's answer.
#[derive(Debug, Deserialize)]
struct DeadLetterResponse {
    task: String,
    at: u64,
    attempts: u32,
    reason: String,
    detail: Option<String>,
    replay_of: Option<String>,
    #[serde(rename = "type")]
    task_type: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    key: Option<String>,
    #[serde(default)]
    properties: BTreeMap<String, String>,
    payload_bytes: usize,
    payload_base64: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ReplayOutcomesResponse {
    outcomes: Vec<ToldReplay>,
    stopped: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToldReplay {
    task: String,
    outcome: String,
    other: Option<String>,
}

#[derive(Debug, Deserialize)]
struct PurgedLettersResponse {
    purged: u64,
    stopped: Option<String>,
}

impl DeadLetterResponse {
    fn letter(self, of: &QueueAddress) -> anyhow::Result<Letter> {
        let bytes = self.payload_base64.map(|it| STANDARD.decode(it)).transpose()?.map(Bytes::from);
        let mut letter = Letter {
            task: of.shown(&self.task),
            published_ms: self.at,
            attempts: self.attempts,
            reason: self.reason,
            detail: self.detail,
            replay_of: self.replay_of.map(|it| of.shown(&it)),
            task_type: self.task_type,
            key: self.key,
            tags: self.tags,
            payload_bytes: self.payload_bytes,
            properties: self.properties,
            ..Letter::default()
        };
        letter.set_payload(bytes);
        Ok(letter)
    }
}

impl ToldReplay {
    fn replayed(self, of: &QueueAddress) -> anyhow::Result<(String, Replayed)> {
        let other = || of.task(self.other.as_deref().unwrap_or_default());
        let replayed = match self.outcome.as_str() {
            "RESTARTED" => Replayed::Restarted(other()?),
            "NOT_DEAD" => Replayed::NotDead,
            "DEDUPE_CONFLICT" => Replayed::DedupeConflict(other()?),
            "NO_PAYLOAD" => Replayed::NoPayload,
            _ => Replayed::NotFound,
        };
        Ok((of.shown(&self.task), replayed))
    }
}

/// A filter as a gateway's request body.
fn selection(filter: &LetterFilter, reason: &str) -> Value {
    json!({
        "reason": reason,
        "all": *filter == LetterFilter::default(),
        "failed_with": filter.contains,
        "tag": filter.tags,
        "type": filter.task_type,
        "key": filter.key,
        "failed_from": filter.published.as_ref().map(|it| *it.start()),
        "failed_to": filter.published.as_ref().map(|it| *it.end()),
    })
}

impl GatewayClient {
    pub(crate) async fn letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        limit: usize,
    ) -> anyhow::Result<LetterPage> {
        let of = QueueAddress::of(queue)?;
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let mut asked = vec![
            ("reason", text(&filter.contains)),
            ("tag", filter.tags.join(",")),
            ("type", text(&filter.task_type)),
            ("key", text(&filter.key)),
        ];
        if let Some(range) = &filter.published {
            asked.push(("failed_from", range.start().to_string()));
            asked.push(("failed_to", range.end().to_string()));
        }
        asked.retain(|(_, text)| !text.is_empty());
        let (mut letters, mut next) = (Vec::new(), None);
        loop {
            let mut page = asked.clone();
            page.extend(next.map(|after| ("after", after)));
            page.push(("limit", (limit - letters.len()).clamp(1, PAGE).to_string()));
            let told: ToldShelf = self.get(&of.below(&["dead"]), &page).await?;
            for letter in told.dead_letters {
                let properties = BTreeMap::new();
                letters.push(Letter { properties, ..letter.letter(&of)? });
            }
            next = told.next;
            if next.is_none() || letters.len() >= limit {
                return Ok(LetterPage { letters, has_more: next.is_some() });
            }
        }
    }

    pub(crate) async fn letter(&self, task: &TaskRef) -> anyhow::Result<Option<Letter>> {
        let (of, name) = QueueAddress::of_task(task)?;
        let from = of.whole(&["dead", &name.to_string()]);
        let told: Option<DeadLetterResponse> = found(self.get(&from, &[]).await)?;
        told.map(|it| it.letter(&of)).transpose()
    }

    pub(crate) async fn replay(&self, task: &TaskRef, reason: &str) -> anyhow::Result<Replayed> {
        let (of, name) = QueueAddress::of_task(task)?;
        let body = json!({ "reason": reason, "tasks": [name.to_string()] });
        let to = of.whole(&["dead:replay"]);
        let told: ReplayOutcomesResponse = self.work(&to, &body).await?;
        match told.outcomes.into_iter().next() {
            Some(told) => Ok(told.replayed(&of)?.1),
            None => Ok(Replayed::NotFound),
        }
    }

    pub(crate) async fn replay_all(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<Replays> {
        let of = QueueAddress::of(queue)?;
        let to = of.below(&["dead:replay"]);
        let told: ReplayOutcomesResponse = self.work(&to, &selection(filter, reason)).await?;
        let stopped = told.stopped.map(|why| Err(early_end(&why)));
        let replayed = told.outcomes.into_iter().map(|it| it.replayed(&of));
        Ok(replayed.chain(stopped).collect())
    }

    pub(crate) async fn purge_letter(&self, task: &TaskRef, reason: &str) -> anyhow::Result<bool> {
        let (of, name) = QueueAddress::of_task(task)?;
        let body = json!({ "reason": reason, "tasks": [name.to_string()] });
        let to = of.whole(&["dead:purge"]);
        let told: PurgedLettersResponse = self.work(&to, &body).await?;
        Ok(told.purged > 0)
    }

    pub(crate) async fn purge_letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<LetterPurges> {
        let to = QueueAddress::of(queue)?.below(&["dead:purge"]);
        let told: PurgedLettersResponse = self.work(&to, &selection(filter, reason)).await?;
        let many = if told.purged == 1 { "" } else { "s" };
        let what = format!("{} dead letter{many}", told.purged);
        let purged = (told.purged > 0).then_some(Ok(what));
        let stopped = told.stopped.map(|why| Err(early_end(&why)));
        Ok(purged.into_iter().chain(stopped).collect())
    }
}
