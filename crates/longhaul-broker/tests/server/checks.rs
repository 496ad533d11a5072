//! A check of the data directory of a running broker reads everything that was confirmed before it.

use crate::client::Client;
use longhaul_broker::rescue::{RescueError, check, salvage};
use longhaul_broker::{Broker, BrokerConfig};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

const CHECKS: usize = 5;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_before_is_found_while_the_broker_works() {
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
    for number in 0..CHECKS {
        while confirmed.load(Ordering::SeqCst) < 400 * (number as u64 + 1) {
            tokio::task::yield_now().await;
        }
        let before = confirmed.load(Ordering::SeqCst);
        let from = data.clone();
        let report = tokio::task::spawn_blocking(move || check(&from).unwrap()).await.unwrap();
        let after = confirmed.load(Ordering::SeqCst) + 1;
        assert!((before..=after).contains(&report.messages()), "{before} to {after}: {report}");
    }
    publishing.abort_all();
    let left = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("check-")));
    // Rot is found while the broker works. The oldest segment is not read from by anybody else.
    flip(&data.join("log/0000000001.seg"), 1_000_000);
    let report = check(&data).unwrap();
    assert!(!report.is_sound() && report.to_string().contains("t: 1:"), "{report}");
    flip(&data.join("log/0000000001.seg"), 1_000_000);
    broker.shutdown().unwrap();
    assert!(check(&data).unwrap().is_sound());
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
        let refused = salvage(&data, &folder.path().join(within));
        assert!(matches!(refused, Err(RescueError::Within { .. })), "{within}: {refused:?}");
    }
    for no_log in [&empty, &data.join("log"), Path::new("/etc")] {
        for refused in [check(no_log), salvage(no_log, &folder.path().join("new"))] {
            assert!(matches!(refused, Err(RescueError::NoLog { .. })), "{refused:?}");
        }
    }
    assert!(!folder.path().join("new").try_exists().unwrap());
}
