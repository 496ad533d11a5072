//! Handles messages from holders of leases. A keep-alive is answered once it was read back; an end
//! is answered once the log has accepted it and the metadata topic shows it.

use super::lanes::LaneId;
use super::lease_keeping::LeaseLookup;
use super::leasing::{ReportReply, lease_ms};
use super::{WorkerDriver, WorkerEvent};
use crate::lease::{KeepAlive, Kept, LeaseOutcome, LeaseToken, ReportError};
use crate::transport::OnReceipt;
use crate::worker::leasing::{
    HolderMessage, LeaseCommand, LeaseEvent, LeaseKey, LeaseNotice, Renewed, Reply,
};
use longhaul_core::lease::{ReportedOutcome, error_of};
use longhaul_core::protocol::entry::{Claim, Done, Entry, lease_time};
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{Position, TaskState};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::mpsc::error::TrySendError;

/// How long an answer waits for the metadata topic to show its fact.
const SHOWN_MAX: Duration = Duration::from_secs(1);

/// Maximum number of renewals of one partition that are stored and not read back. Beyond it the
/// ledger counts as unreadable, and holders get an error.
const UNREAD_MAX: usize = 10_000;

impl WorkerDriver {
    /// Handles a message from the holder of a lease.
    pub(super) fn handle_told(
        &mut self,
        token: LeaseToken,
        message: HolderMessage,
        until: Moment,
        now: Moment,
    ) {
        match self.standing(&token, until, now) {
            LeaseLookup::Not(error) => message.refuse(error),
            LeaseLookup::Behind => self.ask_again(LeaseCommand::Told(token, message), until),
            LeaseLookup::Succeeded => match message {
                HolderMessage::Report { outcome: LeaseOutcome::Succeeded(_), reply } => {
                    drop(reply.send(Ok(())));
                }
                HolderMessage::Report { .. }
                | HolderMessage::KeepAlive { .. }
                | HolderMessage::Confirm { .. } => {
                    let ended = ReportError::Ended { state: TaskState::Completed, outcome: None };
                    message.refuse(ended);
                }
            },
            LeaseLookup::Runs(id) => {
                let key = (id, token.task, token.epoch);
                if self.attends(&key) {
                    self.tell_attendant(key, &token, message);
                } else {
                    self.begin_attending((id, token.task), (token, message), until, now);
                }
            }
        }
    }

    pub(super) fn tell_attendant(
        &mut self,
        key: LeaseKey,
        token: &LeaseToken,
        message: HolderMessage,
    ) {
        let Some(leasing) = &mut self.leasing else { return };
        let is_first = leasing.confirmations.awaits(&key);
        leasing.confirmations.confirmed(&key);
        match message {
            HolderMessage::Confirm { reply } if is_first => {
                drop(reply.send(self.kept(&key).ok_or(ReportError::Unavailable)));
            }
            // A confirmation that is repeated, or that another gateway awaits, goes by the log.
            HolderMessage::Confirm { reply } => {
                self.renew_lease(key, token, Box::default(), reply);
            }
            HolderMessage::KeepAlive { keep, reply } => self.renew_lease(key, token, keep, reply),
            HolderMessage::Report { outcome, reply } => self.report(key, outcome, reply),
        }
    }

    /// The state of a lease that was not renewed since it was granted here.
    fn kept(&self, (id, task, _): &LeaseKey) -> Option<Kept> {
        let lane = self.lanes.get(id)?;
        let (.., lease_ms) = lane.core.machine().lease(*task)?;
        let left = lane.core.lease_left(*task, self.env.clock.now())?;
        Some(Kept {
            lease_time: lease_time(lease_ms),
            expires_at: UNIX_EPOCH + Duration::from_millis(self.env.clock.wall_ms()) + left,
            cancelled: lane.core.machine().fold(*task).cancel,
            checkpoint_stored: None,
        })
    }

    /// Publishes a renewal. It must be in the log before the holder gets the answer; otherwise
    /// other workers would end the lease.
    fn renew_lease(
        &mut self,
        key: LeaseKey,
        token: &LeaseToken,
        keep: Box<KeepAlive>,
        reply: Reply<Kept>,
    ) {
        let (id, task, _) = key;
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let known = lane.core.machine().lease(task).map(|(.., lease_ms)| lease_ms);
        let lease_ms = keep.lease_time.map(lease_ms).or(known);
        let renewal = lease_ms
            .and_then(|lease_ms| lane.core.renewal(task, (token.epoch, token.owner), lease_ms));
        let Some(entry) = renewal else {
            return drop(reply.send(Err(ReportError::Unavailable)));
        };
        let renewed = Renewed { key, token: *token, keep, reply };
        let answers = self.env.answers.clone();
        let on_receipt = OnReceipt::new(move |published| {
            answers.put(WorkerEvent::Lease(LeaseEvent::Renewed(published.ok(), renewed)));
        });
        lane.publish(&entry, b"", Some(now + self.config.heartbeat), on_receipt);
    }

    /// Handles the receipt of a renewal, or its absence. The ledger up to that position tells
    /// whether the lease had ended before.
    pub(super) fn handle_renewed(&mut self, stored: Option<Position>, renewed: Renewed) {
        let Renewed { key: (id, ..), .. } = renewed;
        let Some(at) = stored else {
            return drop(renewed.reply.send(Err(ReportError::Unavailable)));
        };
        let read_to = self.lanes.get(&id).and_then(|lane| lane.core.machine().read_to());
        if read_to >= Some(at) {
            return self.answer_renewed(renewed);
        }
        let Some(leasing) = &mut self.leasing else { return };
        let unread = leasing.unread.entry(id).or_default();
        if unread.len() < UNREAD_MAX {
            unread.insert(at, renewed);
        }
    }

    /// Answers the renewals up to this position; the ledger was read that far.
    pub(super) fn answer_renewals(&mut self, id: LaneId, read_to: Position) {
        while let Some(leasing) = &mut self.leasing
            && let Some(unread) = leasing.unread.get_mut(&id)
            && let Some(first) = unread.first_entry().filter(|first| *first.key() <= read_to)
        {
            let renewed = first.remove();
            self.answer_renewed(renewed);
        }
    }

    fn answer_renewed(&mut self, Renewed { key, token, keep, reply }: Renewed) {
        let now = self.env.clock.now();
        let standing = self.standing(&token, now, now);
        let attendant = self.leasing.as_ref().and_then(|leasing| leasing.desk.attendants.get(&key));
        let error = match (standing, attendant) {
            (LeaseLookup::Not(error), _) => error,
            (LeaseLookup::Succeeded, _) => {
                ReportError::Ended { state: TaskState::Completed, outcome: None }
            }
            // An attendant that no longer listens has answered by that; the request is dropped.
            (LeaseLookup::Runs(_) | LeaseLookup::Behind, Some(attendant)) => {
                return drop(attendant.try_send(LeaseNotice::Kept { keep, reply }));
            }
            // Another worker attends the lease by now.
            (LeaseLookup::Runs(_) | LeaseLookup::Behind, None) => ReportError::Unavailable,
        };
        drop(reply.send(Err(error)));
    }

    fn report(&mut self, key: LeaseKey, outcome: LeaseOutcome, reply: Reply<()>) {
        let max = self.config.result_bytes_max;
        let Some(leasing) = &mut self.leasing else { return };
        let reported = ReportedOutcome::of(&outcome);
        if let LeaseOutcome::Succeeded(result) = &outcome
            && result.len() > max
        {
            let bytes = result.len();
            return drop(reply.send(Err(ReportError::TooLarge { bytes, max })));
        }
        let Some(attendant) = leasing.desk.attendants.get(&key) else {
            return drop(reply.send(Err(ReportError::Expired)));
        };
        // The end may be on its way already; then the log gives the answer.
        if let Err(TrySendError::Full(_)) = attendant.try_send(LeaseNotice::Ended(outcome)) {
            return drop(reply.send(Err(ReportError::Unavailable)));
        }
        leasing.reporters.entry(key).or_default().push((reported, reply));
    }

    /// Answers the requests that wait for the end of a lease, when an entry of its task was read.
    pub(super) fn answer_reporters(&mut self, id: LaneId, entry: &Entry) {
        let Some(leasing) = &mut self.leasing else { return };
        let Some(task) = entry.task() else { return };
        let ends = match entry {
            Entry::Done(Done { key, outcome, .. }) => Some((key.epoch, Some(outcome))),
            Entry::Claim(Claim { key, .. }) => Some((Epoch(key.epoch.0.saturating_sub(1)), None)),
            Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => None,
        };
        let Some((epoch, outcome)) = ends else { return };
        let Some(waiting) = leasing.reporters.remove(&(id, task, epoch)) else { return };
        let Some(lane) = self.lanes.get(&id) else { return };
        let fold = lane.core.machine().fold(task);
        let shown_elsewhere = lane.core.awaits_finisher(task) || outcome.is_none();
        let mut answers = Vec::with_capacity(waiting.len());
        for (reported, reply) in waiting {
            let as_told = outcome.is_some_and(|outcome| reported.counts_as(outcome));
            let answer =
                if as_told { Ok(()) } else { Err(error_of(fold.phase, fold.epoch, epoch)) };
            answers.push((answer, reply));
        }
        if shown_elsewhere {
            return send_all(answers);
        }
        let key = (id, task, epoch);
        leasing.unshown.entry(key).or_default().extend(answers);
        self.later(SHOWN_MAX, WorkerEvent::Lease(LeaseEvent::Shown(key)));
    }

    /// Sends the answers that waited for the metadata topic to show the end of the epoch, or whose
    /// wait is over.
    pub(super) fn answer_shown(&mut self, key: LeaseKey) {
        if let Some(leasing) = &mut self.leasing {
            send_all(leasing.unshown.remove(&key).unwrap_or_default());
        }
    }
}

fn send_all(answers: Vec<ReportReply>) {
    for (answer, reply) in answers {
        // The requester may have gone.
        drop(reply.send(answer));
    }
}
