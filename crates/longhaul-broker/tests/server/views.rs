//! A compacted view whose file is lost or damaged is rebuilt if nothing of it is missing. Otherwise
//! a start refuses, and a salvage reports the loss.

use crate::client::{Client, ask};
use bytes::BytesMut;
use longhaul_broker::rescue::{RescueError, check, salvage};
use longhaul_broker::{Broker, BrokerConfig, StartError};
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandPing, CommandSend, CommandSubscribe, MessageMetadata,
};
use longhaul_wire::payload::Payload;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MESSAGES: u64 = 20;

fn start(data: &Path) -> Result<Broker, StartError> {
    Broker::start(BrokerConfig {
        data: Some(data.to_owned()),
        admin: Some(([127, 0, 0, 1], 0).into()),
        ..BrokerConfig::default()
    })
}

/// Repeats a request until the answer has these words.
fn until(broker: &Broker, path: &str, words: &str) {
    let answers = std::iter::repeat_with(|| ask(broker, "GET", path));
    assert!(
        answers.take(100_000).any(|answer| answer.contains(words)),
        "{path} never says {words}"
    );
}

/// The messages of the compacted view.
async fn view(broker: &Broker, count: usize) -> Vec<u64> {
    let mut client = Client::connect(broker.address()).await.unwrap();
    let request_id = client.request_id();
    let reader = CommandSubscribe {
        topic: "t".to_owned(),
        subscription: "reader".to_owned(),
        consumer_id: 1,
        request_id,
        durable: Some(false),
        read_compacted: Some(true),
        initial_position: Some(1),
        ..CommandSubscribe::default()
    };
    client.send(reader).await.unwrap();
    assert!(matches!(client.answer().await.unwrap().command, Command::Success(_)));
    client.flow(1, 1000).await.unwrap();
    let found = client.messages(count).await.unwrap();
    client.send(CommandPing {}).await.unwrap();
    let next = client.answer().await.unwrap().command;
    assert!(matches!(next, Command::Pong(_)), "it has more: {next:?}");
    found.iter().map(|id| id.entry_id).collect()
}

/// Publishes a message with a key of its own.
async fn publish(client: &mut Client, sequence_id: u64) {
    let metadata = MessageMetadata {
        producer_name: "tiny".to_owned(),
        sequence_id,
        publish_time: 1,
        partition_key: Some(format!("key {sequence_id}")),
        ..MessageMetadata::default()
    };
    let send = CommandSend { producer_id: 1, sequence_id, ..CommandSend::default() };
    let mut out = BytesMut::new();
    frame::encode_with(send, &Payload::new(&metadata, &[b'x'; 100]), &mut out);
    client.write(&out).await.unwrap();
    assert!(matches!(client.answer().await.unwrap().command, Command::SendReceipt(_)));
}

/// A topic with a compacted view. The log still has its messages unless they were acknowledged.
async fn compacted(data: &Path, is_trimmed: bool) {
    let broker = start(data).unwrap();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    for number in 0..MESSAGES {
        publish(&mut client, number).await;
    }
    let dropped = client.publish_one(1, MESSAGES, b"without a key, so that compaction drops it");
    dropped.await.unwrap();
    let topic = "/admin/v2/persistent/public/default/t";
    assert!(ask(&broker, "PUT", &format!("{topic}/compaction")).starts_with("HTTP/1.1 204"));
    until(&broker, &format!("{topic}/compaction"), "SUCCESS");
    if is_trimmed {
        ask(&broker, "PUT", &format!("{topic}/subscription/s"));
        ask(&broker, "POST", &format!("{topic}/subscription/s/skip_all"));
        drop(client);
        broker.shutdown().unwrap();
        // A topic without publishers is trimmed completely.
        let broker = start(data).unwrap();
        until(&broker, &format!("{topic}/stats"), "\"storageSize\":0,");
        broker.shutdown().unwrap();
    } else {
        broker.shutdown().unwrap();
    }
}

fn file(data: &Path) -> PathBuf {
    fs::read_dir(data.join("compact")).unwrap().next().unwrap().unwrap().path()
}

fn flip(path: &Path, from_end: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - from_end;
    bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1);
    fs::write(path, bytes).unwrap();
}

/// A view of another version was said to be damaged.
#[tokio::test]
async fn a_view_of_an_unknown_format_is_refused_by_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    compacted(&data, false).await;
    let path = file(&data);
    let mut header = fs::read(&path).unwrap();
    header.truncate(16);
    header[8..12].copy_from_slice(&9_u32.to_be_bytes());
    let sum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&sum.to_be_bytes());
    fs::File::options().write(true).open(&path).unwrap().write_all_at(&header, 0).unwrap();
    for refused in [check(&data), salvage(&data, &new)] {
        let Err(RescueError::Read { source, .. }) = refused else { panic!("{refused:?}") };
        assert!(source.to_string().contains("has format version 9"), "{source}");
    }
}

/// The advice was to remove the file, and without it the broker refused to start.
#[tokio::test]
async fn a_view_that_is_lost_is_made_again_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    compacted(folder.path(), false).await;
    fs::remove_file(file(folder.path())).unwrap_or_else(|error| panic!("{error}"));
    let found = check(folder.path()).unwrap();
    assert!(!found.is_sound() && found.to_string().contains("can be rebuilt"), "{found}");
    let broker = start(folder.path()).unwrap();
    assert_eq!(view(&broker, 20).await, (0..MESSAGES).collect::<Vec<u64>>());
    broker.shutdown().unwrap();
    let found = check(folder.path()).unwrap();
    assert!(found.is_sound(), "{found}");
}

/// The index is at the end of the file, and each entry has its own ids.
#[tokio::test]
async fn an_index_that_is_damaged_is_made_again_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    compacted(folder.path(), true).await;
    flip(&file(folder.path()), 100);
    let found = check(folder.path()).unwrap();
    assert!(!found.is_sound() && found.to_string().contains("can be rebuilt"), "{found}");
    let broker = start(folder.path()).unwrap();
    assert_eq!(view(&broker, 20).await, (0..MESSAGES).collect::<Vec<u64>>());
    broker.shutdown().unwrap();
}

#[tokio::test]
async fn a_view_of_which_something_is_missing_is_refused_and_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    compacted(&data, true).await;
    // Damages an entry and the index.
    let path = file(&data);
    let size = fs::metadata(&path).unwrap().len();
    flip(&path, usize::try_from(size).unwrap() - 70);
    flip(&path, 100);
    let refused = start(&data).unwrap_err();
    assert!(refused.to_string().contains("longhaul broker salvage"), "{refused}");
    let report = salvage(&data, &new).unwrap();
    assert!(
        report.to_string().contains("compacted view of persistent://public/default/t has 19"),
        "{report}"
    );
    let broker = start(&new).unwrap();
    assert_eq!(view(&broker, 19).await, (1..MESSAGES).collect::<Vec<u64>>());
    broker.shutdown().unwrap();
}

/// Changes a byte of the message with this key. The running broker does not notice it.
fn rot(data: &Path, key: &str) {
    let path = data.join("log/0000000001.seg");
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
    let log = fs::File::options().write(true).open(path).unwrap();
    log.write_all_at(b"K", at as u64).unwrap();
}

/// The error named the file and the offset, but neither the topic nor the message, which an
/// operator can look for.
#[tokio::test]
async fn a_compaction_that_cannot_read_a_message_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path()).unwrap();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    for number in 0..MESSAGES {
        publish(&mut client, number).await;
    }
    rot(folder.path(), "key 7");
    let compaction = "/admin/v2/persistent/public/default/t/compaction";
    assert!(ask(&broker, "PUT", compaction).starts_with("HTTP/1.1 204"));
    until(&broker, compaction, "ERROR");
    let answer = ask(&broker, "GET", compaction);
    assert!(answer.contains(":7 cannot be read"), "{answer}");
    broker.shutdown().unwrap();
}

/// A topic is not compacted while one of its messages is unreadable; a salvage resolves that.
#[tokio::test]
async fn a_topic_with_a_damaged_message_is_compacted_again_after_a_salvage() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    compacted(&data, false).await;
    let broker = start(&data).unwrap();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    for number in [3, 27, 28, 5] {
        publish(&mut client, number).await;
    }
    rot(&data, "key 27");
    let compaction = "/admin/v2/persistent/public/default/t/compaction";
    assert!(ask(&broker, "PUT", compaction).starts_with("HTTP/1.1 204"));
    until(&broker, compaction, "ERROR");
    let answer = ask(&broker, "GET", compaction);
    let (_, named) = answer.split_once("message ").unwrap();
    let id = named.split(' ').next().unwrap();
    drop(client);
    broker.shutdown().unwrap();
    let report = salvage(&data, &new).unwrap();
    let lost = format!("persistent://public/default/t: 1: {id}\n");
    assert!(report.to_string().contains(&lost), "{lost} {report}");
    let broker = start(&new).unwrap();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    publish(&mut client, 8).await;
    assert!(ask(&broker, "PUT", compaction).starts_with("HTTP/1.1 204"));
    until(&broker, compaction, "SUCCESS");
    // By their ids: messages of the first run with repeated keys are replaced, and of the later
    // ones only the damaged one is missing.
    let first = (0..MESSAGES).filter(|number| ![3, 5, 8].contains(number));
    let expected: Vec<u64> = first.chain([0, 2, 3, 0]).collect();
    assert_eq!(view(&broker, expected.len()).await, expected);
    broker.shutdown().unwrap();
}
