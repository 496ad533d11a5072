//! The broker's interface for tests: topics, messages, single faults, and the results.
//!
//! Invariant: a method that names a partition panics when there is none, because then the test is
//! wrong.

use super::agenda::PartitionId;
use super::faults::{Faults, Loss, PublishFate};
use super::history::SimulationHistory;
use super::log::{position, unstored};
use super::session::Missing;
use super::state::{MemoryBrokerState, MemoryPartition};
use super::{MemoryBroker, MemoryTransport};
use bytes::Bytes;
use longhaul_transport::{EntryId, Message, Outgoing, Position, TopicPartition};
use std::sync::Arc;
use std::time::Duration;

/// The name under which tests publish.
const ANY_PRODUCER: &str = "producer";

/// Topics and messages.
impl MemoryBroker {
    /// Creates a topic, or sets its deduplication and adds partitions. `None`: no partitions.
    pub fn create_topic(&self, topic: &str, partitions: Option<u32>, deduplication: bool) {
        self.shared.lock().create(topic, partitions, deduplication);
    }

    /// Makes the broker maintain itself from now on. A missing topic is created on demand, without
    /// partitions; the function decides by its name whether duplicate entries are dropped there. No
    /// topic gets more partitions, and nothing is added to the history, so that weeks of simulated
    /// time cost little.
    pub fn look_after_itself(&self, deduplication: fn(&str) -> bool) {
        let mut state = self.shared.lock();
        state.missing_topics = Some(deduplication);
        state.keeps_history = false;
    }

    /// Deletes a topic by force. The effect seen in clients: [`Loss::ErrorThenSilence`].
    pub fn delete_topic(&self, topic: &str, loss: Loss) {
        self.shared.lock().delete(topic, loss);
    }

    /// Deletes a topic by force, and re-creates it, empty, before a client has noticed, as a broker
    /// does that creates topics on demand.
    pub fn replace_topic(&self, topic: &str, loss: Loss) {
        self.shared.lock().replace(topic, loss);
    }

    /// Creates a durable subscription at the earliest message, as an admin does.
    pub fn create_subscription(&self, at: &TopicPartition, subscription: &str) {
        self.on(at, |state, id| state.subscribe(id, subscription));
    }

    /// Publishes one message, as any producer does, at once and without faults.
    pub fn publish(&self, at: &TopicPartition, message: Outgoing) -> Position {
        let entry = self.append(at, vec![message], false);
        position(entry, None)
    }

    /// Publishes one entry with a batch of messages, at once and without faults.
    pub fn publish_batch(&self, at: &TopicPartition, messages: Vec<Outgoing>) -> Vec<Position> {
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let entry = self.append(at, messages, true);
        (0..count).map(|index| position(entry, Some(index))).collect()
    }

    /// Publishes a tombstone, at once and without faults.
    pub fn publish_tombstone(&self, at: &TopicPartition, key: &str) -> Position {
        self.publish(at, Outgoing { key: Some(key.to_owned()), null: true, ..Outgoing::default() })
    }

    /// Publishes a message of which only key and properties can be read, as when its body is
    /// encrypted or damaged.
    pub fn publish_damaged(&self, at: &TopicPartition, message: Outgoing, cause: &str) -> Position {
        let body = unstored(Outgoing { payload: Bytes::new(), ..message });
        let damaged = Message { undecodable: Some(Arc::from(cause)), ..body };
        position(self.store(at, &[damaged], false), None)
    }

    /// Publishes a message that no client can decode: each delivery of it ends the session.
    pub fn publish_undecodable(&self, at: &TopicPartition) -> Position {
        let entry = self.append(at, vec![Outgoing::default()], false);
        self.with(at, |partition| partition.undecodable.insert(entry));
        position(entry, None)
    }

    /// Publishes a batch that comes from another cluster, at once and without faults.
    pub fn publish_replicated(
        &self,
        at: &TopicPartition,
        messages: Vec<Outgoing>,
        cluster: &str,
    ) -> EntryId {
        let from = || Some(cluster.to_owned());
        let body = |message| Message { replicated_from: from(), ..unstored(message) };
        let bodies: Vec<Message> = messages.into_iter().map(body).collect();
        self.store(at, &bodies, true)
    }

    fn append(&self, at: &TopicPartition, messages: Vec<Outgoing>, batched: bool) -> EntryId {
        let bodies: Vec<Message> = messages.into_iter().map(unstored).collect();
        self.store(at, &bodies, batched)
    }

    fn store(&self, at: &TopicPartition, bodies: &[Message], batched: bool) -> EntryId {
        let (now, wall_ms) = (self.shared.clock.now(), self.shared.clock.wall_ms());
        let by = (Arc::from(ANY_PRODUCER), now);
        self.on(at, |state, id| state.store(id, by, bodies, batched, wall_ms))
    }
}

/// Faults.
impl MemoryBroker {
    /// Sets the plan that applies from now on. Active faults end in their own time.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.lock().set_faults(faults);
    }

    /// Unloads a partition: all its sessions end, its ledger rolls, and for a moment it cannot be
    /// opened.
    pub fn unload(&self, at: &TopicPartition, loss: Loss) {
        self.on(at, |state, id| state.unload(id, Some(loss)));
    }

    /// Takes one topic away for this time, with all its partitions: its sessions end, and it cannot
    /// be opened meanwhile.
    pub fn take_away(&self, topic: &str, time: Duration, loss: Loss) {
        self.shared.lock().take_away(topic, time, Some(loss));
    }

    /// Takes the broker down for this time. Data are kept; acks above the stored mark-delete
    /// position are kept unless `forget_acks` is set.
    pub fn restart(&self, down: Duration, forget_acks: bool, loss: Loss) {
        self.shared.lock().restart(down, forget_acks, Some(loss));
    }

    /// Makes the broker hang for this time; all requests wait.
    pub fn hang(&self, time: Duration) {
        self.shared.lock().hang(time);
    }

    /// Stores nothing on the partition for this time.
    pub fn stall_publishes(&self, at: &TopicPartition, time: Duration) {
        self.on(at, |state, id| state.stall_publishes(id, time));
    }

    /// Sends the followers of the partition nothing for this time, without an error.
    pub fn silence_followers(&self, at: &TopicPartition, time: Duration) {
        self.on(at, |state, id| state.silence_followers(id, time));
    }

    /// Sends the current followers of the partition nothing any more, without an error; reopened
    /// ones get everything.
    pub fn stall_followers(&self, at: &TopicPartition) {
        self.on(at, MemoryBrokerState::stall_followers);
    }

    /// Removes all clients' permission for the partition, or restores it. Open sessions end.
    pub fn forbid(&self, at: &TopicPartition, forbidden: bool) {
        self.on(at, |state, id| state.forbid(id, forbidden));
    }

    /// Makes the subscription dispatch nothing, whatever its backlog, until a consumer subscribes
    /// anew.
    pub fn stall_subscription(&self, at: &TopicPartition, subscription: &str) {
        self.on(at, |state, id| state.stall_subscription(id, subscription));
    }

    /// Redelivers an entry to the next consumer, while its holder is still alive.
    pub fn redeliver(&self, at: &TopicPartition, subscription: &str, entry: EntryId) {
        self.on(at, |state, id| state.redeliver_early(id, subscription, entry));
    }

    /// Compacts all of the partition.
    pub fn compact(&self, at: &TopicPartition) {
        self.on(at, |state, id| state.compact(id, Some(usize::MAX)));
    }

    /// Compacts up to and including an entry.
    pub fn compact_to(&self, at: &TopicPartition, entry: EntryId) {
        self.on(at, |state, id| {
            let upto = state.partitions.get(&id).map(|it| it.log.index_behind(entry));
            state.compact(id, upto);
        });
    }

    /// Compacts all of the partition, as real Pulsar does when an unload races a compaction: of the
    /// view that stood so far only the first messages are kept. The log still has all of them,
    /// unless it was trimmed. (Seen with 4.0.7 and 4.2.4: `docs/platform.md`.)
    pub fn compact_forgetting(&self, at: &TopicPartition, keep: usize) {
        self.on(at, |state, id| {
            state.compact(id, Some(usize::MAX));
            if let Some(partition) = state.partitions.get_mut(&id) {
                partition.log.forget_view(keep);
            }
            state.note(format!("the compaction has kept {keep} messages of the view"));
        });
    }

    /// Drops the entries that all subscriptions have acknowledged.
    pub fn trim(&self, at: &TopicPartition) {
        self.on(at, MemoryBrokerState::trim);
    }

    /// Drops the entries that all subscriptions have acknowledged, also from
    /// [`full_log`](Self::full_log). This bounds the memory of long runs whose judges do not need
    /// these entries.
    pub fn trim_and_forget(&self, at: &TopicPartition) {
        self.trim(at);
        self.with(at, |partition| partition.log.forget());
    }

    /// Drops everything up to an entry, acknowledged or not, as retention does. Followers skip it
    /// silently.
    pub fn trim_to(&self, at: &TopicPartition, entry: EntryId) {
        self.with(at, |partition| partition.log.trim(entry));
    }

    /// Sets the fate of the next entry that a client publishes there; several calls queue up.
    pub fn next_publish(&self, at: &TopicPartition, fate: PublishFate) {
        self.with(at, |partition| partition.next_fates.push_back(fate));
    }

    /// Makes the next requests about the partition fail: opening, fetching, asking for positions.
    pub fn fail_requests(&self, at: &TopicPartition, count: u32) {
        self.with(at, |partition| partition.next_errors += count);
    }

    /// Forgets the next acks, and ends their sessions soon after.
    pub fn lose_acks(&self, at: &TopicPartition, count: u32) {
        self.with(at, |partition| partition.next_lost_acks += count);
    }
}

/// Results.
impl MemoryBroker {
    /// Everything that has happened so far.
    #[must_use]
    pub fn history(&self) -> SimulationHistory {
        self.shared.lock().history.clone()
    }

    /// Inspects the history without copying it. `look` must not call the broker.
    pub fn with_history<T>(&self, look: impl FnOnce(&SimulationHistory) -> T) -> T {
        look(&self.shared.lock().history)
    }

    /// Everything ever stored on a partition, including trimmed and compacted messages.
    #[must_use]
    pub fn full_log(&self, at: &TopicPartition) -> Vec<Message> {
        self.with(at, |partition| partition.log.all().to_vec())
    }

    /// The messages that a new reader would get from the earliest one on.
    #[must_use]
    pub fn view(&self, at: &TopicPartition, compacted: bool) -> Vec<Message> {
        self.with(at, |partition| partition.log.read(None, compacted, usize::MAX))
    }

    /// Whether an entry is acknowledged, as far as the broker remembers.
    #[must_use]
    pub fn is_acked(&self, at: &TopicPartition, subscription: &str, entry: EntryId) -> bool {
        self.with(at, |partition| {
            partition.subscriptions.get(subscription).is_some_and(|it| it.is_acked(entry))
        })
    }

    /// The unacknowledged entries of a partition.
    #[must_use]
    pub fn backlog(&self, at: &TopicPartition, subscription: &str) -> Vec<EntryId> {
        self.with(at, |partition| {
            let mut entries: Vec<EntryId> =
                partition.log.all().iter().map(|message| message.position.entry_id()).collect();
            entries.dedup();
            let subscription = partition.subscriptions.get(subscription);
            entries.retain(|entry| !subscription.is_some_and(|it| it.is_acked(*entry)));
            entries
        })
    }

    /// The mark-delete position as reported, and as stored.
    #[must_use]
    pub fn mark_delete(
        &self,
        at: &TopicPartition,
        subscription: &str,
    ) -> (Option<EntryId>, Option<EntryId>) {
        self.with(at, |partition| {
            let subscription = partition.subscriptions.get(subscription);
            subscription.map_or((None, None), |it| (it.mark_delete, it.stored))
        })
    }

    #[track_caller]
    fn with<T>(&self, at: &TopicPartition, look: impl FnOnce(&mut MemoryPartition) -> T) -> T {
        self.on(at, |state, id| state.partitions.get_mut(&id).map(look))
            .unwrap_or_else(|| panic!("no partition {at}"))
    }

    #[track_caller]
    fn on<T>(
        &self,
        at: &TopicPartition,
        act: impl FnOnce(&mut MemoryBrokerState, PartitionId) -> T,
    ) -> T {
        let mut state = self.shared.lock();
        let id = state.find(at).unwrap_or_else(|| panic!("no partition {at}"));
        act(&mut state, id)
    }
}

/// Faults of one process and its connections.
impl MemoryTransport {
    /// Starts a black hole: nothing gets through in either direction, without an error. Messages in
    /// flight to the broker arrive. The broker ends the sessions after its keep-alive.
    pub fn freeze(&self) {
        self.lock().freeze(self.connection(), "frozen");
    }

    /// Starts a black hole that ends after this time. Returns false, without an effect, if there is
    /// one already or the process is stopped.
    pub fn freeze_for(&self, time: Duration) -> bool {
        self.lock().freeze_for(self.connection(), time)
    }

    /// Ends the black hole.
    pub fn thaw(&self) {
        self.lock().thaw(self.connection());
    }

    /// SIGSTOP: closes the gate of the process and freezes its connections.
    pub fn suspend(&self) {
        self.lock().suspend(self.connection());
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.lock().resume(self.connection());
    }

    /// SIGSTOP, followed by SIGCONT after this time. Returns false, without an effect, if it is
    /// stopped or in a black hole already.
    pub fn suspend_for(&self, time: Duration) -> bool {
        self.lock().suspend_for(self.connection(), time)
    }

    /// Cuts the network: all sessions end, and none can be opened until [`Self::restore`].
    pub fn cut(&self, loss: Loss) {
        self.lock().cut(self.connection(), Some(loss));
    }

    /// Lets the process connect again.
    pub fn restore(&self) {
        self.lock().restore(self.connection());
    }

    /// SIGKILL: the sessions end for good. Messages in flight may or may not be stored. A new
    /// process must connect.
    pub fn kill(&self) {
        self.lock().kill(self.connection());
    }

    /// Withholds the next matching message that is published to the partition from its followers,
    /// without an error; `matches` also gets everything ever stored there. A broker that trims
    /// unread messages of a slow reader has this effect, or a client that loses its position.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn miss(&self, at: &TopicPartition, matches: fn(&[Message], &Message) -> bool) {
        let mut state = self.lock();
        let partition = state.find(at).unwrap_or_else(|| panic!("no partition {at}"));
        if let Some(connection) = state.connections.get_mut(&self.connection()) {
            connection.missing = Some(Missing { partition, matches });
        }
    }

    /// Cancels a pending [`MemoryTransport::miss`].
    pub fn miss_nothing(&self) {
        if let Some(connection) = self.lock().connections.get_mut(&self.connection()) {
            connection.missing = None;
        }
    }

    /// Ends some of the sessions; new ones can be opened at once.
    pub fn lose(&self, which: super::Sessions, loss: Loss) {
        self.lock().lose_some(self.connection(), which, Some(loss));
    }
}
