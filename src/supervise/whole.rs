//! A topic that is read whole: from its start to where it ended when that was looked up, and
//! followed from then on.

use super::KeptFollower;
use crate::transport::{Message, Position, TransportError};

/// Messages that are handed out together.
const AT_ONCE_MAX: usize = 256;

/// What a topic that is read whole has to say.
#[derive(Debug)]
pub(crate) enum TopicReadEvent {
    /// Messages, in order.
    Messages(Vec<Message>),
    /// All is read that stood there when this began. Once.
    ToEnd,
}

/// See the module's documentation.
pub(crate) struct WholeFollower {
    follower: KeptFollower,
    stage: TopicReadStage,
}

#[derive(Clone, Copy, Debug)]
enum TopicReadStage {
    /// Where the topic ends is not known.
    Begins,
    /// It ended here.
    Reads(Option<Position>),
    /// It was read to its end.
    Follows,
}

impl WholeFollower {
    pub(crate) const fn new(follower: KeptFollower) -> Self {
        Self { follower, stage: TopicReadStage::Begins }
    }

    /// Whether a message was read: the next session goes on behind it.
    pub(crate) const fn has_read(&self) -> bool {
        self.follower.has_read()
    }

    /// What comes next. After an error the next call goes on where this one stopped. May be dropped
    /// and called again.
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
