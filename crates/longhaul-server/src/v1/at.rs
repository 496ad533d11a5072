//! Extractors for the path and the query of a request.

use crate::auth::Identity;
use crate::core::{ActionOrigin, QueueLevel, QueueName, ServiceError, TaskName};
use crate::problem::ProblemDetails;
use crate::shell::Caller;
use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::StatusCode;
use axum::http::request::Parts;
use longhaul::Priority;
use longhaul::lease::{LeaseToken, LeaseTokenError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The maximum length of a reason.
const REASON_BYTES_MAX: usize = 1_000;

/// A queue that the caller may use, for what belongs to the whole queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueAt {
    pub(crate) queue: QueueName,
    pub(crate) caller: Caller,
}

/// A priority level of a queue that the caller may use, for reads of its tasks and actions on them.
/// It takes `level` out of the query; without one it is the normal level.
#[derive(Clone, Debug)]
pub(crate) struct LevelAt {
    pub(crate) level: QueueLevel,
    pub(crate) caller: Caller,
}

/// A queue that the caller may use, or one level of it if `level` is in the query: for dead letters
/// and the log of actions, which a queue has for all its levels.
#[derive(Clone, Debug)]
pub(crate) struct SomeLevelAt {
    pub(crate) queue: QueueName,
    pub(crate) level: Option<Priority>,
    pub(crate) caller: Caller,
}

/// A task in a queue that the caller may use.
#[derive(Clone, Debug)]
pub(crate) struct TaskAt {
    pub(crate) queue: QueueName,
    pub(crate) task: TaskName,
    pub(crate) caller: Caller,
}

/// A lease in a queue that the caller may use.
#[derive(Clone, Debug)]
pub(crate) struct LeaseAt {
    pub(crate) queue: QueueName,
    pub(crate) lease: LeaseToken,
    pub(crate) caller: Caller,
}

/// Another named item in a queue that the caller may use.
#[derive(Clone, Debug)]
pub(crate) struct NamedAt {
    pub(crate) queue: QueueName,
    pub(crate) name: String,
    pub(crate) caller: Caller,
}

/// The query parameters.
#[derive(Clone, Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

/// For routes that take no parameter but `level`: a misspelt one must not be ignored, least of all
/// where tasks are deleted.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

impl Caller {
    /// The caller's name and reason, for an operator action.
    pub(crate) fn says<'a>(&'a self, reason: &'a str) -> Result<ActionOrigin<'a>, ProblemDetails> {
        if reason.len() > REASON_BYTES_MAX {
            let detail = format!(
                "a reason has at most {REASON_BYTES_MAX} bytes, this one has {}",
                reason.len()
            );
            return Err(ServiceError::Unfit(detail).into());
        }
        Ok(ActionOrigin { name: self.name(), reason })
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.identity.name.as_deref()
    }

    /// Cancelled when waiting requests must be answered with what there is.
    pub(crate) fn draining(&self) -> &CancellationToken {
        self.shell.draining()
    }

    /// The time limit of a long poll that asks for `asked`.
    pub(crate) fn poll_time(&self, asked: Option<Duration>) -> Duration {
        let longest = self.shell.config.limits.poll_time;
        asked.map_or(longest, |asked| asked.min(longest))
    }

    /// Refuses a queue that the caller's token is not bound to.
    pub(crate) fn check_queue(&self, queue: &QueueName) -> Result<(), ProblemDetails> {
        let identity: &Arc<Identity> = &self.identity;
        if identity.may_use(queue.as_str()) {
            return Ok(());
        }
        let detail = format!("the token may not use the queue `{queue}`");
        Err(ProblemDetails::new(StatusCode::FORBIDDEN, "queue_not_allowed", detail))
    }
}

/// The caller, the queue of the path, which the caller may use, and all parameters of the path.
async fn place(parts: &mut Parts) -> Result<(Caller, QueueName, RawPathParams), ProblemDetails> {
    let named = RawPathParams::from_request_parts(parts, &()).await.map_err(|error| {
        ProblemDetails::bad_request("path_invalid", format!("the path cannot be read: {error}"))
    })?;
    let caller = Caller::from_request_parts(parts, &()).await?;
    let queue = QueueName::parse(find(&named, "queue"))?;
    caller.check_queue(&queue)?;
    Ok((caller, queue, named))
}

fn find<'a>(named: &'a RawPathParams, wanted: &str) -> &'a str {
    let found = named.iter().find(|(name, _)| *name == wanted);
    found.map_or("", |(_, value)| value)
}

/// The values of the parameter `level` in a query, and the query without it.
fn split_level(query: &str) -> (Vec<&str>, String) {
    let (levels, rest): (Vec<_>, Vec<_>) =
        query.split('&').partition(|pair| pair.split('=').next() == Some("level"));
    let values = levels.iter().map(|pair| pair.trim_start_matches("level").trim_start_matches('='));
    (values.collect(), rest.join("&"))
}

/// Refuses a level where it would be ignored.
fn no_level(parts: &Parts, why: &str) -> Result<(), ProblemDetails> {
    let (levels, _) = split_level(parts.uri.query().unwrap_or_default());
    if levels.is_empty() {
        return Ok(());
    }
    let detail = format!("this route does not take `level`: {why}");
    Err(ProblemDetails::bad_request("query_invalid", detail))
}

impl<S: Sync> FromRequestParts<S> for QueueAt {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let (caller, queue, _) = place(parts).await?;
        no_level(parts, "it applies to the whole queue")?;
        Ok(Self { queue, caller })
    }
}

impl<S: Sync> FromRequestParts<S> for LevelAt {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let SomeLevelAt { queue, level, caller } =
            SomeLevelAt::from_request_parts(parts, state).await?;
        Ok(Self { level: QueueLevel::new(queue, level.unwrap_or_default()), caller })
    }
}

impl<S: Sync> FromRequestParts<S> for SomeLevelAt {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let (caller, queue, _) = place(parts).await?;
        let (levels, query) = split_level(parts.uri.query().unwrap_or_default());
        let of_word = |word: &str| Priority::ALL.into_iter().find(|level| level.word() == word);
        let level = match levels[..] {
            [] => return Ok(Self { queue, level: None, caller }),
            [word] => of_word(word),
            [..] => None,
        };
        let unfit = "`level` must be given once, as `high`, `normal` or `low`";
        let level = level.ok_or_else(|| ProblemDetails::bad_request("query_invalid", unfit))?;
        // The other parameters are read by `QueryParams`, which refuses what it does not know.
        let rest = format!("{}?{query}", parts.uri.path());
        let past = |_| ProblemDetails::bad_request("query_invalid", "the query cannot be read");
        parts.uri = rest.parse().map_err(past)?;
        Ok(Self { queue, level: Some(level), caller })
    }
}

impl<S: Sync> FromRequestParts<S> for TaskAt {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let (caller, queue, named) = place(parts).await?;
        let task = find(&named, "task").parse::<TaskName>()?;
        no_level(parts, "put the level before the id of the task, such as `high~12:0:-1`")?;
        Ok(Self { queue, task, caller })
    }
}

impl<S: Sync> FromRequestParts<S> for LeaseAt {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let (caller, queue, named) = place(parts).await?;
        no_level(parts, "a lease names its task")?;
        let lease = lease_token(find(&named, "lease"))?;
        Ok(Self { queue, lease, caller })
    }
}

/// Parses a lease token from a path or body, where `~` stands for the library's `/`. Both are
/// accepted.
pub(crate) fn lease_token(text: &str) -> Result<LeaseToken, LeaseTokenError> {
    text.replace('~', "/").parse()
}

impl<S: Sync> FromRequestParts<S> for NamedAt {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let (caller, queue, named) = place(parts).await?;
        no_level(parts, "it applies to the whole queue")?;
        Ok(Self { queue, name: find(&named, "name").to_owned(), caller })
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let asked = Query::<T>::from_request_parts(parts, state).await;
        let Query(asked) = asked.map_err(|error| {
            let detail =
                format!("the query does not match what this route takes: {}", error.body_text());
            ProblemDetails::bad_request("query_invalid", detail)
        })?;
        Ok(Self(asked))
    }
}
