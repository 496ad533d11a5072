//! Tasks in requests.

use crate::values::{Instant, Length, present};
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::protocol::waits::AfterFailed;
use longhaul_core::task::Priority;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A task to submit. Set one of `payload`, `payload_base64` and `payload_json`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewTask)]
pub struct NewTaskBody {
    /// The payload, as text.
    pub payload: Option<String>,
    /// The payload, in base64.
    pub payload_base64: Option<String>,
    /// The payload, as any JSON value, `null` included. It is stored byte for byte.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub payload_json: Option<Box<RawValue>>,
    /// Your own properties, which the worker gets.
    pub properties: BTreeMap<String, String>,
    /// The type of the task: workers may request some types only. Up to 128 bytes.
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    /// Your name for the task. Up to 256 bytes.
    pub key: Option<String>,
    /// Words to find the task by: up to 16, each of up to 64 bytes.
    pub tags: Vec<String>,
    /// `high`, `normal` or `low`.
    #[schema(value_type = PriorityBody)]
    pub priority: Priority,
    /// The earliest start, as a time from now.
    pub delay: Option<Length>,
    /// The earliest start. An instant in the past means now.
    pub scheduled_at: Option<Instant>,
    /// No attempt begins after this instant.
    pub expires_at: Option<Instant>,
    /// Of all tasks with this key, one runs, and every submit with the key returns its id. You can also send the header `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Of all unfinished tasks with this key, one runs.
    pub dedupe_key: Option<String>,
    /// With a dedupe key: this task replaces the unfinished task that holds the key.
    pub overwrite: bool,
    /// With a key: another payload under the same key is an error (`key_conflict`).
    pub strict: bool,
    /// The limits of this key in the settings of the queue apply.
    pub limit_key: Option<String>,
    /// On a queue with an order: tasks with this key run one at a time, in the order of their submission.
    pub order_key: Option<String>,
    /// The most attempts: 1 to 1,000.
    pub max_attempts: Option<u32>,
    /// The time limit of an attempt.
    pub max_duration: Option<Length>,
    /// The time limit of the task, over all attempts.
    pub max_total_duration: Option<Length>,
    /// An attempt that reports nothing for this long has failed.
    pub no_progress_timeout: Option<Length>,
    pub retry: Option<RetryBody>,
    /// Ids of tasks of this queue that must be over first.
    pub after: Vec<String>,
    /// Idempotency or dedupe keys of tasks of this queue that must be over first.
    pub after_keys: Vec<String>,
    /// If one of the tasks in `after` and `after_keys` ends without a result, this task fails (`fail`, the default), is cancelled (`skip`), or runs anyway (`run`).
    #[schema(value_type = Option<String>)]
    pub after_failed: Option<AfterFailed>,
}

// [`Priority`] as the OpenAPI document has it: its crate does not know of such documents.
/// The priority level of a task: higher levels go first.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
#[schema(as = Priority, rename_all = "lowercase")]
pub enum PriorityBody {
    High,
    #[default]
    Normal,
    Low,
}

/// The pauses between attempts: with `base` and `max`, random times below a ceiling that doubles from `base` to `max`; or `intervals`, of which N make N + 1 attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Retry)]
pub struct RetryBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Length>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Length>,
}

impl TryFrom<RetryBody> for RetryPolicy {
    type Error = String;

    fn try_from(RetryBody { base, max, intervals }: RetryBody) -> Result<Self, String> {
        let all = Self::default();
        match (base, max, intervals.is_empty()) {
            (None, None, true) => {
                Err("`retry` is empty: set `base` and `max`, or `intervals`".to_owned())
            }
            (base, max, true) => Ok(Self::exponential(
                base.map_or(all.base, |it| it.0),
                max.map_or(all.max, |it| it.0),
            )),
            (None, None, false) => {
                Ok(Self::intervals(intervals.into_iter().map(|it| it.0).collect::<Vec<_>>()))
            }
            _ => Err("`retry` has both: set `base` and `max`, or `intervals`".to_owned()),
        }
    }
}

impl From<&RetryPolicy> for RetryBody {
    fn from(RetryPolicy { base, max, intervals }: &RetryPolicy) -> Self {
        if intervals.is_empty() {
            return Self {
                base: Some(Length(*base)),
                max: Some(Length(*max)),
                intervals: Vec::new(),
            };
        }
        Self { intervals: intervals.iter().map(|it| Length(*it)).collect(), ..Self::default() }
    }
}
