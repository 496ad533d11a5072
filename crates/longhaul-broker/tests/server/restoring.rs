//! A directory that is restored belongs to nobody until that has ended, and gives no id again.

use crate::client::Client;
use longhaul_broker::rescue::{RescueError, adopt, begin_restore, check, salvage};
use longhaul_broker::{Broker, BrokerConfig};
use std::error::Error as _;
use std::fs;
use std::path::Path;

fn start(data: &Path) -> Result<Broker, String> {
    let config = BrokerConfig { data: Some(data.to_owned()), ..BrokerConfig::default() };
    Broker::start(config).map_err(|error| format!("{error}: {:?}", error.source()))
}

/// Publishes a message, and returns the ledger of its id.
async fn publish(data: &Path) -> u64 {
    let broker = start(data).unwrap();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    // Without a subscription nothing would be kept.
    client.subscribe("t", "all", 1).await.unwrap();
    let id = client.publish_one(1, 0, b"body").await.unwrap();
    broker.shutdown().unwrap();
    id.ledger_id
}

/// A directory with the files of another one, whose restore has not ended.
fn begin(from: &Path, new: &Path) {
    begin_restore(new, None).unwrap();
    for folder in ["log", ""] {
        for entry in fs::read_dir(from.join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() && entry.file_name() != "LOCK" {
                fs::copy(entry.path(), new.join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
}

/// Regression: a restore that was killed left a directory that a broker accepted, and that gave ids
/// once more. Two restores of the same files gave the same ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_ends_before_anybody_uses_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let given = publish(&at("data")).await;
    begin(&at("data"), &at("new"));
    let refused = start(&at("new")).unwrap_err();
    assert!(refused.contains("a restore into it has not ended"), "{refused}");
    assert!(matches!(check(&at("new")), Err(RescueError::Unfinished { .. })));
    // What can be read of it is not lost.
    let salvaged = salvage(&at("new"), &at("salvaged")).unwrap();
    assert_eq!(salvaged.messages(), 1, "{salvaged}");
    let report = adopt(&at("new"), None).unwrap();
    assert!(report.is_sound() && report.messages() == 1, "{report}");
    let ledgers = [publish(&at("new")).await, publish(&at("salvaged")).await];
    assert!(ledgers.iter().all(|&ledger| ledger > given + (1 << 32)), "{ledgers:?}");
    assert!(matches!(begin_restore(&at("new"), None), Err(RescueError::Exists { .. })));
}

/// Two restores of the same files within a second gave the same ids. Later ones gave ids that the
/// earlier broker had given, if it had begun more than a thousand ledgers a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_restore_of_the_same_files_gives_later_ids() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut given = publish(&at("data")).await;
    for name in ["first", "second", "third"] {
        begin(&at("data"), &at(name));
        assert!(adopt(&at(name), None).unwrap().is_sound());
        for _ in 0..2 {
            let ledger = publish(&at(name)).await;
            assert!(ledger > given, "{ledger} of {name}, after {given}");
            given = ledger;
        }
    }
}

/// What is damaged stays a directory that nobody uses but for a salvage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_restore_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    publish(&at("data")).await;
    publish(&at("data")).await;
    begin(&at("data"), &at("new"));
    let segment = at("new").join("log/0000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    let place = bytes.windows(4).position(|part| part == b"body").unwrap();
    bytes[place] ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert!(!adopt(&at("new"), None).unwrap().is_sound());
    assert!(start(&at("new")).is_err());
    assert_eq!(salvage(&at("new"), &at("salvaged")).unwrap().messages(), 1);
    publish(&at("salvaged")).await;
}
