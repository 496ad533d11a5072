//! Bodies that submit tasks: JSON, or a raw payload with all options in the query.

use super::values::{Instant, Length, WordList, json_bytes, present};
use crate::core::{NewTask, ServiceError, TaskName};
use crate::problem::ProblemDetails;
use crate::shell::RawBody;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longhaul::{AfterFailed, Priority, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// The property that stores the content type of a raw body.
pub(crate) const CONTENT_TYPE_PROPERTY: &str = "CONTENT_TYPE";

/// The header of an idempotency key.
const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

/// A task. It has its payload in one of `payload`, `payload_base64` and `payload_json`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewTask)]
pub(crate) struct NewTaskBody {
    /// The payload, as text.
    pub(crate) payload: Option<String>,
    /// The payload, in base64.
    pub(crate) payload_base64: Option<String>,
    /// The payload, as JSON of any kind. It is stored as it is sent, `null` included.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub(crate) payload_json: Option<Box<RawValue>>,
    /// Properties of your own, which the worker gets.
    pub(crate) properties: BTreeMap<String, String>,
    /// What kind of task it is: workers may ask for some types only. Up to 128 bytes.
    #[serde(rename = "type")]
    pub(crate) task_type: Option<String>,
    /// What you call it. Up to 256 bytes.
    pub(crate) key: Option<String>,
    /// Words to find it by: up to 16 of up to 64 bytes.
    pub(crate) tags: Vec<String>,
    /// `high`, `normal` or `low`.
    pub(crate) priority: PriorityBody,
    /// It does not start before so long from now.
    pub(crate) delay: Option<Length>,
    /// It does not start before this instant; one that has passed means now.
    pub(crate) scheduled_at: Option<Instant>,
    /// No attempt begins after this instant.
    pub(crate) expires_at: Option<Instant>,
    /// Of all tasks with this key one is run, and each submit with it answers with that one. Also by the header `Idempotency-Key`.
    pub(crate) idempotency_key: Option<String>,
    /// Of all tasks with this key that are not over one is run.
    pub(crate) dedupe_key: Option<String>,
    /// With a dedupe key: the task takes the place of the one that holds it.
    pub(crate) overwrite: bool,
    /// With a key: another payload under the same key is an error (`key_conflict`).
    pub(crate) strict: bool,
    /// The limits of this key in the settings of the queue apply.
    pub(crate) limit_key: Option<String>,
    /// On a queue with an order: of all tasks with this key one is run at a time, in the order in which they were submitted.
    pub(crate) order_key: Option<String>,
    /// 1 to 1,000.
    pub(crate) max_attempts: Option<u32>,
    /// The longest that an attempt may take.
    pub(crate) max_duration: Option<Length>,
    /// The longest that the task may take, over all attempts.
    pub(crate) max_total_duration: Option<Length>,
    /// An attempt that reports nothing for so long has failed.
    pub(crate) no_progress_timeout: Option<Length>,
    pub(crate) retry: Option<RetryBody>,
    /// Ids of tasks of this queue that must be over first.
    pub(crate) after: Vec<String>,
    /// Idempotency or dedupe keys of tasks of this queue that must be over first.
    pub(crate) after_keys: Vec<String>,
    /// What becomes of it if one of those has no result: `fail` (the default), `skip`, by which it is cancelled, or `run`.
    #[schema(value_type = Option<String>)]
    pub(crate) after_failed: Option<AfterFailed>,
}

/// The same for a body that is the payload itself: behind `?`.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTerms {
    /// For raw bodies: what kind of task it is.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    task_type: Option<String>,
    /// For raw bodies: what you call it.
    key: Option<String>,
    /// For raw bodies: words to find it by, with commas between them.
    #[param(value_type = String)]
    tags: WordList,
    /// For raw bodies: `high`, `normal` or `low`.
    priority: PriorityBody,
    /// For raw bodies: it does not start before so long from now.
    delay: Option<Length>,
    /// For raw bodies: it does not start before this instant.
    scheduled_at: Option<Instant>,
    /// For raw bodies: no attempt begins after this instant.
    expires_at: Option<Instant>,
    /// For raw bodies; also by the header `Idempotency-Key`.
    idempotency_key: Option<String>,
    /// For raw bodies.
    dedupe_key: Option<String>,
    /// For raw bodies.
    overwrite: bool,
    /// For raw bodies.
    limit_key: Option<String>,
    /// For raw bodies.
    order_key: Option<String>,
    /// For raw bodies.
    max_attempts: Option<u32>,
    /// For raw bodies.
    max_duration: Option<Length>,
}

/// Which tasks go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Priority)]
pub(crate) enum PriorityBody {
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
pub(crate) struct RetryBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<Length>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) intervals: Vec<Length>,
}

impl From<PriorityBody> for Priority {
    fn from(level: PriorityBody) -> Self {
        match level {
            PriorityBody::High => Self::High,
            PriorityBody::Normal => Self::Normal,
            PriorityBody::Low => Self::Low,
        }
    }
}

impl TryFrom<RetryBody> for RetryPolicy {
    type Error = ServiceError;

    fn try_from(RetryBody { base, max, intervals }: RetryBody) -> Result<Self, ServiceError> {
        let all = Self::default();
        match (base, max, intervals.is_empty()) {
            (None, None, true) => {
                Err(unfit("`retry` has `base` and `max`, or `intervals`; it is empty"))
            }
            (base, max, true) => Ok(Self::exponential(
                base.map_or(all.base, |it| it.0),
                max.map_or(all.max, |it| it.0),
            )),
            (None, None, false) => {
                Ok(Self::intervals(intervals.into_iter().map(|it| it.0).collect::<Vec<_>>()))
            }
            _ => Err(unfit("`retry` has `base` and `max`, or `intervals`, not both")),
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

fn unfit(text: &str) -> ServiceError {
    ServiceError::Unfit(text.to_owned())
}

impl NewTaskBody {
    /// The task, if the fields are consistent.
    pub(crate) fn into_task(mut self) -> Result<NewTask, ServiceError> {
        let payload = self.take_payload()?;
        let after: Result<Vec<TaskName>, _> = self.after.iter().map(|id| id.parse()).collect();
        if self.delay.is_some() && self.scheduled_at.is_some() {
            return Err(unfit("a task has `delay` or `scheduled_at`, not both"));
        }
        Ok(NewTask {
            payload,
            properties: self.properties,
            task_type: self.task_type,
            key: self.key,
            tags: self.tags,
            priority: self.priority.into(),
            delay: self.delay.map(|it| it.0),
            scheduled_at: self.scheduled_at.map(|it| it.0),
            expires_at: self.expires_at.map(|it| it.0),
            idempotency_key: self.idempotency_key,
            dedupe_key: self.dedupe_key,
            overwrite: self.overwrite,
            strict: self.strict,
            limit_key: self.limit_key,
            order_key: self.order_key,
            max_attempts: self.max_attempts,
            max_duration: self.max_duration.map(|it| it.0),
            max_total_duration: self.max_total_duration.map(|it| it.0),
            no_progress_timeout: self.no_progress_timeout.map(|it| it.0),
            retry: self.retry.map(RetryPolicy::try_from).transpose()?,
            after: after?,
            after_keys: self.after_keys,
            after_failed: self.after_failed,
        })
    }

    fn take_payload(&mut self) -> Result<Bytes, ServiceError> {
        let forms = (self.payload.take(), self.payload_base64.take(), self.payload_json.take());
        match forms {
            (Some(text), None, None) => Ok(Bytes::from(text)),
            (None, Some(text), None) => STANDARD.decode(text).map(Bytes::from).map_err(|error| {
                ServiceError::Unfit(format!("`payload_base64` is not base64: {error}"))
            }),
            (None, None, Some(json)) => Ok(json_bytes(json)),
            (None, None, None) => Err(unfit(
                "a task has its payload in `payload`, `payload_base64` or `payload_json`; all of them are missing",
            )),
            _ => Err(unfit(
                "a task has its payload in one of `payload`, `payload_base64` and `payload_json`; there is more than one",
            )),
        }
    }
}

impl RawTerms {
    fn into_task(
        self,
        payload: Bytes,
        content_type: Option<String>,
    ) -> Result<NewTask, ServiceError> {
        if self.delay.is_some() && self.scheduled_at.is_some() {
            return Err(unfit("a task has `delay` or `scheduled_at`, not both"));
        }
        let content_type = content_type.map(|it| (CONTENT_TYPE_PROPERTY.to_owned(), it));
        Ok(NewTask {
            payload,
            properties: content_type.into_iter().collect(),
            task_type: self.task_type,
            key: self.key,
            tags: self.tags.0,
            priority: self.priority.into(),
            delay: self.delay.map(|it| it.0),
            scheduled_at: self.scheduled_at.map(|it| it.0),
            expires_at: self.expires_at.map(|it| it.0),
            idempotency_key: self.idempotency_key,
            dedupe_key: self.dedupe_key,
            overwrite: self.overwrite,
            limit_key: self.limit_key,
            order_key: self.order_key,
            max_attempts: self.max_attempts,
            max_duration: self.max_duration.map(|it| it.0),
            ..NewTask::default()
        })
    }
}

/// The task of a request.
pub(crate) fn new_task(
    headers: &HeaderMap,
    terms: RawTerms,
    has_query: bool,
    body: RawBody,
) -> Result<NewTask, ProblemDetails> {
    let mut task = if body.is_json() {
        if has_query {
            let detail = "a task in JSON says everything in its body; what stands behind `?` is for bodies that are the payload itself";
            return Err(ProblemDetails::bad_request("query_invalid", detail));
        }
        body.json::<NewTaskBody>()?.into_task()?
    } else {
        // That of `curl --data` without a header, which sends JSON more often than a form.
        if matches!(body.content_type.as_deref(), None | Some("application/x-www-form-urlencoded"))
        {
            let detail = "the request does not say what its body is; send `Content-Type: application/json`, or another one, such as `application/octet-stream`, for a body that is the payload itself";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ProblemDetails::new(status, "content_type_missing", detail));
        }
        terms.into_task(body.bytes, body.content_type)?
    };
    if let Some(key) = idempotency_key(headers)? {
        if task.idempotency_key.as_deref().is_some_and(|other| other != key) {
            let detail = "the header `Idempotency-Key` and the field `idempotency_key` differ; send one of them";
            return Err(ProblemDetails::bad_request("idempotency_key_invalid", detail));
        }
        task.idempotency_key = Some(key.to_owned());
    }
    Ok(task)
}

/// The idempotency key header. Several are refused, since their order is undefined.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ProblemDetails> {
    let invalid = |detail| ProblemDetails::bad_request("idempotency_key_invalid", detail);
    let mut keys = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err(invalid("the header `Idempotency-Key` is there more than once; send one"));
    }
    let key = key.to_str();
    key.map(Some).map_err(|_| invalid("the header `Idempotency-Key` is not ASCII text"))
}
