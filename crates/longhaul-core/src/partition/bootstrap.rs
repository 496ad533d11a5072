//! Start and restart: the first read of the ledger, own heartbeats that come back, the self-fence.

use super::comparing::Distrust;
use super::looking::OpenTaskTimes;
use super::{Mode, Partition, PartitionEffect};
use crate::machine::Action;
use crate::protocol::config::LedgerConfig;
use crate::protocol::digest::Comparison;
use crate::protocol::entry::{Claim, ClaimKind, Done, Entry, Heartbeat, NextAttempt};
use crate::protocol::key::Key;
use crate::protocol::moment::Moment;
use std::time::Duration;

impl Partition {
    pub(super) fn handle_heartbeat(&mut self, heartbeat: &Heartbeat, now: Moment) {
        if !self.machine.is_own(heartbeat.owner) {
            return self.hear(heartbeat, now);
        }
        // A missing own entry is a reason as well: the worker would wait for ever for a stored
        // outcome that does not come back.
        if self.machine.is_ready() && self.gaps.heard(heartbeat) > 0 {
            return self.fence();
        }
        if heartbeat.owner != self.machine.owner() {
            return;
        }
        self.silence.came_back(heartbeat.number, now);
        self.recheck_finishers();
        if self.mode != Mode::Bootstrap {
            self.publish_config_if_missing();
        }
        if self.mode != Mode::Bootstrap || self.has_recent_view(now) {
            self.compare(heartbeat.number, now);
        }
        self.recheck_rank(now);
        for id in std::mem::take(&mut self.awaiting_heartbeat) {
            self.agenda.set(id, now);
        }
    }

    /// Whether a first read may end. A heartbeat sent early in a long outage, or in a long first
    /// read, does not prove that it is over: the next one is sent at once. Half of the self-fence
    /// limit leaves time to read the entries written meanwhile.
    pub(super) fn has_recent_view(&self, now: Moment) -> bool {
        self.silence.view_at().is_some_and(|at| now.since(at) <= self.fence_after() / 2)
    }

    /// Handles another owner's heartbeat. If its uptime has outrun this clock by G (the self-fence
    /// limit), this machine was suspended without noticing, for example by a snapshot of a virtual
    /// machine, and its view is old: the worker fences itself. It does the same if entries were
    /// lost on the way.
    fn hear(&mut self, heartbeat: &Heartbeat, now: Moment) {
        self.hear_shown(heartbeat, now);
        if !self.machine.is_ready() {
            // The heartbeat may be hours old.
            self.silence.heard(heartbeat.owner, now);
            self.record_turns(heartbeat);
            return self.hear_comparison(heartbeat, now);
        }
        let uptime = Duration::from_millis(heartbeat.uptime_ms);
        let ahead = self.silence.heard_heartbeat(heartbeat.owner, uptime, now);
        self.record_turns(heartbeat);
        if self.first {
            // An owner that was silent for a while may be first again.
            self.recheck_rank(now);
        }
        if ahead > self.settings.ledger.self_fence || self.gaps.heard(heartbeat) > 0 {
            return self.fence();
        }
        self.hear_comparison(heartbeat, now);
    }

    /// Notes that the owner of an entry is alive, or has left.
    pub(super) fn record_owner(&mut self, entry: &Entry, now: Moment) {
        let owner = match entry {
            // The owner id of a lease has no heartbeat and takes no turn.
            Entry::Claim(claim) if claim.lease_ms.is_some() => return,
            Entry::Claim(Claim { key, kind, .. }) if *kind != ClaimKind::Run => {
                return self.silence.heard_if_known(key.owner, now);
            }
            // An owner without heartbeats speaks for a lease.
            Entry::Done(Done { key, .. }) | Entry::Checkpoint(key) => {
                return self.silence.heard_if_known(key.owner, now);
            }
            // An operator that releases a task claims it, and is no worker.
            Entry::Claim(Claim { key, .. }) if self.machine.is_own(key.owner) => return,
            Entry::Claim(Claim { key, .. }) => return self.silence.heard_running(key.owner, now),
            Entry::Seal(seal) => seal.key.owner,
            // Superseded checkpoints of running tasks are tombstoned every second by the owner.
            Entry::Tombstone(Key::Once(key)) if !self.machine.is_sealed(key.task) => return,
            Entry::Tombstone(Key::Once(_) | Key::Seal(_)) => return self.record_swept(now),
            Entry::Tombstone(Key::Heartbeat(owner)) => {
                self.silence.left(*owner);
                self.gaps.left(*owner);
                self.comparing.left(*owner);
                self.finisher_left(*owner);
                return;
            }
            Entry::Renewal(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => return,
        };
        if !self.machine.is_own(owner) {
            self.silence.heard(owner, now);
        }
    }

    /// Notes whether the owner takes turns. Heartbeats under an id that a self-fence has replaced
    /// have no number.
    fn record_turns(&mut self, heartbeat: &Heartbeat) {
        if heartbeat.number == 0 {
            self.silence.record_former(heartbeat.owner);
        }
        let asking = heartbeat.comparison == Some(Comparison::Question);
        self.silence.record_reading(heartbeat.owner, heartbeat.reading, asking);
    }

    pub(super) fn handle_config(&mut self, config: &LedgerConfig, now: Moment) {
        match &self.config {
            // Two workers that started at once wrote one entry each. The first entry applies for
            // all workers that read both, so compaction must keep it.
            Some(known) if known.version == config.version && known != config => {
                if self.machine.is_ready() {
                    let first = Entry::Config(known.clone());
                    self.effects.push_back(PartitionEffect::Do(Action::Publish(first)));
                }
                return;
            }
            Some(known) if known.version >= config.version => return,
            Some(_) | None => self.config = Some(config.clone()),
        }
        if self.machine.leases() {
            // They may have waited for the settings.
            for id in self.open.keys() {
                self.agenda.set(*id, now);
            }
        }
        if let Err(error) = self.settings.ledger.agrees_with(config) {
            self.effects.push_back(PartitionEffect::Refused(error));
        }
    }

    pub(super) fn end_bootstrap(&mut self, now: Moment) {
        let wall_ms = self.wall.at(now);
        self.mode = if self.draining { Mode::Draining } else { Mode::Live };
        self.publish_config_if_missing();
        self.machine.bootstrap_ended();
        for (id, task) in
            self.machine.open_tasks().filter(|(_, task)| !task.fold.phase.is_terminal())
        {
            let fold = &task.fold;
            // The requested time, by the wall clocks, but never more than the delay itself, in case
            // one of them is wrong.
            let NextAttempt { at_ms, delay_ms, .. } = fold.next_attempt;
            let due = now + Duration::from_millis(at_ms.saturating_sub(wall_ms).min(delay_ms));
            self.open.insert(id, OpenTaskTimes::new(fold, now, due));
            self.agenda.set(id, now);
        }
        self.begin_to_seal(now, wall_ms);
        self.effects.push_back(PartitionEffect::Ready);
        self.settle();
        if self.silence.has_sent_more_than_one() {
            // Tells the others at once that this worker takes turns from now on.
            self.send_heartbeats(now);
        }
    }

    /// Publishes the settings of a gateway that is about to lease its first task.
    pub(super) fn share_config(&mut self) {
        if !std::mem::replace(&mut self.shares_config, true) {
            self.publish_config_if_missing();
        }
    }

    /// Publishes the settings if the ledger has none: it is new, or they were not stored.
    fn publish_config_if_missing(&mut self) {
        if self.config.is_none() && self.shares_config {
            let config = Entry::Config(self.settings.ledger.clone());
            self.effects.push_back(PartitionEffect::Do(Action::Publish(config)));
        }
    }

    /// Handles a deleted ledger: its replacement is read from the start.
    pub fn handle_ledger_deleted(&mut self) {
        self.fence();
        // What was wrong with the view of the former one says nothing of the new one.
        self.comparing.kept = Distrust::default();
    }

    /// Forgets everything that was read, and the actions based on it. State that is on no ledger
    /// stays: the request to drain, running processors and their slots, the counts of sent entries
    /// per owner id, and the machine's record of running attempts.
    pub(super) fn fence(&mut self) {
        // This uses up the spare id: the driver draws the next one when it handles the fence.
        let spare = self.spare_owner;
        let fresh = Self::new(self.settings.clone(), spare, spare, self.started);
        let before = std::mem::replace(self, fresh);
        self.machine = before.machine;
        self.draining = before.draining;
        self.processors = before.processors;
        self.freed = before.freed + before.claims.len();
        before.claims.keys().for_each(|id| self.tell_settled(*id));
        self.reads.over = before.reads.over + before.reads.counted.len();
        self.sent = before.sent;
        self.shares_config = before.shares_config;
        self.tickets = before.tickets;
        self.comparing.kept = before.comparing.kept;
        self.effects.push_back(PartitionEffect::Fenced);
        for effect in before.effects {
            match effect {
                // An attempt that was superseded before stays so, and the action would not be
                // repeated.
                PartitionEffect::Do(Action::Stop { .. } | Action::SetAside { .. })
                | PartitionEffect::ReturnTicket(_) => {
                    self.effects.push_back(effect);
                }
                PartitionEffect::Do(Action::Publish(entry)) => {
                    if let Some(key) = entry.counted() {
                        self.sent.given_up(key);
                    }
                }
                // Its processor will not start: the epoch is given back when the ledger was read.
                PartitionEffect::Do(
                    Action::Start { task, epoch, .. } | Action::Attend { task, epoch, .. },
                ) => {
                    self.processors.remove(&(task, epoch));
                    self.freed += usize::from(!self.machine.leases());
                    self.machine.not_started(task, epoch);
                }
                PartitionEffect::Do(_)
                | PartitionEffect::Ready
                | PartitionEffect::Differs { .. }
                | PartitionEffect::Fenced
                | PartitionEffect::Refused(_)
                | PartitionEffect::AskForTicket(_)
                | PartitionEffect::LeaseOver(..)
                | PartitionEffect::ClaimSettled(_) => {}
            }
        }
        self.machine.fence(spare);
    }
}
