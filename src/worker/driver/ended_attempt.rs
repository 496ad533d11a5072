//! What is kept of an ended attempt until its outcome is on the ledger and its end is shown: one
//! record per task, of one of its epochs.

use super::held::Weigh;
use super::lane::{PartitionDriver, RunningAttempt, TaskPayload};
use crate::transport::OnReceipt;
use bytes::Bytes;
use longhaul_core::metadata::entry::OutcomeBody;
use longhaul_core::protocol::entry::{Entry, Outcome};
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::task::{LogLines, TaskId, TaskMetadata};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct EndedAttempt {
    pub(super) epoch: Epoch,
    /// The body of its outcome, which may have to be published or shown again.
    pub(super) body: Option<OutcomeBody>,
    log: LogLines,
    /// The message of the task without its payload, if that is too large to be shown and is dropped.
    message: Option<TaskPayload>,
    /// Its last checkpoint, if that is not known to be on the ledger and another attempt may follow.
    checkpoint: Option<Bytes>,
}

impl EndedAttempt {
    fn new(epoch: Epoch) -> Self {
        Self { epoch, body: None, log: LogLines::default(), message: None, checkpoint: None }
    }

    const fn is_empty(&self) -> bool {
        self.body.is_none() && self.checkpoint.is_none()
    }
}

impl Weigh for EndedAttempt {
    fn weight(&self) -> usize {
        let Self { epoch: _, body, log, message, checkpoint } = self;
        body.as_ref().map_or(0, OutcomeBody::size)
            + log.lines.iter().map(String::len).sum::<usize>()
            + message.as_ref().map_or(0, Weigh::weight)
            + checkpoint.as_ref().map_or(0, Bytes::len)
    }
}

impl PartitionDriver {
    /// Drops the data that was needed to show the end of a task; the end is on the metadata topic,
    /// or was given up for now.
    pub(super) fn forget_shown(&mut self, id: TaskId, given_up: bool) {
        self.ended_attempts.remove(id);
        self.payloads.remove(id);
        let told = given_up && self.metadata.ended.is_told(id);
        self.metadata.ended.forget(id);
        if told {
            // A later try to show the end does not tell it again.
            self.metadata.ended.handle_told(id, true);
        }
        self.holders.forget_ended(id);
        self.cancel_notes.remove(id);
    }

    /// Keeps an attempt that has just ended: its checkpoint if another attempt may follow, the rest
    /// if its end will be shown.
    pub(super) fn keep_ended(
        &mut self,
        (task, epoch): (TaskId, Epoch),
        ran: &RunningAttempt,
        (outcome, body): (Outcome, OutcomeBody),
        is_shown: bool,
    ) {
        let follows = matches!(outcome, Outcome::Failed(_) | Outcome::Released(_));
        let unstored = ran.checkpoints.reports.take_unstored().filter(|_| follows);
        let mut ended = EndedAttempt::new(epoch);
        ended.checkpoint = unstored.map(|given| given.bytes);
        if is_shown {
            let large =
                if self.is_shown(ran.payload_bytes) { None } else { self.payloads.get(task) };
            let large = large.filter(|payload| !payload.properties.is_empty());
            let without_bytes =
                |payload: &TaskPayload| TaskPayload { bytes: Bytes::new(), ..payload.clone() };
            ended.message = large.map(without_bytes);
            ended.log = ran.checkpoints.reports.log();
            ended.body = Some(body);
        }
        if !ended.is_empty() {
            self.ended_attempts.insert(task, ended);
        }
    }

    /// Keeps the body of an outcome, beside what else is kept of the attempt.
    pub(super) fn keep_body(&mut self, (task, epoch): (TaskId, Epoch), body: OutcomeBody) {
        let kept = self.ended_attempts.remove(task).filter(|ended| ended.epoch == epoch);
        let kept = kept.unwrap_or_else(|| EndedAttempt::new(epoch));
        self.ended_attempts.insert(task, EndedAttempt { body: Some(body), ..kept });
    }

    /// What is kept of this attempt.
    pub(super) fn ended_attempt(&self, task: TaskId, epoch: Epoch) -> Option<&EndedAttempt> {
        self.ended_attempts.get(task).filter(|ended| ended.epoch == epoch)
    }

    /// The body of the outcome of this attempt.
    pub(super) fn outcome_body(&self, task: TaskId, epoch: Epoch) -> Option<&OutcomeBody> {
        self.ended_attempt(task, epoch)?.body.as_ref()
    }

    /// Completes the metadata entry of an ended attempt by its log lines and, if the payload was
    /// dropped, by the properties of its message.
    pub(super) fn annotate_ended(
        &self,
        (task, epoch): (TaskId, Epoch),
        metadata: &mut TaskMetadata,
    ) {
        let Some(ended) = self.ended_attempt(task, epoch) else { return };
        ended.log.clone().show_in(metadata);
        if let Some(message) = &ended.message
            && !self.payloads.contains(task)
        {
            self.annotate_by(message, metadata);
        }
    }

    /// Publishes the last checkpoint of an attempt under a fresh key, before its outcome is
    /// published for the first time or again. It waits for no receipt: if the checkpoint is lost,
    /// the outcome is usually lost as well, and both are published again.
    pub(super) fn publish_last_checkpoint(&mut self, OnceKey { task, epoch, .. }: OnceKey) {
        let ended = self.ended_attempt(task, epoch);
        let Some(bytes) = ended.and_then(|ended| ended.checkpoint.clone()) else { return };
        if let Some(key) = self.core.handle_checkpoint(task, epoch) {
            self.publish(&Entry::Checkpoint(key), &bytes, None, OnReceipt::ignored());
        }
    }

    /// Drops what nothing needs any more after this ledger entry: the last checkpoint once the
    /// outcome is there, and all of it (a body has up to 1 MiB) once another epoch has superseded
    /// it.
    pub(super) fn drop_superseded(&mut self, entry: &Entry) {
        let Some(id) = entry.task() else { return };
        let Some(EndedAttempt { epoch, checkpoint, .. }) = self.ended_attempts.get(id) else {
            return;
        };
        let machine = self.core.machine();
        let is_stored = checkpoint.is_some() && !machine.is_to_end(id, *epoch);
        let is_needed = machine.may_need_outcome(id, *epoch);
        if !is_stored && is_needed {
            return;
        }
        let rest = self.ended_attempts.remove(id).filter(|_| is_needed);
        let rest = rest.map(|ended| EndedAttempt { checkpoint: None, ..ended });
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.ended_attempts.insert(id, rest);
        }
    }
}
