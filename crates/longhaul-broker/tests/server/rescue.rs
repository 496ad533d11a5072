//! Damage of a data directory is reported, and everything readable is salvaged into a new one.

use crate::client::Client;
use crate::directory::{change, copy, digest, segment};
use longhaul_broker::rescue::{RescueReport, check, salvage};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::messages::{Command, MessageIdData};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of messages of 60 KB, in two segments.
const LARGE: u64 = 120;
/// Number of small messages after them, most of which came after the checkpoint.
const SMALL: u64 = 60;
/// All messages except the first one, which is acknowledged and trimmed.
const KEPT: u64 = LARGE + SMALL - 1;
const TOPIC: &str = "persistent://public/default/a";

type Id = (u64, u64);

/// A data directory, and its confirmed messages.
struct Sample {
    folder: tempfile::TempDir,
    data: PathBuf,
    ids: Vec<Id>,
    /// Messages that subscription `s` has acknowledged.
    acked: BTreeSet<Id>,
}

fn start(data: &Path) -> Result<Broker, longhaul_broker::StartError> {
    Broker::start(BrokerConfig { data: Some(data.to_owned()), ..BrokerConfig::default() })
}

fn body(number: u64) -> Vec<u8> {
    let mut body = format!("entry {number:06} ").into_bytes();
    body.resize(if number < LARGE { 60_000 } else { 100 }, b'.');
    body
}

async fn publish(broker: &Broker, numbers: std::ops::Range<u64>, ids: &mut Vec<Id>) {
    let mut client = Client::producer(broker.address(), TOPIC).await.unwrap();
    for number in numbers {
        let id = client.publish_one(1, number, &body(number)).await.unwrap();
        ids.push((id.ledger_id, id.entry_id));
    }
}

/// The deliveries of `s`: everything that it has not acknowledged.
async fn consume(broker: &Broker, count: usize) -> (Client, Vec<Id>) {
    let mut client = Client::consumer(broker.address(), TOPIC, "s", 10_000).await.unwrap();
    let found = client.messages(count).await.unwrap();
    (client, found.iter().map(|id| (id.ledger_id, id.entry_id)).collect())
}

/// Two runs of a broker, of which the second has written no checkpoint.
async fn sample() -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let (first, data) = (folder.path().join("first"), folder.path().join("data"));
    let (mut ids, mut acked) = (Vec::new(), BTreeSet::new());
    let broker = start(&first).unwrap();
    let (mut client, _) = consume(&broker, 0).await;
    publish(&broker, 0..LARGE + 10, &mut ids).await;
    for &(ledger_id, entry_id) in ids.iter().step_by(5) {
        let id = MessageIdData { ledger_id, entry_id, ..MessageIdData::default() };
        client.ack(1, id, entry_id + 100).await.unwrap();
        loop {
            match client.answer().await.unwrap().command {
                Command::AckResponse(_) => break,
                Command::Message(_) => {}
                other => panic!("{other:?}"),
            }
        }
        acked.insert((ledger_id, entry_id));
    }
    drop(client);
    broker.shutdown().unwrap();
    let broker = start(&first).unwrap();
    publish(&broker, LARGE + 10..LARGE + SMALL, &mut ids).await;
    // The broker writes indices of full segments in the background: on a busy machine, the copy was
    // made before the first index existed.
    let index = first.join("log/0000000001.idx");
    let written = async {
        while !index.try_exists().unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("an index");
    // Nothing is being written: a kill leaves the same files.
    copy(&first, &data);
    fs::remove_file(data.join("LOCK")).unwrap();
    broker.shutdown().unwrap();
    Sample { folder, data, ids, acked }
}

impl Sample {
    /// A copy with this damage.
    fn damaged(&self, name: &str, damage: impl FnOnce(&Path)) -> PathBuf {
        let to = self.folder.path().join(name);
        copy(&self.data, &to);
        damage(&to);
        to
    }

    /// The messages that subscription `s` should get, without these.
    fn open(&self, without: &[Id]) -> Vec<Id> {
        let is_open = |id: &&Id| !self.acked.contains(id) && !without.contains(id);
        self.ids.iter().filter(is_open).copied().collect()
    }

    /// Salvages a directory, starts a broker on the result, and returns the report. Checks that the
    /// subscription gets everything that is not lost.
    async fn mend(&self, damaged: &Path, lost: &[Id]) -> RescueReport {
        let new = damaged.with_extension("new");
        let before = digest(damaged);
        let report = salvage(damaged, &new).unwrap();
        assert_eq!(digest(damaged), before, "it has changed");
        assert!(check(&new).unwrap().is_sound(), "{}", check(&new).unwrap());
        let broker = start(&new).unwrap();
        let expected = self.open(lost);
        let (_, found) = consume(&broker, expected.len()).await;
        assert_eq!(found, expected, "{report}");
        // The next message has an unused id.
        let mut next = Vec::new();
        publish(&broker, 0..1, &mut next).await;
        assert!(!self.ids.contains(&next[0]));
        broker.shutdown().unwrap();
        report
    }
}

/// The segment that has a message, and the offset of its body.
fn find(data: &Path, number: u64) -> (PathBuf, usize) {
    let text = format!("entry {number:06} ");
    for segment_number in 1..10 {
        let path = segment(data, segment_number);
        let bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text.as_bytes()) {
            return (path, at);
        }
    }
    panic!("{number} is nowhere");
}

/// The ids that a report names as lost.
fn lost(report: &RescueReport) -> BTreeSet<Id> {
    let text = report.to_string();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{TOPIC}: ")));
    let Some((_, ranges)) = line.and_then(|line| line.split_once(": ")) else {
        return BTreeSet::new();
    };
    let mut ids = BTreeSet::new();
    for range in ranges.split(", ") {
        let (ledger, entries) = range.split_once(':').unwrap();
        let (from, to) = entries.split_once('-').unwrap_or((entries, entries));
        let ledger = ledger.parse().unwrap();
        ids.extend((from.parse().unwrap()..=to.parse().unwrap()).map(|entry| (ledger, entry)));
    }
    ids
}

/// Waits until the log was idle after this offset of its first segment.
async fn rested(data: &Path, offset: usize) {
    let noted = |bytes: &[u8]| {
        let slots = bytes.chunks(4096).map(|slot| slot[16..20].try_into().unwrap());
        slots.map(u32::from_be_bytes).max().unwrap() as usize
    };
    let rests = async {
        // Polls the file: only the broker knows when it is written.
        while !fs::read(data.join("confirmed")).is_ok_and(|bytes| noted(&bytes) > offset) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), rests).await.unwrap();
}

/// The last messages had been confirmed; later the disk had zeros in their place. The next start
/// continued without them, with one INFO line.
#[tokio::test]
async fn a_confirmed_end_that_is_gone_is_named_and_what_is_left_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let (first, data) = (folder.path().join("first"), folder.path().join("data"));
    let broker = start(&first).unwrap();
    consume(&broker, 0).await;
    let mut ids = Vec::new();
    publish(&broker, LARGE..LARGE + 10, &mut ids).await;
    let end = find(&first, LARGE + 9).1 + 100;
    rested(&first, end - 1).await;
    // A kill leaves the same files.
    copy(&first, &data);
    fs::remove_file(data.join("LOCK")).unwrap();
    broker.shutdown().unwrap();
    let (path, from) = find(&data, LARGE + 8);
    change(&path, |bytes| bytes[from..].fill(0));
    let refused = start(&data).err().unwrap();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("confirmed") && cause.contains("salvage"), "{cause}");
    let report = check(&data).unwrap();
    assert!(!report.is_sound(), "{report}");
    let new = folder.path().join("new");
    salvage(&data, &new).unwrap();
    let broker = start(&new).unwrap();
    assert_eq!(consume(&broker, 8).await.1, ids[..8]);
    let mut next = Vec::new();
    publish(&broker, 0..1, &mut next).await;
    assert!(next[0].0 > ids[9].0, "{next:?} after {ids:?}");
    broker.shutdown().unwrap();
}

#[tokio::test]
async fn a_sound_directory_is_sound() {
    let sample = sample().await;
    let report = check(&sample.data).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.messages(), KEPT);
    sample.mend(&sample.data, &[]).await;
}

/// One damaged byte made every start fail, and the only advice was to restore a copy.
#[tokio::test]
async fn a_rotten_message_costs_itself() {
    let sample = sample().await;
    for number in [7, LARGE + 3, LARGE + 30] {
        let damaged = sample.damaged(&format!("rot-{number}"), |data| {
            let (path, at) = find(data, number);
            change(&path, |bytes| bytes[at] ^= 1);
            // With an index, the segment would not be read.
            fs::remove_file(path.with_extension("idx")).ok();
        });
        let refused = start(&damaged).unwrap_err();
        let told = format!("{:#}", anyhow::Error::from(refused));
        for command in ["longhaul broker check", "longhaul broker salvage"] {
            assert!(told.contains(command), "{told}");
        }
        let id = sample.ids[usize::try_from(number).unwrap()];
        let found = check(&damaged).unwrap();
        assert!(!found.is_sound());
        assert_eq!(lost(&found), BTreeSet::from([id]), "{found}");
        let named = format!("message {}:{} of {TOPIC}", id.0, id.1);
        assert!(found.to_string().contains(&named), "{found}");
        let report = sample.mend(&damaged, &[id]).await;
        assert_eq!(lost(&report), BTreeSet::from([id]));
    }
}

/// A start needs the index of a segment and not its content: only the consumer of the message
/// notices the damage.
#[tokio::test]
async fn a_rotten_message_of_an_old_segment_is_no_reason_to_refuse_a_start() {
    let sample = sample().await;
    let damaged = sample.damaged("old", |data| {
        let (path, at) = find(data, 7);
        change(&path, |bytes| bytes[at] ^= 1);
        assert!(path.with_extension("idx").try_exists().unwrap(), "{path:?}");
    });
    let broker = start(&damaged).unwrap();
    let expected = sample.open(&[sample.ids[7]]);
    let (_, found) = consume(&broker, expected.len()).await;
    assert_eq!(found, expected);
    broker.shutdown().unwrap();
}

#[tokio::test]
async fn a_hole_costs_what_was_in_it() {
    let sample = sample().await;
    let damaged = sample.damaged("hole", |data| {
        let ((path, from), (_, to)) = (find(data, 20), find(data, 23));
        change(&path, |bytes| bytes[from..to - 200].fill(0));
    });
    let gone: Vec<Id> = sample.ids[20..23].to_vec();
    let report = sample.mend(&damaged, &gone).await;
    let needed = gone.into_iter().filter(|id| !sample.acked.contains(id)).collect();
    assert_eq!(lost(&report), needed, "{report}");
}

#[tokio::test]
async fn a_lost_header_costs_nothing_and_a_lost_segment_its_messages() {
    let sample = sample().await;
    let damaged = sample.damaged("header", |data| change(&segment(data, 1), |bytes| bytes[9] ^= 1));
    assert!(start(&damaged).is_err());
    let report = sample.mend(&damaged, &[]).await;
    assert!(lost(&report).is_empty() && report.to_string().contains("header"), "{report}");
    let damaged = sample.damaged("gone", |data| fs::remove_file(segment(data, 1)).unwrap());
    assert!(start(&damaged).is_err());
    let inside = |number: &u64| find(&sample.data, *number).0 == segment(&sample.data, 1);
    let gone = (0..LARGE).take_while(inside).count();
    assert!(gone > 10);
    let gone = sample.ids[..gone].to_vec();
    let report = sample.mend(&damaged, &gone).await;
    let needed = gone.into_iter().filter(|id| !sample.acked.contains(id)).collect();
    assert_eq!(lost(&report), needed, "{report}");
}

/// Without its checkpoint, the log is replayed from its beginning, if that exists.
#[tokio::test]
async fn a_damaged_checkpoint_costs_only_what_is_nowhere_else() {
    let sample = sample().await;
    let damaged =
        sample.damaged("head", |data| change(&data.join("checkpoint"), |bytes| bytes[20] ^= 1));
    assert!(start(&damaged).is_err());
    let report = sample.mend(&damaged, &[]).await;
    assert!(report.to_string().contains("checkpoint"), "{report}");
    // The only image is damaged: the topic's name and its subscriptions are lost.
    let damaged =
        sample.damaged("image", |data| change(&data.join("checkpoint"), |bytes| bytes[50] ^= 1));
    assert!(start(&damaged).is_err());
    let new = damaged.with_extension("new");
    let report = salvage(&damaged, &new).unwrap();
    assert!(report.to_string().contains("salvaged-0"), "{report}");
    let found = check(&new).unwrap();
    assert!(found.is_sound(), "{found}");
    assert_eq!(found.messages(), LARGE + SMALL, "the trimmed one is back");
    start(&new).unwrap().shutdown().unwrap();
}

/// Damages the record that began the second ledger, and the bytes around it: without it, the
/// positions of its messages are unknown.
#[tokio::test]
async fn a_lost_change_costs_no_message() {
    let sample = sample().await;
    let first = sample.ids.iter().position(|(ledger, _)| *ledger > 0).unwrap();
    let (path, at) = find(&sample.data, first as u64);
    let file = path.strip_prefix(&sample.data).unwrap().to_owned();
    let mut without_state = 0;
    // The bytes of the entry's own ordinal are left out: the ordinal of a damaged record is trusted
    // up to a million above the others.
    for back in (2..262).step_by(13) {
        let damaged = sample.damaged(&format!("change-{back}"), |data| {
            change(&data.join(&file), |bytes| bytes[at - back] ^= 1);
        });
        let found = check(&damaged).unwrap();
        assert!(!found.is_sound(), "{back}: {found}");
        without_state += usize::from(found.to_string().contains("Changes of state may be lost"));
        let gone = lost(&found);
        assert!(gone.len() <= 1, "{back}: {found}");
        sample.mend(&damaged, &gone.into_iter().collect::<Vec<Id>>()).await;
    }
    assert!(without_state > 1, "none of these bytes was of a change");
}

/// Acknowledgements of lost messages must not apply to later ones.
#[tokio::test]
async fn what_comes_next_is_not_acknowledged_for_what_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (first, data, new) =
        (folder.path().join("first"), folder.path().join("data"), folder.path().join("new"));
    let broker = start(&first).unwrap();
    let (mut client, _) = consume(&broker, 0).await;
    let mut ids = Vec::new();
    publish(&broker, 0..10, &mut ids).await;
    for &(ledger_id, entry_id) in &ids[7..] {
        let id = MessageIdData { ledger_id, entry_id, ..MessageIdData::default() };
        client.ack(1, id, entry_id + 100).await.unwrap();
        while !matches!(client.answer().await.unwrap().command, Command::AckResponse(_)) {}
    }
    copy(&first, &data);
    fs::remove_file(data.join("LOCK")).unwrap();
    drop(client);
    broker.shutdown().unwrap();
    let ((path, from), (_, to)) = (find(&data, 7), find(&data, 9));
    change(&path, |bytes| bytes[from..to + 59_000].fill(0));
    salvage(&data, &new).unwrap();
    let broker = start(&new).unwrap();
    let mut next = Vec::new();
    publish(&broker, 10..13, &mut next).await;
    let (_, found) = consume(&broker, 10).await;
    assert_eq!(found, [&ids[..7], &next[..]].concat());
    broker.shutdown().unwrap();
}

#[tokio::test]
async fn a_damaged_inventory_is_named() {
    let sample = sample().await;
    let damaged =
        sample.damaged("inventory", |data| change(&data.join("segments"), |bytes| bytes[14] ^= 1));
    let report = check(&damaged).unwrap();
    assert!(!report.is_sound() && report.to_string().contains("segments"), "{report}");
    assert!(lost(&report).is_empty());
}

/// Without its inventory, a log that lacked an old segment started without a message, and a check
/// called it intact.
#[tokio::test]
async fn a_missing_inventory_is_mentioned() {
    let sample = sample().await;
    let damaged = sample.damaged("no-inventory", |data| {
        fs::remove_file(data.join("segments")).unwrap();
    });
    let report = check(&damaged).unwrap();
    assert!(report.is_sound() && report.to_string().contains("no inventory"), "{report}");
    assert!(!check(&sample.data).unwrap().to_string().contains("no inventory"));
}

/// Any byte may change: if a start is refused, the damage is reported, and the rest and the loss
/// together are everything.
#[tokio::test]
async fn any_byte_may_rot() {
    let sample = sample().await;
    let files: Vec<PathBuf> = digest(&sample.data).into_iter().map(|(path, _)| path).collect();
    let names = ["checkpoint", "0000000001.seg", "0000000002.seg"];
    let mut random = fastrand::Rng::with_seed(15);
    for round in 0..30 {
        let name = names[round % names.len()];
        let file = files.iter().find(|path| path.ends_with(name)).unwrap();
        let used = fs::read(file).unwrap();
        let used = used.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        // Every second one near the end, where the small messages are.
        let at = if round % 2 == 0 {
            random.usize(..used)
        } else {
            random.usize(used.saturating_sub(8000)..used)
        };
        let damaged = sample.damaged("any", |data| {
            change(&data.join(file.strip_prefix(&sample.data).unwrap()), |bytes| bytes[at] ^= 0x10);
        });
        let what = format!("{name} at {at}");
        let found = check(&damaged).unwrap();
        let refused = start(&damaged).map(|broker| broker.shutdown().unwrap());
        assert!(refused.is_ok() || !found.is_sound(), "{what}: {found}");
        let new = damaged.with_extension("new");
        if found.is_sound() {
            fs::remove_dir_all(&damaged).unwrap();
            continue;
        }
        let report = salvage(&damaged, &new).unwrap();
        let left = check(&new).unwrap();
        assert!(left.is_sound(), "{what}: {left}");
        // One message in five is acknowledged, and its loss is not reported.
        let missing = KEPT.saturating_sub(left.messages());
        let lost = lost(&report).len() as u64;
        assert!(lost <= missing && missing <= lost + 1, "{what}: {missing} of {report}");
        assert!(name == "checkpoint" || missing <= 1, "{what}: {report}");
        fs::remove_dir_all(&damaged).unwrap();
        fs::remove_dir_all(&new).unwrap();
    }
}
