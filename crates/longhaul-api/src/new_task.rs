//! Tasks in requests.

#![expect(
    missing_docs,
    reason = "the OpenAPI document has these texts: a text that repeats a name helps nobody"
)]

use crate::UnfitBody;
use crate::values::{Instant, Length, present};
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::protocol::waits::AfterFailed;
use longhaul_core::task::Priority;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A task. It has its payload in one of `payload`, `payload_base64` and `payload_json`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewTask)]
pub struct NewTaskBody {
    /// The payload, as text.
    pub payload: Option<String>,
    /// The payload, in base64.
    pub payload_base64: Option<String>,
    /// The payload, as JSON of any kind. It is stored as it is sent, `null` included.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub payload_json: Option<Box<RawValue>>,
    /// Properties of your own, which the worker gets.
    pub properties: BTreeMap<String, String>,
    /// What kind of task it is: workers may ask for some types only. Up to 128 bytes.
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    /// What you call it. Up to 256 bytes.
    pub key: Option<String>,
    /// Words to find it by: up to 16 of up to 64 bytes.
    pub tags: Vec<String>,
    /// `high`, `normal` or `low`.
    #[schema(value_type = PriorityBody)]
    pub priority: Priority,
    /// It does not start before so long from now.
    pub delay: Option<Length>,
    /// It does not start before this instant; one that has passed means now.
    pub scheduled_at: Option<Instant>,
    /// No attempt begins after this instant.
    pub expires_at: Option<Instant>,
    /// Of all tasks with this key one is run, and each submit with it answers with that one. Also by the header `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Of all tasks with this key that are not over one is run.
    pub dedupe_key: Option<String>,
    /// With a dedupe key: the task takes the place of the one that holds it.
    pub overwrite: bool,
    /// With a key: another payload under the same key is an error (`key_conflict`).
    pub strict: bool,
    /// The limits of this key in the settings of the queue apply.
    pub limit_key: Option<String>,
    /// On a queue with an order: of all tasks with this key one is run at a time, in the order in which they were submitted.
    pub order_key: Option<String>,
    /// 1 to 1,000.
    pub max_attempts: Option<u32>,
    /// The longest that an attempt may take.
    pub max_duration: Option<Length>,
    /// The longest that the task may take, over all attempts.
    pub max_total_duration: Option<Length>,
    /// An attempt that reports nothing for so long has failed.
    pub no_progress_timeout: Option<Length>,
    pub retry: Option<RetryBody>,
    /// Ids of tasks of this queue that must be over first.
    pub after: Vec<String>,
    /// Idempotency or dedupe keys of tasks of this queue that must be over first.
    pub after_keys: Vec<String>,
    /// What becomes of it if one of those has no result: `fail` (the default), `skip`, by which it is cancelled, or `run`.
    #[schema(value_type = Option<String>)]
    pub after_failed: Option<AfterFailed>,
}

// [`Priority`] as the OpenAPI document has it: its crate does not know of such documents.
/// Which tasks go first.
#[derive(Clone, Copy, Debug, Default, ToSchema)]
#[schema(as = Priority, rename_all = "lowercase")]
pub enum PriorityBody {
    High,
    #[default]
    Normal,
    Low,
}

/// How long a task waits between its attempts: a random time below a ceiling that doubles from `base` to `max`; or the intervals, which make one attempt more
/// than there are intervals.
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
    type Error = UnfitBody;

    fn try_from(RetryBody { base, max, intervals }: RetryBody) -> Result<Self, UnfitBody> {
        let all = Self::default();
        match (base, max, intervals.is_empty()) {
            (None, None, true) => {
                Err(UnfitBody::new("`retry` is empty: set `base` and `max`, or `intervals`"))
            }
            (base, max, true) => Ok(Self::exponential(
                base.map_or(all.base, |it| it.0),
                max.map_or(all.max, |it| it.0),
            )),
            (None, None, false) => {
                Ok(Self::intervals(intervals.into_iter().map(|it| it.0).collect::<Vec<_>>()))
            }
            _ => Err(UnfitBody::new("`retry` has both: set `base` and `max`, or `intervals`")),
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
