//! Looks at tasks and decides whether to claim them now.

use super::blocked::Step;
use super::delivering::place;
use super::judging::Judged;
use super::{Mode, Partition, PartitionEffect, Slots};
use crate::machine::Action;
use crate::protocol::claim::{Decision, NextClaim};
use crate::protocol::digest::Comparison;
use crate::protocol::entry::{AttemptCause, ClaimKind, Entry, Heartbeat};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::{Epoch, OwnerId};
use crate::protocol::moment::Moment;
use crate::protocol::rank::{adoption_delay, rank};
use crate::task::{EntryId, Position, TaskId};
use crate::wanted::TaskType;
use std::time::Duration;

/// The first wait after a failed read of a payload; it doubles, up to 64 times this.
const UNREADABLE_WAIT: Duration = Duration::from_millis(500);
const DOUBLINGS_MAX: u32 = 6;
/// Number of searches for the message of a task that is known only from a cancel request and may
/// not exist. The waits keep doubling: 18 hours in all.
const LOOKS_UNSEEN_MAX: u32 = 18;

/// The times of a task that is not terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OpenTaskTimes {
    /// The state that the times below belong to.
    state: (Epoch, Phase),
    /// When its delivery arrived.
    pub(super) received: Option<Moment>,
    /// Since when it is ready, in ms since the epoch; zero if it continues an attempt that had
    /// begun.
    pub(super) ready_ms: u64,
    /// When the next attempt is due.
    pub(super) due: Moment,
    /// When its cancel request was read.
    pub(super) cancelled: Option<Moment>,
    /// Since when its owner is known to be stale.
    pub(super) stale: Option<Moment>,
    /// When an entry of the lease that runs it was last read.
    pub(super) heard: Moment,
    /// Earliest time of the next claim after own claims that came back too late; below, their
    /// number.
    pub(super) not_before: Moment,
    late_count: u32,
    unreadable_count: u32,
    /// Its type, from its message or an offer.
    pub(super) task_type: Option<TaskType>,
    /// When this worker last offered it.
    pub(super) offered: Option<Moment>,
    /// When this worker last checked whether to offer it.
    pub(super) tried: Option<Moment>,
    /// Whether its payload was or is being read for a slot of the quota: the claim needs no other.
    pub(super) granted: bool,
}

impl OpenTaskTimes {
    pub(super) fn new(fold: &TaskFold, now: Moment, due: Moment) -> Self {
        Self {
            state: (fold.epoch, fold.phase),
            ready_ms: fold.next_attempt.at_ms,
            due,
            cancelled: fold.cancel.then_some(now),
            heard: now,
            not_before: now,
            task_type: offered_type(fold),
            ..Self::default()
        }
    }

    pub(super) const fn phase(&self) -> Phase {
        self.state.1
    }

    pub(super) fn follow(&mut self, fold: &TaskFold, due: Moment) {
        if self.state != (fold.epoch, fold.phase) {
            self.state = (fold.epoch, fold.phase);
            self.due = due;
            self.ready_ms = fold.next_attempt.at_ms;
            self.task_type = offered_type(fold).or(self.task_type);
            if fold.phase == Phase::Running {
                // A worker took the offer: the next one need not wait for a heartbeat interval.
                self.offered = None;
            }
        }
    }

    /// Handles the result of a payload read. Returns how long to wait for the next one; `None`:
    /// there is none.
    pub(super) fn was_read(&mut self, found: bool, unseen: bool) -> Option<Duration> {
        if found {
            self.unreadable_count = 0;
            return Some(Duration::ZERO);
        }
        let doublings = if unseen { LOOKS_UNSEEN_MAX } else { DOUBLINGS_MAX };
        let wait = UNREADABLE_WAIT * (1 << self.unreadable_count.min(doublings));
        self.unreadable_count = self.unreadable_count.saturating_add(1);
        (!unseen || !self.is_looked_for_in_vain()).then_some(wait)
    }

    /// Whether its message was looked for so often that it does not exist as far as this worker can
    /// tell.
    pub(super) const fn is_looked_for_in_vain(&self) -> bool {
        self.unreadable_count >= LOOKS_UNSEEN_MAX
    }

    /// Handles a cancel request, possibly a repeated one.
    pub(super) fn was_cancelled(&mut self, now: Moment) {
        self.cancelled.get_or_insert(now);
        if self.is_looked_for_in_vain() {
            self.unreadable_count = 0;
        }
    }
}

/// The type of an offered task.
fn offered_type(fold: &TaskFold) -> Option<TaskType> {
    match fold.next_attempt.after {
        AttemptCause::Offer(task_type) => Some(task_type),
        AttemptCause::Other | AttemptCause::Drain | AttemptCause::Others => None,
    }
}

impl Partition {
    /// Does everything that is due. Call it after every other call and every effect, and at
    /// [`Partition::timeout`].
    pub fn run(&mut self, now: Moment, slots: &mut Slots) {
        self.record_slow_reads(now);
        self.give_back(slots);
        let works = self.mode != Mode::Bootstrap;
        if works && self.silence.view_at().is_some_and(|at| now.since(at) > self.fence_after()) {
            self.fence();
        }
        if now >= self.silence.heartbeat_at() {
            self.send_heartbeats(now);
        }
        self.recheck_comparison(now);
        self.line_up_kept(now);
        self.serve(now, slots);
        while let Some(id) = self.agenda.pop_due(now) {
            self.look(id, now, slots);
        }
        self.end_more(now, slots);
        self.recheck_kept(now);
        self.offer_unwanted(now, slots);
        self.look_after_finished(now);
        self.settle();
        self.return_tickets();
        self.give_back(slots);
    }

    /// Gives back the slots of ended attempts and of payloads that are no longer read.
    fn give_back(&mut self, slots: &mut Slots) {
        let freed = std::mem::take(&mut self.freed);
        if self.machine.leases() {
            slots.withdraw(freed);
        } else {
            slots.used = slots.used.saturating_sub(freed);
        }
        slots.reading = slots.reading.saturating_sub(std::mem::take(&mut self.reads.over));
    }

    /// When to call [`Partition::run`] at the latest.
    #[must_use]
    pub fn timeout(&self) -> Moment {
        let mut next = self.silence.heartbeat_at();
        let (kept, offer) = (self.next_kept, self.unwanted.offer_at);
        let (slow, compare) = (self.reads.slow_at(), self.comparison_at());
        for at in [self.agenda.next(), kept, offer, slow, compare].into_iter().flatten() {
            next = next.min(at);
        }
        if let Some(at) = self.silence.view_at()
            && self.mode != Mode::Bootstrap
        {
            next = next.min(at + self.fence_after() + Duration::from_millis(1));
            next = next.min(self.look_after_at());
        }
        next
    }

    pub(super) const fn fence_after(&self) -> Duration {
        self.settings.ledger.self_fence
    }

    pub(super) fn send_heartbeats(&mut self, now: Moment) {
        self.send_heartbeats_saying(self.asks().then_some(Comparison::Question), now);
    }

    /// Sends a heartbeat for each owner id of this worker that is alive. The one of the current id
    /// says this of a comparison.
    pub(super) fn send_heartbeats_saying(&mut self, says: Option<Comparison>, now: Moment) {
        let number = self.silence.send(now);
        let alive = self.machine.owners_alive();
        self.sent.keep(&alive);
        for owner in alive {
            let is_current = owner == self.machine.owner();
            let heartbeat = self.heartbeat(owner, if is_current { number } else { 0 }, now);
            let comparison = says.filter(|_| is_current);
            let heartbeat = Entry::Heartbeat(Heartbeat { comparison, ..heartbeat });
            self.effects.push_back(PartitionEffect::Do(Action::Publish(heartbeat)));
        }
    }

    /// The last heartbeat of a leaving worker: it reports once more up to where it has shown its
    /// ends, because other workers cannot ask it later.
    pub fn last_heartbeat(&mut self, now: Moment) -> Entry {
        let number = self.silence.send(now);
        Entry::Heartbeat(self.heartbeat(self.machine.owner(), number, now))
    }

    fn heartbeat(&self, owner: OwnerId, number: u64, now: Moment) -> Heartbeat {
        let uptime = now.since(self.started).as_millis();
        let (sent, leased) = (self.sent.of(owner), self.sent.of_leases(owner));
        Heartbeat {
            owner,
            subscription: self.settings.ledger.subscription.clone(),
            number,
            receipted: sent.receipted,
            underway: sent.underway,
            leased: self.machine.leases().then_some((leased.receipted, leased.underway)),
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            max_attempts: Some(self.settings.max_attempts),
            shown_to: self.finishers.own_shown_to().filter(|_| owner == self.machine.owner()),
            reading: self.reads_for_long(number),
            comparison: None,
        }
    }

    /// Whether the ledger is still being read when this heartbeat is sent. The first heartbeat does
    /// not report it: most reads end long before the next one.
    fn reads_for_long(&self, number: u64) -> bool {
        self.mode == Mode::Bootstrap && number > 1
    }

    /// Leaves a task alone after a late read-back: for one heartbeat interval, doubling to 8.
    /// Otherwise a lagging reader would claim and release for ever.
    pub(super) fn back_off(&mut self, id: TaskId, now: Moment) {
        let heartbeat = self.settings.ledger.heartbeat;
        if let Some(open) = self.open.get_mut(&id) {
            open.not_before = now + heartbeat * (1 << open.late_count.min(3));
            open.late_count += 1;
        }
    }

    pub(super) fn look(&mut self, id: TaskId, now: Moment, slots: &mut Slots) {
        self.look_or_offer(id, false, now, slots);
    }

    /// If `offers` is set, a task without a request here is offered to the other workers.
    pub(super) fn look_or_offer(
        &mut self,
        id: TaskId,
        offers: bool,
        now: Moment,
        slots: &mut Slots,
    ) {
        self.unwanted.remove(id);
        if self.machine.is_aside(id) {
            return self.look_aside(id);
        }
        if let Some(lease_ms) = self.attended(id) {
            return self.recheck_attended(id, lease_ms, now);
        }
        let Some(Judged { due, closes }) = self.judge(id, now) else { return };
        if self.mode == Mode::Draining && self.machine.task(id).is_some_and(|task| task.held) {
            self.hand_back(id);
            return;
        }
        if self.machine.task(id).is_some_and(|task| task.is_leased_elsewhere()) {
            return if due <= now {
                self.end_silent_lease(id, now)
            } else {
                self.agenda.set(id, due)
            };
        }
        let closes = closes.filter(|(at, _)| *at <= now).map(|(_, kind)| kind);
        let closes = closes.or_else(|| self.parks(id).then_some(ClaimKind::Park));
        let closes = closes.or_else(|| if offers { self.offer_of(id, now, slots) } else { None });
        let decision = self.machine.decide(id, due <= now, closes);
        let ends_unseen = decision == Decision::ReadPayload && self.ends_unseen(id);
        let step = Step { id, decision, due, ends_unseen };
        match self.blocked(&step, now, slots) {
            Some(blocked) => self.wait_for(blocked, id, now),
            None => self.take(&step, now, slots),
        }
    }

    fn take(&mut self, step: &Step, now: Moment, slots: &mut Slots) {
        let Step { id, decision, ends_unseen, .. } = *step;
        match decision {
            Decision::Wait => {}
            Decision::ReadPayload if ends_unseen => self.look_for_message(id, now, slots),
            Decision::ReadPayload => {
                if self.reads.begin(id, now) {
                    slots.reading += 1;
                    self.record_read(id, slots);
                }
                self.grant(id, slots);
                self.machine.read_payload(id);
            }
            Decision::Claim(claim) => self.claim(id, claim, now, slots),
        }
    }

    /// Hands back the delivery of a task that was set aside, once nothing else of its batch is in
    /// progress here.
    fn look_aside(&mut self, id: TaskId) {
        if !self.machine.task(id).is_some_and(|task| task.held) {
            return;
        }
        if self.machine.may_hand_back(id.entry_id()) {
            self.hand_back(id);
        } else {
            self.awaiting_heartbeat.insert(id);
        }
    }

    fn claim(&mut self, id: TaskId, claim: NextClaim, now: Moment, slots: &mut Slots) {
        if claim.kind == ClaimKind::Run {
            self.waiting.remove(id);
            let granted = self.is_granted(id, slots);
            if let Some(open) = self.open.get_mut(&id) {
                open.granted = false;
            }
            slots.used += 1;
            if !granted {
                slots.take();
            }
            self.take_for(id, slots);
            self.claims.insert(id, now);
            self.tickets.use_up(id);
        }
        if let ClaimKind::Offer(_) = claim.kind
            && let Some(open) = self.open.get_mut(&id)
        {
            open.offered = Some(now);
        }
        self.machine.claim(id, claim);
    }

    pub(super) fn wait_for_slot(&mut self, id: TaskId, now: Moment) {
        self.return_ticket_in_time(id, now);
        if !self.hand_back_in_time(id, now) && !self.hand_back_unasked(id, now) {
            // An attempt that had begun waits here without its payload, for as long as it takes.
            self.machine.drop_idle_payload(id);
            let ready_ms = self.open.get(&id).map_or(0, |open| open.ready_ms);
            self.waiting.set_by(id, place(ready_ms));
        }
    }

    /// When the silence of an owner began, as far as this worker has read without a gap; `None` if
    /// nothing was read of the owner.
    #[must_use]
    pub fn silent_since(&self, owner: OwnerId) -> Option<Moment> {
        self.silence.has_heard_of(owner).then(|| self.silence.silent_since(owner))
    }

    /// This worker's place in line for a task.
    #[must_use]
    pub fn rank(&self, id: TaskId, now: Moment) -> u64 {
        rank(id, self.machine.owner(), self.silence.live_owners(now))
    }

    /// Whether this worker keeps the metadata topic in order: the first by rank among those that
    /// have read the ledger. Two workers may both be first until they have heard each other; that
    /// does no harm.
    #[must_use]
    pub const fn keeps_metadata(&self) -> bool {
        self.first
    }

    /// Position up to which the ledger was read.
    #[must_use]
    pub const fn read_to(&self) -> Option<Position> {
        self.read_to
    }

    /// This worker's place in line for work that one worker of the partition does.
    pub(super) fn place(&self, now: Moment) -> u64 {
        self.rank(self.shared_duty(), now)
    }

    /// What stands for such work where the workers are put in line.
    pub(super) const fn shared_duty(&self) -> TaskId {
        self.entry_in_line(EntryId { ledger: 0, entry: 0 })
    }

    /// This worker's place in line for an entry.
    pub(super) fn rank_at(&self, entry: EntryId, now: Moment) -> u64 {
        self.rank(self.entry_in_line(entry), now)
    }

    const fn entry_in_line(&self, EntryId { ledger, entry }: EntryId) -> TaskId {
        TaskId { ledger, entry, partition: self.settings.partition, batch_index: None }
    }

    /// Updates the rank when an own heartbeat came back, so that the live owners are known.
    pub(super) fn recheck_rank(&mut self, now: Moment) {
        self.first = self.mode != Mode::Bootstrap && self.place(now) == 0;
    }

    pub(super) fn delay(&self, id: TaskId, now: Moment) -> Duration {
        adoption_delay(self.rank(id, now))
    }
}
