//! Bodies about leases: requests, grants and reports.

use super::at::lease_token;
use super::news::{LeaseProgress, LenientJson};
use super::values::bytes_of;
use crate::core::{ServiceError, TaskName, name_of, with};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul::lease::{KeepAlive, Kept, Lease, LeaseOutcome, LeaseRequest, LeaseToken, LeaseView};
use longhaul_api::values::{Instant, Length, present};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// The most leases per request.
const COUNT_MAX: usize = 100;

/// The most bytes of the payloads and properties of an answer with several leases. In JSON they are
/// at most six times as many, checkpoints are 9 MiB at most, and clients read 64 MiB.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The longest payload that is text in JSON whatever its characters are.
const SHORT_BYTES_MAX: usize = 64 * 1024;

/// The property of a task's type.
const TASK_TYPE: &str = "TASK_TYPE";

/// A worker's request for tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseRequest)]
pub(crate) struct LeaseRequestBody {
    /// The name of the worker, for display: 1 to 256 bytes. It need not be unique.
    pub(crate) worker: String,
    /// A random text of 1 to 64 bytes that is new at each start of the worker. With it, the worker is listed while it waits, and can be drained. Its requests for leases then get 409 `worker_drained`: the worker must end when its tasks are over.
    #[serde(default)]
    pub(crate) instance: String,
    /// The most tasks to lease: 1 to 100, 1 by default.
    pub(crate) count: Option<usize>,
    /// How long to wait for the first task: up to 30 s, 250 ms by default and at least.
    #[serde(alias = "wait_seconds")]
    pub(crate) wait: Option<Length>,
    /// The silence after which these leases end: 100 ms to 7 days. By default it is the `no_progress_timeout` of the task or of its queue, or else 30 s.
    #[serde(alias = "lease_seconds")]
    pub(crate) lease_time: Option<Length>,
    /// Leases only tasks of these types: 1 to 16 types, each of 1 to 128 bytes. By default it leases tasks of any type and tasks without a type.
    #[schema(min_items = 1, max_items = 16)]
    pub(crate) types: Option<Vec<String>>,
    /// Whether the worker starts nothing before it has confirmed its leases (`leases:confirm`). What it does not confirm within the lease time, and within 30 s, is given back, which costs no attempt, up to three times in a row.
    #[serde(default)]
    pub(crate) confirms: bool,
}

/// The leases that a worker has got.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Confirmation)]
pub(crate) struct ConfirmBody {
    /// All leases of an answer: 1 to 100.
    leases: Vec<String>,
}

/// A leased task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseBody {
    /// The name of the lease in reports. Keep it secret: everyone who has it may report.
    lease: String,
    task: String,
    /// The epoch grows with each lease of the task.
    epoch: u32,
    /// The number of the attempt, from 1.
    attempt: u32,
    max_attempts: u32,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    task_type: Option<String>,
    properties: BTreeMap<String, String>,
    /// The payload, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// The payload in base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The checkpoint that an earlier attempt has stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_base64: Option<String>,
    /// The silence after which the lease ends.
    lease_time: Length,
    /// When the lease ends if the worker stays silent, by the gateway's clock.
    expires_at: Instant,
    /// How long the attempt may take in all, even with keep-alives.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Length>,
}

/// The leased tasks.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Leases)]
pub(crate) struct LeasesBody {
    pub(crate) leases: Vec<LeaseBody>,
    /// The gateway's current time, in ms since the epoch.
    pub(crate) now: u64,
}

/// A keep-alive of the holder of a lease, with its news. News that cannot be used are left out, and named in the `warnings` of the answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeepAlive)]
pub(crate) struct KeepAliveBody {
    /// The silence after which the lease ends from now on. By default it stays as it was.
    #[serde(alias = "lease_seconds")]
    lease_time: Option<Length>,
    #[serde(default)]
    #[schema(value_type = Option<LeaseProgress>)]
    progress: LenientJson,
    /// A checkpoint for the next attempt: up to 64 KiB.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    checkpoint_base64: LenientJson,
    /// Log lines for people who watch the task. A line is cut at 256 bytes.
    #[serde(default)]
    #[schema(value_type = Vec<String>, default = json!([]))]
    log: LenientJson,
}

/// The state of a leased task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ReportStatus {
    /// The work continues, and so does the lease.
    #[serde(alias = "INFLIGHT")]
    InProgress,
    /// The task is done.
    Succeeded,
    /// The attempt has failed.
    Failed,
    /// The worker gives the task back, which costs no attempt.
    Released,
}

/// A report on a lease. News (progress, checkpoint, log) that cannot be used are left out, and named in the `warnings` of the answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Report)]
pub(crate) struct ReportBody {
    /// The lease, unless the path names it.
    lease: Option<String>,
    status: ReportStatus,
    /// For a success: the result, as text. At most a megabyte.
    result: Option<String>,
    /// For a success: the result, in base64.
    result_base64: Option<String>,
    /// For a success: the result, as any JSON value, `null` included. It is stored byte for byte.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    result_json: Option<Box<RawValue>>,
    /// For a failure: the reason. It is cut at 16 KiB.
    #[serde(default, alias = "debug_info")]
    #[schema(value_type = Option<String>)]
    reason: LenientJson,
    /// For a failure: `true` fails the task for good, without another attempt.
    #[serde(default)]
    fatal: bool,
    /// For a failure: the pause before the next attempt, instead of the backoff.
    #[serde(default)]
    #[schema(value_type = Option<Length>)]
    retry_after: LenientJson,
    /// For a task that is given back: the pause before it may be leased again.
    #[serde(default)]
    #[schema(value_type = Option<Length>)]
    after: LenientJson,
    /// For a task in progress: the silence after which the lease ends from now on.
    #[serde(alias = "lease_seconds")]
    lease_time: Option<Length>,
    #[serde(default)]
    #[schema(value_type = Option<LeaseProgress>)]
    progress: LenientJson,
    /// A checkpoint for the next attempt: up to 64 KiB.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    checkpoint_base64: LenientJson,
    /// Log lines for people who watch the task. A line is cut at 256 bytes.
    #[serde(default)]
    #[schema(value_type = Vec<String>, default = json!([]))]
    log: LenientJson,
}

/// The state of a lease after a report.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reported)]
pub(crate) struct ReportedBody {
    /// The silence after which the lease ends; absent when it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_time: Option<Length>,
    /// When the lease ends if the worker stays silent, by the gateway's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Instant>,
    /// Whether somebody has requested the end of the task. If so, stop the work and send any report.
    cancelled: bool,
    /// Whether the checkpoint of this report is stored; absent if it had none. If `false`, send the checkpoint again with the next report.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_stored: Option<bool>,
    /// News of the report that were left out, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    warnings: Vec<String>,
    /// The gateway's current time, in ms since the epoch.
    now: u64,
}

/// The worker that holds the lease of a task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaseHolder {
    task: String,
    epoch: u32,
    worker: String,
    attempt: u32,
    lease_time: Length,
    expires_at: Instant,
    /// The gateway's current time, in ms since the epoch.
    now: u64,
}

/// The content of a report.
#[derive(Debug)]
pub(crate) struct LeaseReport {
    pub(crate) keep: KeepAlive,
    /// `None` if the work continues.
    pub(crate) outcome: Option<LeaseOutcome>,
    /// The news that are left out, and why.
    pub(crate) warnings: Vec<String>,
}

/// A part of a report, unless it is left out with a warning.
fn usable<T>(read: Result<Option<T>, String>, warnings: &mut Vec<String>) -> Option<T> {
    read.map_err(|why| warnings.push(why)).ok().flatten()
}

fn unfit(text: impl Into<String>) -> ServiceError {
    ServiceError::Unfit(text.into())
}

impl LeaseRequestBody {
    /// The request, with this wait time.
    pub(crate) fn into_request(self, wait: Duration) -> Result<LeaseRequest, ServiceError> {
        let count = self.count.unwrap_or(1);
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(unfit(format!("`count` must be 1 to {COUNT_MAX} leases, not {count}")));
        }
        let request = LeaseRequest::of(self.worker).instance(self.instance).count(count).wait(wait);
        let request = request.bytes(ANSWER_BYTES_MAX).confirms(self.confirms);
        let request = with(request, self.types, LeaseRequest::types);
        Ok(with(request, self.lease_time.map(|it| it.0), LeaseRequest::lease_time))
    }
}

impl ConfirmBody {
    /// The confirmed leases. One that cannot be read is refused in its place.
    pub(crate) fn tokens(&self) -> Result<Vec<Result<LeaseToken, ServiceError>>, ServiceError> {
        let count = self.leases.len();
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(unfit(format!("`leases` must name 1 to {COUNT_MAX} leases, not {count}")));
        }
        Ok(self.leases.iter().map(|it| Ok(lease_token(it)?)).collect())
    }
}

/// Whether the JSON of a text is short, or no longer than its base64. A text of control characters
/// is six times as long in JSON.
fn is_short_as_text(text: &str) -> bool {
    if text.len() <= SHORT_BYTES_MAX {
        return true;
    }
    let escapes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..0x20 => 5,
        _ => 0_usize,
    });
    escapes.sum::<usize>() <= text.len() / 3
}

impl From<Lease> for LeaseBody {
    fn from(lease: Lease) -> Self {
        let text = std::str::from_utf8(&lease.payload).ok().filter(|text| is_short_as_text(text));
        let (payload, payload_base64) = match text {
            Some(text) => (Some(text.to_owned()), None),
            None => (None, Some(STANDARD.encode(&lease.payload))),
        };
        Self {
            lease: lease_text(&lease.token),
            task: name_of(&lease.task).to_string(),
            epoch: lease.token.epoch(),
            attempt: lease.attempt,
            max_attempts: lease.max_attempts,
            task_type: lease.properties.get(TASK_TYPE).cloned(),
            properties: lease.properties,
            payload,
            payload_base64,
            checkpoint_base64: lease.checkpoint.map(|it| STANDARD.encode(it)),
            lease_time: Length(lease.lease_time),
            expires_at: Instant(lease.expires_at),
            budget: lease.budget.map(Length),
        }
    }
}

/// A lease's name in paths and bodies.
fn lease_text(token: &LeaseToken) -> String {
    token.to_string().replace('/', "~")
}

impl KeepAliveBody {
    /// The keep-alive with the news that can be used.
    pub(crate) fn into_report(self) -> LeaseReport {
        let mut warnings = Vec::new();
        let progress = usable(self.progress.progress(), &mut warnings);
        let checkpoint = usable(self.checkpoint_base64.checkpoint(), &mut warnings);
        let (lease_time, log) = (self.lease_time.map(|it| it.0), self.log.lines());
        let keep = KeepAlive { lease_time, progress, checkpoint, log };
        LeaseReport { keep, outcome: None, warnings }
    }
}

impl ReportBody {
    /// The lease named by the report.
    pub(crate) fn token(&self) -> Result<LeaseToken, ServiceError> {
        let Some(lease) = &self.lease else { return Err(unfit("the report names no `lease`")) };
        Ok(lease_token(lease)?)
    }

    /// Refuses a report that names a lease in addition to the path.
    pub(crate) fn check_unnamed(&self) -> Result<(), ServiceError> {
        match self.lease {
            Some(_) => {
                Err(unfit("the path already names the lease; leave `lease` out of the body"))
            }
            None => Ok(()),
        }
    }

    /// The content of the report, if its fields are consistent.
    pub(crate) fn into_report(mut self) -> Result<LeaseReport, ServiceError> {
        let is = |status| self.status == status;
        let (text, base64) = (self.result.take(), self.result_base64.take());
        // Serializers write a field that is not set as `null`: it is a result where it can be one.
        let may_be_null = is(ReportStatus::Succeeded) && text.is_none() && base64.is_none();
        let json = self.result_json.take().filter(|json| may_be_null || json.get() != "null");
        let has_result = text.is_some() || base64.is_some() || json.is_some();
        let misplaced = [
            ("result", has_result && !is(ReportStatus::Succeeded), "SUCCEEDED"),
            ("reason", self.reason.is_given() && !is(ReportStatus::Failed), "FAILED"),
            ("fatal", self.fatal && !is(ReportStatus::Failed), "FAILED"),
            ("retry_after", self.retry_after.is_given() && !is(ReportStatus::Failed), "FAILED"),
            ("after", self.after.is_given() && !is(ReportStatus::Released), "RELEASED"),
            (
                "lease_time",
                self.lease_time.is_some() && !is(ReportStatus::InProgress),
                "IN_PROGRESS",
            ),
        ];
        if let Some((field, _, status)) = misplaced.iter().find(|(_, is_so, _)| *is_so) {
            return Err(unfit(format!("`{field}` can be used only with the status {status}")));
        }
        let mut warnings = Vec::new();
        let mut pause = |name, pause: &LenientJson| usable(pause.pause(name), &mut warnings);
        let outcome = match self.status {
            ReportStatus::InProgress => None,
            ReportStatus::Succeeded => {
                let result = bytes_of("result", text, base64, json)?;
                Some(LeaseOutcome::Succeeded(result.unwrap_or_default()))
            }
            ReportStatus::Failed => {
                let no_reason = || "the worker gave no reason".to_owned();
                Some(LeaseOutcome::Failed {
                    message: self.reason.text().unwrap_or_else(no_reason),
                    fatal: self.fatal,
                    retry_after: pause("retry_after", &self.retry_after),
                })
            }
            ReportStatus::Released => Some(LeaseOutcome::Released {
                after: pause("after", &self.after).unwrap_or_default(),
            }),
        };
        let (lease_time, progress) = (self.lease_time, self.progress);
        let (checkpoint_base64, log) = (self.checkpoint_base64, self.log);
        let keep = KeepAliveBody { lease_time, progress, checkpoint_base64, log };
        let mut report = keep.into_report();
        report.warnings.extend(warnings);
        Ok(LeaseReport { outcome, ..report })
    }
}

impl ReportedBody {
    /// The lease continues.
    pub(crate) fn kept(kept: &Kept, warnings: Vec<String>, now: u64) -> Self {
        Self {
            lease_time: Some(Length(kept.lease_time)),
            expires_at: Some(Instant(kept.expires_at)),
            cancelled: kept.cancelled,
            checkpoint_stored: kept.checkpoint_stored,
            warnings,
            now,
        }
    }

    /// The lease is over.
    pub(crate) const fn over(warnings: Vec<String>, now: u64) -> Self {
        let (lease_time, expires_at, checkpoint_stored) = (None, None, None);
        Self { lease_time, expires_at, cancelled: false, checkpoint_stored, warnings, now }
    }
}

impl LeaseHolder {
    pub(crate) fn of(task: TaskName, view: LeaseView, now: u64) -> Self {
        Self {
            task: task.to_string(),
            epoch: view.token.epoch(),
            worker: view.worker,
            attempt: view.attempt,
            lease_time: Length(view.lease_time),
            expires_at: Instant(view.expires_at),
            now,
        }
    }
}
