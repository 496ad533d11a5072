//! Cuts: workers are cut off for a while, their machines stand still, or they miss an entry. One
//! trouble at a time.

use super::Simulation;
use super::fleet::Stop;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_memory::Loss;
use longhaul_transport::{Message, TopicPartition};
use std::time::Duration;

/// The only trouble is that a few reads of the task topic fail.
const UNREADABLE: u8 = 6;

impl Simulation {
    /// Cuts off one worker or all of them. Sometimes cancels a running task at once, so that
    /// workers learn of it when they begin afresh.
    pub(super) fn cut_off(&mut self, index: usize) {
        let (heartbeat, fence) = (self.setting.heartbeat, self.setting.self_fence);
        let longest = 2 * fence + 12 * heartbeat;
        let time = Duration::from_millis(self.rng.u64(1..longest.as_millis() as u64));
        // By then all workers have recovered.
        self.passed = self.now() + time + 10 * heartbeat;
        let kind = self.rng.u8(..8);
        if kind != UNREADABLE {
            self.fleet.disturbed.push((self.now(), self.passed));
        }
        match kind {
            0 | 1 => {
                self.broker.take_away(&self.names.ledger, time, Loss::Error);
                self.fleet.trouble_all(time);
            }
            2 => self.broker.take_away(&self.names.task, time, Loss::Error),
            3 => self.fleet.stop(index, time, Stop::BlackHole),
            4 => self.fleet.stop(index, time, Stop::Suspended),
            5 => self.fleet.stop(index, time, Stop::StandsStill),
            UNREADABLE => {
                let at = self.any_partition(&self.names.task.clone());
                self.broker.fail_requests(&at, self.rng.u32(1..=4));
            }
            _ => {
                let at = self.any_partition(&self.names.ledger.clone());
                self.fleet.miss(index, &at, is_outcome);
            }
        }
        let running = self.fleet.deeds.running();
        if !running.is_empty() && self.rng.u8(..3) == 0 {
            let task = running[self.rng.usize(..running.len())];
            self.cancel_task(task);
        }
    }

    fn any_partition(&mut self, topic: &str) -> TopicPartition {
        let all: Vec<i32> = self.partitions().collect();
        let partition = all[self.rng.usize(..all.len())];
        TopicPartition { topic: topic.to_owned(), partition }
    }
}

/// Whether the message is an outcome of an owner that will publish again. A worker that misses
/// another one's claim may run the same task, and a worker that misses an owner's last entry may
/// take over a finished task. The protocol relies on a log that is read whole. A reader notices a
/// gap only when the owner says how many entries it has published.
fn is_outcome(log: &[Message], message: &Message) -> bool {
    let Ok(Entry::Done(done)) = ledger::read(message) else { return false };
    let last = log.iter().rev().find_map(|message| match ledger::read(message) {
        Ok(Entry::Heartbeat(beat)) if beat.owner == done.key.owner => Some(beat),
        _ => None,
    });
    // A process that began afresh numbers only the heartbeats of its new id.
    last.is_some_and(|beat| beat.number > 0)
}
