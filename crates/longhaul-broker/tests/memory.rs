//! Clients that try to use much memory: the data that they can make the broker keep is limited, and
//! other clients are served meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

mod client;

use bytes::BytesMut;
use client::{Client, encode_publish, memory_bytes, serves};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::frame;
use longhaul_wire::messages::{CommandGetTopicsOfNamespace, CommandPing};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio::time::timeout;

const MEGABYTE: usize = 1024 * 1024;

/// Tests run one at a time, because they measure the memory of the process.
static ALONE: Mutex<()> = Mutex::const_new(());

fn broker() -> Broker {
    Broker::start(BrokerConfig::default()).unwrap()
}

#[tokio::test]
async fn thousands_of_idle_connections_cost_little() {
    let _alone = ALONE.lock().await;
    // As many as the limit on open files allows: fewer connections show the same, if there are
    // enough of them.
    let count = may_open(10_200).saturating_sub(200) / 2;
    assert!(count >= 250, "the limit of open files leaves room for {count} connections");
    let broker = broker();
    let before = memory_bytes();
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(Client::connect(broker.address()).await.unwrap());
    }
    let each = memory_bytes().saturating_sub(before) / count;
    // Both ends are in this process.
    assert!(each < 24 * 1024, "{each} bytes for each connection and its client");
    serves(broker.address()).await;
}

/// Raises the soft limit on open files, and returns how many of the wanted files may be open.
fn may_open(wanted: u64) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    let current = maximum.min(wanted.max(limit.current.unwrap_or(u64::MAX)));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum }).unwrap();
    usize::try_from(current.min(wanted)).unwrap()
}

#[tokio::test]
async fn a_consumer_that_never_reads_costs_its_window() {
    let _alone = ALONE.lock().await;
    let broker = broker();
    let mut producer = Client::producer(broker.address(), "backlog").await.unwrap();
    let body = vec![7; 100_000];
    for sequence in 0..600 {
        producer.publish_one(1, sequence, &body).await.unwrap();
    }
    let before = memory_bytes();
    let mut stuck = Vec::new();
    for number in 0..4 {
        let mut client = Client::connect(broker.address()).await.unwrap();
        client.subscribe("backlog", &format!("stuck-{number}"), 1).await.unwrap();
        client.flow(1, u32::MAX).await.unwrap();
        client.flow(1, u32::MAX).await.unwrap();
        stuck.push(client);
    }
    let mut reader = Client::consumer(broker.address(), "backlog", "reads", 600).await.unwrap();
    for _ in 0..600 {
        let frame = reader.answer().await.unwrap();
        assert_eq!(frame.payload.unwrap().body().len(), body.len());
    }
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 80 * MEGABYTE, "{grown} bytes for four that read nothing");
    serves(broker.address()).await;
}

#[tokio::test]
async fn a_flood_of_pings_without_reading_stops_being_read() {
    let _alone = ALONE.lock().await;
    let broker = broker();
    let mut client = Client::connect(broker.address()).await.unwrap();
    let before = memory_bytes();
    let mut pings = BytesMut::new();
    (0..20_000).for_each(|_| frame::encode(CommandPing {}, &mut pings));
    let written = flood(&mut client, &pings, 400 * MEGABYTE).await;
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 80 * MEGABYTE, "{grown} bytes after {written} bytes of PING");
    serves(broker.address()).await;
}

/// Small requests with large answers that the client does not read.
#[tokio::test]
async fn a_flood_of_questions_with_large_answers_stops_being_read() {
    let _alone = ALONE.lock().await;
    let broker = broker();
    let mut client = Client::connect(broker.address()).await.unwrap();
    for number in 0..400 {
        client.produce(&format!("{}-{number}", "long".repeat(40)), number).await.unwrap();
    }
    let before = memory_bytes();
    let mut questions = BytesMut::new();
    for request_id in 0..5000 {
        let namespace = "public/default".to_owned();
        frame::encode(
            CommandGetTopicsOfNamespace { request_id, namespace, ..Default::default() },
            &mut questions,
        );
    }
    flood(&mut client, &questions, 8 * MEGABYTE).await;
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 100 * MEGABYTE, "{grown} bytes");
    serves(broker.address()).await;
}

/// Writes the same bytes until the other side takes no more, or `enough` is reached. Returns how
/// much it took.
async fn flood(client: &mut Client, bytes: &[u8], enough: usize) -> usize {
    let mut written = 0;
    while written < enough {
        match timeout(Duration::from_millis(700), client.stream.write_all(bytes)).await {
            Ok(Ok(())) => written += bytes.len(),
            _ => break,
        }
    }
    written
}

#[tokio::test]
async fn a_producer_that_floods_and_reads_no_receipts_does_not_fill_memory() {
    let _alone = ALONE.lock().await;
    let broker = broker();
    let mut client = Client::producer(broker.address(), "flood").await.unwrap();
    let before = memory_bytes();
    let mut messages = BytesMut::new();
    for sequence in 0..4 {
        encode_publish(1, sequence, &vec![1; 2_000_000], &mut messages);
    }
    let flooding = flood(&mut client, &messages, 400 * MEGABYTE);
    let watching = async {
        let mut other = Client::producer(broker.address(), "other").await.unwrap();
        let mut most = 0;
        for sequence in 0..40 {
            other.publish_one(1, sequence, b"meanwhile").await.unwrap();
            most = most.max(memory_bytes().saturating_sub(before));
        }
        most
    };
    let (_, most) = tokio::join!(flooding, watching);
    let most = most.max(memory_bytes().saturating_sub(before));
    // Requests that wait for the driver, composed records, and the group being written, with room
    // to grow.
    assert!(most < 260 * MEGABYTE, "{most} bytes");
    // Messages without a receipt may be lost; other clients must be served.
    serves(broker.address()).await;
}

/// 200 connections that had sent a part of a message of 5 MB, and then nothing, delayed a producer
/// of 200 kB for 38 s.
#[tokio::test]
async fn parts_of_messages_that_do_not_go_on_hold_up_nobody() {
    let _alone = ALONE.lock().await;
    let broker = broker();
    let mut honest = Client::producer(broker.address(), "honest").await.unwrap();
    let mut part = (5 * 1024 * 1024_u32).to_be_bytes().to_vec();
    part.extend(20_u32.to_be_bytes());
    part.resize(70_000, 0);
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(broker.address()).await.unwrap();
        client.write(&part).await.unwrap();
        silent.push(client);
    }
    for client in &mut silent[..2] {
        client.until_closed().await;
    }
    honest.publish_one(1, 0, &[7; 200_000]).await.unwrap();
    serves(broker.address()).await;
}
