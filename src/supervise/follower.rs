//! A follower that is reopened after errors.

use super::{Landmark, SessionSupervisor, no_answer};
use crate::clock::runtime_now;
use crate::transport::{
    Follow, Follower, Message, Position, Start, TransportError, TransportErrorKind,
};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a follower that is catching up waits for the next message before it looks up the end of
/// the topic again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A broker may stop sending although the session is open; this was seen with consumers. A follower
/// without a message for this long looks up the end of the topic, and is reopened if it has not
/// read that far.
const PATIENCE_MIN: Duration = Duration::from_secs(60);
/// The time doubles up to this one whenever reopening did not help: some topics end with an entry
/// that no follower receives.
const PATIENCE_MAX: Duration = Duration::from_secs(3_600);

/// Follows one partition across sessions: each continues behind the last message of the one before.
pub(crate) struct KeptFollower {
    service: SessionSupervisor,
    follow: Follow,
    /// Identifies the topic; a replacement is not followed.
    landmark: Option<Landmark>,
    follower: Option<Box<dyn Follower>>,
    /// When to check the silence; below, the patience until the next check.
    look_at: Instant,
    patience: Duration,
    /// Whether the last check found a message behind the last one read.
    is_missing: bool,
    view: ViewPart,
}

/// How much of the compacted view is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewPart {
    /// All of it.
    Whole,
    /// As much as the log does not have any more; where the log begins is not known yet.
    Rest,
    /// Up to here, where the log begins.
    Before(Option<Position>),
    /// It was read up to here. The log comes next, if it has not been trimmed meanwhile.
    UpTo(Position),
}

impl KeptFollower {
    pub(crate) fn new(service: SessionSupervisor, follow: Follow) -> Self {
        let (landmark, follower) = (None, None);
        let (look_at, patience) = (runtime_now() + PATIENCE_MIN, PATIENCE_MIN);
        let view = ViewPart::Whole;
        Self { service, follow, landmark, follower, look_at, patience, is_missing: false, view }
    }

    /// Makes it read of the compacted view only what the log does not have any more, and then the
    /// log: for a view that has lost messages. Both together are no compacted view: a rejected entry
    /// may be in the log while the accepted one before it is not in the view any more, because a
    /// later base replaces it. Nor is seen what the log loses to trimming after its first message
    /// was read. Who compares itself with others notices both.
    pub(crate) fn distrusting_view(mut self) -> Self {
        self.view = ViewPart::Rest;
        self
    }

    /// Makes it ignore a topic that has replaced the one with this landmark.
    pub(crate) fn only_where(mut self, landmark: Option<Landmark>) -> Self {
        self.landmark = landmark;
        self
    }

    /// Whether a message was read: the next session continues behind it.
    pub(crate) const fn has_read(&self) -> bool {
        matches!(self.follow.start, Start::After(_))
    }

    /// Position of the last message read.
    pub(crate) const fn read_to(&self) -> Option<Position> {
        match self.follow.start {
            Start::After(position) => Some(position),
            Start::Earliest | Start::Latest => None,
        }
    }

    /// Opens a session if none is open.
    pub(crate) async fn open(&mut self) -> Result<&mut dyn Follower, TransportError> {
        let open = match self.follower.take() {
            Some(open) => open,
            None => {
                let opening = self.opening();
                self.service.open(opening()).await?
            }
        };
        Ok(self.follower.insert(open).as_mut())
    }

    /// Opens a session for a caller that has not waited yet, retrying for a while. Returns the
    /// position of the topic's last message.
    pub(crate) async fn open_persistently(&mut self) -> Result<Option<Position>, TransportError> {
        let opening = self.opening();
        let opening = || {
            let opening = opening();
            async move {
                let mut follower = opening.await?;
                let last = follower.last_position().await?;
                Ok((follower, last))
            }
        };
        let (follower, last) = self.service.open_persistently(opening).await?;
        self.follower = Some(follower);
        Ok(last)
    }

    /// Makes the next session continue behind this message, or at the start if there is none.
    pub(crate) fn go_on_behind(&mut self, last: Option<Position>) {
        self.follow.start = last.map_or(Start::Earliest, Start::After);
    }

    fn opening(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, Result<Box<dyn Follower>, TransportError>> + use<> {
        let (transport, topic) = (Arc::clone(&self.service.transport), self.service.topic.clone());
        let (follow, landmark) = (self.follow, self.landmark.clone().filter(|_| self.has_read()));
        move || {
            let (transport, topic) = (Arc::clone(&transport), topic.clone());
            let landmark = landmark.clone();
            Box::pin(async move {
                let follower = transport.follower(&topic, follow).await?;
                if let Some(landmark) = landmark
                    && landmark.is_missing(&*transport, &topic).await?
                {
                    let cause = "another topic has taken its place";
                    return Err(TransportError::new(TransportErrorKind::NotFound, topic, cause));
                }
                Ok(follower)
            })
        }
    }

    /// The next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Message, TransportError> {
        loop {
            if self.view == ViewPart::Rest {
                self.view = ViewPart::Before(self.log_begins().await?);
            }
            let look_at = self.look_at;
            let follower = self.open().await?;
            let next = tokio::select! {
                biased;
                next = follower.next() => Some(next),
                () = sleep_until(look_at) => None,
            };
            if let Some(next) = next {
                let message = self.take_note(next)?;
                if self.takes(&message) {
                    self.came(&message);
                    return Ok(message);
                }
                continue;
            }
            self.look_after_silence().await?;
        }
    }

    /// The position of the first message of the log; `None` if there is none.
    async fn log_begins(&mut self) -> Result<Option<Position>, TransportError> {
        let (transport, topic) = (Arc::clone(&self.service.transport), self.service.topic.clone());
        let whole = Follow { start: Start::Earliest, compacted: false };
        let mut log = self.service.open(transport.follower(&topic, whole)).await?;
        let first = async {
            match log.last_position().await? {
                Some(_) => Ok(Some(log.next().await?.position)),
                None => Ok(None),
            }
        };
        // The oldest part of a log may be in a store that is slow.
        let first = timeout(PATIENCE_MIN, first).await;
        self.take_note(first.unwrap_or_else(|_| Err(no_answer(&topic.to_string()))))
    }

    /// Whether the message comes next. If not, another session reads on: in the log, where this one
    /// has read the view up to its start; in the view, where the log has been trimmed since.
    fn takes(&mut self, message: &Message) -> bool {
        let next = match self.view {
            ViewPart::Before(Some(begin)) if message.position >= begin => ViewPart::UpTo(begin),
            ViewPart::UpTo(begin) if message.position > begin => ViewPart::Rest,
            ViewPart::UpTo(_) => {
                self.view = ViewPart::Whole;
                return true;
            }
            ViewPart::Before(_) | ViewPart::Rest | ViewPart::Whole => return true,
        };
        (self.view, self.follower) = (next, None);
        self.follow.compacted = next == ViewPart::Rest;
        false
    }

    /// Checks why nothing has come for long.
    async fn look_after_silence(&mut self) -> Result<(), TransportError> {
        if self.is_missing {
            tracing::info!(topic = %self.service.topic, "no message for a long time although there seems to be one: following again");
            self.service.monitor.stalled();
            self.follower = None;
            self.service.ended();
            self.is_missing = false;
            self.patience = (2 * self.patience).min(PATIENCE_MAX);
        }
        // Set even without an answer: the next session follows before it asks.
        self.look_at = runtime_now() + self.patience;
        let knows_where = self.has_read() || self.follow.start == Start::Earliest;
        if self.follower.is_some() && knows_where {
            self.is_missing = self.last_position().await? > self.read_to();
            if self.is_missing {
                // A message that was just published gets time to arrive.
                self.look_at = runtime_now() + LOOK_AGAIN_AFTER;
            }
        }
        Ok(())
    }

    fn came(&mut self, message: &Message) {
        self.follow.start = Start::After(message.position);
        self.is_missing = false;
        self.patience = PATIENCE_MIN;
        self.look_at = runtime_now() + PATIENCE_MIN;
    }

    /// The next message. With an `end`, which the topic had when it was looked up, returns `None`
    /// if nothing comes for a while: then the end was looked up again, because compaction may have
    /// removed the last message.
    pub(crate) async fn next_up_to(
        &mut self,
        end: Option<&mut Option<Position>>,
    ) -> Result<Option<Message>, TransportError> {
        let Some(end) = end else { return self.next().await.map(Some) };
        match timeout(LOOK_AGAIN_AFTER, self.next()).await {
            Ok(next) => next.map(Some),
            Err(_) => {
                *end = self.last_position().await?;
                Ok(None)
            }
        }
    }

    /// Another message, if it is already here.
    pub(crate) fn more(&mut self) -> Option<Message> {
        let message = self.follower.as_mut()?.more()?;
        if !self.takes(&message) {
            return None;
        }
        self.came(&message);
        Some(message)
    }

    /// Position of the last message of the log, or of the compacted view.
    pub(crate) async fn last_position(&mut self) -> Result<Option<Position>, TransportError> {
        let last = self.open().await?.last_position().await;
        self.take_note(last)
    }

    fn take_note<T>(&mut self, result: Result<T, TransportError>) -> Result<T, TransportError> {
        result.inspect_err(|error| {
            self.follower = None;
            self.service.lost(error);
        })
    }
}
