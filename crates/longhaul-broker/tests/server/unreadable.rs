//! One damaged byte in the log of a running broker only costs its entry.

use crate::client::{Client, ask};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::messages::{Command, CommandPing};
use std::os::unix::fs::FileExt;
use std::path::Path;

const ENTRIES: u64 = 300;
/// The entries whose bytes are damaged.
const ROTTEN: [u64; 2] = [7, 100];

fn body(number: u64) -> Vec<u8> {
    format!("this is entry {number:06}").into_bytes()
}

/// Flips a bit of the entry with this body in the file of the running broker.
fn rot(data: &Path, body: &[u8]) {
    for file in std::fs::read_dir(data.join("log")).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(body.len()).position(|window| window == body) {
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
            return;
        }
    }
    panic!("no file has it");
}

/// The numbers of the next entries that the consumer gets on one connection.
async fn consume(broker: &Broker, name: &str, count: usize) -> (Client, Vec<u64>) {
    let mut client = Client::consumer(broker.address(), "t", name, 1000).await.unwrap();
    let found = client.messages(count).await.unwrap();
    (client, found.iter().map(|id| id.entry_id).collect())
}

/// A Shared consumer was disconnected 40 times in under 0.1 s, and the entries after the damage
/// were never delivered.
#[tokio::test]
async fn a_rotten_entry_is_left_out_and_what_lies_behind_it_is_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let config = BrokerConfig {
        data: Some(folder.path().to_owned()),
        admin: Some(([127, 0, 0, 1], 0).into()),
        // Without a cache, every entry is read from the log.
        recent_bytes: 0,
        ..BrokerConfig::default()
    };
    let broker = Broker::start(config).unwrap();
    let mut client = Client::producer(broker.address(), "t").await.unwrap();
    for number in 0..ENTRIES {
        client.publish_one(1, number, &body(number)).await.unwrap();
    }
    ROTTEN.iter().for_each(|&number| rot(folder.path(), &body(number)));
    let sound: Vec<u64> = (0..ENTRIES).filter(|number| !ROTTEN.contains(number)).collect();
    for name in ["one", "two"] {
        let (mut client, found) = consume(&broker, name, sound.len()).await;
        assert_eq!(found, sound, "{name}");
        client.send(CommandPing {}).await.unwrap();
        let answer = client.answer().await.unwrap().command;
        assert!(
            matches!(answer, Command::Pong(_)),
            "nothing follows, nobody is cut off: {answer:?}"
        );
    }
    let metrics = ask(&broker, "GET", "/metrics");
    assert!(metrics.contains("\nlonghaul_broker_unreadable_entries_total 2\n"), "{metrics}");
    let stats = ask(&broker, "GET", "/admin/v2/persistent/public/default/t/stats");
    assert!(stats.contains("\"unreadableEntries\":2"), "{stats}");
    broker.shutdown().unwrap();
}
