//! The driver's side of connections: what is composed, queued and sent.

use super::BrokerDriver;
use crate::machine::COPIED_BYTES_MAX;
use crate::machine::effect::MessageSource;
use crate::server::connection::Rules;
use crate::server::messages::message_of;
use crate::server::outbox::{Outbox, OutboxChunk};
use bytes::BytesMut;
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandMessage};
use std::sync::Arc;

/// Maximum bytes that are reserved for a connection's next output.
const CAPACITY_MAX: usize = 256 * 1024;

/// The driver's side of a connection.
#[derive(Debug)]
pub(super) struct ConnectionLink {
    pub(super) outbox: Arc<Outbox>,
    /// Composed and not yet queued.
    buffer: BytesMut,
    /// Bytes that were queued last.
    capacity: usize,
    /// How many of the composed bytes are answers.
    answers: usize,
    credit: u64,
}

impl ConnectionLink {
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, buffer: BytesMut::new(), capacity: 0, answers: 0, credit: 0 }
    }
}

impl BrokerDriver {
    fn link(&mut self, conn: u64) -> Option<&mut ConnectionLink> {
        let link = self.links.get_mut(&conn)?;
        if link.buffer.is_empty() {
            self.touched.push(conn);
            // Outputs usually have a similar size. An idle connection keeps no memory.
            link.buffer.reserve(link.capacity.min(CAPACITY_MAX));
        }
        Some(link)
    }

    pub(super) fn send(&mut self, conn: u64, command: Command) {
        if let Some(link) = self.link(conn) {
            let before = link.buffer.len();
            frame::encode(command, &mut link.buffer);
            link.answers += link.buffer.len() - before;
        }
    }

    pub(super) fn deliver(
        &mut self,
        conn: u64,
        command: CommandMessage,
        source: MessageSource,
        bytes: u32,
    ) {
        let credit = u64::from(bytes);
        let body = match source {
            MessageSource::Memory(body) => body,
            source @ (MessageSource::Log(_) | MessageSource::Compacted(..)) => {
                self.queue(conn);
                let held = self.messages.hold(source);
                let sent = match (self.links.get(&conn), held) {
                    (Some(link), Some(stored)) => {
                        link.outbox.push(OutboxChunk::Stored { command, stored, credit })
                    }
                    // Unreachable, because the message was dispatched just now; but the credit must
                    // never be lost.
                    (_, None) => credit,
                    (None, _) => 0,
                };
                self.written(conn, sent);
                return;
            }
        };
        let message = message_of(body);
        let Some(link) = self.link(conn) else { return };
        frame::encode_head(Command::Message(command), message.len(), &mut link.buffer);
        link.credit += credit;
        if message.len() <= COPIED_BYTES_MAX {
            link.buffer.extend_from_slice(&message);
            return;
        }
        self.queue(conn);
        if let Some(link) = self.links.get(&conn) {
            let sent =
                link.outbox.push(OutboxChunk::Ready { bytes: message, answers: 0, credit: 0 });
            self.written(conn, sent);
        }
    }

    /// Queues the composed output of a connection.
    pub(super) fn queue(&mut self, conn: u64) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if !link.buffer.is_empty() {
            let bytes = std::mem::take(&mut link.buffer).freeze();
            let answers = std::mem::take(&mut link.answers);
            let credit = std::mem::take(&mut link.credit);
            link.capacity = bytes.len();
            let sent = link.outbox.push(OutboxChunk::Ready { bytes, answers, credit });
            self.written(conn, sent);
        }
    }

    /// Sees to it that the machine learns in time what was sent.
    pub(super) fn set_window(&mut self, conn: u64, window: u64) {
        if let Some(link) = self.links.get(&conn) {
            link.outbox.tell_after(Rules::tell_after(window));
            self.collect_sent(conn);
        }
    }

    /// Fetches what was sent on a connection since the last time.
    pub(super) fn collect_sent(&mut self, conn: u64) {
        let sent = self.links.get(&conn).map_or(0, |link| link.outbox.take_sent());
        self.written(conn, sent);
    }

    /// Tells the machine about sent bytes, if there are any.
    fn written(&mut self, conn: u64, bytes: u64) {
        if bytes > 0 {
            self.machine.written(conn, bytes);
        }
    }

    pub(super) fn flush(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.drain(..).for_each(|conn| self.queue(conn));
        self.touched = touched;
    }
}
