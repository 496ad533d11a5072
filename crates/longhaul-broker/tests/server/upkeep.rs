//! Snapshots by a schedule and by an admin call, and scrubs, of a running broker.

use crate::client::{Client, ask};
use longhaul_broker::rescue::check;
use longhaul_broker::{Broker, BrokerConfig, UpkeepConfig};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const SNAPSHOT: &str = "/admin/v2/brokers/snapshot";

fn start(data: &Path, upkeep: UpkeepConfig) -> Broker {
    let admin = Some(([127, 0, 0, 1], 0).into());
    let data = Some(data.to_owned());
    Broker::start(BrokerConfig { data, admin, upkeep, ..BrokerConfig::default() }).unwrap()
}

async fn publish(broker: &Broker, count: u64) {
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    for number in 0..count {
        client.publish_one(1, number, &[b'x'; 60_000]).await.unwrap();
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Asks until the answer has this text.
async fn until(broker: &Broker, path: &str, text: &str) {
    while !ask(broker, "GET", path).contains(text) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_admin_call_takes_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (data, taken) = (folder.path().join("data"), folder.path().join("snapshots"));
    let upkeep =
        UpkeepConfig { snapshots: Some(taken.clone()), snapshots_kept: 2, ..Default::default() };
    let broker = start(&data, upkeep.clone());
    assert!(ask(&broker, "GET", SNAPSHOT).contains(r#"{"status":"NOT_RUN","lastError":""}"#));
    // What somebody else keeps there, and what a killed broker has left.
    let foreign = ["notes", "2026-11-30", "2999-01-01T000000.000Z"];
    for name in foreign.iter().chain(&["2025-01-01T000000.000Z.unfinished"]) {
        fs::create_dir_all(taken.join(name)).unwrap();
    }
    let mut all = Vec::new();
    for count in 1..=3 {
        publish(&broker, 10).await;
        assert!(ask(&broker, "PUT", SNAPSHOT).contains(" 204 "));
        until(&broker, SNAPSHOT, r#""status":"SUCCESS""#).await;
        let page = ask(&broker, "GET", "/metrics");
        assert!(page.contains("longhaul_broker_snapshot_age_seconds 0"), "{page}");
        let is_own = |name: &String| name.ends_with('Z') && !foreign.contains(&name.as_str());
        let new: Vec<_> = names(&taken).into_iter().filter(is_own).collect();
        assert_eq!(new.len(), 2.min(count));
        let newest = taken.join(new.last().unwrap());
        assert!(ask(&broker, "GET", SNAPSHOT).contains(newest.to_str().unwrap()));
        let report = check(&newest).unwrap();
        assert!(report.is_sound() && report.messages() == 10 * count as u64, "{report}");
        all.extend(new.last().cloned());
    }
    let left = foreign.map(str::to_owned).into_iter().chain(all[1..].to_vec());
    assert_eq!(names(&taken), left.collect());
    // A directory that is damaged takes the place of no sound snapshot.
    fs::File::options()
        .write(true)
        .open(data.join("log/0000000001.seg"))
        .unwrap()
        .write_all_at(&[1; 4096], 100_000)
        .unwrap();
    assert!(ask(&broker, "PUT", SNAPSHOT).contains(" 204 "));
    until(&broker, SNAPSHOT, r#""status":"ERROR""#).await;
    assert!(ask(&broker, "GET", SNAPSHOT).contains("damaged"));
    let is_damaged = |name: &String| name.ends_with(".damaged");
    assert!(names(&taken).is_superset(&all[1..].iter().cloned().collect()));
    assert_eq!(names(&taken).iter().filter(|name| is_damaged(name)).count(), 1);
    let first: Vec<_> = names(&taken).into_iter().filter(is_damaged).collect();
    assert!(ask(&broker, "PUT", SNAPSHOT).contains(" 204 "));
    until(&broker, SNAPSHOT, r#""status":"ERROR""#).await;
    let second: Vec<_> = names(&taken).into_iter().filter(is_damaged).collect();
    assert!(second.len() == 1 && second > first, "the newest one is kept: {second:?}");
    broker.shutdown().unwrap();
    let broker = start(&folder.path().join("other"), UpkeepConfig::default());
    let refused = ask(&broker, "PUT", SNAPSHOT);
    assert!(refused.contains(" 412 ") && refused.contains("--broker-snapshots"), "{refused}");
    broker.shutdown().unwrap();
}

#[tokio::test]
async fn a_schedule_takes_snapshots_over_restarts_and_keeps_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let (data, taken) = (folder.path().join("data"), folder.path().join("snapshots"));
    let upkeep = |every| UpkeepConfig {
        snapshots: Some(taken.clone()),
        snapshot_every: Some(every),
        snapshots_kept: 2,
        ..Default::default()
    };
    let broker = start(&data, upkeep(Duration::from_millis(10)));
    let mut seen = BTreeSet::new();
    while seen.len() < 5 {
        seen.extend(names(&taken).into_iter().filter(|name| name.ends_with('Z')));
        tokio::task::yield_now().await;
    }
    broker.shutdown().unwrap();
    let first = seen.first().unwrap().clone();
    assert!(!names(&taken).contains(&first), "{seen:?}");
    // The next one is due long after the last one of the former run.
    let before = names(&taken);
    let broker = start(&data, upkeep(Duration::from_secs(3600)));
    let page = ask(&broker, "GET", "/metrics");
    assert!(page.contains("longhaul_broker_snapshot_age_seconds"), "{page}");
    publish(&broker, 10).await;
    let is_old = |name: &String| before.contains(name) || name.ends_with("unfinished");
    assert!(names(&taken).iter().all(is_old), "{:?}", names(&taken));
    broker.shutdown().unwrap();
}

/// Damage in data that nobody reads was found when the backup had it, too.
#[tokio::test]
async fn a_scrub_finds_damage_that_nobody_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let broker = start(data, UpkeepConfig::default());
    // The first segments have 4 and 8 MiB.
    publish(&broker, 300).await;
    let metric = "longhaul_broker_damaged_files";
    assert!(!ask(&broker, "GET", "/metrics").contains(metric), "it is not due");
    broker.shutdown().unwrap();
    let upkeep = || UpkeepConfig { scrub_every: Some(Duration::ZERO), ..Default::default() };
    let broker = start(data, upkeep());
    until(&broker, "/metrics", "longhaul_broker_damaged_files 0").await;
    let file = fs::File::options().write(true).open(data.join("log/0000000001.seg")).unwrap();
    file.write_all_at(b"y", 1_000_000).unwrap();
    until(&broker, "/metrics", "longhaul_broker_damaged_files 1").await;
    assert!(ask(&broker, "GET", "/metrics").contains("longhaul_broker_scrub_age_seconds"));
    broker.shutdown().unwrap();
}
