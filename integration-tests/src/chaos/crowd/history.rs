//! Checks the calls about each task and their answers for linearizability: what the gateways
//! [promise](super::linear) together, whichever was asked. Pure, and without reading the log.
//!
//! Two changes of a task happen without an answer. A lease may end by its silence. And the answer
//! to a request for a lease may be lost, so that attempts pass which no worker makes: a waiting
//! task may have failed for good.
//!
//! A look may lag behind the answers, but not be ahead; one gateway never shows an older state
//! after a newer one; and every gateway knows a task whose submit was answered.

use super::gateways::COUNT;
use super::holding::LEASE_TIME;
use super::linear::{self, Object, Op};
use super::told::{Answered, Leased, Look, Plan, Submitted, Try};
use super::verdict::ATTEMPTS;
use crate::chaos::Row;
use longhaul::TaskId;
use std::collections::BTreeMap;

/// A task under its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Task {
    /// `None` before it is submitted.
    id: Option<TaskId>,
    /// The last lease granted.
    held: Hold,
    stage: Stage,
    /// Attempts that failed by a report, one bit each.
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stage {
    #[default]
    Waiting,
    /// The lease was heard at this time or later.
    Leased {
        heard_ms: u64,
    },
    /// By a report of the last lease.
    Completed,
    Failed,
}

/// A lease of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Hold {
    epoch: u32,
    attempt: u32,
}

/// The message of a lease's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Alive,
    Success,
    Failure,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// The key names this task.
    Submit(TaskId),
    Lease(Hold),
    /// Accepted, or refused with this code.
    Tell {
        hold: Hold,
        said: Said,
        refused: Option<String>,
    },
    /// `None` if there is no such task.
    Look {
        gateway: usize,
        status: Option<String>,
    },
}

impl Object for Task {
    type Call = Call;

    fn after(&self, op: &Op<Call>) -> Option<Self> {
        // The latest time at which it took effect.
        let at_ms = op.answered_ms.unwrap_or(u64::MAX);
        match &op.call {
            Call::Submit(id) => {
                self.id.is_none_or(|known| known == *id).then_some(Self { id: Some(*id), ..*self })
            }
            Call::Lease(hold) => {
                let may_be_free = self.stage == Stage::Waiting || self.may_be_silent(at_ms);
                let is_next = hold.epoch > self.held.epoch
                    && (self.held.attempt + 1..=ATTEMPTS).contains(&hold.attempt);
                let stage = Stage::Leased { heard_ms: op.sent_ms };
                (self.id.is_some() && may_be_free && is_next).then_some(Self {
                    held: *hold,
                    stage,
                    ..*self
                })
            }
            Call::Tell { hold, said, refused: None } => self.accepts(*hold, *said, op.sent_ms),
            Call::Tell { hold, said, refused: Some(code) } => {
                self.refuses(*hold, *said, code, at_ms)
            }
            Call::Look { status, .. } => self.shows(status.as_deref(), at_ms),
        }
    }

    fn is_bound(later: &Call, earlier: &Call) -> bool {
        match (later, earlier) {
            (Call::Look { gateway, .. }, Call::Look { gateway: other, .. }) => gateway == other,
            (Call::Look { .. }, earlier) => matches!(earlier, Call::Submit(_)),
            (Call::Submit(_) | Call::Lease(_) | Call::Tell { .. }, _) => true,
        }
    }
}

impl Task {
    /// Whether the lease may have ended by silence.
    fn may_be_silent(&self, at_ms: u64) -> bool {
        let silence_ms = |heard_ms| u128::from(at_ms.saturating_sub(heard_ms));
        matches!(self.stage, Stage::Leased { heard_ms } if silence_ms(heard_ms) >= LEASE_TIME.as_millis())
    }

    fn accepts(&self, hold: Hold, said: Said, sent_ms: u64) -> Option<Self> {
        let failure = 1_u32.checked_shl(hold.attempt)?;
        let stage = match (said, self.stage) {
            // An earlier report of the same failure, whose answer was lost.
            (Said::Failure, _) if self.failures & failure != 0 => return Some(*self),
            _ if hold != self.held => return None,
            (Said::Alive, Stage::Leased { heard_ms }) => {
                Stage::Leased { heard_ms: heard_ms.max(sent_ms) }
            }
            (Said::Success, Stage::Leased { .. } | Stage::Completed) => Stage::Completed,
            (Said::Failure, Stage::Leased { .. }) => {
                let stage = if hold.attempt < ATTEMPTS { Stage::Waiting } else { Stage::Failed };
                return Some(Self { stage, failures: self.failures | failure, ..*self });
            }
            (
                Said::Alive | Said::Success | Said::Failure,
                Stage::Waiting | Stage::Completed | Stage::Failed,
            ) => return None,
        };
        Some(Self { stage, ..*self })
    }

    fn refuses(&self, hold: Hold, said: Said, code: &str, at_ms: u64) -> Option<Self> {
        let is_held = self.held == hold;
        // A success that counts is confirmed each time.
        if hold.epoch > self.held.epoch
            || is_held && said == Said::Success && self.stage == Stage::Completed
        {
            return None;
        }
        let runs = is_held && matches!(self.stage, Stage::Leased { .. });
        if runs && !self.may_be_silent(at_ms) {
            return None;
        }
        let stage = match (code, self.stage) {
            // A late report is refused, though an earlier one in time may still end the lease.
            ("lease_expired", stage) => stage,
            ("task_ended", Stage::Completed) => Stage::Completed,
            ("task_ended", _) if self.may_have_failed(at_ms) => Stage::Failed,
            ("stale_lease_id" | "not_current_lease_owner", _) if runs => Stage::Waiting,
            ("stale_lease_id" | "not_current_lease_owner", stage) => stage,
            _ => return None,
        };
        Some(Self { stage, ..*self })
    }

    fn may_have_failed(&self, at_ms: u64) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Failed) || self.may_be_silent(at_ms)
    }

    fn shows(&self, status: Option<&str>, at_ms: u64) -> Option<Self> {
        let is_known = self.id.is_some();
        match (status, self.stage) {
            (None, _) => (!is_known).then_some(*self),
            (Some("completed"), Stage::Completed) => Some(*self),
            (Some("failed"), _) if is_known && self.may_have_failed(at_ms) => {
                Some(Self { stage: Stage::Failed, ..*self })
            }
            (Some(status), Stage::Waiting | Stage::Leased { .. }) if is_known => {
                UNFINISHED.contains(&status).then_some(*self)
            }
            (Some(_), _) => None,
        }
    }
}

/// The statuses of unfinished tasks.
const UNFINISHED: [&str; 6] = ["scheduled", "ready", "waiting", "claimed", "running", "retrying"];

/// The findings, and the amount of evidence.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) violations: Vec<String>,
    /// Calls with known answers.
    pub(super) answered: usize,
    /// The number of those that are not looks and overlapped another such call.
    pub(super) overlapping: usize,
    /// Requests of unknown result.
    pub(super) unknown: usize,
    /// Keep-alives, accepted and refused.
    pub(super) kept: [usize; 2],
    pub(super) looks: usize,
    /// Looks that began after an accepted success, and did not show it yet.
    pub(super) behind: usize,
}

/// Judges each task separately.
pub(super) fn judge(submits: &[Submitted], leases: &[Leased], looks: &[Look]) -> Judged {
    let reports = leases.iter().flat_map(|it| it.tries.iter().chain(&it.kept));
    let tries = submits.iter().flat_map(|it| &it.tries).chain(reports);
    let unknown = tries.filter(|it| it.answered == Answered::Unknown).count();
    let mut judged = Judged { looks: looks.len(), unknown, ..Judged::default() };
    for (key, ops) in histories(submits, leases, looks) {
        judged.count(&ops);
        if let Err(flaw) = linear::check::<Task>(&ops) {
            judged.violations.push(format!("{key}: {flaw}"));
        }
    }
    judged
}

impl Judged {
    /// Adds the figures, and the minimums that make the run conclusive.
    pub(super) fn tell(self, tasks: usize, row: &mut Row) {
        let [kept, not_kept] = self.kept;
        for (what, count, least) in [
            ("calls_answered", self.answered, 4 * tasks),
            ("calls_overlapping", self.overlapping, tasks / 4),
            ("calls_unknown", self.unknown, 1),
            ("keep_alives_accepted", kept, tasks / 10),
            ("keep_alives_refused", not_kept, tasks / 10),
            ("looks", self.looks, tasks),
        ] {
            row.figure(what, count);
            row.floor(what, count, least);
        }
        row.figure("looks_behind", self.behind);
        row.violations.extend(self.violations);
    }

    fn count(&mut self, ops: &[Op<Call>]) {
        let answered: Vec<_> = ops.iter().filter(|op| op.answered_ms.is_some()).collect();
        let is_look = |op: &Op<Call>| matches!(op.call, Call::Look { .. });
        let changes: Vec<_> = answered.iter().filter(|op| !is_look(op)).collect();
        let overlaps = |op: &&&&Op<Call>| {
            // Each call overlaps itself.
            changes.iter().filter(|it| !it.is_before(op) && !op.is_before(it)).count() > 1
        };
        self.answered += answered.len();
        self.overlapping += changes.iter().filter(overlaps).count();
        let is_success = |op: &Op<Call>| {
            matches!(&op.call, Call::Tell { said: Said::Success, refused: None, .. })
        };
        let first = answered.iter().filter(|op| is_success(op)).min_by_key(|op| op.answered_ms);
        for op in &answered {
            match &op.call {
                Call::Tell { said: Said::Alive, refused, .. } => {
                    let [accepted, refusals] = &mut self.kept;
                    *(if refused.is_some() { refusals } else { accepted }) += 1;
                }
                Call::Look { status, .. } => {
                    let is_behind = status.as_deref() != Some("completed")
                        && first.is_some_and(|first| first.is_before(op));
                    self.behind += usize::from(is_behind);
                }
                Call::Submit(_) | Call::Lease(_) | Call::Tell { .. } => {}
            }
        }
    }
}

/// The calls about each task, by its key.
fn histories(
    submits: &[Submitted],
    leases: &[Leased],
    looks: &[Look],
) -> BTreeMap<String, Vec<Op<Call>>> {
    let mut histories: BTreeMap<String, Vec<Op<Call>>> = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for Submitted { key, tries, ids } in submits {
        let history = histories.entry(key.clone()).or_default();
        keys.extend(ids.iter().map(|id| (*id, key.clone())));
        let Some(first) = ids.first() else { continue };
        let mut told = ids.iter();
        history.extend(sent(tries, |_| Call::Submit(*first)).map(|op| match op.answered_ms {
            Some(_) => Op { call: Call::Submit(*told.next().unwrap_or(first)), ..op },
            None => op,
        }));
    }
    // A task without a submit has its own history, and may not exist.
    let key = |task: TaskId| keys.get(&task).cloned().unwrap_or_else(|| task.to_string());
    for leased in leases {
        let history = histories.entry(key(leased.task)).or_default();
        let hold = Hold { epoch: leased.epoch, attempt: leased.attempt };
        let (sent_ms, answered_ms) = (leased.asked_ms, Some(leased.granted_ms));
        history.push(Op { call: Call::Lease(hold), sent_ms, answered_ms });
        let said = if leased.plan == Plan::Fail { Said::Failure } else { Said::Success };
        history.extend(sent(&leased.tries, |refused| Call::Tell { hold, said, refused }));
        let alive = |refused| Call::Tell { hold, said: Said::Alive, refused };
        history.extend(sent(&leased.kept, alive).filter(|op| op.answered_ms.is_some()));
    }
    for Look { task, gateway, sent_ms, answered_ms, status } in looks {
        let call = Call::Look { gateway: *gateway % COUNT, status: status.clone() };
        let op = Op { call, sent_ms: *sent_ms, answered_ms: Some(*answered_ms) };
        histories.entry(key(*task)).or_default().push(op);
    }
    for history in histories.values_mut() {
        history.sort_by_key(|op| op.sent_ms);
    }
    histories
}

/// A request with all its sendings. Only the first one may lack an answer, since each may take
/// effect at any later time and does nothing more than the first one.
fn sent(
    tries: &[Try],
    mut call: impl FnMut(Option<String>) -> Call,
) -> impl Iterator<Item = Op<Call>> {
    let mut has_unknown = false;
    tries.iter().filter_map(move |told| {
        let (refused, answered_ms) = match &told.answered {
            Answered::Counts => (None, Some(told.answered_ms)),
            Answered::Refused(code) => (Some(code.clone()), Some(told.answered_ms)),
            Answered::Unknown if !has_unknown => (None, None),
            Answered::Unknown | Answered::Unheard => return None,
        };
        has_unknown |= answered_ms.is_none();
        Some(Op { call: call(refused), sent_ms: told.sent_ms, answered_ms })
    })
}

#[cfg(test)]
mod tests;
