//! Periodic work: trimming, expiry, compaction, checkpoints, removal of segments.

use super::BrokerMachine;
use super::backoff::RetryBackoff;
use super::cleaning::HURRY_MS;
use super::effect::{MachineEffect, PendingCommit, RequestRefusal};
use super::figures::is_compacted;
use crate::admin::values::RunState;
use crate::compaction::CompactionJob;
use crate::log::{CompactedEntry, LogPosition, LogStatus};
use crate::policies::{BacklogAction, Policies};
use crate::state::BrokerTopic;
use crate::state::change::{Compacted, Trim};
use crate::state::entries::{EntryCopy, EntryPosition};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed compaction, at first and at most: each attempt reads everything that is to
/// be compacted.
const COMPACTION_PAUSE_MS: (u64, u64) = (2000, 600_000);
/// A view is written again after at least 1/2 of its size was published.
const VIEW_SHARE: u64 = 2;
/// Entries of a topic that one round removes at most, because clients wait meanwhile. More are
/// removed in several rounds.
const TRIMMED_MAX: u64 = 1 << 18;
/// Pause after a failed checkpoint, because composing one takes time.
const CHECKPOINT_PAUSE_MS: u64 = 5000;

/// A topic's compactions.
#[derive(Debug, Default)]
pub(super) struct TopicCompaction {
    /// Whether a compaction waits or is running.
    pub(super) is_pending: bool,
    pub(super) last: Option<Result<(), String>>,
    pub(super) last_at: u64,
    pub(super) took_ms: u64,
    pub(super) removed: u64,
    began: u64,
    /// After a failure, the next compaction waits, unless somebody asks for it.
    backoff: RetryBackoff,
    /// Uncompacted bytes, and the bytes that the topic had received when they were counted.
    behind: Option<(u64, u64)>,
}

impl TopicCompaction {
    fn note(&mut self, outcome: Result<(), String>, up: u64) {
        match outcome {
            Ok(()) => self.backoff = RetryBackoff::default(),
            Err(_) => self.backoff.fail(up, COMPACTION_PAUSE_MS),
        }
        self.last = Some(outcome);
    }

    pub(super) const fn state(&self) -> RunState {
        match &self.last {
            _ if self.is_pending => RunState::Running,
            None => RunState::NotRun,
            Some(Ok(())) => RunState::Success,
            Some(Err(_)) => RunState::Error,
        }
    }
}

/// Compactions, one at a time, to spare the clients.
#[derive(Debug, Default)]
pub(super) struct CompactionQueue {
    /// Topics that wait for their turn. Their entries are looked up when it comes: until then the
    /// cleaner may move them.
    waiting: VecDeque<u32>,
    /// The entries that the running compaction reads.
    reading: Option<EntryCopy>,
}

/// Times and sizes at the last maintenance work.
#[derive(Debug, Default)]
pub(super) struct MaintenanceState {
    /// Time of the next round, by the monotonic clock.
    pub(super) next_round: u64,
    /// When the round in progress continues, and the name of the next topic.
    pub(super) rest: Option<(u64, String)>,
    /// Topics that are visited again with the next ones, because they have more to trim.
    pub(super) hurried: BTreeSet<u32>,
    /// Publish time of the oldest open entry at the last round.
    pub(super) oldest: Option<u64>,
    /// The same of the topics that were visited since.
    pub(super) oldest_so_far: Option<u64>,
    /// The visited topics.
    #[cfg(test)]
    pub(super) visited: Vec<u32>,
    /// Bytes logged at the last round.
    pub(super) logged_at_round: u64,
    /// Bytes logged at the last checkpoint.
    logged_then: u64,
    /// Bytes logged at the checkpoint in progress, and when it began.
    writing: Option<(u64, u64)>,
    /// End of the records that the checkpoint in progress covers.
    covers: LogPosition,
    /// After a failure, no checkpoint is tried before this time.
    next_checkpoint: u64,
}

impl MaintenanceState {
    /// Publish time of the oldest open entry, as far as topics were visited.
    pub(super) fn oldest_open(&self) -> Option<u64> {
        self.oldest.into_iter().chain(self.oldest_so_far).min()
    }
}

impl BrokerMachine {
    /// Bytes that were logged or composed.
    pub(super) fn logged(&self) -> u64 {
        self.totals.bytes_logged + self.composer.pending_bytes() as u64
    }

    /// Acknowledges older messages, for one subscription or for all durable ones.
    pub(super) fn expire(
        &mut self,
        topic: u32,
        only: Option<u32>,
        age_s: u64,
    ) -> Result<(), RequestRefusal> {
        let before = self.now.saturating_sub(age_s.saturating_mul(1000));
        let ordinal = self.ordinal_at_time(topic, before);
        let ordinal = self.invariants.served(ordinal);
        let Some(ordinal) = ordinal else { return Ok(()) };
        self.acknowledge_before(topic, only, ordinal)
    }

    /// Removes entries that every subscription has acknowledged and no policy keeps.
    pub(super) fn trim(&mut self, topic: u32, policies: &Policies) -> Result<(), RequestRefusal> {
        let held = self.held_by_readers(topic);
        let both = self.state.topic(topic).zip(self.live.get(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return Ok(()) };
        // Between the trim and the end of the first compaction, a reader would see neither the
        // entries nor the view.
        if live.compaction.is_pending {
            return Ok(());
        }
        let readable = live.readable;
        let former = kept.entries.first();
        // Usually the first entry must stay, which is quickly determined.
        let next = kept.entries.next_here(former).saturating_add(1);
        if trim_point(kept, policies, readable.min(next), self.now) <= former {
            return Ok(());
        }
        let limit =
            if kept.is_open { readable.min(self.first_of_current_segment(kept)) } else { readable };
        let limit = limit.min(former.saturating_add(TRIMMED_MAX)).min(held);
        let first = trim_point(kept, policies, limit, self.now);
        if first > former {
            self.change(Trim { topic, first })?;
        }
        if first == former.saturating_add(TRIMMED_MAX) {
            self.keeper.next_round = self.up + HURRY_MS;
            self.keeper.hurried.insert(topic);
        }
        Ok(())
    }

    /// The first entry that a reader of the compacted view has yet to read from the log. On a full
    /// disk nothing is kept for readers.
    fn held_by_readers(&mut self, topic: u32) -> u64 {
        let none = u64::MAX;
        let horizon =
            self.state.topic(topic).and_then(|kept| Some(kept.compacted.as_ref()?.horizon));
        let Some(horizon) = horizon.filter(|_| !self.is_disk_full()) else { return none };
        // Without consumers there is no dispatcher, and so no reader.
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = both else { return none };
        let held = live.dispatchers.iter_mut().filter_map(|(subscription, dispatcher)| {
            let mark = kept.subscriptions.get(subscription)?.cursor.mark();
            dispatcher.held_in_log(horizon, mark, self.up)
        });
        held.min().unwrap_or(none)
    }

    /// Entries in the segment that is being written do not occupy reclaimable space, and a consumer
    /// may want to go back to them. They are removed after the topic is unloaded or the broker
    /// restarted.
    fn first_of_current_segment(&self, topic: &BrokerTopic) -> u64 {
        let ledger = topic.entries.ledgers().last().map_or(0, |(_, first)| first);
        ledger.max(topic.entries.first_in_segment(self.composer.end().segment))
    }

    /// Updates the status of the log: once a second, when a checkpoint was written, and when a
    /// group gets stuck or continues.
    pub fn set_log(&mut self, report: LogStatus) {
        self.space.note_segments(&report);
        self.log = report;
    }

    /// Whether a group waits for room on the disk.
    #[must_use]
    pub const fn is_stuck(&self) -> bool {
        self.log.is_stuck
    }

    /// Whether the topic has enough uncompacted entries for an automatic compaction: as many bytes
    /// as its threshold and half of its view. A compaction writes the whole view again, so a large
    /// view would be written for each small threshold.
    pub(super) fn is_compaction_due(&mut self, topic: u32, policies: &Policies) -> bool {
        let threshold = policies.compaction_threshold_bytes.unwrap_or_default();
        let both = self.state.topic(topic).zip(self.live.get(&topic));
        let Some((kept, live)) = both else { return false };
        if threshold == 0 || !live.compaction.backoff.is_due(self.up) {
            return false;
        }
        let view = kept.compacted.as_ref().and_then(|view| self.compacted.get(&view.file));
        let view_bytes = view.map_or(0, |slots| CompactedEntry::file_bytes(slots));
        self.uncompacted_bytes(topic) >= threshold.max(view_bytes / VIEW_SHARE)
    }

    /// Bytes that were published since the last compaction.
    fn uncompacted_bytes(&mut self, topic: u32) -> u64 {
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return 0 };
        let published = live.figures.bytes_in;
        if let Some((bytes, then)) = live.compaction.behind {
            return bytes + published.saturating_sub(then);
        }
        // Counted once after a start and after each compaction; updated from then on.
        let horizon = kept.compacted.as_ref().map_or(0, |view| view.horizon);
        let bytes = kept.entries.bytes_from(horizon.max(kept.entries.first()));
        live.compaction.behind = Some((bytes, published));
        bytes
    }

    /// Queues a compaction. Returns whether none was pending.
    pub(super) fn compact(&mut self, topic: u32) -> bool {
        let live = self.live.get_mut(&topic);
        let Some(live) = self.invariants.served(live) else { return true };
        if std::mem::replace(&mut live.compaction.is_pending, true) {
            return false;
        }
        self.compactions.waiting.push_back(topic);
        self.begin_compactions();
        true
    }

    /// Begins the next compaction, if none is running. One that needs an unreadable entry fails at
    /// once.
    fn begin_compactions(&mut self) {
        while self.compactions.reading.is_none()
            && let Some(topic) = self.compactions.waiting.pop_front()
        {
            self.begin_compaction(topic);
        }
    }

    fn begin_compaction(&mut self, topic: u32) {
        let limit = self.settings.disk_bytes_max;
        let room = limit.map(|limit| limit.saturating_sub(self.used_bytes()));
        // The topic may have been deleted while it waited.
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = both else { return };
        let previous = kept.compacted.as_ref();
        let from = previous.map_or(0, |view| view.horizon).max(kept.entries.first());
        if let Some(ordinal) = live.withheld.first_to_compact(from) {
            let id = kept.entries.position_of(ordinal).unwrap_or(EntryPosition::NONE);
            let text = format!(
                "message {}:{} cannot be read, and an older value of its key would replace it: check the disk",
                id.ledger, id.entry
            );
            self.effects
                .push(MachineEffect::Warn(format!("{} is not compacted: {text}", kept.name)));
            self.totals.compactions_failed += 1;
            live.compaction.is_pending = false;
            return live.compaction.note(Err(text), self.up);
        }
        // A name that was never used: a file with a used name may be about to be removed. The log
        // position is later than that of every name from an earlier run; names of this run differ
        // by number.
        let at = self.composer.end();
        self.next_name = self.next_name.wrapping_add(1);
        live.compaction.began = self.up;
        let entries = kept.entries.copy(from, live.readable);
        self.compactions.reading = Some(entries.clone());
        let job = CompactionJob {
            topic,
            name: kept.name.to_string(),
            file: format!("compact/{topic}-{}-{}-{:x}.seg", at.segment, at.offset, self.next_name),
            previous: previous.map(|view| view.file.clone()),
            horizon: live.readable,
            bytes_max: room,
            entries,
        };
        self.effects.push(MachineEffect::Compact(job));
    }

    /// Topics with a pending compaction.
    #[cfg(test)]
    pub(crate) fn pending_compactions(&self) -> BTreeSet<u32> {
        let pending = self.live.iter().filter(|(_, live)| live.compaction.is_pending);
        pending.map(|(&topic, _)| topic).collect()
    }

    /// The running compaction has ended: with the index of its file, or with the reason of its
    /// failure.
    pub fn compacted(
        &mut self,
        job: &CompactionJob,
        result: Result<Arc<[CompactedEntry]>, String>,
    ) {
        self.compactions.reading = None;
        self.end_compaction(job, result);
        self.begin_compactions();
    }

    fn end_compaction(
        &mut self,
        job: &CompactionJob,
        result: Result<Arc<[CompactedEntry]>, String>,
    ) {
        let (now, up) = (self.now, self.up);
        let Some(live) = self.live.get_mut(&job.topic) else {
            // The topic was deleted meanwhile.
            return self.effects.push(MachineEffect::RemoveCompacted(job.file.clone()));
        };
        live.compaction.is_pending = false;
        live.compaction.behind = None;
        live.compaction.last_at = now;
        let took_ms = up.saturating_sub(live.compaction.began);
        live.compaction.took_ms = took_ms;
        if let Ok(slots) = &result {
            let before = job
                .previous
                .as_ref()
                .and_then(|file| self.compacted.get(file))
                .map_or(0, |slots| slots.len());
            live.compaction.removed =
                (before + job.entries.iter().count()).saturating_sub(slots.len()) as u64;
        }
        let outcome = result.and_then(|slots| {
            let (topic, horizon, file) = (job.topic, job.horizon, job.file.clone());
            self.change(Compacted { topic, horizon, file }).map_err(|refusal| refusal.text)?;
            self.compacted.insert(job.file.clone(), slots);
            Ok(())
        });
        match &outcome {
            Ok(()) => {
                self.totals.compactions += 1;
                self.totals.compaction_times.note(Duration::from_millis(took_ms));
                self.after_commit(PendingCommit::Compacted { former: job.previous.clone() });
            }
            Err(_) => {
                self.totals.compactions_failed += 1;
                self.effects.push(MachineEffect::RemoveCompacted(job.file.clone()));
            }
        }
        if let Some(live) = self.live.get_mut(&job.topic) {
            live.compaction.note(outcome, up);
        }
    }

    /// The former view is no longer needed.
    pub(super) fn replaced(&mut self, former: Option<String>) {
        if let Some(file) = former {
            self.compacted.remove(&file);
            self.effects.push(MachineEffect::RemoveCompacted(file));
        }
    }

    /// Removes the segments that neither a start nor the running compaction needs, and writes a
    /// checkpoint if it lets the log remove others, or shortens a restart.
    pub(super) fn checkpoint_if_useful(&mut self) {
        let live = self.state.live();
        let sealed = self.log.before(self.composer.end().segment).map(|(segment, _)| segment);
        let dead = sealed.filter(|segment| !live.contains_key(segment));
        let (covered, uncovered): (Vec<u32>, Vec<u32>) =
            dead.partition(|&segment| self.log.is_covered(segment));
        let read = |segment: &u32| {
            self.compactions.reading.as_ref().is_some_and(|entries| entries.may_be_in(*segment))
        };
        let covered: Vec<u32> = covered.into_iter().filter(|segment| !read(segment)).collect();
        // Behind a group that cannot be written, they would pile up.
        if !covered.is_empty() && !self.is_stuck() {
            // What says that nobody needs them any more has to be on disk first.
            self.after_commit(PendingCommit::Then(Box::new(MachineEffect::RemoveSegments(
                covered,
            ))));
        }
        let keeper = &self.keeper;
        if keeper.writing.is_some() || self.up < keeper.next_checkpoint {
            return;
        }
        let since = self.totals.bytes_logged.saturating_sub(keeper.logged_then);
        if since >= self.settings.checkpoint_bytes || !uncovered.is_empty() {
            self.begin_checkpoint();
        }
    }

    /// Writes a checkpoint of the current state, composed at once.
    pub fn checkpoint(&mut self) {
        self.begin_checkpoint();
        while self.state.has_image() {
            self.extend_checkpoint();
        }
    }

    /// Begins a checkpoint of the current state. It includes records that are composed and not yet
    /// on disk; the log waits for them first.
    fn begin_checkpoint(&mut self) {
        self.keeper.writing = Some((self.logged(), self.up));
        self.keeper.covers = self.composer.end();
        self.state.begin_image(self.settings.piece_bytes);
    }

    /// Composes the next piece of the checkpoint in progress.
    pub(super) fn extend_checkpoint(&mut self) {
        if let Some(image) = self.state.extend_image() {
            self.effects.push(MachineEffect::Checkpoint { at: self.keeper.covers, image });
        }
    }

    /// End of the records that the checkpoint in progress covers.
    #[cfg(test)]
    pub(crate) fn checkpoint_covers(&self) -> Option<LogPosition> {
        self.keeper.writing.map(|_| self.keeper.covers)
    }

    /// Notes whether the checkpoint in progress was written. The log has reported its position
    /// before.
    pub fn checkpointed(&mut self, done: bool) {
        match self.keeper.writing.take() {
            Some((logged, began)) if done => {
                self.keeper.logged_then = logged;
                let took_ms = self.up.saturating_sub(began);
                self.totals.checkpoint_times.note(Duration::from_millis(took_ms));
            }
            _ => self.keeper.next_checkpoint = self.up + CHECKPOINT_PAUSE_MS,
        }
    }

    /// Removes the excess over the quota from the backlog, if the policy says so: the slowest
    /// subscriptions lose their oldest messages. As in Pulsar, 9/10 of the quota are kept; with a
    /// quota by age, the younger messages are kept.
    pub(super) fn evict(&mut self, topic: u32) -> Result<(), RequestRefusal> {
        if let Some((BacklogAction::ConsumerBacklogEviction, limit_s)) = self.age_quota(topic) {
            self.expire(topic, None, limit_s)?;
        }
        let Some((quota, limit)) = self.quota(topic) else { return Ok(()) };
        if quota.policy != BacklogAction::ConsumerBacklogEviction {
            return Ok(());
        }
        let Some((kept, backlog)) = self.backlog(topic).filter(|found| found.1 >= limit) else {
            return Ok(());
        };
        let readable = self.live.get(&topic).map_or(0, |live| live.readable);
        let open = readable.saturating_sub(kept.lowest_mark().unwrap_or(readable));
        let keeps = u128::from(open) * u128::from(limit) * 9 / 10 / u128::from(backlog.max(1));
        let before = readable.saturating_sub(u64::try_from(keeps).unwrap_or(u64::MAX));
        self.acknowledge_before(topic, None, before)
    }
}

/// The first entry that must be kept.
pub(super) fn trim_point(topic: &BrokerTopic, policies: &Policies, end: u64, now: u64) -> u64 {
    let first = topic.entries.first();
    let retention = policies.retention;
    let limit = match (topic.lowest_mark(), retention) {
        (Some(mark), _) => mark,
        // No subscription exists yet, and no retention limits the wait. Compacted entries remain
        // readable in the view.
        (None, None) => topic.compacted.as_ref().map_or(first, |view| view.horizon),
        (None, Some(_)) => end,
    };
    let limit = limit.min(end);
    // Entries that compaction has not processed exist nowhere else.
    let horizon = topic.compacted.as_ref().map_or(first, |view| view.horizon);
    let limit = if is_compacted(topic, policies) { limit.min(horizon) } else { limit };
    let retention = retention.unwrap_or_default();
    let oldest = retention.oldest_ms(now);
    let most =
        u64::try_from(retention.megabytes).map(|megabytes| megabytes.saturating_mul(1024 * 1024));
    let mut excess = most.map_or(0, |most| topic.bytes.saturating_sub(most));
    for (ordinal, slot) in topic.entries.range(first, limit) {
        let is_old = oldest.is_some_and(|oldest| slot.publish_time < oldest);
        if !is_old && excess == 0 {
            return ordinal;
        }
        excess = excess.saturating_sub(u64::from(slot.location.size));
    }
    limit.max(first)
}
