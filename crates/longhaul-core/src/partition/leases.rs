//! Leases on one partition: when they are over because of silence, and what happens to the claims
//! that request them.
//!
//! A lease has no heartbeats. Its claim and its renewals set its maximum silence. It is over when
//! that time has passed since the last of them was *read*, in a view that is known to be complete:
//! a lagging gateway ends no lease that was renewed. After a bootstrap or an outage of the ledger
//! every lease gets its whole time again. The holder of the delivery ends it first, the others by
//! rank, as in takeovers.
//!
//! The same applies to the gateway that attends the lease. Its own clock tells only when it last
//! received a message from the holder, which may have turned to another gateway since. A gateway
//! that was suspended for a minute must read on before it ends leases that others attend by now.

use super::looking::OpenTaskTimes;
use super::{Mode, Partition, PartitionEffect};
use crate::machine::{Action, Task};
use crate::protocol::entry::{Claim, Entry, LeaseMs, Outcome, Renewal, lease_time};
use crate::protocol::fold::{Phase, Verdict};
use crate::protocol::key::{Epoch, OwnerId};
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::time::Duration;

impl Partition {
    /// Leases all tasks claimed here from now on. `seed` is a random number: see
    /// [`Machine::grant_leases`](super::Machine::grant_leases).
    pub fn grant_leases(&mut self, seed: u64) {
        self.machine.grant_leases(seed >> 16);
        self.shares_config = false;
    }

    /// When this worker may end the lease that runs the task, as far as known now. `None`: the next
    /// own heartbeat will tell.
    pub(super) fn lease_over_at(
        &mut self,
        id: TaskId,
        lease_ms: LeaseMs,
        held: bool,
        now: Moment,
    ) -> Option<Moment> {
        let heard = self.open.get(&id)?.heard;
        let limit = lease_time(lease_ms);
        if !self.silence.is_over(heard, limit) {
            return self.ask_whether_silent(id, self.silence.extra_after(heard, limit), now);
        }
        let over = heard + limit;
        Some(if held { over } else { over + self.delay(id, now) })
    }

    /// The maximum silence of a lease that this worker attends; `None` if it attends none.
    pub(super) fn attended(&self, id: TaskId) -> Option<LeaseMs> {
        let task = self.machine.task(id)?;
        let runs = task.stage.run().is_some_and(|run| run.ended.is_none());
        task.lease_ms.filter(|_| runs && task.fold.phase == Phase::Running)
    }

    /// Ends the attended lease if it has been silent for too long; otherwise plans the next look.
    pub(super) fn recheck_attended(&mut self, id: TaskId, lease_ms: LeaseMs, now: Moment) {
        match self.lease_over_at(id, lease_ms, true, now) {
            Some(over) if over <= now => self.end_silent_lease(id, now),
            Some(over) => self.agenda.set(id, over),
            None => {}
        }
    }

    /// Whether the lease that runs the task has been silent for too long, in a view known to be
    /// complete: any message for it would be late.
    #[must_use]
    pub fn is_lease_over(&self, id: TaskId) -> bool {
        let lease = self.machine.lease(id).zip(self.open.get(&id));
        lease.is_some_and(|((.., lease_ms), open)| {
            self.silence.is_over(open.heard, lease_time(lease_ms))
        })
    }

    /// The maximum time between the sending and the return of an own claim; a later one must not
    /// run. A lease is not granted after the time at which others may have ended it.
    pub(super) fn late_after(&self, entry: &Entry) -> Duration {
        let heartbeat = self.settings.ledger.heartbeat;
        match entry {
            Entry::Claim(Claim { lease_ms: Some(lease_ms), .. }) => {
                heartbeat.min(lease_time(*lease_ms))
            }
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => heartbeat,
        }
    }

    /// Asks the driver to end a lease that has been silent for too long; it is this worker's turn.
    /// Looks again in case that has no effect.
    pub(super) fn end_silent_lease(&mut self, id: TaskId, now: Moment) {
        self.agenda.set(id, now + self.settings.ledger.heartbeat);
        if self.mode != Mode::Live {
            return;
        }
        if let Some((epoch, ..)) = self.machine.lease(id) {
            self.machine.record_silence(id, epoch);
            self.effects.push_back(PartitionEffect::LeaseOver(id, epoch));
        }
    }

    /// Ends the silent lease with this outcome, unless its holder was heard since the request.
    /// Returns whether it does.
    pub fn handle_lease_over(&mut self, id: TaskId, epoch: Epoch, outcome: Outcome) -> bool {
        let ends = self.is_lease_over(id) && self.machine.end_lease(id, epoch, outcome);
        self.settle();
        ends
    }

    /// Attends a lease from now on: see [`Machine::attend`](super::Machine::attend). Not before the
    /// previous attendant here is gone.
    pub fn attend_lease(&mut self, id: TaskId, now: Moment) -> bool {
        let epoch = self.machine.fold(id).epoch;
        let attends = !self.processors.contains_key(&(id, epoch)) && self.machine.attend(id);
        self.agenda.set(id, now);
        self.settle();
        attends
    }

    /// Whether the task of this lease can be read now, to attend it here.
    #[must_use]
    pub fn may_attend(&self, id: TaskId) -> bool {
        let epoch = self.machine.fold(id).epoch;
        let free = self.machine.task(id).is_some_and(|task| task.stage.is_free());
        free && !self.processors.contains_key(&(id, epoch))
    }

    /// Lets go of a lease that is no longer attended here.
    pub fn let_go_of_lease(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        self.machine.let_go_of_lease(id, epoch);
        if let Some(open) = self.open.get_mut(&id) {
            open.heard = now;
        }
        self.agenda.set(id, now);
        self.settle();
    }

    /// The entry that renews a lease in the name of this worker, which attends it from then on.
    #[must_use]
    pub fn renewal(
        &self,
        id: TaskId,
        (epoch, owner): (Epoch, OwnerId),
        lease_ms: LeaseMs,
    ) -> Option<Entry> {
        let key = self.machine.renewal_key(id, epoch, owner)?;
        Some(Entry::Renewal(Renewal { key, lease_ms, by: self.machine.owner() }))
    }

    /// Sends a heartbeat, unless one sent since then is in flight: when it comes back the view is
    /// complete up to that time.
    pub fn look_up(&mut self, since: Moment, now: Moment) {
        if self.mode != Mode::Bootstrap && !self.silence.has_sent_since(since) {
            self.send_heartbeats(now);
        }
    }

    /// Reads the message of a leased task, to attend its lease here.
    pub fn read_leased(&mut self, id: TaskId) {
        self.machine.read_payload(id);
        self.settle();
    }

    /// Handles the message of a leased task: attends the lease if the message was read and the
    /// lease still runs.
    pub fn handle_leased_read(&mut self, id: TaskId, found: bool, now: Moment) {
        // It may have been requested before, for a claim that came too late.
        self.end_read(id);
        self.machine.payload_read(id, found);
        if found {
            self.attend_lease(id, now);
        } else {
            self.agenda.set(id, now);
            self.settle();
        }
    }

    /// Time since the cancel request for the task was read, if there was one.
    #[must_use]
    pub fn cancelled_for(&self, id: TaskId, now: Moment) -> Option<Duration> {
        let cancelled = self.open.get(&id)?.cancelled?;
        Some(now.since(cancelled))
    }

    /// Maximum remaining silence of the lease that runs the task, as far as known here.
    #[must_use]
    pub fn lease_left(&self, id: TaskId, now: Moment) -> Option<Duration> {
        let (.., lease_ms) = self.machine.lease(id)?;
        let heard = self.open.get(&id)?.heard;
        Some((heard + lease_time(lease_ms)).since(now))
    }

    /// Hands a task back if a gateway without requests holds it: other gateways may have requests.
    /// Tasks whose attempt is due go back like new ones, after a while. Returns true if it was
    /// handed back.
    pub(super) fn hand_back_unasked(&mut self, id: TaskId, now: Moment) -> bool {
        let since = |open: &OpenTaskTimes| open.received.map(|received| received.max(open.due));
        let held = self.machine.leases()
            && !self.keeps_order()
            && self.machine.task(id).is_some_and(|task| task.held);
        let since = self.open.get(&id).filter(|_| held).and_then(since);
        since.is_some_and(|since| self.hand_back_after(since, id, now))
    }

    /// Notes an accepted entry that begins or renews a lease.
    pub(super) fn hear_lease(&mut self, entry: &Entry, verdict: Option<Verdict>, now: Moment) {
        let alive = matches!(entry, Entry::Claim(_) | Entry::Renewal(_));
        if let Some(id) = entry.task().filter(|_| alive && verdict == Some(Verdict::Accepted))
            && let Some(open) = self.open.get_mut(&id)
        {
            open.heard = now;
        }
    }

    /// Whether the owner or lease that runs the task has been silent for so long that others may
    /// take the task or end the lease.
    pub(super) fn runs_in_silence(&self, task: &Task, id: TaskId) -> bool {
        match task.lease_ms {
            Some(_) => self.is_lease_over(id),
            None => !self.machine.is_own(task.fold.owner) && self.silence.is_stale(task.fold.owner),
        }
    }

    /// Reports a settled claim for a lease: if it was not granted, its request waits for another
    /// claim.
    pub(super) fn tell_settled(&mut self, id: TaskId) {
        if self.machine.leases() {
            self.effects.push_back(PartitionEffect::ClaimSettled(id));
        }
    }

    /// Notes a lease that is attended here: it takes no slot.
    pub(super) fn record_attended(&mut self, action: &Action) {
        if let Action::Attend { task, epoch, .. } = action {
            let begin_by = self.silence.view_at().unwrap_or_default() + self.fence_after();
            self.processors.insert((*task, *epoch), begin_by);
        }
    }
}
