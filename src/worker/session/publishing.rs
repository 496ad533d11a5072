//! Publishes the messages that the driver puts into a mailbox.

use crate::clock::Clock;
use crate::supervise::{KeptPublisher, SessionSupervisor};
use crate::transport::{Batching, OnReceipt, Outgoing, TopicSchema, TransportError};
use crate::worker::mailbox::Mailbox;
use longhaul_core::protocol::moment::Moment;

/// A message to publish, and the channel for its receipt.
pub(in crate::worker) struct Publish {
    pub(in crate::worker) message: Outgoing,
    /// Dropped if the publish was given up before it was handed over, which reports an unknown
    /// result.
    pub(in crate::worker) on_receipt: OnReceipt,
    /// The message is not handed over after this time. A late claim could not be run, and a row of
    /// heartbeats that had all waited for the broker would look like an outage.
    pub(in crate::worker) expires: Option<Moment>,
}

/// A publisher service: publishes the messages of the mailbox in order.
pub(in crate::worker) async fn publish(
    service: SessionSupervisor,
    batching: Batching,
    schema: TopicSchema,
    mailbox: Mailbox<Publish>,
) {
    let clock = service.clock;
    let mut publisher = KeptPublisher::new(service, batching, schema);
    loop {
        publish_until_lost(&mut publisher, &mailbox, &clock).await;
        let now = clock.now();
        mailbox.retain(|letter| letter.expires.is_none_or(|at| now <= at));
    }
}

/// Publishes the messages of the mailbox until the session ends. Later messages wait for the next
/// session.
pub(super) async fn publish_until_lost(
    publisher: &mut KeptPublisher,
    mailbox: &Mailbox<Publish>,
    clock: &Clock,
) -> TransportError {
    if let Err(error) = publisher.open().await {
        return error;
    }
    loop {
        tokio::select! {
            biased;
            error = publisher.ended() => return error,
            () = mailbox.arrived() => {}
        }
        if let Err(error) = publisher.ready().await {
            return error;
        }
        while let Some(Publish { message, on_receipt, expires }) = mailbox.pop() {
            let expired = expires.is_some_and(|at| clock.now() > at);
            if !expired && !publisher.put(message, on_receipt) {
                break;
            }
        }
    }
}
