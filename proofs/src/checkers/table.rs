//! Compares the library's fold with the checkers' own: every state of a task, and every two entries
//! after it.

use super::fold::State;
use longhaul::TaskId;
use longhaul_core::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use longhaul_core::protocol::entry::{
    Base, Claim, ClaimKind, Done, Entry, Heartbeat, NextAttempt, Offer, Outcome,
};
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::key::{Epoch, Key, OnceKey, OwnerId};
use longhaul_core::protocol::offer::TaskType;
use std::time::Duration;

const TASK: TaskId = TaskId { ledger: 7, entry: 1, partition: -1, batch_index: None };
/// The owner of the last epoch in every tested state.
const OWNER: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);
const LATER: NextAttempt = NextAttempt::new(5_000, 3_000);
const OUTCOMES: [Outcome; 7] = [
    Outcome::Released(NextAttempt::PARKED),
    Outcome::Completed,
    Outcome::Final,
    Outcome::Cancelled,
    Outcome::Failed(LATER),
    Outcome::Released(NextAttempt::new(0, 0)),
    Outcome::Released(NextAttempt::AFTER_DRAIN),
];

/// Each kind once.
fn claims() -> [ClaimKind; 6] {
    let offer = Offer { task_type: TaskType::of(Some("y")), ready_ms: 7 };
    [
        ClaimKind::Run,
        ClaimKind::Final,
        ClaimKind::Cancelled,
        ClaimKind::Expired,
        ClaimKind::Park,
        ClaimKind::Offer(offer),
    ]
}

/// Both folds, with the same input.
#[derive(Clone, Copy, Default)]
struct Both {
    library: TaskFold,
    own: State,
}

impl Both {
    fn take(&mut self, entry: &Entry) -> Result<(), String> {
        let before = *self;
        let accepted = self.library.apply(entry) == Verdict::Accepted;
        let counts = self.own.take(entry);
        if accepted == counts && self.own.agrees_with(&self.library) {
            return Ok(());
        }
        Err(format!(
            "{entry:?}\n  on {:?}\n  the library: {accepted}, {:?}\n  the checkers: {counts}, {:?}",
            before.library, self.library, self.own
        ))
    }
}

const fn key(epoch: u32, owner: OwnerId) -> OnceKey {
    OnceKey { task: TASK, epoch: Epoch(epoch), owner, serial: 9 }
}

const fn claim(kind: ClaimKind, epoch: u32, owner: OwnerId, attempt: u32) -> Entry {
    Entry::Claim(Claim::plain(key(epoch, owner), attempt, kind))
}

const fn based(epoch: u32, owner: OwnerId, attempt: u32) -> Entry {
    let base = Some(Base { created_ms: 1 });
    let (key, kind) = (key(epoch, owner), ClaimKind::Run);
    Entry::Claim(Claim { base, ..Claim::plain(key, attempt, kind) })
}

const fn done(outcome: Outcome, epoch: u32, owner: OwnerId, attempt: u32) -> Entry {
    Entry::Done(Done { key: key(epoch, owner), attempt, outcome, writer: None })
}

/// The entries that lead to every state: new, running, waiting after a failure or a release, and
/// each outcome; cancelled or not.
fn ways() -> Vec<Vec<Entry>> {
    let run = |epoch, owner| claim(ClaimKind::Run, epoch, owner, epoch);
    let running = vec![run(1, OTHER), run(2, OTHER), run(3, OWNER)];
    let with = |entry| running.iter().cloned().chain([entry]).collect::<Vec<_>>();
    let mut ways = vec![Vec::new(), running.clone()];
    ways.extend(OUTCOMES.map(|outcome| with(done(outcome, 3, OWNER, 3))));
    // A closing claim does not change the attempt.
    ways.extend(claims()[1..].iter().map(|kind| with(claim(*kind, 4, OWNER, 3))));
    let cancelled = |way: &Vec<Entry>| way.iter().cloned().chain([Entry::Cancel(TASK)]).collect();
    let cancelled: Vec<Vec<Entry>> = ways.iter().map(cancelled).collect();
    ways.extend(cancelled);
    ways
}

/// All possible next entries: all kinds, in epochs -1, 0, +1, +2, by the owner or another one, in
/// attempts -1, 0, +1, +2.
fn probes(at: &State) -> Vec<Entry> {
    let around = |value: u32| [value.checked_sub(1), Some(value), Some(value + 1), Some(value + 2)];
    let mut probes = of_no_task();
    for epoch in around(at.epoch).into_iter().flatten() {
        for owner in [OWNER, OTHER] {
            probes.push(Entry::Checkpoint(key(epoch, owner)));
            for attempt in around(at.attempt).into_iter().flatten() {
                probes.push(based(epoch, owner, attempt));
                probes.extend(claims().map(|kind| claim(kind, epoch, owner, attempt)));
                probes.extend(OUTCOMES.map(|outcome| done(outcome, epoch, owner, attempt)));
            }
        }
    }
    probes
}

fn of_no_task() -> Vec<Entry> {
    let heartbeat = Heartbeat {
        owner: OWNER,
        subscription: "longhaul".to_owned(),
        number: 1,
        receipted: 1,
        underway: 0,
        uptime_ms: 1_000,
        ..Heartbeat::default()
    };
    let config = LedgerConfig {
        version: 1,
        subscription: "longhaul".to_owned(),
        heartbeat: Duration::from_secs(10),
        ledger_retention: Duration::from_secs(3600),
        self_fence: Duration::from_secs(600),
        format: LEDGER_FORMAT,
    };
    let keys = [Key::Once(key(3, OWNER)), Key::Cancel(TASK), Key::Heartbeat(OWNER)];
    let mut all = vec![Entry::Cancel(TASK), Entry::Heartbeat(heartbeat), Entry::Config(config)];
    all.extend(keys.map(Entry::Tombstone));
    all
}

/// Earlier, a fold that accepted any higher epoch, and one that accepted another owner's outcome,
/// passed model, simulation and chaos, because all of them judged by that same fold.
#[test]
fn the_library_folds_as_the_protocol_says() {
    let mut tried = 0_u64;
    let mut found = Vec::new();
    for way in ways() {
        let mut start = Both::default();
        found.extend(way.iter().filter_map(|entry| start.take(entry).err()));
        for first in probes(&start.own) {
            let mut then = start;
            found.extend(then.take(&first).err());
            for second in probes(&then.own) {
                let mut end = then;
                found.extend(end.take(&second).err());
                tried += 1;
            }
        }
    }
    let count = found.len();
    assert!(found.is_empty(), "{count} of {tried} differ; the first: {}", found[0]);
    assert!(tried > 1_000_000, "only {tried} pairs were tried");
}
