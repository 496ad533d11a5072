//! Publishers on a broker that refuses all publishers.

use super::*;
use crate::supervise::{Backoff, Connections};
use crate::transport::{
    Batching, Consumer, Follow, Follower, OnReceipt, Outgoing, Publisher, Receipt,
    SubscriptionType, TopicPartition, TopicSchema, Transport,
};
use async_trait::async_trait;
use futures::FutureExt;
use longhaul_core::task::Position;
use std::sync::atomic::AtomicU32;
use tokio::task::JoinSet;

const MINUTE: Duration = Duration::from_secs(60);

fn error() -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, "here", "not today")
}

/// A broker that opens no publisher, or ends each as soon as it is open.
#[derive(Debug)]
struct Refusing {
    opens: bool,
    tries: AtomicU32,
}

#[async_trait]
impl Transport for Refusing {
    async fn partitions(&self, _: &str) -> Result<Option<u32>, TransportError> {
        Err(error())
    }

    async fn publisher(
        &self,
        _: &TopicPartition,
        _: Batching,
        _: TopicSchema,
    ) -> Result<Box<dyn Publisher>, TransportError> {
        if self.tries.fetch_add(1, Ordering::Relaxed) > 1_000 {
            // A caller that does not wait would retry for ever.
            std::future::pending::<()>().await;
        }
        if self.opens { Ok(Box::new(EndedPublisher)) } else { Err(error()) }
    }

    async fn subscribe(
        &self,
        _: &TopicPartition,
        _: &str,
        _: SubscriptionType,
    ) -> Result<Box<dyn Consumer>, TransportError> {
        Err(error())
    }

    async fn follower(
        &self,
        _: &TopicPartition,
        _: Follow,
    ) -> Result<Box<dyn Follower>, TransportError> {
        Err(error())
    }

    async fn fetch(
        &self,
        _: &TopicPartition,
        _: Position,
    ) -> Result<Option<Message>, TransportError> {
        Err(error())
    }
}

struct EndedPublisher;

#[async_trait]
impl Publisher for EndedPublisher {
    async fn ended(&mut self) -> TransportError {
        error()
    }

    async fn ready(&mut self) -> Result<(), TransportError> {
        Err(error())
    }

    fn put(&mut self, _: Outgoing, _: OnReceipt) -> bool {
        false
    }
}

/// A publisher service on such a broker, and its mailbox.
fn publishing(opens: bool, clock: Clock) -> (Arc<Refusing>, Mailbox<Publish>, JoinSet<()>) {
    let transport = Arc::new(Refusing { opens, tries: AtomicU32::new(0) });
    let topic = TopicPartition { topic: "tasks".to_owned(), partition: -1 };
    let monitor = Monitor::new(&Arc::new(Connections::new(clock)));
    let backoff = Backoff::of_worker(fastrand::Rng::with_seed(1), Duration::from_secs(10));
    let service =
        SessionSupervisor::new(Arc::clone(&transport) as _, topic, monitor, backoff, clock);
    let (mailbox, mut services) = (Mailbox::new(), JoinSet::new());
    services.spawn(publish(service, Batching::Off, TopicSchema::None, mailbox.clone()));
    (transport, mailbox, services)
}

/// A broker that refuses must not be asked at full speed.
#[tokio::test(start_paused = true)]
async fn a_publisher_is_opened_ever_more_rarely_while_it_is_refused_or_ends_at_once() {
    for opens in [false, true] {
        let (transport, _mailbox, _services) =
            publishing(opens, longhaul_memory::simulated_clock(0));
        tokio::time::sleep(MINUTE).await;
        let tries = transport.tries.load(Ordering::Relaxed);
        // Waits that double from 100 ms to 5 s, reduced by up to a half each, and then waits of 2.5
        // s to 5 s.
        assert!((12..=32).contains(&tries), "{tries} tries in a minute");
    }
}

/// Earlier, expired entries piled up for as long as an outage lasted.
#[tokio::test(start_paused = true)]
async fn what_has_expired_is_dropped_while_no_publisher_opens() {
    let clock = longhaul_memory::simulated_clock(0);
    let (_, mailbox, _services) = publishing(false, clock);
    let second = Duration::from_secs(1);
    // The service has not begun: all entries are there at its first try.
    let now = clock.now();
    let mut put = |expires| {
        let (on_receipt, fate) = OnReceipt::awaited();
        mailbox.put(Publish { message: Outgoing::default(), on_receipt, expires });
        fate
    };
    let mut fates = [Some(now + second), Some(now), None].map(&mut put);
    let mut dropped = [false; 3];
    let mut look = |fates: &mut [Receipt; 3]| {
        for (fate, dropped) in fates.iter_mut().zip(&mut dropped) {
            *dropped = *dropped || fate.now_or_never().is_some();
        }
        dropped
    };
    tokio::task::yield_now().await;
    assert_eq!(look(&mut fates), [false; 3], "one that expires now may go out now");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(look(&mut fates), [true, true, false]);
}
