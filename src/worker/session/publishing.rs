//! Publishes what the driver puts into a mailbox.

use super::Service;
use crate::clock::Clock;
use crate::protocol::moment::Moment;
use crate::transport::{Batching, OnReceipt, Outgoing, Publisher, Schema, TransportError};
use crate::worker::mailbox::Mailbox;

/// What is published, and where its receipt goes.
pub(in crate::worker) struct Publish {
    pub(in crate::worker) message: Outgoing,
    /// Dropped, which tells that the fate is unknown, when the publish was given up before it was handed over.
    pub(in crate::worker) on_receipt: OnReceipt,
    /// Not handed over after this time. A claim would come back too late to be run, and a row of heartbeats that had all waited for
    /// the broker would look like an outage that never was.
    pub(in crate::worker) expires: Option<Moment>,
}

/// A publisher service: what is put into the mailbox is published in order.
pub(in crate::worker) async fn publish(
    service: Service,
    batching: Batching,
    schema: Schema,
    mailbox: Mailbox<Publish>,
) {
    let Service { transport, topic, monitor, mut backoff, clock } = service;
    loop {
        let mut publisher = match transport.publisher(&topic, batching, schema).await {
            Ok(publisher) => publisher,
            Err(error) => {
                tracing::debug!(%topic, %error, "cannot open a publisher; trying again");
                let now = clock.now();
                mailbox.retain(|it| it.expires.is_none_or(|at| now <= at));
                monitor.failed(&error);
                backoff.wait().await;
                continue;
            }
        };
        monitor.opened();
        let opened = clock.now();
        let error = publish_until_lost(&mut *publisher, &mailbox, &clock).await;
        tracing::debug!(%topic, %error, "publisher lost");
        monitor.lost(&error);
        backoff.was_open_for(clock.now().since(opened));
        backoff.wait().await;
    }
}

/// Publishes what is put into the mailbox. What comes when the publisher is over waits for the next one.
pub(super) async fn publish_until_lost(
    publisher: &mut dyn Publisher,
    mailbox: &Mailbox<Publish>,
    clock: &Clock,
) -> TransportError {
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
