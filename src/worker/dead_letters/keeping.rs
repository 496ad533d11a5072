//! Removes dead letters after their retention. Done by the worker that keeps the metadata topic of
//! the queue's first partition, if there is a limit. Two workers doing it at once do no harm.

use super::DeadLetterPolicy;
use super::ring::{RetainedLetter, Ring};
use crate::letters::{self, LetterMessageKind};
use crate::supervise::{
    KeptFollower, KeptPublisher, SessionSupervisor, TopicReadEvent, WholeFollower,
};
use crate::topics::DEAD_LETTER_SUBSCRIPTION;
use crate::transport::{
    Batching, Consumer, Follow, Message, OnReceipt, Start, TopicPartition, TopicSchema, Transport,
    TransportError, TransportErrorKind,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Interval at which the time is checked again, whatever a clock does meanwhile.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Pause after an error.
const PAUSE: Duration = Duration::from_secs(5);

/// The dependencies of the service: a session each to read, to publish and to acknowledge.
pub(in crate::worker) struct LetterKeeping {
    pub(in crate::worker) policy: DeadLetterPolicy,
    pub(in crate::worker) reading: SessionSupervisor,
    pub(in crate::worker) publishing: SessionSupervisor,
    /// The name in the mark of a removed letter.
    pub(in crate::worker) name: String,
}

/// The service. It ends when it is aborted.
pub(in crate::worker) async fn keep(keeping: LetterKeeping) {
    let LetterKeeping { policy, reading, publishing, name } = keeping;
    let clock = reading.clock;
    let from_start = Follow { start: Start::Earliest, compacted: true };
    let mut follower = WholeFollower::new(KeptFollower::new(reading, from_start));
    let (transport, topic) = (Arc::clone(&publishing.transport), publishing.topic.clone());
    let publisher = KeptPublisher::new(publishing, Batching::Off, TopicSchema::None);
    let mut marks = LetterMarks { transport, topic, publisher, consumer: None, name };
    let (mut ring, mut to_end) = (Ring::new(policy), false);
    loop {
        let now_ms = clock.wall_ms();
        let goes = ring.next_to_go(now_ms).filter(|_| to_end || ring.is_full());
        if let Some((kept, why)) = goes {
            match marks.let_go(&kept, why).await {
                Ok(()) => ring.handled(kept.task),
                Err(error) => {
                    tracing::debug!(%error, "a dead letter cannot go yet");
                    sleep(PAUSE).await;
                }
            }
            continue;
        }
        let due = ring
            .due_ms()
            .map_or(LOOK_AGAIN_AFTER, |at| Duration::from_millis(at.saturating_sub(now_ms)));
        let due = due.clamp(Duration::from_millis(1), LOOK_AGAIN_AFTER);
        if ring.is_full() {
            sleep(due).await;
            continue;
        }
        match timeout(due, follower.next()).await {
            Ok(Ok(TopicReadEvent::Messages(messages))) => {
                messages.iter().for_each(|message| take(&mut ring, message))
            }
            Ok(Ok(TopicReadEvent::ToEnd)) => to_end = true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the dead letters cannot be read");
                sleep(PAUSE).await;
            }
            Err(_) => {}
        }
    }
}

fn take(ring: &mut Ring, message: &Message) {
    match letters::kind(message) {
        Some(LetterMessageKind::Letter(task)) => {
            ring.put(task, message.position, message.publish_time_ms)
        }
        Some(LetterMessageKind::Mark(task)) => ring.handled(task),
        None => {}
    }
}

/// Marks letters as handled.
struct LetterMarks {
    transport: Arc<dyn Transport>,
    topic: TopicPartition,
    publisher: KeptPublisher,
    consumer: Option<Box<dyn Consumer>>,
    name: String,
}

impl LetterMarks {
    async fn let_go(&mut self, kept: &RetainedLetter, why: &str) -> Result<(), TransportError> {
        self.publisher.ready().await?;
        let (on_receipt, receipt) = OnReceipt::awaited();
        self.publisher.put(letters::mark(kept.task, &self.name, "expire", why, None), on_receipt);
        let unknown =
            |error| TransportError::new(TransportErrorKind::Unreachable, &self.topic, error);
        let mark = receipt.await.map_err(unknown)?;
        if self.consumer.is_none() {
            let opened = self.transport.consumer(&self.topic, DEAD_LETTER_SUBSCRIPTION);
            self.consumer = Some(opened.await?);
        }
        let Some(consumer) = &mut self.consumer else { return Ok(()) };
        for position in [kept.at, mark].iter().filter(|position| position.batch_index.is_none()) {
            if let Err(error) = consumer.ack(position.entry_id()).await {
                self.consumer = None;
                return Err(error);
            }
        }
        Ok(())
    }
}
