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

/// The pass that runs when it is asked for may have read too early.
#[test]
fn a_pass_that_is_asked_for_is_one_that_begins_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let backup = Arc::new(BackupProgress::default());
    let admin = Some(([127, 0, 0, 1], 0).into());
    let data = Some(folder.path().to_owned());
    let config =
        BrokerConfig { data, admin, backup: Some(Arc::clone(&backup)), ..Default::default() };
    let broker = Broker::start(config).unwrap();
    backup.start(5);
    backup.begin_pass();
    assert!(ask(&broker, "PUT", BACKUP).ends_with(r#"{"pass":2}"#));
    backup.pass_stored(7);
    let first = ask(&broker, "GET", BACKUP);
    assert!(first.ends_with(r#"{"pass":1,"storedTo":7,"lastError":""}"#), "{first}");
    backup.begin_pass();
    let still = ask(&broker, "GET", BACKUP);
    assert!(still.ends_with(r#"{"pass":1,"storedTo":7,"lastError":""}"#), "{still}");
    backup.pass_failed("no room".to_owned());
    let second = ask(&broker, "GET", BACKUP);
    assert!(second.ends_with(r#"{"pass":2,"storedTo":7,"lastError":"no room"}"#), "{second}");
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
