//! The calls of Pulsar's admin interface that tests need.
//!
//! Minimal on purpose: the library sets topics up for tasks, and that is tested separately.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use longhaul::EntryId;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::wait::until;

const CALL_LIMIT: Duration = Duration::from_secs(30);
const DELETION_LIMIT: Duration = Duration::from_secs(60);
const COMPACTION_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two checks of a compaction.
const COMPACTION_GLANCE: Duration = Duration::from_millis(50);

/// A client of a broker's admin interface. Topics are given by full name,
/// `persistent://tenant/namespace/name`.
#[derive(Clone, Debug)]
pub struct Admin {
    url: String,
    http: Client,
}

impl Admin {
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Self> {
        // The HTTP client needs one even for plain HTTP. An error means that it is already
        // installed.
        rustls::crypto::ring::default_provider().install_default().ok();
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // Connections are not kept: they would belong to the runtime of the test that opened them,
        // and fail under the next one.
        let http = Client::builder().timeout(CALL_LIMIT).pool_max_idle_per_host(0);
        let http = http.default_headers(headers).build()?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), http })
    }

    /// Base URL, `http://host:port`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes any call; `path` follows `/admin/v2/`. An empty answer is `null`.
    ///
    /// # Errors
    /// The broker does not answer, or answers with an error.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let what = format!("{method} {path}");
        let (status, answer) = self.send(method, path, body).await.with_context(|| what.clone())?;
        if !status.is_success() {
            bail!("{what}: {status} {answer}");
        }
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&answer).with_context(|| format!("{what}: {answer}"))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String)> {
        self.send_to(method, &format!("admin/v2/{path}"), body).await
    }

    async fn send_to(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String)> {
        let mut request = self.http.request(method, format!("{}/{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        Ok((answer.status(), answer.text().await?))
    }

    /// Whether the broker serves topics of `public/default`.
    pub(super) async fn is_ready(&self) -> bool {
        let namespaces = self.call(Method::GET, "namespaces/public", None).await;
        let clusters = self.call(Method::GET, "clusters", None).await;
        clusters.is_ok() && namespaces.is_ok_and(|names| contains(&names, "public/default"))
    }

    /// Whether the broker reports that it publishes and reads.
    pub(super) async fn is_healthy(&self) -> bool {
        let answer = self.send(Method::GET, "brokers/health", None).await;
        answer.is_ok_and(|(status, text)| status.is_success() && text == "ok")
    }

    /// The service URL of the broker that owns a topic; an unowned topic is assigned to one.
    ///
    /// # Errors
    /// The broker does not answer, or names none.
    pub async fn owner(&self, topic: &str) -> Result<String> {
        let answer = self.look_up(topic, "").await?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        let url = answer.get("brokerUrl").and_then(Value::as_str).context("no broker's URL")?;
        Ok(url.to_owned())
    }

    /// The bundle of a topic's namespace: topics of one bundle always have the same owner.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn bundle(&self, topic: &str) -> Result<String> {
        self.look_up(topic, "/bundle").await
    }

    async fn look_up(&self, topic: &str, part: &str) -> Result<String> {
        let path = format!("lookup/v2/topic/{}", path(topic, part)?);
        let (status, answer) = self.send_to(Method::GET, &path, None).await?;
        if !status.is_success() {
            bail!("GET {path}: {status} {answer}");
        }
        Ok(answer)
    }

    /// Creates an unpartitioned topic.
    ///
    /// # Errors
    /// As for [`call`](Self::call), as for all calls below.
    pub async fn create_topic(&self, topic: &str) -> Result<()> {
        self.call(Method::PUT, &path(topic, "")?, None).await.map(drop)
    }

    /// Creates a topic with partitions.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn create_partitioned_topic(&self, topic: &str, partitions: u32) -> Result<()> {
        self.call(Method::PUT, &path(topic, "/partitions")?, Some(&partitions.into()))
            .await
            .map(drop)
    }

    /// The number of partitions; 0 for an unpartitioned topic.
    ///
    /// # Errors
    /// As for [`call`](Self::call), or the topic does not exist.
    pub async fn partitions(&self, topic: &str) -> Result<u64> {
        let answer = self.call(Method::GET, &path(topic, "/partitions")?, None).await?;
        answer
            .get("partitions")
            .and_then(Value::as_u64)
            .context("no number of partitions in the answer")
    }

    /// Deletes a topic, partitioned or not, even with connected clients.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn delete_topic(&self, topic: &str) -> Result<()> {
        let part = if self.partitions(topic).await? > 0 {
            "/partitions?force=true"
        } else {
            "?force=true"
        };
        self.call(Method::DELETE, &path(topic, part)?, None).await.map(drop)
    }

    /// Unloads a topic: the broker closes it, and its clients look it up again.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn unload(&self, topic: &str) -> Result<()> {
        self.call(Method::PUT, &path(topic, "/unload")?, None).await.map(drop)
    }

    /// Deletes a subscription of a topic or of one partition, even while consumers use it. Its name
    /// is written into the URL as it is.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn delete_subscription(&self, topic: &str, subscription: &str) -> Result<()> {
        let part = format!("/subscription/{subscription}?force=true");
        self.call(Method::DELETE, &path(topic, &part)?, None).await.map(drop)
    }

    /// Waits until the broker itself has deleted an unpartitioned topic.
    ///
    /// # Errors
    /// The broker does not answer, or has not deleted it within a minute.
    pub async fn gone(&self, topic: &str) -> Result<()> {
        let path = path(topic, "/internalStats")?;
        until(&format!("{topic} gone"), DELETION_LIMIT, async || {
            let (status, _) = self.send(Method::GET, &path, None).await?;
            Ok((status == StatusCode::NOT_FOUND).then_some(()))
        })
        .await
    }

    /// The statistics of an unpartitioned topic, or of one partition.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn stats(&self, topic: &str) -> Result<Value> {
        // Pulsar's running count is permanently wrong after the reset of a cursor that acks have
        // overtaken.
        self.call(Method::GET, &path(topic, "/stats?getPreciseBacklog=true")?, None).await
    }

    /// The number of messages not acknowledged on the workers' subscription, of an unpartitioned
    /// topic or of one partition.
    ///
    /// # Errors
    /// As for [`call`](Self::call), or there is no such subscription.
    pub async fn backlog(&self, topic: &str) -> Result<u64> {
        let stats = self.stats(topic).await?;
        let backlog = stats.pointer("/subscriptions/longhaul/msgBacklog").and_then(Value::as_i64);
        // Pulsar's counts may be negative for a moment.
        Ok(u64::try_from(backlog.context("no backlog in the statistics")?).unwrap_or_default())
    }

    /// Ledgers and cursors of an unpartitioned topic, or of one partition.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn internal_stats(&self, topic: &str) -> Result<Value> {
        self.call(Method::GET, &path(topic, "/internalStats")?, None).await
    }

    /// The subscription's mark-delete position on one partition: every entry at or below it is
    /// acknowledged. `None` if the subscription does not exist. `subscription` must
    /// consist of letters, digits and hyphens: brokers encode other characters in the names of
    /// cursors.
    ///
    /// A position before the first entry of ledger `n` is returned as the last possible entry of
    /// ledger `n - 1`, which is equivalent and avoids entry -1.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn mark_delete_position(
        &self,
        partition: &str,
        subscription: &str,
    ) -> Result<Option<EntryId>> {
        let stats = self.internal_stats(partition).await?;
        let cursor = stats.get("cursors").and_then(|cursors| cursors.get(subscription));
        let Some(cursor) = cursor else { return Ok(None) };
        let position = cursor.get("markDeletePosition").and_then(Value::as_str);
        let position = position.context("no mark-delete position in the statistics")?;
        let parsed = parse_mark_delete(position);
        parsed.map(Some).with_context(|| format!("not a position: `{position}`"))
    }

    /// Compacts a topic, or each of its partitions, and waits for the end.
    ///
    /// # Errors
    /// As for [`call`](Self::call), or the compaction fails, or takes more than a minute.
    pub async fn compact(&self, topic: &str) -> Result<()> {
        for topic in self.parts(topic).await? {
            let path = path(&topic, "/compaction")?;
            // Not `until`: a future that holds its closure is not `Send`.
            timeout(COMPACTION_LIMIT, self.compact_one(&path))
                .await
                .with_context(|| format!("compaction of {topic}"))??;
        }
        Ok(())
    }

    /// Compacts one topic. A compaction started by the threshold may be in progress and leave out
    /// the newest messages: then this waits for its end and compacts again.
    async fn compact_one(&self, path: &str) -> Result<()> {
        loop {
            let (status, answer) = self.send(Method::PUT, path, None).await?;
            if status != StatusCode::CONFLICT {
                ensure!(status.is_success(), "PUT {path}: {status} {answer}");
                return self.compacted(path).await;
            }
            sleep(COMPACTION_GLANCE).await;
        }
    }

    /// Waits until the compaction of a topic has ended.
    async fn compacted(&self, path: &str) -> Result<()> {
        loop {
            let answer = self.call(Method::GET, path, None).await?;
            match answer.get("status").and_then(Value::as_str) {
                Some("RUNNING") => sleep(COMPACTION_GLANCE).await,
                Some("SUCCESS") => return Ok(()),
                _ => bail!("{path}: {answer}"),
            }
        }
    }

    /// The topic's partitions, or the topic itself if it is unpartitioned.
    async fn parts(&self, topic: &str) -> Result<Vec<String>> {
        let partitions = self.partitions(topic).await?;
        if partitions == 0 {
            return Ok(vec![topic.to_owned()]);
        }
        Ok((0..partitions).map(|partition| format!("{topic}-partition-{partition}")).collect())
    }

    /// Sets a policy of a topic, e.g. `retention`.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn set_policy(&self, topic: &str, policy: &str, value: &Value) -> Result<()> {
        self.call(Method::POST, &path(topic, &format!("/{policy}"))?, Some(value)).await.map(drop)
    }

    /// Makes the broker keep all messages of a topic. Without retention or a subscription it trims
    /// what lies before the ledger in use: Pulsar looks every two minutes.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn keep_all(&self, topic: &str) -> Result<()> {
        let for_ever = json!({ "retentionTimeInMinutes": -1, "retentionSizeInMB": -1 });
        self.set_policy(topic, "retention", &for_ever).await
    }

    /// The effective policy of a topic, wherever it was set.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn policy(&self, topic: &str, policy: &str) -> Result<Value> {
        self.call(Method::GET, &path(topic, &format!("/{policy}?applied=true"))?, None).await
    }

    /// Latest schema registered for a topic: `type`, `data` (itself JSON for most types) and
    /// `properties`.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub async fn schema(&self, topic: &str) -> Result<Value> {
        let name = path(topic, "")?;
        let name = name.strip_prefix("persistent/").unwrap_or(&name);
        self.call(Method::GET, &format!("schemas/{name}/schema"), None).await
    }
}

/// Path of a topic's resource.
fn path(topic: &str, part: &str) -> Result<String> {
    let Some(name) = topic.strip_prefix("persistent://") else {
        bail!("{topic} is not a full topic name");
    };
    Ok(format!("persistent/{name}{part}"))
}

fn contains(names: &Value, name: &str) -> bool {
    names.as_array().is_some_and(|names| names.iter().any(|each| each == name))
}

fn parse_mark_delete(position: &str) -> Option<EntryId> {
    let (ledger, entry) = position.split_once(':')?;
    let ledger: u64 = ledger.parse().ok()?;
    match entry.parse::<i64>().ok()? {
        -1 => Some(EntryId { ledger: ledger.checked_sub(1)?, entry: u64::MAX }),
        entry => Some(EntryId { ledger, entry: u64::try_from(entry).ok()? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_delete_positions_keep_their_order() {
        let parse = |text| parse_mark_delete(text);
        assert_eq!(parse("3:7"), Some(EntryId { ledger: 3, entry: 7 }));
        assert_eq!(parse("9:-1"), Some(EntryId { ledger: 8, entry: u64::MAX }));
        assert!(parse("3:7") < parse("9:-1") && parse("9:-1") < parse("9:0"));
        for text in ["", "3", "3:", "a:b", "-1:-1", "0:-1", "3:-2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
