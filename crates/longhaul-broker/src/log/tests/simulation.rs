//! Random histories over a disk that fails and loses power, each reproducible by its seed.

use super::*;
use crate::log::WriteError;
use crate::log::disk::storage::{Storage, Surprise};
use crate::log::error::AppendError;
use crate::log::recover::inventory;
use crate::log::segments::composer::RecordGroup;
use crate::log::segments::record::LogPosition;
use crate::log::segments::segment;
use crate::log::spoiled::{self, Former};
use fastrand::Rng;
use std::collections::BTreeSet;

/// Cycles of open, work and crash per history.
const LIVES: u64 = 5;

/// A simulated log, and the expected content of its disk.
struct World {
    seed: u64,
    random: Rng,
    storage: SimulatedStorage,
    /// Every record that is in the log or may be.
    history: Vec<(RecordHead, RecordLocation, Vec<u8>)>,
    /// Number of confirmed records, by a write or by a replay.
    confirmed: usize,
    /// Positions of the checkpoints that may be the durable one, the confirmed one first.
    checkpoints: Vec<LogPosition>,
    has_checkpoint: bool,
    removed: BTreeSet<u32>,
    next: u64,
    /// Number of zeroed ends of logs that had been confirmed.
    zeroed: u64,
    /// Number of starts on a copy without a file.
    losses: u64,
    /// Numbers of damaged indices of segments, and of starts that used intact ones.
    spoiled: u64,
    indexed: u64,
    /// Indices of earlier logs.
    former: Former,
}

fn seeds() -> u64 {
    crate::kit::seeds(1500)
}

#[test]
fn what_was_confirmed_survives() {
    let (mut losses, mut spoiled, mut indexed, mut zeroed) = (0, 0, 0, 0);
    let mut former = Former::new();
    for seed in 0..seeds() {
        let mut world = World {
            seed,
            random: Rng::with_seed(seed),
            storage: SimulatedStorage::new(seed),
            history: Vec::new(),
            confirmed: 0,
            checkpoints: Vec::new(),
            has_checkpoint: false,
            removed: BTreeSet::new(),
            next: 0,
            zeroed: 0,
            losses: 0,
            spoiled: 0,
            indexed: 0,
            former,
        };
        for _ in 0..LIVES {
            world.live();
        }
        losses += world.losses;
        zeroed += world.zeroed;
        spoiled += world.spoiled;
        indexed += world.indexed;
        former = world.former;
        spoiled::remember(&world.storage, &mut former);
    }
    assert!(losses > seeds() / 4, "{losses}: segments vanish too seldom");
    assert!(zeroed > seeds() / 4, "{zeroed}: confirmed ends vanish too seldom");
    assert!(
        spoiled.min(indexed) > seeds() / 2,
        "{spoiled} indices spoiled, {indexed} starts with some"
    );
}

impl World {
    fn live(&mut self) {
        let mut parts = self.open();
        if self.random.bool() {
            let surprise = *self
                .random
                .choice(&[
                    Surprise::Broken,
                    Surprise::Full,
                    Surprise::Exhausted,
                    Surprise::PowerCut,
                ])
                .as_ref()
                .unwrap();
            let after = self.storage.operations() + self.random.u64(0..60);
            self.storage.surprise(after, *surprise);
        }
        let mut waiting = None;
        for _ in 0..self.random.usize(0..40) {
            match self.random.u8(0..15) {
                0..=4 => self.append(&mut parts),
                5..=8 => self.write(&mut parts, &mut waiting),
                9 => background::prepare(&parts.writer.shared),
                10 => self.checkpoint(&parts),
                11 | 12 => drop(background::index(&parts.writer.shared)),
                13 => background::record_confirmed(&parts.writer.shared),
                _ => self.remove(&parts),
            }
            self.read_some(&parts);
        }
        drop(parts);
        self.storage.no_surprises();
        self.lose_one();
        self.zero_end();
        self.spoil_index();
        // A kill leaves more behind than a power cut, and a power cut may follow.
        if self.random.u8(0..3) == 0 {
            self.storage.kill();
        } else {
            self.storage.crash();
        }
    }

    /// Each log has its own salt: otherwise the index of another log fits by chance, once in some
    /// thousand histories.
    fn recover(&self, storage: &SimulatedStorage) -> Result<(Parts, Seen), OpenError> {
        recover_with(storage, LogOptions { salt: self.seed, ..small() })
    }

    /// Opens the log, possibly with failures, and compares it.
    fn open(&mut self) -> Parts {
        if self.random.u8(0..3) == 0 {
            let surprise = if self.random.bool() { Surprise::PowerCut } else { Surprise::Broken };
            let after = self.storage.operations() + self.random.u64(0..8);
            self.storage.surprise(after, surprise);
        }
        let mut opened = self.recover(&self.storage);
        for _ in 0..3 {
            if let Err(OpenError::Io { .. }) = opened {
                self.storage.no_surprises();
                self.storage.crash();
                opened = self.recover(&self.storage);
            }
        }
        self.storage.no_surprises();
        let seed = self.seed;
        let (parts, seen) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        self.compare(&parts, &seen);
        parts
    }

    /// Damages an index between two runs: the result of a start must not differ.
    fn spoil_index(&mut self) {
        let done = match self.random.u8(0..4) {
            0 | 1 => spoiled::spoil(&self.storage, &mut self.random, &mut self.former),
            2 => spoiled::leave_one(&self.storage, &mut self.random, &self.former),
            _ => None,
        };
        self.spoiled += u64::from(done.is_some());
    }

    /// Zeros the end of the log, which had been noted as confirmed: it looks like an unfinished
    /// group and is not.
    fn zero_end(&mut self) {
        let copy = self.storage.fork();
        let Some((name, at)) = spoiled::zero_end(&copy, &mut self.random) else { return };
        let opened = self.recover(&copy).map(|_| ());
        let is_refused =
            matches!(&opened, Err(OpenError::Damaged { file, .. }) if file.ends_with(&name));
        assert!(is_refused, "seed {}: {at:?} and what follows is gone: {opened:?}", self.seed);
        self.zeroed += 1;
    }

    /// Deletes a segment between two runs: a copy of the disk without it must not open. Exceptions:
    /// the newest segment may not be listed yet, and a full disk may have had no room for the
    /// inventory.
    fn lose_one(&mut self) {
        let copy = self.storage.fork();
        let mut kept: Vec<u32> =
            copy.list("log").unwrap().iter().filter_map(|file| segment::number_of(file)).collect();
        kept.sort_unstable();
        // The newest segment is listed soon after it has begun, and when the log is idle.
        let listed = inventory::read(&copy).unwrap().unwrap_or_default();
        let confirmed = spoiled::confirmed(&copy).map(|at| at.segment);
        let newest = confirmed.filter(|number| Some(number) == kept.last());
        kept.pop_if(|last| !listed.contains(last) && newest.is_none());
        kept.retain(|number| !self.removed.contains(number));
        let Some(&lost) = self.random.choice(&kept) else { return };
        if self.has_checkpoint && copy.file("segments").is_none() && newest != Some(lost) {
            return;
        }
        copy.remove(&segment::name(lost)).unwrap();
        let opened = self.recover(&copy).map(|_| ());
        let is_refused =
            matches!(&opened, Err(OpenError::Missing { .. } | OpenError::NotRemoved { .. }));
        assert!(is_refused, "seed {}: {lost} is lost: {opened:?}", self.seed);
        self.losses += 1;
    }

    fn compare(&mut self, parts: &Parts, seen: &Seen) {
        let seed = self.seed;
        let there: BTreeSet<u32> =
            parts.writer.shared.list().into_iter().map(|(number, _)| number).collect();
        let is_there = |location: &RecordLocation| there.contains(&location.segment);
        let lost: Vec<_> = self.history[..self.confirmed]
            .iter()
            .filter(|(_, location, _)| {
                !is_there(location) && !self.removed.contains(&location.segment)
            })
            .collect();
        assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
        let hidden = self.history.iter().filter(|(_, location, _)| {
            !is_there(location) && self.removed.contains(&location.segment)
        });
        let count = seen.records.len() + hidden.count();
        assert!(count >= self.confirmed, "seed {seed}: {count} of {}", self.confirmed);
        assert!(count <= self.history.len(), "seed {seed}: {count} of {}", self.history.len());
        self.history.truncate(count);
        let expected = self.history.iter().filter(|(_, location, _)| is_there(location));
        for (record, (head, location, body)) in seen.records.iter().zip(expected) {
            let found = (&record.head, &record.location, &record.body);
            assert_eq!(found, (head, location, body), "seed {seed}");
        }
        // A reader that saw the record may have acted on it.
        self.confirmed = count;
        let at = parts.writer.shared.checkpoint();
        assert!(at.is_some() || !self.has_checkpoint, "seed {seed}: no checkpoint");
        if let Some(at) = at {
            assert!(self.checkpoints.contains(&at), "seed {seed}: {at:?}");
            assert_eq!(seen.pieces, [format!("{at:?}").into_bytes()], "seed {seed}");
            (self.checkpoints, self.has_checkpoint) = (vec![at], true);
        } else {
            self.checkpoints.clear();
        }
        self.indexed += u64::from(seen.records.iter().any(|record| record.is_indexed));
        for record in &seen.records {
            let before = at.is_some_and(|at| record.location.start() < at);
            assert_eq!(record.before_checkpoint, before, "seed {seed}");
        }
    }

    fn append(&mut self, parts: &mut Parts) {
        for _ in 0..self.random.usize(1..6) {
            let largest = if self.random.u8(0..12) == 0 { 21_000 } else { 900 };
            let fill = self.random.u8(0..3);
            let body = vec![fill; self.random.usize(0..largest)];
            let head = entry(self.next);
            self.next += 1;
            match parts.composer.append(head, &[&body]) {
                Ok(location) => self.history.push((head, location, body)),
                Err(AppendError::TooLarge { size, .. }) => assert!(size > 20_000),
            }
        }
    }

    fn write(&mut self, parts: &mut Parts, waiting: &mut Option<RecordGroup>) {
        let Some(group) = waiting.take().or_else(|| parts.composer.take()) else { return };
        let end = group.end();
        match parts.writer.write(&group) {
            Ok(()) => {
                self.confirmed =
                    self.history.partition_point(|(_, location, _)| location.start() < end);
            }
            Err(WriteError::Full { .. }) => *waiting = Some(group),
            Err(WriteError::Poisoned { .. }) => {}
            Err(other) => panic!("seed {}: {other}", self.seed),
        }
    }

    fn checkpoint(&mut self, parts: &Parts) {
        let shared = &parts.writer.shared;
        let at = shared.durable();
        self.checkpoints.push(at);
        if background::checkpoint(shared, at, &[format!("{at:?}").into()]).is_ok() {
            (self.checkpoints, self.has_checkpoint) = (vec![at], true);
        }
    }

    fn remove(&mut self, parts: &Parts) {
        let Some(at) = parts.writer.shared.checkpoint() else { return };
        let list = parts.writer.shared.list();
        let random = &mut self.random;
        let mut chosen: Vec<u32> = list.into_iter().map(|(number, _)| number).collect();
        chosen.retain(|&number| random.u8(0..3) == 0 || number == at.segment);
        self.removed.extend(chosen.iter().filter(|&&number| number < at.segment));
        background::remove(&parts.writer.shared, &chosen);
    }

    fn read_some(&mut self, parts: &Parts) {
        if self.confirmed == 0 {
            return;
        }
        let (_, location, body) = &self.history[self.random.usize(0..self.confirmed)];
        match parts.reader.read(*location) {
            Ok(read) => assert_eq!(&read[..], &body[..], "seed {}", self.seed),
            Err(error) => {
                let gone = parts.writer.shared.segment(location.segment).is_none();
                assert!(gone && self.removed.contains(&location.segment), "{}: {error}", self.seed);
            }
        }
    }
}
