//! Seals in the model: any worker seals what it may, at any time; tombstones are published one by
//! one, in every order that the rules allow.

use super::bounds::Bounds;
use super::moves::Move;
use super::settle::Settle;
use super::tamper::Fault;
use super::world::{Worker, World, entry_id, members, small, task_id};
use longhaul::EntryId;
use longhaul_core::machine::Stage;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::entry_set::{BatchOutcome, EntrySet};
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::key::{Key, SealKey};
use longhaul_core::protocol::seal::{EndedCounts, Seal};

/// The possible steps about seals.
pub fn moves(
    bounds: &Bounds,
    world: &World,
    (number, worker): (u8, &Worker),
    into: &mut Vec<Move>,
) {
    let machine = &worker.machine;
    if !machine.is_ready() {
        return;
    }
    if bounds.seal && !machine.seals_underway() {
        let can = (0..small(world.messages.len()))
            .filter(|message| may_seal(bounds, worker, *message))
            .fold(0_u8, |mask, message| mask | 1 << message);
        let subsets = (1..=can).filter(|messages| messages & !can == 0);
        into.extend(subsets.map(|messages| Move::Seal { worker: number, messages }));
        if world.budget.merges > 0 && machine.seals().merged(2).is_some() {
            into.push(Move::Merge { worker: number });
        }
    }
    if machine.may_sweep() {
        let count = small(sweepable(bounds, world, worker).len());
        if bounds.single || bounds.fault.sweeps_on_its_own() {
            into.extend((0..count).map(|key| Move::Sweep { worker: number, only: Some(key) }));
        } else if count > 0 {
            into.push(Move::Sweep { worker: number, only: None });
        }
    }
}

/// Whether the worker may seal a message, by the rules, or without the broken one.
fn may_seal(bounds: &Bounds, worker: &Worker, message: u8) -> bool {
    let entry = entry_id(message);
    let mut tasks = members(bounds, message).map(|task| task_id(bounds, task));
    let unsealed = !worker.machine.seals().holds(entry);
    let known = |id| worker.machine.task(id);
    match bounds.fault {
        Fault::SealUnclosed => {
            unsealed && tasks.all(|id| worker.machine.fold(id).phase.is_terminal())
        }
        Fault::SealUnread => {
            let ends =
                |stage| matches!(stage, Stage::Finishing { outcome, .. } if outcome.is_terminal());
            unsealed && tasks.all(|id| known(id).is_some_and(|task| ends(task.stage)))
        }
        Fault::SealOverHole if bounds.batch => {
            unsealed && tasks.any(|id| worker.machine.fold(id).phase.is_terminal())
        }
        _ => worker.machine.may_seal(entry),
    }
}

/// The keys that the worker may tombstone, by the rules, or without the broken one.
fn sweepable(bounds: &Bounds, world: &World, worker: &Worker) -> Vec<Key> {
    let machine = &worker.machine;
    match bounds.fault {
        Fault::SupersededInAnyOrder | Fault::NoBase => old_keys(world, worker, |old, _| old),
        Fault::BaseGoes => old_keys(world, worker, |old, current| old || current),
        Fault::TombstonesInAnyOrder => {
            let read = world.log.iter().take(usize::from(worker.cursor));
            let gone = |key: Key| is_gone(world, worker, key);
            let of_sealed = |entry: &Entry| {
                !matches!(entry, Entry::Tombstone(_))
                    && entry.task().is_some_and(|id| machine.is_sealed(id))
            };
            read.filter(|record| of_sealed(&record.entry))
                .map(|record| record.entry.key())
                .filter(|key| !gone(*key))
                .collect()
        }
        Fault::SealsCoverEachOther => {
            let mut keys: Vec<Key> = machine.sweepable().collect();
            let seals: Vec<&Seal> = world
                .log
                .iter()
                .take(usize::from(worker.cursor))
                .filter_map(|record| match &record.entry {
                    Entry::Seal(seal) if !record.removed => Some(seal),
                    _ => None,
                })
                .collect();
            for seal in &seals {
                let covers =
                    |other: &&&Seal| other.key != seal.key && other.entries.covers(&seal.entries);
                let key = Key::Seal(seal.key);
                if seals.iter().any(|other| covers(&other)) && !keys.contains(&key) {
                    keys.push(key);
                }
            }
            keys
        }
        _ => machine.sweepable().collect(),
    }
}

fn is_gone(world: &World, worker: &Worker, key: Key) -> bool {
    let tombstone = Entry::Tombstone(key);
    world.log.iter().any(|record| record.entry == tombstone) || worker.out.contains(&tombstone)
}

/// The keys that the worker has read of tasks running under a later claim. `wanted` gets whether
/// the key belongs to an earlier epoch than that claim, and whether it is the claim's own.
fn old_keys(world: &World, worker: &Worker, wanted: impl Fn(bool, bool) -> bool) -> Vec<Key> {
    let wanted = |entry: &Entry| {
        let (Key::Once(key), false) = (entry.key(), matches!(entry, Entry::Tombstone(_))) else {
            return false;
        };
        let fold = worker.machine.fold(key.task);
        let later = fold.epoch.0 > 1 && fold.phase == Phase::Running;
        let current = key.epoch == fold.epoch && matches!(entry, Entry::Claim(_));
        later && wanted(key.epoch < fold.epoch, current)
    };
    let read = world.log.iter().take(usize::from(worker.cursor));
    let keys = read.filter(|record| wanted(&record.entry)).map(|record| record.entry.key());
    keys.filter(|key| !is_gone(world, worker, *key)).collect()
}

impl Settle<'_> {
    /// The keys that a broken worker tombstones together with the claim that supersedes them.
    pub(super) fn superseded_early(&self, worker: &Worker, entry: &Entry) -> Vec<Key> {
        match entry {
            Entry::Claim(claim)
                if claim.base.is_some() && self.bounds.fault == Fault::BaseUnread =>
            {
                let read = self.world.log.iter().take(usize::from(worker.cursor));
                let of_task = read.filter(|record| record.entry.task() == Some(claim.key.task));
                of_task.map(|record| record.entry.key()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Tells the history of a stored seal.
    pub(super) fn seal_lands(&mut self, seal: &Seal) {
        for message in 0..small(self.world.messages.len()) {
            if seal.entries.get(entry_id(message)).is_none() {
                continue;
            }
            for task in members(self.bounds, message) {
                let id = task_id(self.bounds, task);
                let fold = self.world.fold(id, false);
                self.history(|history| history.sealed(id, &fold));
            }
        }
    }

    pub(super) fn sealing(&mut self, step: Move, worker: &mut Worker) {
        match step {
            Move::Seal { messages, .. } => self.publish_seal(worker, messages),
            Move::Merge { .. } => self.merge(worker),
            Move::Sweep { only, .. } => {
                let mut keys = sweepable(self.bounds, &self.world, worker);
                if let Some(number) = only {
                    keys = vec![keys[usize::from(number)]];
                }
                worker.machine.sweep(keys);
            }
            _ => {}
        }
    }

    fn publish_seal(&mut self, worker: &mut Worker, messages: u8) {
        let count = small(self.world.messages.len());
        let chosen = (0..count).filter(|message| messages >> message & 1 == 1);
        let mut entries: Vec<EntryId> = chosen.map(entry_id).collect();
        let lies = matches!(
            self.bounds.fault,
            Fault::SealUnclosed | Fault::SealUnread | Fault::SealOverHole
        );
        if self.bounds.fault == Fault::SealOverHole && !self.bounds.batch {
            entries = (0..count).map(entry_id).collect();
        }
        if lies {
            self.forge(worker, &entries);
        } else {
            worker.machine.seal(&entries);
        }
        if self.bounds.fault == Fault::TombstonesBeforeSeal {
            let named =
                |entry: &Entry| entry.task().is_some_and(|id| entries.contains(&id.entry_id()));
            let read = self.world.log.iter().take(usize::from(worker.cursor));
            let keys = read.filter(|record| named(&record.entry)).map(|record| record.entry.key());
            worker.out.extend(keys.map(Entry::Tombstone));
        }
    }

    /// A seal that the machine would not publish.
    fn forge(&mut self, worker: &mut Worker, entries: &[EntryId]) {
        let mut set = EntrySet::default();
        for entry in entries {
            set.push_entry(*entry, BatchOutcome::Completed);
        }
        self.forge_set(worker, set);
    }

    fn forge_set(&mut self, worker: &mut Worker, entries: EntrySet) {
        // Beyond any serial of the machine's own.
        let forged = |entry: &Entry| matches!(entry.key(), Key::Seal(key) if key.serial >= 100);
        let landed = self.world.log.iter().filter(|record| forged(&record.entry)).count();
        let serial = 100 + (landed + worker.out.len()) as u64;
        let key = SealKey { owner: worker.machine.owner(), serial };
        worker.out.push(Entry::Seal(Seal { key, counts: EndedCounts::default(), entries }));
    }

    fn merge(&mut self, worker: &mut Worker) {
        self.world.budget.merges -= 1;
        let seals: Vec<Key> = self
            .world
            .log
            .iter()
            .take(usize::from(worker.cursor))
            .filter(|record| matches!(record.entry, Entry::Seal(_)) && !record.removed)
            .map(|record| record.entry.key())
            .collect();
        match self.bounds.fault {
            Fault::MergeForgets => {
                if let Some((_, union)) = worker.machine.seals().merged(2) {
                    let mut less = EntrySet::default();
                    let last = union.ranges().last().map(|range| range.last).unwrap_or_default();
                    for range in union.ranges() {
                        for entry in (range.first..=range.last).filter(|entry| *entry != last) {
                            less.push_entry(EntryId { ledger: range.ledger, entry }, range.ended);
                        }
                    }
                    self.forge_set(worker, less);
                    worker.out.extend(seals.into_iter().map(Entry::Tombstone));
                }
            }
            Fault::OldSealsFirst => {
                // The tombstones overtake the union.
                worker.out.extend(seals.into_iter().map(Entry::Tombstone));
                worker.machine.merge_seals(2);
            }
            _ => worker.machine.merge_seals(2),
        }
    }
}
