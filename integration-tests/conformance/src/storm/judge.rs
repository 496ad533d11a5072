//! Judges a storm by the requests of the workers and by what the tasks show. Pure.

use crate::door::{ProxiedRequest, ProxiedRequestKind};
use longhaul::{TaskMetadata, TaskRef, TaskState};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The longest pause between two tries of a report, with the time of a try.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// The same before the second try.
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(4);
/// How much earlier than its lease time a lease may seem to end here: its time counts from when the
/// gateway handled the request, or from when the worker sent it.
const SKEW: Duration = Duration::from_secs(1);

/// A request of a worker.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) worker: usize,
    pub(super) call: ProxiedRequest,
}

/// The end of a worker's process.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedWorker {
    pub(super) worker: usize,
    pub(super) at: Instant,
    /// Otherwise it has drained.
    pub(super) is_killed: bool,
}

/// What was seen, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct StormReport {
    ends: usize,
    /// Ends that met each fault.
    pub(super) faults: BTreeMap<String, usize>,
    attempts: u32,
    attempts_max: u32,
    /// Tasks that ran again after their processor had returned.
    again: usize,
    pub(super) broken: Vec<String>,
}

impl fmt::Display for StormReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends, faults, attempts, attempts_max, again, broken } = self;
        write!(
            f,
            "{ends} reports of ends, {attempts} attempts, at most {attempts_max} of a task, "
        )?;
        write!(f, "{again} ran again after they had returned")?;
        for (fault, count) in faults {
            write!(f, "\n{count} ends met: {fault}")?;
        }
        for broken in broken.iter().take(20) {
            write!(f, "\nBROKEN: {broken}")?;
        }
        Ok(())
    }
}

/// What was seen of a lease.
#[derive(Debug, Default)]
struct SeenLease {
    worker: usize,
    /// When the last report or grant was sent that a gateway has accepted while the task ran.
    kept: Option<Instant>,
    /// The reports of a success: when, the result, and the status of the gateway's answer.
    successes: Vec<(Instant, Option<String>, Option<u16>)>,
}

/// Judges a storm; `seen` is in the order of time.
pub(super) fn judge(
    seen: &[Seen],
    stopped: &[EndedWorker],
    ended: &[(TaskRef, TaskMetadata)],
    lease_time: Duration,
) -> StormReport {
    let mut report = StormReport::default();
    let mut leases = BTreeMap::<(String, u32), SeenLease>::new();
    for Seen { worker, call } in seen {
        let is_accepted = call.gateway.is_some_and(|status| status < 300);
        for name in call.lease.iter().chain(&call.granted) {
            let Some(name) = parts(name) else { continue };
            let lease = leases.entry(name).or_default();
            lease.worker = *worker;
            if call.kind == ProxiedRequestKind::report("SUCCEEDED") {
                lease.successes.push((call.at, call.result.clone(), call.gateway));
            } else if is_accepted {
                lease.kept = Some(call.at);
            }
        }
        let is_end = matches!(&call.kind, ProxiedRequestKind::Report(of) if of != "IN_PROGRESS");
        if is_end {
            report.ends += 1;
            if let Some(fault) = &call.fault {
                *report.faults.entry(fault.clone()).or_default() += 1;
            }
        }
    }
    for (task, end) in ended {
        report.attempts += end.attempts;
        report.attempts_max = report.attempts_max.max(end.attempts);
        judge_end(task, end, &leases, &mut report);
    }
    for ((task, epoch), lease) in &leases {
        let next = leases.range((task.clone(), epoch + 1)..).next();
        if next.is_some_and(|((other, _), _)| other == task) && !lease.successes.is_empty() {
            report.again += 1;
            if let Some(why) = ran_again(lease, stopped, lease_time) {
                report.broken.push(format!("{task} ran again after epoch {epoch}: {why}"));
            }
        }
    }
    report
}

/// The result that a gateway has accepted is the one that is shown.
fn judge_end(
    task: &TaskRef,
    end: &TaskMetadata,
    leases: &BTreeMap<(String, u32), SeenLease>,
    report: &mut StormReport,
) {
    let id = task.id.to_string();
    if end.state != TaskState::Completed {
        report.broken.push(format!("{id} has ended as {:?}: {:?}", end.state, end.reason()));
        return;
    }
    let shown = end.result.as_deref().map(String::from_utf8_lossy);
    let of_task = leases.range((id.clone(), 0)..=(id.clone(), u32::MAX));
    let successes = of_task.flat_map(|(_, lease)| &lease.successes);
    let mut was_reported = false;
    for (_, result, gateway) in successes {
        let is_shown = result.as_deref() == shown.as_deref();
        was_reported |= is_shown;
        if gateway.is_some_and(|status| status < 300) && !is_shown {
            report.broken.push(format!("{id} shows {shown:?}, and a gateway accepted {result:?}"));
        }
    }
    if !was_reported {
        report.broken.push(format!("{id} shows {shown:?}, which no worker has reported"));
    }
}

/// Why a task must not have run again after its processor had returned; `None` if it may.
fn ran_again(lease: &SeenLease, stopped: &[EndedWorker], lease_time: Duration) -> Option<String> {
    if lease.successes.iter().any(|(.., status)| status.is_some_and(|it| it < 300)) {
        return Some("a gateway had accepted its result".to_owned());
    }
    let (returned, ..) = lease.successes.first()?;
    let (last, _, verdict) = lease.successes.last()?;
    let pause = if lease.successes.len() == 1 { FIRST_PAUSE_MAX } else { PAUSE_MAX };
    let after = |it: &&EndedWorker| it.worker == lease.worker && it.at + SKEW > *returned;
    let died = |it: &EndedWorker| it.is_killed && it.at < *last + pause;
    if stopped.iter().filter(after).any(died) {
        return None;
    }
    let Some(kept) = lease.kept else { return Some("it was never leased".to_owned()) };
    let (lease_ends, is_settled) = (kept + lease_time, verdict.is_some_and(|status| status < 500));
    let left_early =
        |it: &EndedWorker| !it.is_killed && it.at >= *last && it.at + SKEW < lease_ends;
    if !is_settled && stopped.iter().filter(after).any(left_early) {
        return Some("its worker ended while it reported".to_owned());
    }
    if *last + pause < lease_ends && !is_settled {
        let left = lease_ends.saturating_duration_since(*last);
        return Some(format!("its worker gave up {left:?} before the lease ended"));
    }
    let refused = lease.successes.iter().find(|(_, _, status)| status.is_some_and(|it| it < 500));
    match refused {
        Some((at, _, Some(status))) if *at + SKEW < lease_ends => {
            let left = lease_ends.saturating_duration_since(*at);
            Some(format!("a gateway answered {status} {left:?} before the lease ended"))
        }
        _ => None,
    }
}

/// The task and the epoch of a lease.
fn parts(lease: &str) -> Option<(String, u32)> {
    let mut parts = lease.split('~');
    Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use longhaul::TaskId;

    const LEASE_TIME: Duration = Duration::from_secs(10);

    fn call(
        at: Instant,
        kind: ProxiedRequestKind,
        epoch: u32,
        (result, gateway): (Option<&str>, Option<u16>),
    ) -> Seen {
        let call = ProxiedRequest {
            at,
            kind,
            lease: Some(format!("1:2:-1~{epoch}~f")),
            result: result.map(str::to_owned),
            fault: None,
            gateway,
            granted: Vec::new(),
            status: None,
        };
        Seen { worker: 0, call }
    }

    fn kept(at: Instant, epoch: u32) -> Seen {
        call(at, ProxiedRequestKind::report("IN_PROGRESS"), epoch, (None, Some(200)))
    }

    fn success(at: Instant, epoch: u32, result: &str, gateway: Option<u16>) -> Seen {
        call(at, ProxiedRequestKind::report("SUCCEEDED"), epoch, (Some(result), gateway))
    }

    fn shown(state: TaskState, result: &'static str) -> (TaskRef, TaskMetadata) {
        let id: TaskId = "1:2:-1".parse().unwrap();
        let end = TaskMetadata::new(id.to_string(), state, 2, (1, 2));
        let end = TaskMetadata { result: Some(result.as_bytes().into()), ..end };
        (TaskRef { topic: "storm".to_owned(), id }, end)
    }

    /// What is broken if a task shows `two` after these requests.
    fn broken(seen: &[Seen], stopped: &[EndedWorker]) -> String {
        let ended = [shown(TaskState::Completed, "two")];
        judge(seen, stopped, &ended, LEASE_TIME).broken.join("\n")
    }

    #[test]
    fn a_task_runs_again_only_after_a_death_or_the_end_of_its_lease() {
        let start = clock::monotonic();
        let at = |seconds| start + Duration::from_secs(seconds);
        let again = [kept(at(12), 2), success(at(13), 2, "two", Some(200))];
        let with = |more: &[Seen]| [more, &again].concat();
        let gave_up = with(&[kept(at(0), 1), success(at(1), 1, "one", None)]);
        assert!(broken(&gave_up, &[]).contains("gave up 9s before"), "{}", broken(&gave_up, &[]));
        let stopped = |worker, at, is_killed| [EndedWorker { worker, at, is_killed }];
        assert_eq!(broken(&gave_up, &stopped(0, at(2), true)), "");
        assert_ne!(broken(&gave_up, &stopped(1, at(2), true)), "");
        assert!(broken(&gave_up, &stopped(0, at(2), false)).contains("while it reported"));
        assert!(broken(&gave_up, &stopped(0, at(6), true)).contains("gave up"));
        let late = with(&[kept(at(0), 1), success(at(7), 1, "one", None)]);
        assert_eq!(broken(&late, &stopped(0, at(9), false)), "");
        assert!(broken(&late, &stopped(0, at(8), false)).contains("while it reported"));
        let repeated = with(&[
            kept(at(0), 1),
            success(at(1), 1, "one", None),
            success(at(9), 1, "one", Some(503)),
        ]);
        assert_eq!(broken(&repeated, &[]), "");
        let refused = with(&[kept(at(0), 1), success(at(4), 1, "one", Some(409))]);
        assert!(broken(&refused, &[]).contains("a gateway answered 409 6s before"));
        let accepted = with(&[kept(at(0), 1), success(at(9), 1, "two", Some(200))]);
        assert!(
            broken(&accepted, &stopped(0, at(9), true)).contains("had accepted"),
            "{}",
            broken(&accepted, &[])
        );
        let expired = with(&[kept(at(0), 1), success(at(11), 1, "one", Some(409))]);
        assert_eq!(broken(&expired, &[]), "");
    }

    #[test]
    fn an_accepted_result_is_the_one_that_is_shown() {
        let at = clock::monotonic();
        let other = [kept(at, 1), success(at, 1, "one", Some(200))];
        assert!(broken(&other, &[]).contains("and a gateway accepted Some(\"one\")"));
        assert!(broken(&[], &[]).contains("which no worker has reported"));
        let failed = [shown(TaskState::Failed, "")];
        let report = judge(&[], &[], &failed, LEASE_TIME);
        assert!(report.broken.first().unwrap().contains("has ended as Failed"));
    }
}
