//! Handles input from the three topics: ledger entries, deliveries, metadata entries.

use super::WorkerDriver;
use super::lanes::LaneId;
use crate::transport::Message;
use crate::worker::session::{Consumed, FollowerEvent};
use longhaul_core::ledger;
use longhaul_core::metadata::ShownEntry;
use longhaul_core::partition::Inbound;
use longhaul_core::protocol::entry::{Entry, EntryError};
use longhaul_core::protocol::fold::Verdict;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{ShownMetadata, TaskId, epoch_of};
use std::sync::Arc;
use std::time::Duration;

impl WorkerDriver {
    pub(super) fn handle_ledger(
        &mut self,
        id: LaneId,
        generation: u64,
        followed: &FollowerEvent,
        now: Moment,
    ) {
        match followed {
            FollowerEvent::Messages(messages) => {
                for message in messages {
                    self.handle_entry(id, generation, message, now);
                    self.perform_effects();
                }
            }
            FollowerEvent::End(..) => {}
            FollowerEvent::Gone => self.handle_ledger_deleted(id, generation),
        }
    }

    fn handle_entry(&mut self, id: LaneId, generation: u64, message: &Message, now: Moment) {
        let wall_ms = self.env.clock.wall_ms();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        // The previous entry may have ended this follower.
        if lane.generation != generation {
            return;
        }
        match ledger::read(message) {
            // Refuse an entry of another partition's task: its end would be looked for on that
            // partition.
            Ok(entry) if entry.task().is_some_and(|task| task.partition != lane.partition()) => {
                tracing::debug!(position = ?message.position, "the entry is of a task of another partition");
                self.stats.counted().malformed += 1;
            }
            Ok(entry) => {
                let (position, publish_time_ms) = (message.position, message.publish_time_ms);
                let inbound = Inbound { position, publish_time_ms, entry };
                let silent = lane.silence_before(&inbound.entry, now);
                match lane.core.handle_entry(&inbound, now, wall_ms) {
                    Some(Verdict::Accepted) => {
                        self.handle_accepted(id, &inbound.entry, message, silent, now);
                    }
                    Some(Verdict::Ignored(reason)) => {
                        lane.measure_ignored(&inbound.entry, reason);
                        self.stats.ignored(reason);
                    }
                    None => {}
                }
                self.handle_kind(id, &inbound, message, now);
            }
            Err(EntryError::Replicated) => self.stats.counted().replicated += 1,
            Err(error) => {
                tracing::debug!(position = ?message.position, %error, "not a ledger entry");
                self.stats.counted().malformed += 1;
            }
        }
    }

    /// Handles an entry that changed the state of its task. If it takes over from another owner,
    /// `silent` is for how long that owner was silent.
    fn handle_accepted(
        &mut self,
        id: LaneId,
        entry: &Entry,
        message: &Message,
        silent: Option<Duration>,
        now: Moment,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let machine = lane.core.machine();
        // Outcomes read again after a self-fence were already counted.
        if let Entry::Done(done) = entry
            && machine.is_ready()
            && machine.speaks_for(done.key.owner)
        {
            self.stats.accepted(&done.outcome);
        }
        lane.measure_accepted(entry);
        if let Some(silent) = silent {
            lane.measure_takeover(silent);
        }
        lane.drop_superseded(entry);
        lane.watch_end(entry, now);
        lane.record_holder(entry, message);
        lane.record_cancel(entry, message);
        self.answer_reporters(id, entry);
        self.tell_queue_of_entry(id, entry, message);
        if let Entry::Checkpoint(key) = entry {
            self.checkpoint_came_back(id, *key);
        }
    }

    /// Handles the parts of an entry that do not depend on its verdict.
    fn handle_kind(&mut self, id: LaneId, inbound: &Inbound, message: &Message, now: Moment) {
        self.answer_renewals(id, inbound.position);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match &inbound.entry {
            Entry::Heartbeat(heartbeat) => {
                self.stats.record_lag(id, lane.core.lag());
                lane.measure_heartbeat(heartbeat, now);
                if lane.core.machine().is_own(heartbeat.owner) {
                    self.look_for_lost_checkpoints(id, inbound.position);
                }
                self.compare(id, heartbeat, message);
            }
            Entry::Seal(seal) => {
                lane.forget_sealed(&seal.entries, now);
                self.tell_queue_of_seal(id, &seal.entries);
            }
            Entry::Config(_) => lane.landmark.set(Some(message)),
            Entry::Cancel(task) if ledger::is_kill(message) => self.kill(id, *task),
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Tombstone(_) => {}
        }
    }

    /// Discards the state read from a deleted or replaced ledger. The new ledger is authoritative
    /// for every worker that starts from now on.
    fn handle_ledger_deleted(&mut self, id: LaneId, generation: u64) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.generation == generation {
            let topic = &lane.topics.ledger;
            tracing::error!(%topic, "the ledger was deleted or replaced: tasks without a claim in the new one are stopped and start again");
            self.stats.counted().ledgers_lost += 1;
            lane.landmark.set(None);
            lane.core.handle_ledger_deleted();
        }
    }

    pub(super) fn handle_consumed(&mut self, id: LaneId, event: Consumed, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match event {
            Consumed::Opened(session) => {
                lane.session = Some(session);
                lane.credit = 0;
                lane.skim = 0;
                self.skimming.remove(&id);
                lane.replica = None;
            }
            Consumed::Deliveries(messages) => {
                for message in messages {
                    self.handle_delivery(id, message, now);
                    self.perform_effects();
                }
            }
            Consumed::Lost => {
                lane.session = None;
                lane.credit = 0;
                lane.core.handle_session_lost();
            }
            Consumed::Acked(entries) => {
                for entry in entries {
                    lane.core.handle_acked(entry);
                }
            }
        }
    }

    fn handle_delivery(&mut self, id: LaneId, message: Message, now: Moment) {
        let defaults = self.defaults_of(id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        // A self-fence ends the session and discards its deliveries.
        if lane.session.is_none() {
            return;
        }
        lane.credit = lane.credit.saturating_sub(1);
        if lane.credit == 0 {
            self.shares.may_have_more(id.topic, now);
        }
        if is_replica(&message) && !self.config.run_replicated {
            lane.drop_replica(&message, now);
            self.stats.counted().replicated += 1;
            return;
        }
        let task = TaskId::new(message.position, lane.partition());
        let payload = lane.payload_of(message, defaults.as_deref());
        let (facts, bytes) = (Arc::clone(&payload.facts), payload.plain_bytes());
        let was_here = lane.payloads.contains(task);
        lane.payloads.insert(task, payload);
        let is_ready = self.on_queue_of(id, task, |queue, task, context| {
            queue.handle_delivery(task, &facts, bytes.as_deref(), context)
        });
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if is_ready != Some(true) {
            if !was_here {
                lane.payloads.remove(task);
            }
            return self.skim(id);
        }
        // The session already holds the rest of the batch. Other workers cannot get these tasks
        // while one of them runs here, unless this worker takes them in and offers them.
        lane.skim = rest_of_batch(task, facts.batch_size);
        if lane.skim > 0 {
            self.skimming.insert(id);
        } else {
            self.skimming.remove(&id);
        }
    }

    pub(super) fn handle_metadata(
        &mut self,
        id: LaneId,
        follower: u64,
        followed: &FollowerEvent,
        now: Moment,
    ) {
        match followed {
            FollowerEvent::Messages(messages) => {
                for message in messages {
                    self.handle_shown(id, follower, message, now);
                }
            }
            FollowerEvent::End(asked, end) => {
                if let Some(lane) = self.lanes.get_mut(&id) {
                    lane.metadata.told_end(follower, *asked, *end);
                }
            }
            FollowerEvent::Gone => {}
        }
    }

    fn handle_shown(&mut self, id: LaneId, follower: u64, message: &Message, now: Moment) {
        let wall_ms = self.env.clock.wall_ms();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(since) = lane.metadata.is_news(follower, message.position) else { return };
        if is_replica(message) {
            self.stats.counted().replicated += 1;
            return;
        }
        let Some(task) = message.key.as_deref().and_then(|key| key.parse().ok()) else { return };
        let machine = lane.core.machine();
        let fold = machine.fold(task);
        if message.null {
            lane.metadata.keeper.gone(task, &fold);
        } else if let Ok(metadata) = serde_json::from_slice::<ShownMetadata>(&message.payload) {
            let shown = ShownEntry::of(metadata, epoch_of(&message.properties), message.position);
            let live = machine.ended_live(task, since);
            lane.metadata.keeper.read(task, shown, &fold, live, now, wall_ms);
            lane.record_shown_end(task, &shown);
        }
    }
}

/// Number of tasks behind this one in its message.
fn rest_of_batch(task: TaskId, batch_size: Option<u32>) -> usize {
    let rest = task.batch_index.zip(batch_size).map(|(at, size)| size.saturating_sub(at + 1));
    rest.and_then(|rest| usize::try_from(rest).ok()).unwrap_or(0)
}

/// Whether a message was published in another cluster. Task ids from there denote other tasks here.
const fn is_replica(message: &Message) -> bool {
    message.replicated_from.is_some()
}
