//! The form of entries as messages, property by property. Workers of other builds and people with a
//! console read it, so it is written out here and not derived.

use super::*;
use crate::protocol::config::{LEDGER_FORMAT, LedgerConfigError};
use crate::protocol::entry_set::{BatchOutcome, EntrySet};
use crate::protocol::fold::{Phase, TaskFold, Verdict};
use crate::protocol::key::{Epoch, SealKey};
use crate::protocol::offer::TaskType;
use crate::protocol::seal::EndedCounts;
use crate::protocol::waits::WaitsFor;
use crate::task::EntryId;
use std::time::Duration;

const TASK: TaskId = TaskId { ledger: 7, entry: 3, partition: 2, batch_index: None };
const KEY: OnceKey = OnceKey { task: TASK, epoch: Epoch(4), owner: OwnerId(0xab), serial: 9 };
const NEXT: NextAttempt = NextAttempt::new(5_000, 250);
const OWNER: &str = "000000000000000000000000000000ab";

fn claim(kind: ClaimKind, base: Option<Base>) -> Entry {
    Entry::Claim(Claim { base, ..Claim::plain(KEY, 6, kind) })
}

fn done(outcome: Outcome) -> Entry {
    Entry::Done(Done { key: KEY, attempt: 6, outcome, writer: None })
}

fn heartbeat(leased: Option<u64>, shown_to: Option<Position>, reading: bool) -> Entry {
    Entry::Heartbeat(Heartbeat {
        owner: OwnerId(0xab),
        subscription: "workers".to_owned(),
        number: 11,
        receipted: 12,
        underway: leased.unwrap_or_default(),
        leased: leased.map(|underway| (15, underway)),
        uptime_ms: 13,
        max_attempts: leased.map(|_| 14),
        shown_to,
        reading,
        comparison: reading.then_some(Comparison::Question),
    })
}

const fn at(batch_index: Option<u32>) -> Option<Position> {
    Some(Position { ledger: 4, entry: 5, batch_index })
}

fn seal() -> Entry {
    let mut entries = EntrySet::default();
    entries.push_entry(EntryId { ledger: 7, entry: 3 }, BatchOutcome::Mixed);
    let counts = EndedCounts { completed: 1, failed: 2, cancelled: 3, expired: 4 };
    Entry::Seal(Seal { key: SealKey { owner: OwnerId(0xab), serial: 9 }, counts, entries })
}

fn config() -> Entry {
    Entry::Config(LedgerConfig {
        version: 2,
        subscription: "workers".to_owned(),
        heartbeat: Duration::from_secs(5),
        ledger_retention: Duration::from_secs(60),
        self_fence: Duration::from_millis(7_500),
        format: LEDGER_FORMAT,
    })
}

fn given(attempts: u32) -> Entry {
    let gives = NonZeroU32::new(attempts);
    Entry::Claim(Claim { gives, ..Claim::plain(KEY, 6, ClaimKind::Run) })
}

fn limited() -> Entry {
    let limits = Limits { max_attempts: Some(5), total_ms: Some(90), expires_at_ms: Some(91) };
    Entry::Claim(Claim { limits, ..Claim::plain(KEY, 6, ClaimKind::Run) })
}

fn of_key(key: &[u8]) -> Entry {
    let order = Some(NameHash::of(key));
    Entry::Claim(Claim { order, ..Claim::plain(KEY, 6, ClaimKind::Run) })
}

/// Each kind of entry with its key and its properties; `@` stands for the task and the epoch of a
/// write-once key with its owner.
fn written() -> Vec<(Entry, String, &'static str)> {
    let once = format!("{TASK}/4/{OWNER}/9");
    let base = Some(Base { created_ms: 77 });
    let mut all: Vec<(Entry, String, &str)> = vec![
        (claim(ClaimKind::Run, base), once.clone(), "k=claim @ a=6 s=RUN f=77"),
        (limited(), once.clone(), "k=claim @ a=6 s=RUN ma=5 tb=90 x=91"),
        (given(7), once.clone(), "k=claim @ a=6 s=RUN m=7"),
        (of_key(b"account-4711"), once.clone(), "k=claim @ a=6 s=RUN line=e52a533452a15c8c"),
        (claim(ClaimKind::Final, None), once.clone(), "k=claim @ a=6 s=FINAL"),
        (claim(ClaimKind::Cancelled, None), once.clone(), "k=claim @ a=6 s=CANCELLED"),
        (claim(ClaimKind::Expired, None), once.clone(), "k=claim @ a=6 s=EXPIRED"),
        (done(Outcome::Completed), once.clone(), "k=done @ a=6 s=COMPLETED"),
        (done(Outcome::Final), once.clone(), "k=done @ a=6 s=FINAL"),
        (done(Outcome::Cancelled), once.clone(), "k=done @ a=6 s=CANCELLED"),
        (done(Outcome::Failed(NEXT)), once.clone(), "k=done @ a=6 s=FAILED na=5000 nd=250"),
        (done(Outcome::Released(NEXT)), once.clone(), "k=done @ a=6 s=RELEASED na=5000 nd=250"),
        (
            done(Outcome::Released(NextAttempt::AFTER_DRAIN)),
            once.clone(),
            "k=done @ a=6 s=RELEASED na=0 nd=0 w=drain",
        ),
        (Entry::Checkpoint(KEY), once, "k=ckpt @"),
    ];
    all.extend([
        (Entry::Cancel(TASK), format!("{TASK}/cancel"), "k=cancel t=TASK"),
        (
            heartbeat(None, None, false),
            format!("hb/{OWNER}"),
            "k=hb o=OWNER sub=workers q=11 c=12 w=0 u=13",
        ),
        (
            heartbeat(Some(1), None, false),
            format!("hb/{OWNER}"),
            "k=hb o=OWNER sub=workers q=11 c=12 w=1 lc=15 lw=1 u=13 m=14",
        ),
        (
            heartbeat(None, at(None), false),
            format!("hb/{OWNER}"),
            "k=hb o=OWNER sub=workers q=11 c=12 w=0 u=13 p=4:5",
        ),
        (
            heartbeat(None, at(Some(6)), false),
            format!("hb/{OWNER}"),
            "k=hb o=OWNER sub=workers q=11 c=12 w=0 u=13 p=4:5:6",
        ),
        (
            heartbeat(None, None, true),
            format!("hb/{OWNER}"),
            "k=hb o=OWNER sub=workers q=11 c=12 w=0 u=13 l=1 d=?",
        ),
        (seal(), format!("seal/{OWNER}/9"), "k=seal o=OWNER n=1,2,3,4"),
        (config(), "cfg/2".to_owned(), "k=cfg sub=workers h=5000 r=60000 g=7500 v=1"),
        (Entry::Tombstone(Key::Once(KEY)), format!("{TASK}/4/{OWNER}/9"), ""),
    ]);
    all
}

fn properties(text: &str) -> Properties {
    let text = text.replace('@', "t=TASK e=4 o=OWNER");
    let text = text.replace("TASK", &TASK.to_string()).replace("OWNER", OWNER);
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn each_entry_has_its_form() {
    for (entry, key, expected) in written() {
        let expected = properties(expected);
        assert_eq!((entry.key().to_string(), entry.properties()), (key.clone(), expected.clone()));
        let null = matches!(entry, Entry::Tombstone(_));
        let body = entry.body(b"");
        assert_eq!(body.is_empty(), null, "{entry:?}");
        assert_eq!(Entry::read(Some(&key), &expected, &body, null), Ok(entry));
    }
}

/// A reader of such an entry without its list would run the task too early, or never.
#[test]
fn a_task_is_parked_only_by_an_entry_that_says_what_it_waits_for() {
    let entry = done(Outcome::Released(NextAttempt::PARKED));
    let properties = properties("k=done @ a=6 s=RELEASED na=0 nd=0 w=park");
    assert_eq!(entry.properties(), properties);
    let key = entry.key().to_string();
    let read = |content: &[u8]| Entry::read(Some(&key), &properties, &entry.body(content), false);
    assert_eq!(read(b"skip 7:1:2,7:2:2"), Ok(entry.clone()));
    for wrong in [&b""[..], b"skip", b"skip 7", b"later 7:1:2"] {
        assert_eq!(read(wrong), Err(EntryError::Body));
    }
    let plain = done(Outcome::Released(NextAttempt::default()));
    let mut fold = TaskFold::default();
    for (entry, parked) in [(&entry, true), (&plain, false)] {
        fold = TaskFold { phase: Phase::Running, epoch: KEY.epoch, owner: KEY.owner, ..fold };
        assert_eq!(fold.apply(entry), Verdict::Accepted);
        assert_eq!(fold.is_parked(), parked);
    }
}

/// To a worker without support for offers, an offer is a claim that parks a task which waits for
/// nothing. Both must derive the same epoch.
#[test]
fn an_offer_is_a_claim_that_parks_to_whoever_does_not_know_it() {
    let offer = Offer { task_type: TaskType::of(Some("resize")), ready_ms: 5_000 };
    let entry = claim(ClaimKind::Offer(offer), None);
    let text = "k=claim @ a=6 s=PARKED y=0987068e0bfeb7ee at=5000";
    assert_eq!(entry.properties(), properties(text), "the same in every build");
    let body = entry.body(WaitsFor::default().content().as_bytes());
    let key = entry.key().to_string();
    let read = |text: &str| Entry::read(Some(&key), &properties(text), &body, false);
    assert_eq!(read(text), Ok(entry.clone()));
    let at_once = Offer { ready_ms: 0, ..offer };
    for missing in ["y=0987068e0bfeb7ee", "y=0987068e0bfeb7ee at=soon"] {
        let text = format!("k=claim @ a=6 s=PARKED {missing}");
        assert_eq!(read(&text), Ok(claim(ClaimKind::Offer(at_once), None)));
    }
    let parks = claim(ClaimKind::Park, None);
    for unknown in ["", "at=5000", "y=0", "y=resize at=5000"] {
        assert_eq!(read(&format!("k=claim @ a=6 s=PARKED {unknown}")), Ok(parks.clone()));
    }
    let without_list = Entry::read(Some(&key), &entry.properties(), &entry.body(b""), false);
    assert_eq!(without_list, Err(EntryError::Body));
    let mut folds = [&entry, &parks].map(|entry| {
        let mut fold = TaskFold { epoch: Epoch(3), attempt: 5, ..TaskFold::default() };
        assert_eq!(fold.apply(entry), Verdict::Accepted);
        fold
    });
    assert_eq!(folds.map(|it| (it.is_offered(), it.is_parked())), [(true, false), (false, true)]);
    for fold in &mut folds {
        fold.next_attempt = NextAttempt::default();
    }
    assert_eq!(folds[0], folds[1]);
    assert_eq!((folds[0].phase, folds[0].attempt), (Phase::Retry, 5));
}

/// Optional properties: they do not always apply, or nothing depends on them.
const OPTIONAL: [&str; 12] = ["lc", "lw", "f", "ma", "tb", "x", "w", "m", "p", "l", "d", "line"];

/// A later version may name its settings otherwise: a worker that took them for none would write its
/// own and work on.
#[test]
fn a_format_that_is_unknown_is_read_without_the_other_settings() {
    let properties = properties("k=cfg v=2 every=5000");
    let entry = Entry::read(Some("cfg/2"), &properties, &config().body(b""), false).unwrap();
    let Entry::Config(theirs) = entry else { panic!("{entry:?}") };
    let refused = Err(LedgerConfigError::Format { theirs: 2 });
    assert_eq!((theirs.version, LedgerConfig::default().agrees_with(&theirs)), (2, refused));
}

/// The number of attempts in a claim decides nothing about the claim: a reader that refused the
/// claim would fold a different history.
#[test]
fn a_number_of_attempts_that_cannot_be_read_is_not_there() {
    for (kind, number, read) in [
        (ClaimKind::Run, "7", NonZeroU32::new(7)),
        (ClaimKind::Run, "0", None),
        (ClaimKind::Run, "4294967296", None),
        (ClaimKind::Run, "many", None),
        (ClaimKind::Final, "7", None),
    ] {
        assert_eq!(read_with(kind, "m", number).gives, read, "{kind:?} m={number}");
    }
}

/// The same holds for the order key in a claim.
#[test]
fn an_order_key_that_cannot_be_read_is_not_there() {
    let order = Some(NameHash::of(b"account-4711"));
    for (kind, line, read) in [
        (ClaimKind::Run, "e52a533452a15c8c", order),
        (ClaimKind::Run, "0000000000000000", None),
        (ClaimKind::Run, "1e52a533452a15c8c", None),
        (ClaimKind::Run, "account-4711", None),
        (ClaimKind::Run, "", None),
        (ClaimKind::Final, "e52a533452a15c8c", None),
    ] {
        assert_eq!(read_with(kind, "line", line).order, read, "{kind:?} line={line}");
    }
}

/// A claim of this kind with this additional property.
fn read_with(kind: ClaimKind, name: &str, value: &str) -> Claim {
    let plain = claim(kind, None);
    let mut properties = plain.properties();
    properties.insert(name.to_owned(), value.to_owned());
    let key = plain.key().to_string();
    let entry = Entry::read(Some(&key), &properties, &plain.body(b""), false).unwrap();
    let Entry::Claim(claim) = entry else { panic!("not a claim: {entry:?}") };
    claim
}

#[test]
fn an_entry_without_one_of_its_properties_is_none() {
    for (entry, key, _) in written() {
        let whole = entry.properties();
        let null = matches!(entry, Entry::Tombstone(_));
        for (name, _) in whole.iter() {
            let released = whole.get("s") == Some("RELEASED");
            let cancel = matches!(entry, Entry::Cancel(_)) && name == "t";
            let beats = matches!(entry, Entry::Heartbeat(_));
            // The key of a heartbeat names its owner.
            let owner = beats && name == "o";
            let sent = beats && name == "w";
            let next = released && matches!(name, "na" | "nd");
            let is_optional = (OPTIONAL.contains(&name) && !sent) || cancel || owner || next;
            let rest = whole.iter().filter(|(other, _)| *other != name).collect();
            let read = Entry::read(Some(&key), &rest, &entry.body(b""), null);
            assert_eq!(read.is_ok(), is_optional, "{entry:?} without {name}");
        }
    }
}

/// Key and properties contain the same data. If they differed, a reader of the key and a reader of
/// the properties would act on different tasks.
#[test]
fn an_entry_that_contradicts_its_key_is_refused_by_the_name_of_the_property() {
    let other_owner = "000000000000000000000000000000ac";
    let other_task = TaskId { entry: 4, ..TASK }.to_string();
    let once = [("t", other_task.as_str()), ("e", "5"), ("o", other_owner)];
    for (entry, key, _) in written() {
        let wrong: &[(&'static str, &str)] = match entry {
            Entry::Claim(_) | Entry::Done(_) | Entry::Checkpoint(_) | Entry::Renewal(_) => &once,
            Entry::Seal(_) => &[("o", other_owner), ("n", "1,2,3"), ("n", "1,2,3,4,5")],
            Entry::Cancel(_) | Entry::Heartbeat(_) | Entry::Config(_) | Entry::Tombstone(_) => &[],
        };
        for (name, value) in wrong.iter().chain([&("k", "other")]) {
            let mut properties = entry.properties();
            properties.insert((*name).to_owned(), (*value).to_owned());
            let null = matches!(entry, Entry::Tombstone(_));
            let read = Entry::read(Some(&key), &properties, &entry.body(b""), null);
            let expected = match (&entry, *name) {
                (Entry::Tombstone(_), _) => Ok(entry.clone()),
                // The body of a seal is not that of another kind.
                (Entry::Seal(_), "k") => Err(EntryError::Body),
                _ => Err(EntryError::Property(name)),
            };
            assert_eq!(read, expected, "{name}={value}");
        }
    }
}

/// Regression: a claim of a task of a batch was accepted without the number of tasks in the batch,
/// and the worker that closed that task acknowledged the others, unfinished. If some tasks of a
/// batch were acknowledged one by one before, the number is that of the rest.
#[test]
fn a_claim_of_a_task_of_a_batch_says_how_many_there_are() {
    for (batch_index, batch_size, is_right) in [
        (None, None, true),
        (None, Some(2), false),
        (Some(1), None, false),
        (Some(1), Some(0), false),
        (Some(3), Some(1), true),
        (Some(1), Some(2), true),
    ] {
        let key = OnceKey { task: TaskId { batch_index, ..TASK }, ..KEY };
        let claim = Claim { batch_size, ..Claim::plain(key, 1, ClaimKind::Run) };
        let entry = Entry::Claim(claim);
        let key = entry.key().to_string();
        let read = Entry::read(Some(&key), &entry.properties(), &entry.body(b""), false);
        let expected = if is_right { Ok(entry) } else { Err(EntryError::Property("b")) };
        assert_eq!(read, expected);
    }
}

/// A compaction removes an entry with an empty body. A worker that acted on it would know something
/// that others can never read.
#[test]
fn an_entry_without_a_body_is_refused() {
    for (entry, key, _) in written() {
        let null = matches!(entry, Entry::Tombstone(_));
        for body in [Bytes::new(), Bytes::from_static(b"\x07x")] {
            let read = Entry::read(Some(&key), &entry.properties(), &body, null);
            assert_eq!(
                read.clone().err(),
                (!null).then_some(EntryError::Body),
                "{entry:?}: {read:?}"
            );
        }
    }
}

#[test]
fn completed_final_and_cancelled_end_a_task() {
    let ends = [Outcome::Completed, Outcome::Final, Outcome::Cancelled];
    let goes_on = [Outcome::Failed(NEXT), Outcome::Released(NEXT)];
    assert!(ends.iter().all(Outcome::is_terminal) && !goes_on.iter().any(Outcome::is_terminal));
}

#[test]
fn claims_and_outcomes_are_counted_and_nothing_else_is() {
    for (entry, _, _) in written() {
        let counted = matches!(entry, Entry::Claim(_) | Entry::Done(_)).then_some(KEY);
        assert_eq!(entry.counted(), counted, "{entry:?}");
    }
}
