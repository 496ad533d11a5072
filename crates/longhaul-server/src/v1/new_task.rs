//! Bodies that submit tasks: JSON, or a raw payload with all options in the query.

use super::values::{WordList, bytes_of};
use crate::core::{NewTask, ServiceError, TaskName};
use crate::problem::ProblemDetails;
use crate::shell::RawBody;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use longhaul::RetryPolicy;
use longhaul_api::Priority;
use longhaul_api::new_task::{NewTaskBody, PriorityBody};
use longhaul_api::values::{Instant, Length};
use serde::Deserialize;
use utoipa::IntoParams;

/// The property that stores the content type of a raw body.
pub(crate) const CONTENT_TYPE_PROPERTY: &str = "CONTENT_TYPE";

/// The header of an idempotency key.
const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

/// The options of a task whose body is its payload, as query parameters.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTerms {
    /// For raw bodies: the type of the task.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    task_type: Option<String>,
    /// For raw bodies: your name for the task.
    key: Option<String>,
    /// For raw bodies: words to find the task by, separated by commas.
    #[param(value_type = String)]
    tags: WordList,
    /// For raw bodies: `high`, `normal` or `low`.
    #[param(value_type = PriorityBody)]
    priority: Priority,
    /// For raw bodies: the earliest start, as a time from now.
    delay: Option<Length>,
    /// For raw bodies: the earliest start.
    scheduled_at: Option<Instant>,
    /// For raw bodies: no attempt begins after this instant.
    expires_at: Option<Instant>,
    /// For raw bodies: of all tasks with this key, one runs. Or send the header `Idempotency-Key`.
    idempotency_key: Option<String>,
    /// For raw bodies: of all unfinished tasks with this key, one runs.
    dedupe_key: Option<String>,
    /// For raw bodies: with a dedupe key, this task replaces the unfinished task that holds it.
    overwrite: bool,
    /// For raw bodies: the limits of this key in the queue's settings apply.
    limit_key: Option<String>,
    /// For raw bodies: on a queue with an order, tasks with this key run one at a time.
    order_key: Option<String>,
    /// For raw bodies: the most attempts, 1 to 1,000.
    max_attempts: Option<u32>,
    /// For raw bodies: the time limit of an attempt.
    max_duration: Option<Length>,
}

fn unfit(text: &str) -> ServiceError {
    ServiceError::Unfit(text.to_owned())
}

/// The task, if the fields are consistent.
pub(crate) fn into_task(mut it: NewTaskBody) -> Result<NewTask, ServiceError> {
    let (text, base64) = (it.payload.take(), it.payload_base64.take());
    let payload = bytes_of("payload", text, base64, it.payload_json.take())?;
    let none = "the task has no payload: set `payload`, `payload_base64` or `payload_json`";
    checked(payload.ok_or_else(|| unfit(none))?, it)
}

/// The task with this payload, if the other fields are consistent.
fn checked(payload: Bytes, mut terms: NewTaskBody) -> Result<NewTask, ServiceError> {
    if terms.delay.is_some() && terms.scheduled_at.is_some() {
        return Err(unfit("set `delay` or `scheduled_at`, not both"));
    }
    let retry = terms.retry.take().map(RetryPolicy::try_from).transpose();
    let retry = retry.map_err(ServiceError::Unfit)?;
    let after = std::mem::take(&mut terms.after);
    let after = after.iter().map(|id| id.parse()).collect::<Result<Vec<TaskName>, _>>()?;
    Ok(NewTask { payload, terms, retry, after })
}

impl RawTerms {
    fn into_task(
        self,
        payload: Bytes,
        content_type: Option<String>,
    ) -> Result<NewTask, ServiceError> {
        let content_type = content_type.map(|it| (CONTENT_TYPE_PROPERTY.to_owned(), it));
        let terms = NewTaskBody {
            properties: content_type.into_iter().collect(),
            task_type: self.task_type,
            key: self.key,
            tags: self.tags.0,
            priority: self.priority,
            delay: self.delay,
            scheduled_at: self.scheduled_at,
            expires_at: self.expires_at,
            idempotency_key: self.idempotency_key,
            dedupe_key: self.dedupe_key,
            overwrite: self.overwrite,
            limit_key: self.limit_key,
            order_key: self.order_key,
            max_attempts: self.max_attempts,
            max_duration: self.max_duration,
            ..NewTaskBody::default()
        };
        checked(payload, terms)
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
            let detail = "query parameters are only for bodies that are the payload itself; put \
                the fields into the JSON body";
            return Err(ProblemDetails::bad_request("query_invalid", detail));
        }
        into_task(body.json()?)?
    } else {
        if body.content_type.is_none() && body.bytes.is_empty() {
            let detail = "the request has no body; send the task as JSON, or its payload. An empty \
                payload needs a content type, such as `application/octet-stream`";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ProblemDetails::new(status, "content_type_missing", detail));
        }
        terms.into_task(body.bytes, body.content_type)?
    };
    if let Some(key) = idempotency_key(headers)? {
        if task.terms.idempotency_key.as_deref().is_some_and(|other| other != key) {
            let detail = "the header `Idempotency-Key` and the field `idempotency_key` differ; send one of them";
            return Err(ProblemDetails::bad_request("idempotency_key_invalid", detail));
        }
        task.terms.idempotency_key = Some(key.to_owned());
    }
    Ok(task)
}

/// The idempotency key header. Several are refused, since their order is undefined.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ProblemDetails> {
    let invalid = |detail| ProblemDetails::bad_request("idempotency_key_invalid", detail);
    let mut keys = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err(invalid("the header `Idempotency-Key` is sent more than once; send it once"));
    }
    let key = key.to_str();
    key.map(Some).map_err(|_| invalid("the header `Idempotency-Key` is not ASCII text"))
}
