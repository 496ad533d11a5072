//! Properties of keys, entries and the fold, over random ledgers.

use super::body;
use super::config::{LEDGER_FORMAT, LedgerConfig};
use super::digest::Comparison;
use super::entry::{Base, Claim, ClaimKind, Done, Entry, Heartbeat, LeaseMs, Renewal};
use super::entry_set::{BatchOutcome, EntrySet, Range};
use super::fold::{TaskFold, Verdict};
use super::hash::NameHash;
use super::key::{Epoch, Key, OnceKey, OwnerId, RENEWAL_SERIAL, SealKey};
use super::limits::Limits;
use super::random::*;
use super::seal::{EndedCounts, Seal};
use crate::task::{Position, Properties, TaskId};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::time::Duration;

fn any_task() -> impl Strategy<Value = TaskId> {
    let parts = (any::<u64>(), any::<u64>(), -1..i32::MAX, any::<Option<u32>>());
    parts.prop_map(|(ledger, entry, partition, batch_index)| TaskId {
        ledger,
        entry,
        partition,
        batch_index,
    })
}

fn any_once() -> impl Strategy<Value = OnceKey> {
    let parts = (any_task(), any::<u32>(), any::<u128>(), any::<u64>());
    parts.prop_map(|(task, epoch, owner, serial)| OnceKey {
        task,
        epoch: Epoch(epoch),
        owner: OwnerId(owner),
        serial,
    })
}

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        any_once().prop_map(Key::Once),
        any_task().prop_map(Key::Cancel),
        (any::<u128>(), any::<u64>())
            .prop_map(|(owner, serial)| { Key::Seal(SealKey { owner: OwnerId(owner), serial }) }),
        any::<u128>().prop_map(|owner| Key::Heartbeat(OwnerId(owner))),
        any::<u32>().prop_map(Key::Config),
    ]
}

fn any_config() -> impl Strategy<Value = LedgerConfig> {
    let millis = || any::<u64>().prop_map(Duration::from_millis);
    let parts = (any::<u32>(), ".*", millis(), millis(), millis());
    parts.prop_map(|(version, subscription, heartbeat, ledger_retention, self_fence)| {
        let format = LEDGER_FORMAT;
        LedgerConfig { version, subscription, heartbeat, ledger_retention, self_fence, format }
    })
}

fn any_seal() -> impl Strategy<Value = Seal> {
    let parts =
        (any::<u128>(), any::<(u64, u64, u64, u64, u64)>(), vec((0..9_u64, 0..9_u64), 0..9));
    parts.prop_map(|(owner, (serial, completed, failed, cancelled, expired), mut ranges)| {
        let mut entries = EntrySet::default();
        ranges.sort_unstable();
        for (ledger, first) in ranges {
            entries.push(Range { ledger, first, last: first + 2, ended: BatchOutcome::Completed });
        }
        let key = SealKey { owner: OwnerId(owner), serial };
        Seal { key, counts: EndedCounts { completed, failed, cancelled, expired }, entries }
    })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let limits = (1..u32::MAX, any::<(bool, Option<u64>, Option<u64>)>(), any::<Option<LeaseMs>>());
    let limits = (limits, any::<Option<NonZeroU32>>(), any::<Option<[u8; 2]>>());
    let claim = (any_once(), any::<u32>(), any_kind(), any::<u32>(), any::<Option<u64>>(), limits);
    let renewal = (any_once(), any::<LeaseMs>(), any::<u128>());
    let done = (any_once(), any::<u32>(), any_outcome(), any::<Option<u128>>());
    let place = any::<Option<(u64, u64, Option<u32>)>>();
    let heartbeat =
        (any::<u128>(), ".*", any::<(u64, u64, u64, bool, u64, Option<u32>, bool)>(), place);
    prop_oneof![
        claim.prop_map(|(key, attempt, kind, more, created, (limits, gives, order))| {
            let (attempts, limits, lease_ms) = limits;
            let (has, total_ms, expires_at_ms) = limits;
            let limits = Limits { max_attempts: has.then_some(attempts), total_ms, expires_at_ms };
            let size = |index: u32| index.saturating_add(more).saturating_add(1);
            let batch_size = key.task.batch_index.map(size);
            let created = created.filter(|_| kind == ClaimKind::Run);
            let base = created.map(|created_ms| Base { created_ms });
            let lease_ms = lease_ms.filter(|_| kind == ClaimKind::Run);
            let gives = gives.filter(|_| kind == ClaimKind::Run);
            let order = order.filter(|_| kind.begins()).map(|key| NameHash::of(&key));
            let plain = Claim::plain(key, attempt, kind);
            Entry::Claim(Claim { batch_size, base, limits, gives, lease_ms, order, ..plain })
        }),
        done.prop_map(|(key, attempt, outcome, writer)| {
            Entry::Done(Done { key, attempt, outcome, writer: writer.map(OwnerId) })
        }),
        any_once().prop_map(Entry::Checkpoint),
        renewal.prop_map(|(key, lease_ms, by)| {
            let key = OnceKey { serial: RENEWAL_SERIAL, ..key };
            Entry::Renewal(Renewal { key, lease_ms, by: OwnerId(by) })
        }),
        any_task().prop_map(Entry::Cancel),
        heartbeat.prop_map(|(owner, subscription, told, place)| {
            let (number, receipted, underway, leased, uptime_ms, max_attempts, reading) = told;
            let owner = OwnerId(owner);
            let position = |(ledger, entry, batch_index)| Position { ledger, entry, batch_index };
            let shown_to = place.map(position);
            Entry::Heartbeat(Heartbeat {
                owner,
                subscription,
                number,
                receipted,
                underway,
                leased: leased.then_some((uptime_ms, underway)),
                uptime_ms,
                max_attempts,
                shown_to,
                reading,
                comparison: reading.then_some(Comparison::Question),
            })
        }),
        any_seal().prop_map(Entry::Seal),
        any_config().prop_map(Entry::Config),
        any_key().prop_map(Entry::Tombstone),
    ]
}

/// A ledger after compactions up to these horizons: the last entry of each key, and no tombstones.
fn compact(log: &[Entry], horizons: &[usize]) -> Vec<Entry> {
    let mut kept: Vec<(usize, Entry)> = log.iter().cloned().enumerate().collect();
    for horizon in horizons {
        let horizon = horizon % (log.len() + 1);
        let below = kept.clone();
        kept.retain(|(place, entry)| {
            let replaced = below.iter().any(|(later, other)| {
                later > place && *later < horizon && other.key() == entry.key()
            });
            *place >= horizon || !(replaced || matches!(entry, Entry::Tombstone(_)))
        });
    }
    kept.into_iter().map(|(_, entry)| entry).collect()
}

fn fold(log: &[Entry], id: TaskId) -> TaskFold {
    let mut fold = TaskFold::default();
    for entry in log.iter().filter(|entry| entry.task() == Some(id)) {
        fold.apply(entry);
    }
    fold
}

/// The keys of a task's entries: those that the fold ignored first, then the others, in the order
/// of a sweep.
fn keys_in_order(log: &[Entry], id: TaskId) -> (Vec<Key>, Vec<Key>) {
    let mut fold = TaskFold::default();
    let (mut ignored, mut accepted, mut cancel) = (Vec::new(), Vec::new(), None);
    for entry in log.iter().filter(|entry| entry.task() == Some(id)) {
        match (fold.apply(entry), entry.key()) {
            (_, key @ Key::Cancel(_)) => cancel = Some(key),
            (Verdict::Accepted, key) => accepted.push(key),
            (Verdict::Ignored(_), key) => ignored.push(key),
        }
    }
    accepted.extend(cancel);
    (ignored, accepted)
}

proptest! {
    #[test]
    fn an_entry_survives_its_message(entry in any_entry()) {
        let null = matches!(entry, Entry::Tombstone(_));
        let key = entry.key().to_string();
        prop_assert_eq!(Entry::read(Some(&key), &entry.properties(), &entry.body(content_of(&entry)), null), Ok(entry));
    }

    #[test]
    fn a_key_survives_its_text(key in any_key()) {
        prop_assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn a_task_id_survives_its_text(id in any_task()) {
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn garbage_is_refused_without_a_panic(text in ".*", almost in "[0-9a-f/:+-]{0,60}(/cancel)?") {
        for text in [text, almost] {
            let (key, task) = (text.parse::<Key>(), text.parse::<TaskId>());
            prop_assert!(key.is_err() || task.is_err(), "{} is a key and a task id", text);
        }
    }

    #[test]
    fn any_properties_are_read_without_a_panic(
        key in prop_oneof![any_key().prop_map(|key| key.to_string()), ".*"],
        properties in btree_map("(k|t|e|a|o|s|na|nd|w|b|ma|tb|x|ttl|y|at|by|sub|q|c|u|m|p|h|r|g|v)", ".{0,12}", 0..12),
        null: bool,
    ) {
        let properties = Properties::from(properties);
        let read = Entry::read(Some(&key), &properties, &body::encode(b""), null);
        prop_assert!(read.is_err() || key.parse::<Key>().is_ok());
        prop_assert!(Entry::read(None, &properties, &body::encode(b""), null).is_err());
    }

    /// Replaces one property at a time by nonsense: the entry is refused, or is unchanged except
    /// for that property.
    #[test]
    fn a_damaged_entry_never_belongs_to_another_task(
        entry in any_entry(), name in "[a-z]{1,2}", value in ".{0,8}",
    ) {
        let mut properties: Properties = entry.properties();
        properties.insert(name, value);
        let null = matches!(entry, Entry::Tombstone(_));
        if let Ok(read) = Entry::read(Some(&entry.key().to_string()), &properties, &entry.body(content_of(&entry)), null) {
            prop_assert_eq!(read.key(), entry.key());
        }
    }

    /// C-01.
    #[test]
    fn a_compacted_ledger_folds_to_the_same(log in ledger(), horizons in vec(0..100_usize, 0..4)) {
        let compacted = compact(&log, &horizons);
        for id in (0..TASKS).map(task) {
            prop_assert_eq!(fold(&compacted, id), fold(&log, id));
        }
    }

    /// C-01 with the tombstones of claims and outcomes that lost: optional clean-up, which may stop
    /// anywhere.
    #[test]
    fn tombstones_of_what_was_ignored_change_nothing(
        log in ledger(), count in 0..24_usize, horizons in vec(0..100_usize, 0..4),
    ) {
        let ignored = (0..TASKS).flat_map(|number| keys_in_order(&log, task(number)).0);
        let tombstones = ignored.take(count).map(Entry::Tombstone);
        let swept: Vec<Entry> = log.iter().cloned().chain(tombstones).collect();
        let compacted = compact(&swept, &horizons);
        for id in (0..TASKS).map(task) {
            prop_assert_eq!(fold(&compacted, id), fold(&log, id));
        }
    }

    /// A worker may die after any tombstone of its sweep of a sealed task. The rest, including the
    /// seal behind it, still shows the task as over; and a reader half-way folds nothing that the
    /// whole log did not contain once.
    #[test]
    fn half_a_sweep_says_nothing_that_was_not_so(
        log in ledger(), count in 0..24_usize, horizons in vec(0..100_usize, 0..4),
    ) {
        let id = task(0);
        let (ignored, accepted) = keys_in_order(&log, id);
        let tombstones = ignored.into_iter().chain(accepted).take(count).map(Entry::Tombstone);
        let swept: Vec<Entry> = log.iter().cloned().chain(tombstones).collect();
        let left = compact(&swept, &horizons);
        let end = fold(&log, id);
        for read in 0..=left.len() {
            let seen = fold(left.split_at(read).0, id);
            if seen.phase.is_terminal() {
                prop_assert_eq!(TaskFold { cancel: end.cancel, ..seen }, end);
            }
        }
    }

    /// C-05.
    #[test]
    fn a_terminal_task_never_changes(log in ledger(), more in ledger()) {
        for id in (0..TASKS).map(task) {
            let end = fold(&log, id);
            if end.phase.is_terminal() {
                let all: Vec<Entry> = log.iter().chain(&more).cloned().collect();
                let after = TaskFold { cancel: end.cancel, ..fold(&all, id) };
                prop_assert_eq!(after, end);
            }
        }
    }
}
