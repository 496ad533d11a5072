//! Properties of entries and of the fold, over random registers.

use super::*;
use crate::protocol::body;
use crate::protocol::entry::EntryError;
use crate::protocol::key::{Epoch, OwnerId};
use crate::task::Priority;
use crate::task::TaskId;
use proptest::collection::vec;
use proptest::prelude::*;

mod compaction;
mod overwriting;

fn name(text: &str) -> KeyName {
    KeyName::new(KeyKind::Idempotency, text).unwrap()
}

const fn task(entry: u64) -> QueueTask {
    QueueTask::normal(TaskId { ledger: 0, entry, partition: -1, batch_index: None })
}

fn hold(text: &str, epoch: u32, entry: u64, serial: u64) -> HoldKey {
    let stamp = Stamp { writer: OwnerId(7), serial };
    let (name, task) = (name(text), task(entry));
    HoldKey { name, period: Period(0), epoch: Epoch(epoch), task, stamp }
}

fn bind(text: &str, epoch: u32, entry: u64, serial: u64) -> RegisterEntry {
    RegisterEntry::Bind(Hold {
        key: hold(text, epoch, entry, serial),
        digest: None,
        overwrites: false,
    })
}

fn release(text: &str, epoch: u32, entry: u64, serial: u64) -> RegisterEntry {
    RegisterEntry::Release(hold(text, epoch, entry, serial))
}

const fn position(entry: u64) -> Position {
    Position { ledger: 0, entry, batch_index: None }
}

fn read<'a>(log: impl IntoIterator<Item = &'a RegisterEntry>) -> Register {
    let mut register = Register::default();
    for (entry, at) in log.into_iter().zip(1..) {
        register.apply(entry, position(at));
    }
    register
}

fn verdicts(log: &[RegisterEntry]) -> Vec<RegisterVerdict> {
    let mut register = Register::default();
    let apply = |(entry, at): (&RegisterEntry, u64)| register.apply(entry, position(at));
    log.iter().zip(1..).filter_map(apply).collect()
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    let parts = any::<(u128, u64)>();
    parts.prop_map(|(writer, serial)| Stamp { writer: OwnerId(writer), serial })
}

fn any_hold() -> impl Strategy<Value = HoldKey> {
    let kind = prop_oneof![Just(KeyKind::Idempotency), Just(KeyKind::Dedupe)];
    let id = (any::<u64>(), any::<u64>(), -1..i32::MAX, any::<Option<u32>>());
    let task = (0..3_usize, id);
    let text = prop_oneof![".{1,40}", "[a-f0-9/:-]{1,60}"];
    let epoch = any::<(u32, u32)>();
    (kind, text, epoch, task, any_stamp()).prop_map(
        |(kind, text, (period, epoch), (level, (ledger, entry, partition, batch_index)), stamp)| {
            let id = TaskId { ledger, entry, partition, batch_index };
            let task = QueueTask { level: Priority::ALL[level], id };
            let (period, epoch) = (Period(period), Epoch(epoch));
            HoldKey { name: KeyName::new(kind, text).unwrap(), period, epoch, task, stamp }
        },
    )
}

fn any_document() -> impl Strategy<Value = Document> {
    let kind = prop_oneof![
        Just(DocumentKind::Schedule),
        Just(DocumentKind::Settings),
        Just(DocumentKind::Drain)
    ];
    let text = prop_oneof![".{1,40}", "[a-f0-9/:-]{1,60}"];
    let parts = (kind, text, any::<u64>(), any_stamp(), vec(any::<u8>(), 0..20));
    parts.prop_map(|(kind, text, version, stamp, content)| {
        let name = DocumentName::new(kind, text).unwrap();
        Document { key: DocumentKey { name, version, stamp }, content: content.into() }
    })
}

fn any_entry() -> impl Strategy<Value = RegisterEntry> {
    let bind = (any_hold(), any::<(Option<u128>, bool)>());
    prop_oneof![
        any_stamp().prop_map(RegisterEntry::Start),
        (any::<u32>(), any_stamp())
            .prop_map(|(it, stamp)| RegisterEntry::Period(Period(it), stamp)),
        bind.prop_map(|(key, (digest, overwrites))| {
            RegisterEntry::Bind(Hold { key, digest: digest.map(Digest), overwrites })
        }),
        any_hold().prop_map(RegisterEntry::Release),
        any_hold().prop_map(|key| RegisterEntry::Tombstone(RegisterKey::Hold(key))),
        any_hold().prop_map(|key| RegisterEntry::Tombstone(RegisterKey::Release(key))),
        any_document().prop_map(RegisterEntry::Document),
        any_document()
            .prop_map(|document| RegisterEntry::Tombstone(RegisterKey::Document(document.key))),
    ]
}

#[test]
fn the_first_bind_of_a_free_key_holds_it() {
    use RegisterVerdict::{Accepted, Ignored as No, Lost};
    let log = [
        bind("k", 1, 7, 0),
        bind("k", 1, 8, 1),
        bind("k", 1, 7, 2),
        bind("l", 1, 8, 3),
        release("k", 1, 8, 4),
        release("k", 1, 7, 5),
        // Written before the release was read.
        bind("k", 1, 7, 6),
        bind("k", 1, 9, 7),
        bind("k", 2, 9, 8),
        // The loser of the first epoch remains one.
        bind("k", 1, 8, 9),
    ];
    let (repeated, stale) = (No(RegisterIgnoredReason::Repeated), No(RegisterIgnoredReason::Stale));
    let expected = [
        Accepted,
        Lost(task(7)),
        repeated,
        Accepted,
        No(RegisterIgnoredReason::NotHeld),
        Accepted,
        stale,
        stale,
        Accepted,
        Lost(task(7)),
    ];
    assert_eq!(verdicts(&log), expected);
}

/// The same id may belong to a task on each topic of a queue.
#[test]
fn a_task_of_another_level_is_another_task() {
    let high = |serial| {
        let task = QueueTask { level: Priority::High, ..task(7) };
        RegisterEntry::Bind(Hold {
            key: HoldKey { task, ..hold("k", 1, 7, serial) },
            digest: None,
            overwrites: false,
        })
    };
    assert_eq!(high(0).key().to_string(), format!("bind/idem/k/1/high:0:7:-1/{:032x}/0", 7));
    let log = [bind("k", 1, 7, 1), high(2), release("k", 1, 7, 3)];
    assert_eq!(
        verdicts(&log),
        [RegisterVerdict::Accepted, RegisterVerdict::Lost(task(7)), RegisterVerdict::Accepted]
    );
    assert!("normal:0:7:-1".parse::<QueueTask>().is_err(), "it has one text");
}

/// Entries without a period belong to the first one.
#[test]
fn the_period_stands_in_the_key_but_the_first_one() {
    let tail = format!("idem/k/1/0:7:-1/{:032x}/0", 7);
    for (number, text) in [(0, format!("bind/{tail}")), (12, format!("bind@12/{tail}"))] {
        let key = in_period(number, bind("k", 1, 7, 0)).key();
        assert_eq!((key.to_string(), text.parse()), (text, Ok(key)));
    }
    for malformed in ["bind@0/", "bind@01/", "bind@/", "bind@x/", "start@1/", "hold/"] {
        let text = format!("{malformed}{tail}");
        assert_eq!(text.parse::<RegisterKey>(), Err(EntryError::Key), "{text}");
    }
}

const fn period(number: u32) -> RegisterEntry {
    RegisterEntry::Period(Period(number), Stamp { writer: OwnerId(8), serial: number as u64 })
}

fn in_period(number: u32, mut entry: RegisterEntry) -> RegisterEntry {
    if let RegisterEntry::Bind(Hold { key, .. }) | RegisterEntry::Release(key) = &mut entry {
        key.period = Period(number);
    }
    entry
}

/// Earlier, keys stayed for ever.
#[test]
fn a_hold_that_nobody_renews_is_over_after_two_periods() {
    use RegisterVerdict::{Accepted, Ignored as No, Lost};
    let log = [
        bind("k", 1, 7, 0),
        bind("l", 1, 8, 1),
        bind("k", 1, 9, 2),
        period(1),
        // In flight when the period began.
        bind("k", 1, 7, 3),
        in_period(1, bind("k", 1, 7, 4)),
        in_period(1, bind("l", 1, 9, 5)),
        period(2),
        period(2),
        in_period(2, bind("l", 1, 6, 6)),
        period(3),
        in_period(3, bind("k", 1, 6, 7)),
        in_period(3, bind("l", 2, 6, 8)),
        in_period(3, bind("l", 2, 7, 9)),
    ];
    let (late, lost) = (No(RegisterIgnoredReason::Late), |to| Lost(task(to)));
    let accepted = [Accepted, Accepted, lost(7), Accepted, late, Accepted, lost(8), Accepted];
    let then = [late, lost(8), Accepted, lost(7), lost(8), Accepted];
    let expected: Vec<_> = accepted.into_iter().chain(then).collect();
    assert_eq!(verdicts(&log), expected);
}

/// A worker that was suspended for three periods read on behind a compaction, which had removed the
/// renewals in between. Earlier, it treated the held key as free from then on, and the next task
/// with the key ran beside the first.
#[test]
fn a_reader_that_misses_renewals_says_the_same_when_it_has_read_the_newest() {
    let x = |period| in_period(period, bind("k", 1, 7, u64::from(period)));
    let y = in_period(1, bind("k", 1, 8, 10));
    let lost = in_period(3, bind("k", 1, 9, 11));
    let before = [bind("k", 1, 7, 0), period(1), y];
    let removed = [x(1), x(2)];
    let behind = [lost, x(3), period(4), in_period(4, bind("k", 1, 6, 12)), x(4)];
    let whole = [&before[..], &[x(1), period(2), x(2), period(3)], &behind];
    let misses = [&before[..], &[period(2), period(3)], &behind];
    let [whole, misses] = [whole, misses].map(|log| {
        let mut register = read(&log.concat());
        for (gone, at) in removed.iter().zip(100..) {
            register.apply(&RegisterEntry::Tombstone(gone.key()), position(at));
        }
        register
    });
    for it in [&whole, &misses] {
        let keys = it.keys();
        let holding = keys.holder(&name("k")).unwrap();
        assert_eq!((holding.task, holding.epoch), (task(7), Epoch(1)));
        assert_eq!(keys.held_by(task(7)), Some(&name("k")));
        for (loser, to) in [(8, Admission::Bind), (9, Admission::Lost(task(7)))] {
            assert_eq!(keys.admission(&name("k"), task(loser)), to, "{loser}");
        }
        let next = keys.bind_of(&name("k"), task(5), None, Stamp::default());
        let expected = in_period(4, bind("k", 1, 5, 0)).key().hold().cloned();
        assert_eq!(
            next.key().hold().map(|it| (it.epoch, it.period)),
            expected.map(|it| (it.epoch, it.period))
        );
    }
}

/// Several keys of a kind may be bound to one task, like slots of a schedule. Earlier, when an
/// older one expired the task counted as holding none, and the newest was not renewed.
#[test]
fn a_task_goes_on_holding_its_newest_key_when_an_older_one_is_over() {
    let (old, new) = (bind("old", 1, 7, 0), bind("new", 1, 7, 1));
    let expires = [old.clone(), period(1), in_period(1, new.clone()), period(2), period(3)];
    let is_released = [old, new, release("old", 1, 7, 2), period(1)];
    for log in [expires.as_slice(), &is_released] {
        let register = read(log);
        let keys = register.keys();
        assert_eq!((keys.holder(&name("old")), keys.held_by(task(7))), (None, Some(&name("new"))));
        assert!(keys.is_to_be_renewed(task(7)));
    }
}

/// Rejected entries are removed before those that they lost to, and entries with an effect stay.
#[test]
fn what_may_be_removed_goes_in_order() {
    let mut register = Register::default();
    let mut at = 0;
    let mut apply = |register: &mut Register, entry: &RegisterEntry| {
        at += 1;
        register.apply(entry, position(at));
    };
    let log = [
        bind("k", 1, 7, 0),
        bind("k", 1, 8, 1),
        bind("l", 1, 9, 2),
        period(1),
        in_period(1, bind("l", 1, 9, 3)),
        period(2),
        period(3),
    ];
    for entry in &log {
        apply(&mut register, entry);
    }
    let next = |register: &Register| -> Vec<RegisterKey> {
        register.keys().expired().next().cloned().collect()
    };
    assert_eq!(next(&register), [log[1].key()]);
    apply(&mut register, &RegisterEntry::Tombstone(log[1].key()));
    assert_eq!(next(&register), [log[0].key(), log[2].key()]);
    for entry in [&log[0], &log[2]] {
        apply(&mut register, &RegisterEntry::Tombstone(entry.key()));
    }
    assert_eq!(next(&register), []);
    assert_eq!(register.keys().holder(&name("k")), None);
    let holding = register.keys().holder(&name("l")).unwrap();
    assert_eq!((holding.task, register.keys().is_empty()), (task(9), false));
    apply(&mut register, &period(4));
    assert_eq!(next(&register), [log[4].key()]);
    apply(&mut register, &RegisterEntry::Tombstone(log[4].key()));
    assert!(register.keys().is_empty());
}

#[test]
fn a_name_has_one_to_256_bytes() {
    for (bytes, fits) in [(0, false), (1, true), (256, true), (257, false)] {
        assert_eq!(KeyName::new(KeyKind::Dedupe, "x".repeat(bytes)).is_ok(), fits, "{bytes}");
    }
}

/// The digest is on the register, so it must be the same in each version. Values of the published
/// test suite of FNV.
#[test]
fn a_digest_never_changes() {
    let basis = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    assert_eq!(Digest::of(b""), Digest(basis));
    assert_eq!(Digest::of(b"a"), Digest(0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964));
}

proptest! {
    #[test]
    fn an_entry_survives_its_message(entry in any_entry()) {
        let null = matches!(entry, RegisterEntry::Tombstone(_));
        let key = entry.key().to_string();
        prop_assert_eq!(entry.body().is_empty(), null);
        prop_assert_eq!(RegisterEntry::read(Some(&key), &entry.properties(), &entry.body(), null), Ok(entry));
    }

    /// Compaction would treat two text forms of a key as two keys.
    #[test]
    fn garbage_is_refused_and_what_is_read_is_written_the_same(
        text in prop_oneof![
            ".*",
            "(bind|release|start|period|doc)/(idem|dedupe|schedule)?[0-9a-f/:+-]{0,80}",
        ],
    ) {
        if let Ok(key) = text.parse::<RegisterKey>() {
            prop_assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn an_empty_body_is_no_entry(entry in any_entry()) {
        let key = entry.key().to_string();
        let properties = entry.properties();
        let empty = bytes::Bytes::new();
        prop_assert!(RegisterEntry::read(Some(&key), &properties, &empty, false).is_err());
        prop_assert!(RegisterEntry::read(None, &properties, &body::encode(b""), false).is_err());
    }

    /// C-13, and C-02: no key repeats, so that compaction removes nothing.
    #[test]
    fn reading_the_register_again_changes_nothing(
        log in vec((0..3_u8, 1..3_u32, 0..4_u64, 0..5_u8), 0..20),
    ) {
        let log: Vec<RegisterEntry> = log
            .into_iter()
            .zip(0..)
            .map(|((key, epoch, entry, kind), serial)| match kind {
                0 => release(&key.to_string(), epoch, entry, serial),
                kind => bind(&key.to_string(), epoch, entry, serial).overwriting(kind == 1),
            })
            .collect();
        let keys: std::collections::BTreeSet<_> = log.iter().map(RegisterEntry::key).collect();
        prop_assert_eq!(keys.len(), log.len());
        let once = read(&log);
        let mut twice = once.clone();
        for (entry, at) in log.iter().zip(1..) {
            prop_assert_eq!(twice.apply(entry, position(at)), None);
        }
        prop_assert_eq!(once, twice);
    }
}
