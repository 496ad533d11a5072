//! A durable Shared subscription: who gets what, what is acknowledged, and what of that is stored. Pure.

use super::log::Log;
use longhaul_transport::EntryId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) name: Arc<str>,
    /// Everything at or below is acknowledged, says the broker.
    pub(super) mark_delete: Option<EntryId>,
    /// The position as it would be found after a restart.
    pub(super) stored: Option<EntryId>,
    /// Storing the position is under way.
    pub(super) storing: bool,
    /// Dispatches nothing until a consumer joins: what a missing bookie did to Pulsar 4.0.7.
    pub(super) stalled: bool,
    /// Acknowledged above the mark-delete position.
    acked: BTreeSet<EntryId>,
    /// The last entry that was read from the log for dispatch.
    cursor: Option<EntryId>,
    /// To be delivered again, before anything new.
    again: BTreeSet<EntryId>,
    /// Who holds what.
    pending: BTreeMap<EntryId, u64>,
    /// The consumer sessions in the order of their joining.
    consumers: Vec<u64>,
    /// Whose turn it is.
    turn: usize,
}

impl Subscription {
    /// At the earliest message.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            mark_delete: None,
            stored: None,
            storing: false,
            stalled: false,
            acked: BTreeSet::new(),
            cursor: None,
            again: BTreeSet::new(),
            pending: BTreeMap::new(),
            consumers: Vec::new(),
            turn: 0,
        }
    }

    pub(super) fn join(&mut self, session: u64) {
        self.stalled = false;
        self.consumers.push(session);
    }

    /// The session is over: what it held is delivered again. Says what that was.
    pub(super) fn leave(&mut self, session: u64) -> Vec<EntryId> {
        self.consumers.retain(|consumer| *consumer != session);
        let held = self.pending.iter().filter(|(_, holder)| **holder == session);
        let held: Vec<EntryId> = held.map(|(entry, _)| *entry).collect();
        for entry in &held {
            self.deliver_again(*entry);
        }
        held
    }

    /// Takes the next entry for the next consumer that has room, as `(entry, session)`.
    pub(super) fn take(
        &mut self,
        log: &Log,
        has_room: impl Fn(u64) -> bool,
    ) -> Option<(EntryId, u64)> {
        if self.stalled {
            return None;
        }
        let count = self.consumers.len();
        let candidates = (0..count).map(|step| (self.turn + step) % count);
        let mut candidates = candidates.filter_map(|at| Some((at, *self.consumers.get(at)?)));
        let (at, session) = candidates.find(|(_, session)| has_room(*session))?;
        let entry = self.next_entry(log)?;
        self.turn = at + 1;
        self.pending.insert(entry, session);
        Some((entry, session))
    }

    /// Whoever holds the entry has lost it. False when nobody held it.
    pub(super) fn deliver_again(&mut self, entry: EntryId) -> bool {
        let held = self.pending.remove(&entry).is_some();
        if held {
            self.again.insert(entry);
        }
        held
    }

    /// Who holds the entry.
    pub(super) fn holder(&self, entry: EntryId) -> Option<u64> {
        self.pending.get(&entry).copied()
    }

    /// Acknowledges an entry, whoever holds it.
    pub(super) fn ack(&mut self, entry: EntryId, log: &Log) {
        self.pending.remove(&entry);
        self.again.remove(&entry);
        if !self.is_acked(entry) && !log.entry(entry).is_empty() {
            self.acked.insert(entry);
        }
        self.advance(log);
    }

    pub(super) fn is_acked(&self, entry: EntryId) -> bool {
        self.mark_delete.is_some_and(|upto| entry <= upto) || self.acked.contains(&entry)
    }

    /// Moves the mark-delete position over what is acknowledged or no longer there.
    pub(super) fn advance(&mut self, log: &Log) {
        while let Some(next) = log.entry_after(self.mark_delete) {
            if !self.acked.contains(&next) {
                break;
            }
            self.mark_delete = Some(next);
        }
        if let Some(upto) = self.mark_delete {
            self.acked.retain(|entry| *entry > upto);
        }
    }

    /// Entries that are not acknowledged.
    pub(super) fn backlog(&self, log: &Log) -> usize {
        let mut after = self.mark_delete;
        let entries = std::iter::from_fn(|| {
            after = log.entry_after(after);
            after
        });
        entries.filter(|entry| !self.is_acked(*entry)).count()
    }

    /// What a restart does when acks above the stored position were only in memory. All sessions have left before.
    pub(super) fn forget_unstored(&mut self) {
        self.mark_delete = self.stored;
        self.acked.clear();
        self.again.clear();
        self.pending.clear();
        self.cursor = self.stored;
    }

    fn next_entry(&mut self, log: &Log) -> Option<EntryId> {
        while let Some(entry) = self.again.pop_first() {
            if !log.entry(entry).is_empty() {
                return Some(entry);
            }
        }
        while let Some(entry) = log.entry_after(self.cursor) {
            self.cursor = Some(entry);
            if !self.is_acked(entry) && !self.pending.contains_key(&entry) {
                return Some(entry);
            }
        }
        None
    }
}
