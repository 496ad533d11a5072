//! The whole broker without sockets and threads, under random histories: clients that come and go,
//! operators, and a disk that fails and loses unsynced data. Each history is reproducible by its
//! seed.
//!
//! A model ([`model`]) runs beside the broker, and every request changes it at once. It determines
//! the existing entries, the acknowledgements of each subscription, and the result of compaction.
//! All output of the broker is compared with it ([`observe`]). An answer comes only when everything
//! before it is on disk. A consumer only gets entries that are on disk, that it has permits for,
//! and that no other consumer holds, and in order where order is promised. After a crash the state
//! must be the one after some record at or after the last confirmed one ([`check`]).
//!
//! `LONGHAUL_SIMULATION_SEEDS` sets the number of seeds, `LONGHAUL_SIMULATION_SEED` runs a single
//! one.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else comes out is of no interest there, or a failure"
)]

mod check;
mod clients;
mod crowd;
mod model;
mod node;
mod observe;
mod operators;
mod planted;
mod publishers;
mod rotten;
mod scattered;
mod slow;
mod vanish;
mod volume;
mod world;

use crate::log::Surprise;
use crate::machine::BrokerMachine;
use model::ModelView;
use world::SimulatedWorld;

/// Cycles of work and crash per history.
const LIVES: u64 = 3;
/// Interval of periodic work, whatever the wall clock shows.
const ROUND_MS: u64 = 1000;
/// Failed seeds that are listed.
const FAILURES_MAX: usize = 8;

impl SimulatedWorld {
    fn run(seed: u64) -> Self {
        let mut world = Self::new(seed);
        for _ in 0..LIVES {
            world.live();
            world.crash();
        }
        world.drain();
        world.check_compacted_again();
        world.crash();
        world
    }

    fn live(&mut self) {
        self.storage.no_surprises();
        if self.node.is_dead {
            return;
        }
        let mut may_die = self.storage.has_lost_power();
        if self.random.bool() {
            let kinds = [Surprise::Broken, Surprise::Full, Surprise::Exhausted, Surprise::PowerCut];
            let surprise = *self.random.choice(kinds.iter()).unwrap();
            let after = self.storage.operations() + self.random.u64(0..80);
            self.storage.surprise(after, surprise);
            may_die |= surprise != Surprise::Exhausted;
        }
        self.storage.set_exhausted(self.random.u8(0..4) == 0);
        // In some lives the disk lags behind, in some it keeps up.
        let pace = self.random.u8(1..5);
        for _ in 0..self.random.usize(20..250) {
            match self.random.u8(0..16) {
                0..=8 => self.client_step(),
                9 if self.random.u8(0..3) == 0 => self.operator_step(),
                9 if self.is_bulky => self.tidy_up(),
                10..=12 if self.random.u8(0..4) < pace => self.write(),
                13 | 14 => self.dispatch(),
                15 => self.other_step(),
                _ => {}
            }
            if self.node.is_dead {
                assert!(may_die, "seed {}: the log is closed for writes for nothing", self.seed);
                return;
            }
        }
    }

    /// Skips all entries of a subscription, and advances the time.
    fn tidy_up(&mut self) {
        self.skip_all();
        self.node.look();
        let ms = self.random.u64(0..4000);
        self.pass(ms);
        self.dispatch();
    }

    fn other_step(&mut self) {
        match self.random.u8(0..8) {
            0 if self.random.u8(0..8) == 0 => self.turn_back(),
            0 | 1 => {
                let ms = self.random.u64(0..2500);
                self.pass(ms);
            }
            2 => self.node.log.prepare(),
            3 => self.node.look(),
            4 => self.node.write_checkpoint(),
            5 => self.compact_some(),
            6 if self.random.u8(0..4) == 0 => self.squeeze(),
            // Without descriptors, the broker continues with its open files.
            6 if self.random.u8(0..3) == 0 => self.storage.set_exhausted(self.random.bool()),
            6 => self.copy(),
            7 => self.pump(),
            _ => self.audit(),
        }
    }

    /// Runs compactions, of which some fail at once. An operator often asks for one, and after a
    /// failure for the same one again.
    fn compact_some(&mut self) {
        for _ in 0..self.random.usize(1..5) {
            let failed = self.backoffs.keys().next();
            let failed = failed.map(|topic| self.model.topics[topic].name.clone());
            if self.random.bool() {
                let name = failed.unwrap_or_else(|| self.topic_name());
                self.topic_call(&name, BrokerMachine::start_compaction, |_| {});
            }
            let starts = self.random.u8(0..3) > 0;
            self.compact(starts);
        }
    }

    /// Makes the disk full, or frees space.
    fn squeeze(&mut self) {
        let used = self.node.log.status().bytes();
        let max = self.random.bool().then(|| used + self.random.u64(0..20_000));
        self.storage.set_bytes_max(max);
    }

    fn write(&mut self) {
        if self.random.bool() {
            self.node.submit();
        }
        if self.node.write() {
            self.forget_history();
        }
        let effects = self.act(|_| {});
        self.finish(effects);
        self.node.submit();
    }

    fn dispatch(&mut self) {
        let effects = self.act(|machine| {
            machine.tick();
            machine.dispatch();
        });
        let (seed, next) = (self.seed, self.node.machine.next_in());
        assert!(next <= ROUND_MS, "seed {seed}: nothing is done with time for {next} ms");
        self.follow_trims(false);
        self.follow_cleaning();
        self.finish(effects);
    }

    /// Copies the needed entries of an old segment.
    fn copy(&mut self) {
        self.node.copy();
        let effects = self.act(|_| {});
        self.finish(effects);
    }

    fn compact(&mut self, starts: bool) {
        self.tell_time();
        let Some((job, slots)) = self.node.compact(starts) else { return };
        let is_known = self.model.topics.contains_key(&job.topic);
        if is_known {
            self.record_compaction(job.topic, slots.is_some());
        }
        if let Some(slots) = slots.filter(|_| is_known) {
            let seed = self.seed;
            let from = job.entries.iter().next().map_or(job.horizon, |(ordinal, ..)| ordinal);
            // Entries that are removed during a compaction are still compacted.
            let entries = job.entries.iter().map(|(ordinal, ..)| ordinal).collect();
            self.model.topic(job.topic).compact(job.horizon, from, &entries);
            let topic = &self.model.topics[&job.topic];
            self.chunked += topic.view.as_ref().map_or(0, ModelView::chunked);
            let expected = topic.visible(Some(job.horizon), job.horizon);
            let found: Vec<u64> = slots.iter().map(|slot| slot.ordinal).collect();
            assert_eq!(found, expected, "seed {seed}: the compacted view of {}", topic.name);
        }
        let effects = self.act(|_| {});
        self.finish(effects);
    }
}

#[test]
fn every_promise_holds_through_crashes() {
    let only =
        std::env::var("LONGHAUL_SIMULATION_SEED").ok().map(|text| text.parse::<u64>().unwrap());
    let count = crate::kit::seeds(600);
    let (mut delivered, mut receipts, mut cleaned, mut turned_back) = (0, 0, 0, 0);
    let (mut missed, mut spoiled, mut ends_lost) = (0, 0, 0);
    let (mut chunked, mut retried, mut overtaken, mut sizes) = (0, 0, 0, [0; 3]);
    let mut broken = Vec::new();
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        if let Ok(world) = std::panic::catch_unwind(|| SimulatedWorld::run(seed)) {
            delivered += world.delivered;
            receipts += world.receipts;
            cleaned += u64::from(world.has_cleaned);
            turned_back += world.turned_back;
            missed += world.missed;
            spoiled += world.spoiled;
            ends_lost += world.ends_lost;
            chunked += world.chunked;
            retried += world.retried;
            overtaken += world.overtaken;
            sizes = std::array::from_fn(|size| sizes[size] + world.sizes[size]);
            continue;
        }
        broken.push(seed);
        // Several failures show what they have in common.
        if broken.len() == FAILURES_MAX {
            break;
        }
    }
    assert!(broken.is_empty(), "replay with LONGHAUL_SIMULATION_SEED set to one of {broken:?}");
    // Histories without events would prove nothing. One in ten cleans segments; a few seeds may
    // happen to have none.
    let cleans = cleaned * 20 > count || count < 100;
    let happened = delivered.min(receipts) > count * 20
        && cleans
        && turned_back.min(missed).min(spoiled).min(ends_lost) > count / 4
        && chunked > count / 4
        && sizes.into_iter().chain([retried, overtaken]).all(|events| events > count / 8);
    assert!(
        only.is_some() || happened,
        "{delivered} deliveries, {receipts} receipts, {cleaned} cleaned, {turned_back} clocks turned back, {missed} files missed, {spoiled} indices spoiled, {ends_lost} ends lost, {chunked} chunked messages compacted, {retried} compactions retried, {overtaken} checkpoints overtaken, {sizes:?} large messages in {count}"
    );
}

#[test]
fn a_seed_leads_to_one_history() {
    for seed in 0..20 {
        let (first, second) = (SimulatedWorld::run(seed), SimulatedWorld::run(seed));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.durable(), second.durable(), "seed {seed}");
    }
}
