//! Transport statistics from the workers' logs and journals and the ledger: lost connections, lost
//! or duplicate publishes, and silence. Figures only, to compare transports in the same scenario
//! with the same seed; nothing is judged.

use super::Row;
use longhaul::{TaskId, TaskMetadata};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::key::{Key, OwnerId};
use proofs::checkers::{History, Report, ViewEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The log texts of workers' services for a lost session, and for one that cannot be opened.
const LOST: &str = ": session lost ";
const NOT_OPENED: &str = ": cannot open a session ";
/// A session given up for lack of messages.
const IDLE: &str = ": no message for a long time although there is a backlog: subscribing again ";
/// The log filter of workers. The first two texts are logged only at this level.
pub(super) const LOG_FILTER: &str = "info,longhaul::supervise=debug";

/// Adds the figures of a run.
pub(super) fn note(
    row: &mut Row,
    logs: &str,
    history: &History,
    report: &Report,
    heartbeat: Duration,
) {
    row.figure("sessions_lost", logs.matches(LOST).count());
    row.figure("not_opened", logs.matches(NOT_OPENED).count());
    row.figure("idle_sessions", logs.matches(IDLE).count());
    let Attempts { beyond_first, died, in_vain } = attempts(history, report);
    row.figure("attempts_beyond_first", beyond_first);
    row.figure("runs_died", died);
    row.figure("runs_in_vain", in_vain);
    row.figure("given_back", report.released);
    let publishes = publishes(history);
    row.figure("entries_unstored", publishes.unstored);
    row.figure("heartbeats_unstored", publishes.heartbeats_unstored);
    row.figure("outcomes_repeated", publishes.outcomes_repeated);
    row.figure("keys_twice", publishes.keys_twice);
    row.figure("heartbeats_twice", publishes.heartbeats_twice);
    row.figure("ends_shown_again", ends_shown_again(history));
    let silence = silence(history, heartbeat);
    row.figure("silence_max_ms", silence.of_owner_ms);
    row.figure("silences_over_2H", silence.stale);
    row.figure("ledger_silence_max_ms", silence.of_ledger_ms);
}

/// The cost of the tasks beyond one attempt each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Attempts {
    /// Attempts used beyond the first of each task.
    beyond_first: u32,
    /// Runs without an end: killed with their process.
    died: usize,
    /// Runs that ended, or were told to stop, without ending their task.
    in_vain: usize,
}

fn attempts(history: &History, report: &Report) -> Attempts {
    let beyond = report.folds.values().map(|fold| fold.attempt.saturating_sub(1));
    let died = history.runs.iter().filter(|run| run.ended_us.is_none()).count();
    let last: BTreeMap<TaskId, u32> =
        report.folds.iter().map(|(task, fold)| (*task, fold.epoch.0)).collect();
    let ended = history.runs.iter().filter(|run| run.ended_us.is_some());
    let in_vain = ended.filter(|run| last.get(&run.task) != Some(&run.epoch)).count();
    Attempts { beyond_first: beyond.sum(), died, in_vain }
}

/// Failed and duplicate publishes on the ledger.
#[derive(Debug, Default, PartialEq, Eq)]
struct Publishes {
    /// Claims, outcomes and checkpoints that were never stored: gaps in each worker's numbers. They
    /// were given up before sending, or their fate is unknown. A worker's last losses are
    /// invisible.
    unstored: u64,
    /// The same for heartbeats.
    heartbeats_unstored: u64,
    /// Further outcomes stored for the same attempt: the first one had no receipt.
    outcomes_repeated: usize,
    /// Write-once keys stored twice, by resends of the transport.
    keys_twice: usize,
    /// Heartbeats stored twice.
    heartbeats_twice: usize,
}

fn publishes(history: &History) -> Publishes {
    let mut found = Publishes::default();
    let mut serials: BTreeMap<OwnerId, BTreeSet<u64>> = BTreeMap::new();
    let mut heartbeats: BTreeMap<OwnerId, BTreeSet<u64>> = BTreeMap::new();
    let mut outcomes = BTreeSet::new();
    for entry in history.ledger.iter().filter_map(|message| message.entry.as_ref().ok()) {
        if matches!(entry, Entry::Tombstone(_)) {
            continue;
        }
        if let Entry::Heartbeat(heartbeat) = entry {
            let numbers = heartbeats.entry(heartbeat.owner).or_default();
            // Heartbeats of an earlier owner id of a worker have no numbers.
            let is_new = numbers.insert(heartbeat.number);
            found.heartbeats_twice += usize::from(!is_new && heartbeat.number > 0);
        }
        let Key::Once(key) = entry.key() else { continue };
        let is_new = serials.entry(key.owner).or_default().insert(key.serial);
        found.keys_twice += usize::from(!is_new);
        if is_new && matches!(entry, Entry::Done(_)) {
            let of_attempt = (key.task, key.epoch.0, key.owner);
            found.outcomes_repeated += usize::from(!outcomes.insert(of_attempt));
        }
    }
    found.unstored = serials.values().map(gaps).sum();
    found.heartbeats_unstored = heartbeats.values().map(gaps).sum();
    found
}

/// How often the end of a task was written to the metadata topic again: the first entry may be
/// lost, or covered by a late one.
fn ends_shown_again(history: &History) -> usize {
    let ends = |shown: &&ViewEntry| shown.metadata.as_ref().is_some_and(TaskMetadata::is_terminal);
    let shown: Vec<&ViewEntry> = history.view.iter().filter(ends).collect();
    let tasks: BTreeSet<&str> = shown.iter().map(|entry| entry.key.as_str()).collect();
    shown.len() - tasks.len()
}

/// The number of missing numbers between the first and the last.
fn gaps(numbers: &BTreeSet<u64>) -> u64 {
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return 0 };
    last - first + 1 - numbers.len() as u64
}

/// Periods of silence, by publish times.
#[derive(Debug, Default, PartialEq, Eq)]
struct Silence {
    /// The longest time between two stored heartbeats of one owner.
    of_owner_ms: u64,
    /// How often an owner's next heartbeat came so late that it was stale.
    stale: usize,
    /// The longest time without a stored claim or outcome, between the first and the last of them.
    of_ledger_ms: u64,
}

fn silence(history: &History, heartbeat: Duration) -> Silence {
    let mut silence = Silence::default();
    let mut heard: BTreeMap<OwnerId, u64> = BTreeMap::new();
    let mut last = None;
    for message in &history.ledger {
        let Ok(entry) = &message.entry else { continue };
        let at = message.publish_time_ms;
        if let Entry::Heartbeat(heartbeat_of) = entry {
            let before = heard.insert(heartbeat_of.owner, at).unwrap_or(at);
            let pause = at.saturating_sub(before);
            silence.of_owner_ms = silence.of_owner_ms.max(pause);
            silence.stale += usize::from(u128::from(pause) > 2 * heartbeat.as_millis());
        }
        if entry.task().is_some() {
            let pause = at.saturating_sub(last.unwrap_or(at));
            silence.of_ledger_ms = silence.of_ledger_ms.max(pause);
            last = Some(at.max(last.unwrap_or(at)));
        }
    }
    silence
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::Position;
    use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Heartbeat, Outcome};
    use longhaul_core::protocol::key::{Epoch, OnceKey};
    use proofs::checkers::LedgerEntry;

    const TASK: TaskId = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };

    fn key(serial: u64) -> OnceKey {
        OnceKey { task: TASK, epoch: Epoch(1), owner: OwnerId(7), serial }
    }

    fn heartbeat(number: u64) -> Entry {
        Entry::Heartbeat(Heartbeat {
            owner: OwnerId(7),
            subscription: "longhaul".to_owned(),
            number,
            receipted: 0,
            uptime_ms: 0,
            ..Heartbeat::default()
        })
    }

    fn done(serial: u64) -> Entry {
        Entry::Done(Done {
            key: key(serial),
            attempt: 1,
            outcome: Outcome::Completed,
            writer: None,
        })
    }

    fn history(entries: Vec<(u64, Entry)>) -> History {
        let message = |(at, (publish_time_ms, entry)): (usize, (u64, Entry))| LedgerEntry {
            position: Position { ledger: 1, entry: at as u64, batch_index: None },
            key: entry.key().to_string(),
            entry: Ok(entry),
            body: bytes::Bytes::new(),
            publish_time_ms,
        };
        let ledger = entries.into_iter().enumerate().map(message).collect();
        History { ledger, ..History::default() }
    }

    #[test]
    fn lost_and_doubled_publishes_show_in_their_numbers() {
        let claim = Claim::plain(key(1), 1, ClaimKind::Run);
        let entries = [Entry::Claim(claim), done(4), done(4), done(5)];
        let entries = entries.into_iter().chain([3, 4, 4, 7].map(heartbeat));
        let expected = Publishes {
            unstored: 2,
            heartbeats_unstored: 2,
            outcomes_repeated: 1,
            keys_twice: 1,
            heartbeats_twice: 1,
        };
        assert_eq!(publishes(&history(entries.map(|entry| (0, entry)).collect())), expected);
    }

    #[test]
    fn silence_is_that_of_one_owner_and_that_of_all() {
        let entries = vec![
            (1_000, heartbeat(1)),
            (1_500, done(1)),
            (2_000, heartbeat(2)),
            (4_500, done(2)),
            (4_600, heartbeat(3)),
        ];
        let expected = Silence { of_owner_ms: 2_600, stale: 1, of_ledger_ms: 3_000 };
        assert_eq!(silence(&history(entries), Duration::from_secs(1)), expected);
    }
}
