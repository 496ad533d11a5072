//! Dead letters, through a gateway.

use super::{GatewayClient, GatewayRoute, early_end, level_and_name, level_of, shown, task_of};
use crate::exit::{Code, CommandFailure};
use crate::service::letters::{
    Letter, LetterFilter, LetterPage, LetterPurges, LetterService, Replays,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt, stream};
use longhaul::TaskRef;
use longhaul::ops::Replayed;
use longhaul_api::QueueName;
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
    fn letter(self, queue: &QueueName) -> anyhow::Result<Letter> {
        let bytes = self.payload_base64.map(|it| STANDARD.decode(it)).transpose()?.map(Bytes::from);
        let mut letter = Letter {
            task: shown(queue, &self.task),
            published_ms: self.at,
            attempts: self.attempts,
            reason: self.reason,
            detail: self.detail,
            replay_of: self.replay_of.map(|it| shown(queue, &it)),
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
    fn replayed(self, queue: &QueueName) -> anyhow::Result<(String, Replayed)> {
        let other = || task_of(queue, self.other.as_deref().unwrap_or_default());
        let replayed = match self.outcome.as_str() {
            "RESTARTED" => Replayed::Restarted(other()?),
            "NOT_DEAD" => Replayed::NotDead,
            "DEDUPE_CONFLICT" => Replayed::DedupeConflict(other()?),
            "NO_PAYLOAD" => Replayed::NoPayload,
            _ => Replayed::NotFound,
        };
        Ok((shown(queue, &self.task), replayed))
    }
}

/// A filter as a gateway's request body.
fn selection(filter: &LetterFilter, reason: &str) -> anyhow::Result<Value> {
    if filter.published.is_some() {
        return Err(CommandFailure::usage("a gateway does not filter dead letters by time")
            .help("ask the broker: --service-url in place of --gateway")
            .into());
    }
    Ok(json!({
        "reason": reason,
        "all": *filter == LetterFilter::default(),
        "failed_with": filter.contains,
        "tag": filter.tags,
        "type": filter.task_type,
        "key": filter.key,
    }))
}

impl LetterService for GatewayClient {
    async fn letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        limit: usize,
    ) -> anyhow::Result<LetterPage> {
        selection(filter, "")?;
        let of = level_of(queue)?;
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let mut asked = vec![
            ("reason", text(&filter.contains)),
            ("tag", filter.tags.join(",")),
            ("type", text(&filter.task_type)),
            ("key", text(&filter.key)),
        ];
        asked.retain(|(_, text)| !text.is_empty());
        let (mut letters, mut next) = (Vec::new(), None);
        loop {
            let mut page = asked.clone();
            page.extend(next.map(|after| ("after", after)));
            page.push(("limit", (limit - letters.len()).clamp(1, PAGE).to_string()));
            let told: ToldShelf = self.get(&GatewayRoute::below(&of, &["dead"]), &page).await?;
            for letter in told.dead_letters {
                let properties = BTreeMap::new();
                letters.push(Letter { properties, ..letter.letter(of.queue())? });
            }
            next = told.next;
            if next.is_none() || letters.len() >= limit {
                return Ok(LetterPage { letters, has_more: next.is_some() });
            }
        }
    }

    async fn letter(&self, task: &TaskRef) -> anyhow::Result<Option<Letter>> {
        let (of, name) = level_and_name(task)?;
        let from = GatewayRoute::of_queue(of.queue(), &["dead", &name.to_string()]);
        match self.get::<DeadLetterResponse>(&from, &[]).await {
            Ok(told) => told.letter(of.queue()).map(Some),
            Err(error) if crate::exit::code_of(&error) == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn replay(&self, task: &TaskRef, reason: &str) -> anyhow::Result<Replayed> {
        let (of, name) = level_and_name(task)?;
        let body = json!({ "reason": reason, "tasks": [name.to_string()] });
        let to = GatewayRoute::of_queue(of.queue(), &["dead:replay"]);
        let told: ReplayOutcomesResponse = self.work(&to, &body).await?;
        match told.outcomes.into_iter().next() {
            Some(told) => Ok(told.replayed(of.queue())?.1),
            None => Ok(Replayed::NotFound),
        }
    }

    async fn replay_all(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<Replays> {
        let of = level_of(queue)?;
        let to = GatewayRoute::below(&of, &["dead:replay"]);
        let told: ReplayOutcomesResponse = self.work(&to, &selection(filter, reason)?).await?;
        let stopped = told.stopped.map(|why| Err(early_end(&why)));
        let replayed = told.outcomes.into_iter().map(|it| it.replayed(of.queue()));
        Ok(stream::iter(replayed.chain(stopped).collect::<Vec<_>>()).boxed())
    }

    async fn purge_letter(&self, task: &TaskRef, reason: &str) -> anyhow::Result<bool> {
        let (of, name) = level_and_name(task)?;
        let body = json!({ "reason": reason, "tasks": [name.to_string()] });
        let to = GatewayRoute::of_queue(of.queue(), &["dead:purge"]);
        let told: PurgedLettersResponse = self.work(&to, &body).await?;
        Ok(told.purged > 0)
    }

    async fn purge_letters(
        &self,
        queue: &str,
        filter: &LetterFilter,
        reason: &str,
    ) -> anyhow::Result<LetterPurges> {
        let to = GatewayRoute::below(&level_of(queue)?, &["dead:purge"]);
        let told: PurgedLettersResponse = self.work(&to, &selection(filter, reason)?).await?;
        let many = if told.purged == 1 { "" } else { "s" };
        let what = format!("{} dead letter{many}", told.purged);
        let purged = (told.purged > 0).then_some(Ok(what));
        let stopped = told.stopped.map(|why| Err(early_end(&why)));
        Ok(stream::iter(purged.into_iter().chain(stopped).collect::<Vec<_>>()).boxed())
    }
}
