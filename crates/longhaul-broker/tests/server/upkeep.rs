//! Scrubs of a running broker, and calls about its backup.

use crate::client::{Client, ask};
use longhaul_broker::{BackupProgress, Broker, BrokerConfig};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BACKUP: &str = "/admin/v2/brokers/backup";

fn start(data: &Path, scrub_every: Option<Duration>) -> Broker {
    let admin = Some(([127, 0, 0, 1], 0).into());
    let data = Some(data.to_owned());
    Broker::start(BrokerConfig { data, admin, scrub_every, ..BrokerConfig::default() }).unwrap()
}

async fn publish(broker: &Broker, count: u64) {
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    for number in 0..count {
        client.publish_one(1, number, &[b'x'; 60_000]).await.unwrap();
    }
}

/// Asks until the answer has this text.
async fn until(broker: &Broker, path: &str, text: &str) {
    while !ask(broker, "GET", path).contains(text) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_broker_without_a_backup_cannot_be_asked_for_a_pass() {
    let folder = tempfile::tempdir().unwrap();
    let broker = start(folder.path(), None);
    for method in ["PUT", "GET"] {
        let refused = ask(&broker, method, BACKUP);
        assert!(refused.contains(" 412 ") && refused.contains("--broker-backup"), "{refused}");
    }
    broker.shutdown().unwrap();
}

fn start_with(backup: &Arc<BackupProgress>, data: &Path) -> Broker {
    let admin = Some(([127, 0, 0, 1], 0).into());
    let (data, backup) = (Some(data.to_owned()), Some(Arc::clone(backup)));
    Broker::start(BrokerConfig { data, admin, backup, ..BrokerConfig::default() }).unwrap()
}

/// The pass that runs when it is asked for may have read too early.
#[test]
fn a_pass_that_is_asked_for_is_one_that_begins_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let backup = Arc::new(BackupProgress::new(5));
    let broker = start_with(&backup, folder.path());
    backup.begin_pass();
    assert!(ask(&broker, "PUT", BACKUP).ends_with(r#"{"pass":2,"startedAt":5}"#));
    let expect = |stored: &str, failed: &str| {
        let text = format!(r#"{{"startedAt":5,{stored},{failed}}}"#);
        let answer = ask(&broker, "GET", BACKUP);
        assert!(answer.ends_with(&text), "{answer}");
    };
    let (none, well) = (r#""storedPass":0,"storedTo":null"#, r#""failedPass":0,"lastError":"""#);
    // The time of the start was said to be the time up to which everything is stored.
    expect(none, well);
    backup.pass_stored(7);
    let first = r#""storedPass":1,"storedTo":7"#;
    expect(first, well);
    backup.begin_pass();
    expect(first, well);
    backup.pass_failed("no room".to_owned());
    expect(first, r#""failedPass":2,"lastError":"no room""#);
    backup.begin_pass();
    backup.pass_stored(9);
    expect(r#""storedPass":3,"storedTo":9"#, well);
    broker.shutdown().unwrap();
}

/// If the thread of the backup panicked, callers waited for ever for its next pass.
#[test]
fn a_backup_that_has_ended_cannot_be_asked_for_a_pass() {
    let folder = tempfile::tempdir().unwrap();
    let backup = Arc::new(BackupProgress::new(5));
    let broker = start_with(&backup, folder.path());
    backup.begin_pass();
    backup.end();
    for method in ["PUT", "GET"] {
        let refused = ask(&broker, method, BACKUP);
        assert!(refused.contains(" 500 ") && refused.contains("backup has ended"), "{refused}");
    }
    broker.shutdown().unwrap();
}

/// The clock of a machine showed the year 2030 for a while: no scrub ran until then, and the age of
/// the last one was 0.
#[test]
fn a_scrub_does_not_wait_for_a_date_that_a_wrong_clock_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let mark = fs::File::create(folder.path().join("scrubbed")).unwrap();
    let modified = || mark.metadata().unwrap().modified().unwrap();
    let future = modified() + Duration::from_secs(100_000_000);
    mark.set_modified(future).unwrap();
    let broker = start(folder.path(), BrokerConfig::default().scrub_every);
    while !ask(&broker, "GET", "/metrics").contains("longhaul_broker_damaged_files 0") {
        std::thread::yield_now();
    }
    assert!(modified() < future);
    broker.shutdown().unwrap();
}

/// Damage in data that nobody reads was found when the backup had it, too.
#[tokio::test]
async fn a_scrub_finds_damage_that_nobody_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let broker = start(data, BrokerConfig::default().scrub_every);
    // The first segments have 4 and 8 MiB.
    publish(&broker, 300).await;
    let metric = "longhaul_broker_damaged_files";
    assert!(!ask(&broker, "GET", "/metrics").contains(metric), "it is not due");
    broker.shutdown().unwrap();
    let broker = start(data, Some(Duration::ZERO));
    until(&broker, "/metrics", "longhaul_broker_damaged_files 0").await;
    let file = fs::File::options().write(true).open(data.join("log/0000000001.seg")).unwrap();
    file.write_all_at(b"y", 1_000_000).unwrap();
    until(&broker, "/metrics", "longhaul_broker_damaged_files 1").await;
    assert!(ask(&broker, "GET", "/metrics").contains("longhaul_broker_scrub_age_seconds"));
    broker.shutdown().unwrap();
}
