//! A topic that is read whole: from its start to the end looked up at the beginning, and followed
//! from then on.

use super::KeptFollower;
use crate::transport::{Message, Position, TransportError};

/// Maximum number of messages returned together.
const AT_ONCE_MAX: usize = 256;

/// Events of a topic that is read whole.
#[derive(Debug)]
pub(crate) enum TopicReadEvent {
    /// Messages, in order.
    Messages(Vec<Message>),
    /// Everything stored at the beginning was read. Comes once.
    ToEnd,
}

/// Reads a topic to its end and then follows it.
pub(crate) struct WholeFollower {
    follower: KeptFollower,
    stage: TopicReadStage,
}

#[derive(Clone, Copy, Debug)]
enum TopicReadStage {
    /// The end of the topic is not known.
    Begins,
    /// The topic ended here.
    Reads(Option<Position>),
    /// The topic was read to its end.
    Follows,
}

impl WholeFollower {
    pub(crate) const fn new(follower: KeptFollower) -> Self {
        Self { follower, stage: TopicReadStage::Begins }
    }

    /// Whether a message was read: the next session continues behind it.
    pub(crate) const fn has_read(&self) -> bool {
        self.follower.has_read()
    }

    /// The next event. After an error the next call continues where this one stopped. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<TopicReadEvent, TransportError> {
        loop {
            match &mut self.stage {
                TopicReadStage::Begins => {
                    self.stage = TopicReadStage::Reads(self.follower.last_position().await?);
                }
                TopicReadStage::Reads(end) if *end <= self.follower.read_to() => {
                    self.stage = TopicReadStage::Follows;
                    return Ok(TopicReadEvent::ToEnd);
                }
                TopicReadStage::Reads(end) => {
                    if let Some(message) = self.follower.next_up_to(Some(end)).await? {
                        return Ok(self.with_more(message));
                    }
                }
                TopicReadStage::Follows => {
                    let message = self.follower.next().await?;
                    return Ok(self.with_more(message));
                }
            }
        }
    }

    fn with_more(&mut self, message: Message) -> TopicReadEvent {
        let mut some = vec![message];
        while some.len() < AT_ONCE_MAX
            && let Some(message) = self.follower.more()
        {
            some.push(message);
        }
        TopicReadEvent::Messages(some)
    }
}
