//! A follower that is opened again.

use super::{Landmark, SessionSupervisor};
use crate::clock::runtime_now;
use crate::transport::{
    Follow, Follower, Message, Position, Start, TransportError, TransportErrorKind,
};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// How long whoever is catching up waits for the next message before it asks again where the topic
/// ends.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// A broker may send nothing more although the session is open; consumers have seen it. A follower
/// that got nothing for this long asks where the topic ends, and is opened anew if it has not read
/// that far.
const PATIENCE_MIN: Duration = Duration::from_secs(60);
/// The time doubles up to this one whenever that did not help: some topics end with something that
/// no follower is sent.
const PATIENCE_MAX: Duration = Duration::from_secs(3_600);

/// Follows one partition, from session to session: each goes on behind the last message of the one
/// before.
pub(crate) struct KeptFollower {
    service: SessionSupervisor,
    follow: Follow,
    /// By which the topic is known again. One that has taken its place is not followed.
    landmark: Option<Landmark>,
    follower: Option<Box<dyn Follower>>,
    /// When to look why nothing comes, and how long that may last the next time.
    look_at: Instant,
    patience: Duration,
    /// When last looked, something stood behind the last message that was read.
    is_missing: bool,
}

impl KeptFollower {
    pub(crate) fn new(service: SessionSupervisor, follow: Follow) -> Self {
        let (landmark, follower) = (None, None);
        let (look_at, patience) = (runtime_now() + PATIENCE_MIN, PATIENCE_MIN);
        Self { service, follow, landmark, follower, look_at, patience, is_missing: false }
    }

    /// Nothing comes of a topic that has taken the place of the one in which this stands.
    pub(crate) fn only_where(mut self, landmark: Option<Landmark>) -> Self {
        self.landmark = landmark;
        self
    }

    /// Whether a message was read: the next session goes on behind it.
    pub(crate) const fn has_read(&self) -> bool {
        matches!(self.follow.start, Start::After(_))
    }

    /// The last message that was read.
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

    /// Opens a session for somebody who has not waited yet, and tries that for a while. Returns the
    /// last message that stands there.
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

    /// The next session goes on behind this message; at the start, if there is none.
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

    /// The next message. May be dropped and called again without losing one.
    pub(crate) async fn next(&mut self) -> Result<Message, TransportError> {
        loop {
            let look_at = self.look_at;
            let follower = self.open().await?;
            let next = tokio::select! {
                biased;
                next = follower.next() => Some(next),
                () = sleep_until(look_at) => None,
            };
            if let Some(next) = next {
                let message = self.take_note(next)?;
                self.came(&message);
                return Ok(message);
            }
            self.look_after_silence().await?;
        }
    }

    /// Nothing came for long.
    async fn look_after_silence(&mut self) -> Result<(), TransportError> {
        if self.is_missing {
            tracing::info!(topic = %self.service.topic, "no message for a long time although there seems to be one: following again");
            self.service.monitor.stalled();
            self.follower = None;
            self.service.ended();
            self.is_missing = false;
            self.patience = (2 * self.patience).min(PATIENCE_MAX);
        }
        // Also when there is no answer: the next session follows before it asks.
        self.look_at = runtime_now() + self.patience;
        let knows_where = self.has_read() || self.follow.start == Start::Earliest;
        if self.follower.is_some() && knows_where {
            self.is_missing = self.last_position().await? > self.read_to();
            if self.is_missing {
                // What was published just now has time to come.
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

    /// The next message. Who reads up to an `end`, which the topic had when it was looked up, gets
    /// `None` when nothing comes for a while: the end was looked up again, for compaction may have
    /// removed what stood there.
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

    /// A message more, if it is here already.
    pub(crate) fn more(&mut self) -> Option<Message> {
        let message = self.follower.as_mut()?.more()?;
        self.came(&message);
        Some(message)
    }

    /// The last message of the log, or of the compacted view.
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
