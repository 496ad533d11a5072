//! Drops every future of the transport at any moment: nothing is left open at the broker, nothing
//! is lost or done twice, and the transport continues to work.
//!
//! Several actors share one transport to an embedded broker. `LONGHAUL_CANCEL_ROUNDS` sets more
//! calls than the default of 2,000. A seed determines the calls and where each is dropped; a failed
//! test prints it, and `LONGHAUL_CANCEL_SEED` sets it. The broker and its connection are real, so
//! the same seed need not fail each time.

#![allow(clippy::print_stdout, reason = "the figures are for the person who runs it by hand")]

use crate::support::within;
use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use integration_tests::stopwatch;
use longhaul::{EntryId, Position};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{
    Batching, Consumer, Follow, Follower, Message, Outgoing, Publisher, Start, TopicPartition,
    TopicSchema, Transport,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const ACTORS: u64 = 6;
const TOPICS: usize = 3;
const SUBSCRIPTION: &str = "s";
const EARLIEST: Follow = Follow { start: Start::Earliest, compacted: false };
/// The limit for everything that is not interrupted.
const PATIENCE: Duration = Duration::from_secs(60);
/// The wait after which a call without a wake-up is interrupted.
const NAP: Duration = Duration::from_millis(20);

/// Polls a future a few times, or for a moment, and then takes its result or drops it. A future
/// that was woken just before the drop has its result ready, unseen.
async fn interrupt<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match fastrand::u8(0..10) {
        0..=3 => Some(timeout(PATIENCE, future).await.expect("it hangs")),
        4 => timeout(Duration::from_micros(fastrand::u64(0..3_000)), future).await.ok(),
        _ => {
            let mut left = fastrand::u8(0..5);
            let polled = poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                future.as_mut().poll(context).map(Some)
            });
            timeout(NAP, polled).await.ok().flatten()
        }
    }
}

/// The state of a topic that all actors share.
#[derive(Debug, Default)]
struct Known {
    /// Messages with a receipt, by their numbers.
    receipts: BTreeMap<u64, Position>,
    /// Messages that were handed over or tried.
    tried: BTreeSet<u64>,
    /// Entries whose acks are confirmed.
    acked: BTreeSet<EntryId>,
}

struct Scene {
    transport: PulsarTransport,
    url: String,
    topics: Vec<(TopicPartition, Mutex<Known>)>,
}

impl Scene {
    fn known(&self, topic: usize) -> MutexGuard<'_, Known> {
        self.topics[topic].1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn topic(&self, topic: usize) -> &TopicPartition {
        &self.topics[topic].0
    }
}

fn outgoing(number: u64) -> Outgoing {
    let payload = vec![b'x'; fastrand::usize(0..2_000)];
    Outgoing { key: Some(number.to_string()), payload: payload.into(), ..Outgoing::default() }
}

fn number_of(message: &Message) -> Option<u64> {
    message.key.as_deref()?.parse().ok()
}

/// The handles that an actor has open on its topic.
struct Actor {
    scene: Arc<Scene>,
    topic: usize,
    next: u64,
    publisher: Option<Box<dyn Publisher>>,
    consumer: Option<Box<dyn Consumer>>,
    held: Vec<EntryId>,
    /// The last message of the consumer.
    last: Option<Position>,
    follower: Option<Box<dyn Follower>>,
    /// The positions that the follower has seen, without gaps.
    seen: Vec<Position>,
    /// The positions that earlier followers have seen.
    read: Vec<Vec<Position>>,
    /// How often each call was made, and how often it was allowed to finish.
    calls: BTreeMap<&'static str, (u64, u64)>,
}

impl Actor {
    async fn run(mut self, rounds: u64) -> Result<Self> {
        for _ in 0..rounds {
            self.step().await?;
        }
        Ok(self)
    }

    async fn call<T>(&mut self, name: &'static str, future: impl Future<Output = T>) -> Option<T> {
        let result = interrupt(future).await;
        let calls = self.calls.entry(name).or_default();
        calls.0 += 1;
        calls.1 += u64::from(result.is_some());
        result
    }

    async fn step(&mut self) -> Result<()> {
        match fastrand::u8(0..38) {
            0 => self.connect().await,
            1 | 2 => self.partitions().await,
            3..=5 => self.open_publisher().await,
            6..=15 => self.send().await,
            16..=18 => self.open_consumer().await,
            19..=23 => self.consume().await,
            24..=26 => self.ack().await,
            27 => self.hand_back().await,
            28 => self.backlog().await,
            29..=31 => self.open_follower().await,
            32..=34 => self.follow().await,
            35 => self.last_position().await,
            36 => self.fetch().await,
            _ => {
                self.publisher = None;
                Ok(())
            }
        }
    }

    async fn connect(&mut self) -> Result<()> {
        let options = ConnectOptions::new(&self.scene.url);
        self.call("connect", PulsarTransport::connect(options)).await.transpose()?;
        Ok(())
    }

    async fn partitions(&mut self) -> Result<()> {
        let scene = Arc::clone(&self.scene);
        let name = &scene.topic(self.topic).topic;
        let found = self.call("partitions", scene.transport.partitions(name)).await.transpose()?;
        ensure!(found.flatten().is_none(), "partitions: {found:?}");
        Ok(())
    }

    async fn open_publisher(&mut self) -> Result<()> {
        let scene = Arc::clone(&self.scene);
        let batching = if fastrand::bool() { Batching::On } else { Batching::Off };
        let topic = scene.topic(self.topic);
        let opening = Transport::publisher(&scene.transport, topic, batching, TopicSchema::None);
        if let Some(publisher) = self.call("publisher", opening).await {
            self.publisher = Some(publisher?);
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        let Some(mut publisher) = self.publisher.take() else { return self.open_publisher().await };
        for _ in 0..fastrand::u8(1..8) {
            self.next += 1;
            let number = self.next;
            self.scene.known(self.topic).tried.insert(number);
            let Some(receipt) = self.call("send", publisher.send(outgoing(number))).await else {
                continue;
            };
            match self.call("receipt", receipt?).await {
                Some(Ok(place)) => {
                    self.scene.known(self.topic).receipts.insert(number, place);
                }
                Some(Err(cause)) => return Err(cause.into()),
                None => {}
            }
        }
        self.publisher = Some(publisher);
        Ok(())
    }

    async fn open_consumer(&mut self) -> Result<()> {
        let scene = Arc::clone(&self.scene);
        if fastrand::bool() && self.consumer.is_some() {
            return Ok(());
        }
        let topic = scene.topic(self.topic);
        let opening = Transport::consumer(&scene.transport, topic, SUBSCRIPTION);
        if let Some(consumer) = self.call("consumer", opening).await {
            self.consumer = Some(consumer?);
            self.last = None;
            self.held.clear();
        }
        Ok(())
    }

    async fn consume(&mut self) -> Result<()> {
        let Some(mut consumer) = self.consumer.take() else { return self.open_consumer().await };
        consumer.request(fastrand::usize(0..6));
        for _ in 0..fastrand::u8(1..6) {
            // There may be no message, and a complete wait would never end.
            let next = timeout(NAP, consumer.next());
            let Some(Ok(message)) = self.call("next", next).await else { continue };
            let place = message?.position;
            let entry = place.entry_id();
            // The rest of a batch is delivered even if the entry was acknowledged meanwhile.
            let is_rest = self
                .last
                .replace(place)
                .is_some_and(|last| last.entry_id() == entry && place > last);
            let is_acked = self.scene.known(self.topic).acked.contains(&entry);
            ensure!(is_rest || !is_acked, "{entry:?} came again after its ack was confirmed");
            self.held.push(entry);
        }
        self.consumer = Some(consumer);
        Ok(())
    }

    async fn ack(&mut self) -> Result<()> {
        let Some(mut consumer) = self.consumer.take() else { return Ok(()) };
        for entry in std::mem::take(&mut self.held) {
            let receipt = consumer.ack(entry);
            if let Some(confirmed) = self.call("ack", receipt).await {
                confirmed?;
                self.scene.known(self.topic).acked.insert(entry);
            }
        }
        self.consumer = Some(consumer);
        Ok(())
    }

    async fn hand_back(&mut self) -> Result<()> {
        let Some(mut consumer) = self.consumer.take() else { return Ok(()) };
        // The rest of its batch is held, too.
        if let Some(entry) = self.held.pop() {
            self.held.retain(|it| *it != entry);
            self.call("hand back", consumer.hand_back(entry)).await.transpose()?;
        }
        self.consumer = Some(consumer);
        Ok(())
    }

    async fn backlog(&mut self) -> Result<()> {
        let Some(mut consumer) = self.consumer.take() else { return Ok(()) };
        self.call("backlog", consumer.backlog()).await.transpose()?;
        self.consumer = Some(consumer);
        Ok(())
    }

    async fn open_follower(&mut self) -> Result<()> {
        let scene = Arc::clone(&self.scene);
        let follow = Follow { start: Start::Earliest, compacted: false };
        let opening = Transport::follower(&scene.transport, scene.topic(self.topic), follow);
        if let Some(follower) = self.call("follower", opening).await {
            self.read.push(std::mem::take(&mut self.seen));
            self.follower = Some(follower?);
        }
        Ok(())
    }

    async fn follow(&mut self) -> Result<()> {
        let Some(mut follower) = self.follower.take() else { return self.open_follower().await };
        for _ in 0..fastrand::u8(1..30) {
            let next = timeout(NAP, follower.next());
            if let Some(Ok(message)) = self.call("follower next", next).await {
                self.seen.push(message?.position);
            }
        }
        self.follower = Some(follower);
        Ok(())
    }

    async fn last_position(&mut self) -> Result<()> {
        let Some(mut follower) = self.follower.take() else { return Ok(()) };
        self.call("last position", follower.last_position()).await.transpose()?;
        self.follower = Some(follower);
        Ok(())
    }

    async fn fetch(&mut self) -> Result<()> {
        let scene = Arc::clone(&self.scene);
        let receipts: Vec<(u64, Position)> =
            scene.known(self.topic).receipts.iter().map(|(number, at)| (*number, *at)).collect();
        let Some((number, at)) = fastrand::choice(receipts) else { return Ok(()) };
        let fetching = scene.transport.fetch(scene.topic(self.topic), at);
        if let Some(found) = self.call("fetch", fetching).await {
            let found = found?.with_context(|| format!("{at:?} is gone"))?;
            ensure!(number_of(&found) == Some(number), "another message lies at {at:?}");
        }
        Ok(())
    }
}

/// Reads a topic from its beginning to its end.
async fn read_all(transport: &PulsarTransport, topic: &TopicPartition) -> Result<Vec<Message>> {
    let mut follower =
        within("a follower", Transport::follower(transport, topic, EARLIEST)).await??;
    let last = within("the end", follower.last_position()).await??;
    let mut messages: Vec<Message> = Vec::new();
    while messages.last().map(|it| it.position) < last {
        messages.push(within("a message", follower.next()).await??);
    }
    Ok(messages)
}

/// Consumes the remaining messages of a topic and acknowledges them.
async fn drain(scene: &Scene, topic: usize) -> Result<u64> {
    let name = scene.topic(topic);
    let mut consumer =
        within("a consumer", Transport::consumer(&scene.transport, name, SUBSCRIPTION)).await??;
    let mut drained = 0;
    while within("the backlog", consumer.backlog()).await??.entries > 0 {
        let message = within("what is left", consumer.next()).await??;
        let entry = message.position.entry_id();
        let is_rest = message.position.batch_index.unwrap_or_default() > 0;
        ensure!(is_rest || !scene.known(topic).acked.contains(&entry), "{entry:?} came again");
        // The first message of a batch acknowledges the whole batch; the others are still
        // delivered.
        if !is_rest {
            within("an ack", consumer.ack(entry)).await??;
        }
        drained += 1;
    }
    Ok(drained)
}

/// Compares the stored messages with the receipts.
async fn check(scene: &Scene, topic: usize, actors: &[Actor]) -> Result<()> {
    let messages = read_all(&scene.transport, scene.topic(topic)).await?;
    let mut stored = BTreeMap::new();
    for message in &messages {
        let Some(number) = number_of(message) else { continue };
        let before = stored.insert(number, message.position);
        ensure!(before.is_none(), "message {number} is stored twice");
    }
    let known = scene.known(topic);
    ensure!(stored.keys().all(|number| known.tried.contains(number)), "more than was sent");
    for (number, place) in &known.receipts {
        ensure!(stored.get(number) == Some(place), "message {number} is not at {place:?}");
    }
    let places: Vec<Position> = messages.iter().map(|it| it.position).collect();
    for actor in actors.iter().filter(|it| it.topic == topic) {
        for seen in actor.read.iter().chain([&actor.seen]) {
            ensure!(places.starts_with(seen), "a follower has missed something");
        }
    }
    Ok(())
}

async fn stats(broker: &Broker, topic: &TopicPartition) -> Result<Value> {
    let admin = broker.admin_url().context("no admin interface")?;
    let name = topic.to_string().replacen("://", "/", 1);
    let answer = reqwest::get(format!("{admin}/admin/v2/{name}/stats")).await?;
    Ok(serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?)
}

/// Producers and consumers of a topic, as the broker sees them.
fn handles(stats: &Value) -> (usize, usize) {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    let subscriptions = stats["subscriptions"].as_object().into_iter().flatten();
    (count(&stats["publishers"]), subscriptions.map(|(_, it)| count(&it["consumers"])).sum())
}

/// Waits until the broker has no client on the topic.
async fn nobody_is_left(broker: &Broker, topic: &TopicPartition) -> Result<()> {
    let mut left = (0, 0);
    for _ in 0..100 {
        left = handles(&stats(broker, topic).await?);
        if left == (0, 0) {
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err(anyhow::anyhow!("producers and consumers that nobody has: {left:?}"))
}

async fn scene(broker: &Broker) -> Result<Arc<Scene>> {
    let url = broker.service_url().to_owned();
    let transport = PulsarTransport::connect(ConnectOptions::new(&url)).await?;
    let topics = (0..TOPICS).map(|index| {
        let topic = format!("persistent://public/default/cancel-{index}");
        (TopicPartition { topic, partition: -1 }, Mutex::default())
    });
    let scene = Arc::new(Scene { transport, url, topics: topics.collect() });
    for topic in 0..TOPICS {
        // The topic and its subscription exist from the beginning. Another subscription, which is
        // never read, keeps all messages.
        for name in [SUBSCRIPTION, "kept"] {
            drop(Transport::consumer(&scene.transport, scene.topic(topic), name).await?);
        }
    }
    Ok(scene)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_future_may_be_dropped_at_any_moment() -> Result<()> {
    let rounds: u64 = std::env::var("LONGHAUL_CANCEL_ROUNDS").map_or(Ok(2_000), |it| it.parse())?;
    let seed: u64 = match std::env::var("LONGHAUL_CANCEL_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::u64(..),
    };
    // All actors run on the thread of the test, and so do all their random choices.
    fastrand::seed(seed);
    println!("LONGHAUL_CANCEL_SEED={seed}");
    let watch = stopwatch();
    // The HTTP client needs a crypto provider even for plain HTTP.
    rustls::crypto::ring::default_provider().install_default().ok();
    let broker = Broker::start(BrokerConfig::default())?;
    let scene = scene(&broker).await?;
    let actors = (0..ACTORS).map(|index| Actor {
        scene: Arc::clone(&scene),
        topic: usize::try_from(index).expect("a few") % TOPICS,
        next: index << 32,
        publisher: None,
        consumer: None,
        held: Vec::new(),
        last: None,
        follower: None,
        seen: Vec::new(),
        read: Vec::new(),
        calls: BTreeMap::new(),
    });
    let runs = actors.map(|actor| actor.run(rounds / ACTORS));
    let mut actors = join_all(runs).await.into_iter().collect::<Result<Vec<Actor>>>()?;
    let mut calls: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for actor in &mut actors {
        (actor.publisher, actor.consumer, actor.follower) = (None, None, None);
        for (name, (made, finished)) in &actor.calls {
            let all = calls.entry(name).or_default();
            *all = (all.0 + made, all.1 + finished);
        }
    }
    for topic in 0..TOPICS {
        nobody_is_left(&broker, scene.topic(topic)).await?;
        let drained = drain(&scene, topic).await?;
        check(&scene, topic, &actors).await?;
        nobody_is_left(&broker, scene.topic(topic)).await?;
        let known = scene.known(topic);
        println!(
            "{}: {} tried, {} receipts, {} acked, {drained} drained",
            scene.topic(topic),
            known.tried.len(),
            known.receipts.len(),
            known.acked.len()
        );
    }
    println!("{rounds} rounds in {:?}; calls made and finished: {calls:#?}", watch());
    broker.shutdown()?;
    Ok(())
}
