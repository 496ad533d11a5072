//! When periodic work is done: once a second, over all topics.
//!
//! A broker may have 250,000 topics, and clients wait while the machine visits them. So a tick
//! visits at most [`VISITED_MAX`] topics, and as many that have more to trim. The rest follows in
//! steps of [`HURRY_MS`], so each topic is visited once in `1 s + 0.1 s * (topics / 2,000)`.

use super::BrokerMachine;
use super::cleaning::{HURRY_MS, VISITED_MAX};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Interval of the checks of retention, expiry and thresholds.
const ROUND_MS: u64 = 1000;
/// Minimum number of rounds on a full disk while acknowledgements use up their reserve.
const ROUNDS_OF_KEPT: u32 = 8;

impl BrokerMachine {
    /// Time in ms until the machine must be called, for a delayed entry, the next round, or the
    /// next piece of a checkpoint.
    #[must_use]
    pub fn next_in(&self) -> u64 {
        if self.state.has_image() {
            return 0;
        }
        let round = self.keeper.next_round.min(self.cleaner.next_go);
        let rest = self.keeper.rest.as_ref().map(|rest| rest.0);
        let untold = self.untold.front().map(|untold| untold.0);
        let next = self.next_probe().into_iter().chain(rest).chain(untold).fold(round, u64::min);
        let due = self.dues.next().map(|due| due.saturating_sub(self.now));
        due.into_iter().fold(next.saturating_sub(self.up), u64::min)
    }

    /// The same as a time of the wall clock.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn next_deadline(&self) -> u64 {
        self.now + self.next_in()
    }

    /// Performs the work that is due.
    pub fn tick(&mut self) {
        self.dirty.extend(self.dues.due(self.now));
        self.tell_newcomers();
        self.end_silent_holders();
        self.follow_broken_invariants();
        if self.up >= self.cleaner.next_go {
            self.forget_acked_entries();
        }
        if self.up >= self.keeper.next_round || self.is_room_going() {
            self.keeper.next_round = self.up + ROUND_MS;
            self.keeper.logged_at_round = self.logged();
            self.visit_topics();
            self.round();
            self.check_logins();
            self.resize_windows();
        } else if self.keeper.rest.as_ref().is_some_and(|rest| self.up >= rest.0) {
            self.visit_topics();
        }
        self.retry_freed();
        self.extend_checkpoint();
        // On a full disk, a checkpoint makes room for what is acknowledged meanwhile.
        while self.state.has_image() && !self.composer.has_room() {
            self.extend_checkpoint();
        }
    }

    /// Whether much of a full disk's reserve for acknowledgements was used since the last round.
    /// Their space must be freed before the reserve is used up. Otherwise a group waits for a
    /// segment that cannot be created, and everything that frees space waits behind that group.
    fn is_room_going(&self) -> bool {
        let taken = self.logged().saturating_sub(self.keeper.logged_at_round);
        taken >= u64::from(self.composer.kept_bytes() / ROUNDS_OF_KEPT) && !self.composer.has_room()
    }

    /// Visits the next topics of the round in progress, or the first ones of a new round.
    fn visit_topics(&mut self) {
        // On a full disk, topics must free what they can before the reserve is used up.
        let has_room = self.composer.has_room();
        let most = if has_room { VISITED_MAX } else { usize::MAX };
        let rest = self.keeper.rest.take().filter(|_| has_room);
        let from = rest.map(|rest| rest.1).unwrap_or_default();
        let (topics, next) = self.state.topics_from(&from, most);
        let is_last = next.is_none();
        self.keeper.rest = next.map(|name| (self.up + HURRY_MS, name));
        let mut hurried = std::mem::take(&mut self.keeper.hurried);
        for topic in &topics {
            hurried.remove(topic);
        }
        let later = hurried.iter().nth(VISITED_MAX).copied();
        self.keeper.hurried = later.map_or_else(BTreeSet::new, |later| hurried.split_off(&later));
        topics.into_iter().chain(hurried).for_each(|topic| self.visit(topic));
        if is_last {
            self.keeper.oldest = self.keeper.oldest_so_far.take();
        }
    }

    /// Performs the work that is due in a topic.
    fn visit(&mut self, topic: u32) {
        // A hurried topic may have been deleted.
        let Some(live) = self.live.get(&topic) else { return };
        #[cfg(test)]
        {
            self.keeper.visited.push(topic);
        }
        let policies = Arc::clone(&live.policies);
        if let Some(seconds) = policies.message_ttl_s.filter(|&seconds| seconds > 0) {
            // It only fails on a full disk, and the next round tries again.
            drop(self.expire(topic, None, seconds));
        }
        drop(self.evict(topic));
        drop(self.trim(topic, &policies));
        self.retry_unreadable(topic);
        if self.is_compaction_due(topic, &policies) {
            self.compact(topic);
        }
        let up = self.up;
        if let Some(live) = self.live.get_mut(&topic) {
            live.figures.sample(up);
        }
        self.note_oldest_open(topic);
        self.tell_ends(topic);
        drop(self.delete_inactive(topic, &policies));
    }

    /// The work of a round that is not about single topics.
    fn round(&mut self) {
        self.clean();
        self.warn_of_backlogs();
        self.recheck_space();
        self.checkpoint_if_useful();
    }
}
