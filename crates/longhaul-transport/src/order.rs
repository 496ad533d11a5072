//! Which messages are delivered in order, and to whom.

use super::Message;
use bytes::Bytes;

/// By which key a Key_Shared subscription deals a message: that of its entry. See
/// [`Message::order_key`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OrderKey {
    /// By the message's own partition key, if it has one.
    #[default]
    OfMessage,
    /// By another one: the ordering key, or the key of the batch that the message came in.
    Other(Bytes),
    /// By none, whatever key the message has in its batch.
    None,
}

impl Message {
    /// The key whose messages a Key_Shared subscription keeps in order; `None` when it has none.
    #[must_use]
    pub fn order_key(&self) -> Option<&[u8]> {
        match &self.order_key {
            OrderKey::OfMessage => self.key.as_deref().map(str::as_bytes),
            OrderKey::Other(key) => Some(key),
            OrderKey::None => None,
        }
    }
}

/// How the consumers of a durable subscription share its messages. All that are connected have the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SubscriptionType {
    /// Each message goes to any of them.
    #[default]
    Shared,
    /// The messages of one key go to one consumer at a time, in order, and to another one only when
    /// that one has none of them any more.
    KeyShared,
}
