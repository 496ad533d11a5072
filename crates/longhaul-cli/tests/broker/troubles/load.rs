//! Clients that load the broker through all faults, and record its answers.

use crate::broker::client::Client;
use bytes::BytesMut;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandGetLastMessageId, CommandSend, CommandSubscribe, MessageIdData, MessageMetadata,
};
use longhaul_wire::payload::Payload;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

pub(crate) const TOPIC: &str = "load";
/// A topic of keyed messages that is compacted.
pub(crate) const VIEW: &str = "view";
pub(crate) const KEYS: u64 = 20;
/// The most unconfirmed messages of one producer.
const IN_FLIGHT: u64 = 20;

pub(crate) type Id = (u64, u64);

/// The clients' records, since everything was last read and skipped unless stated otherwise.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) receipts: BTreeMap<Id, u64>,
    pub(crate) shown: BTreeMap<Id, u64>,
    /// The last message read and skipped.
    pub(crate) skipped: Option<Id>,
    /// Delivered since the start.
    pub(crate) given: BTreeSet<Id>,
    /// Acknowledged since the start.
    pub(crate) acked: BTreeSet<Id>,
    /// Acknowledgements confirmed since the start.
    pub(crate) confirmed: BTreeSet<Id>,
    /// The newest value of each key with a receipt, and the newest value sent.
    pub(crate) values: BTreeMap<u64, u64>,
    pub(crate) last_value: u64,
    /// Publishes refused since the start.
    pub(crate) refused: usize,
}

/// The shared state of a round's clients.
#[derive(Clone)]
pub(crate) struct Round {
    pub(crate) address: SocketAddr,
    pub(crate) number: u64,
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// Notifies of changes.
    pub(crate) news: Arc<Notify>,
    /// Clients do not reconnect any more.
    pub(crate) is_over: Arc<AtomicBool>,
}

impl Round {
    /// Repeats `work` until the round is over. Topics are unloaded and connections refused
    /// meanwhile.
    pub(crate) async fn go_on<W: Future<Output = std::io::Result<()>>>(
        self,
        mut work: impl FnMut(Self) -> W,
    ) {
        while !self.is_over.load(Ordering::SeqCst) {
            // Reconnect after any error.
            work(self.clone()).await.ok();
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) fn id(data: &MessageIdData) -> Id {
    (data.ledger_id, data.entry_id)
}

/// A unique body whose length depends on its number.
fn body(number: u64) -> Vec<u8> {
    let length = usize::try_from(number.wrapping_mul(0x9E37_79B9) % 12_000).unwrap_or_default();
    let mut body = number.to_le_bytes().to_vec();
    body.resize(8 + length, u8::try_from(number % 251).unwrap_or_default());
    body
}

/// The number of a complete body.
fn number(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(bytes.first_chunk().copied()?);
    (bytes == body(number)).then_some(number)
}

/// Publishes until the connection ends.
pub(crate) async fn publish(round: Round, producer: u64) -> std::io::Result<()> {
    let mut client = Client::connect(round.address).await?;
    if let Err(refused) = client.produce(TOPIC, producer).await {
        if refused.to_string().contains("lacks disk space") {
            round.seen.lock().unwrap().refused += 1;
            round.news.notify_one();
        }
        return Err(refused);
    }
    // Distinct from the numbers of other producers, rounds and connections.
    let first = fastrand::u64(..u64::MAX / 2);
    for sequence in 0..IN_FLIGHT {
        client.publish(producer, sequence, &body(first + sequence)).await?;
    }
    for next in IN_FLIGHT.. {
        match client.answer().await?.command {
            Command::SendReceipt(receipt) => {
                let id = id(&receipt.message_id.ok_or_else(closed)?);
                let mut seen = round.seen.lock().unwrap();
                assert!(seen.given.insert(id), "{id:?} was given twice");
                seen.receipts.insert(id, first + receipt.sequence_id);
            }
            _ => return Err(closed()),
        }
        round.news.notify_one();
        client.publish(producer, next, &body(first + next)).await?;
    }
    Ok(())
}

/// Publishes values of keys one at a time until the connection ends.
pub(crate) async fn publish_values(round: Round) -> std::io::Result<()> {
    let mut client = Client::connect(round.address).await?;
    client.produce(VIEW, 1).await?;
    for sequence_id in 0.. {
        let value = {
            let mut seen = round.seen.lock().unwrap();
            seen.last_value += 1;
            seen.last_value
        };
        let metadata = MessageMetadata {
            producer_name: "values".to_owned(),
            sequence_id,
            publish_time: 1,
            partition_key: Some((value % KEYS).to_string()),
            ..MessageMetadata::default()
        };
        let send = CommandSend { producer_id: 1, sequence_id, ..CommandSend::default() };
        let mut out = BytesMut::new();
        frame::encode_with(send, &Payload::new(&metadata, &body(value)), &mut out);
        client.write(&out).await?;
        match client.answer().await?.command {
            Command::SendReceipt(_) => {
                round.seen.lock().unwrap().values.insert(value % KEYS, value);
            }
            _ => return Err(closed()),
        }
    }
    Ok(())
}

/// Consumes and acknowledges until the connection ends.
pub(crate) async fn consume(round: Round) -> std::io::Result<()> {
    let mut client = Client::connect(round.address).await?;
    client.subscribe(TOPIC, "works", 1).await?;
    client.flow(1, 1_000_000).await?;
    let mut asked = BTreeMap::new();
    loop {
        let frame = client.answer().await?;
        match frame.command {
            Command::Message(message) => {
                let key = id(&message.message_id);
                let number = frame.payload.and_then(|payload| number(&payload.body()));
                let number = number.unwrap_or_else(|| panic!("{key:?} is not whole"));
                {
                    let mut seen = round.seen.lock().unwrap();
                    assert!(!seen.confirmed.contains(&key), "{key:?} was acknowledged");
                    if Some(key) > seen.skipped {
                        seen.shown.insert(key, number);
                    }
                    // Some stay for a later round.
                    if (key.1 + round.number).is_multiple_of(7) {
                        continue;
                    }
                    seen.acked.insert(key);
                }
                let request_id = client.request_id();
                asked.insert(request_id, key);
                client.ack(1, message.message_id, request_id).await?;
            }
            Command::AckResponse(answer) => {
                // It may be refused on a full disk.
                let key = answer.request_id.and_then(|request_id| asked.remove(&request_id));
                if let (Some(key), None) = (key, answer.error) {
                    round.seen.lock().unwrap().confirmed.insert(key);
                }
            }
            Command::CloseConsumer(_) => return Err(closed()),
            _ => {}
        }
    }
}

fn closed() -> std::io::Error {
    std::io::ErrorKind::ConnectionAborted.into()
}

/// Reads this many messages of a subscription.
pub(crate) async fn read(
    address: SocketAddr,
    subscription: &str,
    count: usize,
) -> std::io::Result<BTreeMap<Id, u64>> {
    let mut client = Client::connect(address).await?;
    client.subscribe(TOPIC, subscription, 1).await?;
    client.flow(1, u32::MAX).await?;
    let mut all = BTreeMap::new();
    while all.len() < count {
        let frame = client.answer().await?;
        let Command::Message(message) = frame.command else { continue };
        let id = id(&message.message_id);
        let number = frame.payload.and_then(|payload| number(&payload.body()));
        all.insert(id, number.unwrap_or_else(|| panic!("{id:?} is not whole")));
    }
    Ok(all)
}

/// The value of each key in the compacted view.
pub(crate) async fn read_values(address: SocketAddr) -> std::io::Result<BTreeMap<u64, u64>> {
    let mut client = Client::connect(address).await?;
    let request_id = client.request_id();
    let subscribe = CommandSubscribe {
        topic: VIEW.to_owned(),
        subscription: "views".to_owned(),
        sub_type: 0,
        consumer_id: 1,
        request_id,
        durable: Some(false),
        read_compacted: Some(true),
        initial_position: Some(1),
        ..CommandSubscribe::default()
    };
    client.send(subscribe).await?;
    client.answer().await?;
    let request_id = client.request_id();
    client.send(CommandGetLastMessageId { consumer_id: 1, request_id }).await?;
    let last = loop {
        if let Command::GetLastMessageIdResponse(last) = client.answer().await?.command {
            break id(&last.last_message_id);
        }
    };
    client.flow(1, u32::MAX).await?;
    let mut values = BTreeMap::new();
    let mut at = (0, 0);
    while last.1 != u64::MAX && at != last {
        let frame = client.answer().await?;
        let Command::Message(message) = frame.command else { continue };
        at = id(&message.message_id);
        let value = frame.payload.and_then(|payload| number(&payload.body()));
        let value = value.unwrap_or_else(|| panic!("value at {at:?} is not whole"));
        values.insert(value % KEYS, value);
    }
    Ok(values)
}
