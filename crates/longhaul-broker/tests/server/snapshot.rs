//! A copy of the data directory of a running broker has everything that was confirmed before it,
//! and does not change.

use crate::client::Client;
use longhaul_broker::rescue::{RescueError, check, salvage, snapshot};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::messages::MessageIdData;
use ring::digest::{SHA256, digest};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

const SNAPSHOTS: usize = 5;

fn start(data: &Path) -> Broker {
    Broker::start(BrokerConfig {
        data: Some(data.to_owned()),
        // Checkpoints are written meanwhile.
        checkpoint_bytes: 3_000_000,
        ..BrokerConfig::default()
    })
    .unwrap()
}

/// Changes a bit of a file.
fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Compares the list with the files, which only their owner may access.
fn verify_list(copy: &Path) -> usize {
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(copy), mode(&copy.join("SHA256SUMS"))), (0o700, 0o600));
    let list = fs::read_to_string(copy.join("SHA256SUMS")).unwrap();
    for line in list.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let bytes = fs::read(copy.join(name)).unwrap();
        let found: String =
            digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name}");
        assert_eq!(mode(&copy.join(name)), 0o600, "{name}");
    }
    list.lines().count()
}

/// The messages of a new subscription, until there are this many.
async fn consume(broker: &Broker, count: usize) -> Vec<MessageIdData> {
    let mut client = Client::consumer(broker.address(), "t", "new", 1_000_000).await.unwrap();
    client.messages(count).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_before_is_in_it_while_the_broker_works() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let broker = start(&data);
    let confirmed = Arc::new(AtomicU64::new(0));
    let (address, counted) = (broker.address(), Arc::clone(&confirmed));
    let mut publishing = JoinSet::new();
    publishing.spawn(async move {
        let mut client = Client::producer(address, "t").await.unwrap();
        for number in 0_u64.. {
            let body = vec![b'x'; if number % 3 == 0 { 60_000 } else { 100 }];
            client.publish_one(1, number, &body).await.unwrap();
            counted.store(number + 1, Ordering::SeqCst);
        }
    });
    let mut linked = 0;
    for number in 0..SNAPSHOTS {
        while confirmed.load(Ordering::SeqCst) < 400 * (number as u64 + 1) {
            tokio::task::yield_now().await;
        }
        let before = confirmed.load(Ordering::SeqCst);
        let copy = folder.path().join(format!("copy-{number}"));
        let (from, to) = (data.clone(), copy.clone());
        let read = move || [check(&from).unwrap(), snapshot(&from, &to).unwrap()];
        let read = tokio::task::spawn_blocking(read).await.unwrap();
        let after = confirmed.load(Ordering::SeqCst) + 1;
        for report in read {
            assert!((before..=after).contains(&report.messages()), "{before} to {after}: {report}");
        }
        assert!(verify_list(&copy) >= 2);
        let files = fs::read_dir(copy.join("log")).unwrap();
        linked +=
            files.filter(|entry| entry.as_ref().unwrap().metadata().unwrap().nlink() > 1).count();
    }
    assert!(linked > 0, "the log was too short");
    publishing.abort_all();
    let left = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("snapshot-")));
    // Rot is found while the broker works. The oldest segment is not read from by anybody else.
    flip(&data.join("log/0000000001.seg"), 1_000_000);
    let report = check(&data).unwrap();
    assert!(!report.is_sound() && report.to_string().contains("t: 1:"), "{report}");
    flip(&data.join("log/0000000001.seg"), 1_000_000);
    broker.shutdown().unwrap();
    // The copies do not change, and are ordinary data directories.
    for number in 0..SNAPSHOTS {
        let copy = folder.path().join(format!("copy-{number}"));
        verify_list(&copy);
        let kept = check(&copy).unwrap().messages();
        let broker = start(&copy);
        let found = consume(&broker, usize::try_from(kept).unwrap()).await;
        let ids: Vec<u64> = found.iter().map(|id| id.entry_id).collect();
        assert_eq!(ids, (0..kept).collect::<Vec<u64>>());
        broker.shutdown().unwrap();
    }
    assert!(check(&data).unwrap().is_sound(), "brokers of the copies have changed it");
}

/// A start builds the index again, so its damage must not prevent a copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_has_rotted_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let broker = start(&data);
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    let index = data.join("log/0000000001.idx");
    // Segments of 4, 8 and 16 MiB, whose indices are built when the log is idle.
    let count = 400;
    for number in 0..count {
        client.publish_one(1, number, &vec![b'x'; 80_000]).await.unwrap();
    }
    while !index.try_exists().unwrap() {
        tokio::task::yield_now().await;
    }
    broker.shutdown().unwrap();
    snapshot(&data, &copy).unwrap();
    assert!(copy.join("log/0000000001.idx").try_exists().unwrap());
    fs::remove_dir_all(&copy).unwrap();
    let mut bytes = fs::read(&index).unwrap();
    bytes[70] ^= 1;
    fs::write(&index, bytes).unwrap();
    let found = check(&data).unwrap();
    assert!(found.to_string().contains("0000000001.idx") && !found.is_sound(), "{found}");
    let report = snapshot(&data, &copy).unwrap();
    assert_eq!(report.messages(), count);
    assert!(!copy.join("log/0000000001.idx").try_exists().unwrap());
    let broker = start(&copy);
    assert_eq!(consume(&broker, usize::try_from(count).unwrap()).await.len() as u64, count);
    while !copy.join("log/0000000001.idx").try_exists().unwrap() {
        tokio::task::yield_now().await;
    }
    broker.shutdown().unwrap();
    assert!(check(&copy).unwrap().is_sound());
}

/// The copy was refused. The partial copy lacked everything after the first damaged message of the
/// newest segment: following the advice to salvage it lost thousands of messages because of two.
#[tokio::test]
async fn a_damaged_directory_is_copied_with_all_that_can_be_read_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let broker = start(&data);
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    // Messages without a subscription are removed.
    client.subscribe("t", "s", 1).await.unwrap();
    for number in 0..50_u64 {
        client.publish_one(1, number, format!("message {number}").as_bytes()).await.unwrap();
    }
    // The running broker does not notice the change.
    let log = fs::File::options().read(true).write(true).open(data.join("log/0000000001.seg"));
    let (log, mut bytes) = (log.unwrap(), vec![0; 1 << 20]);
    log.read_exact_at(&mut bytes, 0).unwrap();
    let text = b"message 3";
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    log.write_all_at(b"M", at as u64).unwrap();
    let report = snapshot(&data, &copy).unwrap();
    assert!(!report.is_sound() && report.messages() == 49, "{report}");
    assert!(verify_list(&copy) >= 2);
    broker.shutdown().unwrap();
    let salvaged = folder.path().join("salvaged");
    assert_eq!(salvage(&copy, &salvaged).unwrap().messages(), 49);
}

#[test]
fn a_directory_whose_checkpoint_is_damaged_is_copied_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    start(&data).shutdown().unwrap();
    let path = data.join("checkpoint");
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = snapshot(&data, &copy).unwrap();
    assert!(!report.is_sound(), "{report}");
    assert_eq!(fs::read(copy.join("checkpoint")).unwrap(), fs::read(&path).unwrap());
    assert!(matches!(snapshot(&data, &copy), Err(RescueError::Exists { .. })));
}

/// The new directory could be made inside the source directory, and any directory at all was
/// accepted as intact.
#[test]
fn directories_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (data, empty) = (folder.path().join("data"), folder.path().join("empty"));
    start(&data).shutdown().unwrap();
    fs::create_dir(&empty).unwrap();
    std::os::unix::fs::symlink(&data, folder.path().join("link")).unwrap();
    for within in ["data/in", "data/a/b", "data", "data/../data/in", "link/in"] {
        let new = folder.path().join(within);
        for refused in [snapshot(&data, &new), salvage(&data, &new)] {
            assert!(matches!(refused, Err(RescueError::Within { .. })), "{within}: {refused:?}");
        }
    }
    for no_log in [&empty, &data.join("log"), Path::new("/etc")] {
        for refused in [check(no_log), snapshot(no_log, &folder.path().join("new"))] {
            assert!(matches!(refused, Err(RescueError::NoLog { .. })), "{refused:?}");
        }
    }
    assert!(!folder.path().join("new").try_exists().unwrap());
}
