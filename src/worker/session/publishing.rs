//! Publishes what the driver puts into a mailbox.

use crate::clock::Clock;
use crate::supervise::{KeptPublisher, SessionSupervisor};
use crate::transport::{Batching, OnReceipt, Outgoing, TopicSchema, TransportError};
use crate::worker::mailbox::Mailbox;
use longhaul_core::protocol::moment::Moment;

/// What is published, and where its receipt goes.
pub(in crate::worker) struct Publish {
    pub(in crate::worker) message: Outgoing,
    /// Dropped, which tells that the fate is unknown, when the publish was given up before it was
    /// handed over.
    pub(in crate::worker) on_receipt: OnReceipt,
    /// Not handed over after this time. A claim would come back too late to be run, and a row of
    /// heartbeats that had all waited for the broker would look like an outage that never was.
    pub(in crate::worker) expires: Option<Moment>,
}

/// A publisher service: what is put into the mailbox is published in order.
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

/// Publishes what is put into the mailbox. What comes when the session is over waits for the next
/// one.
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
