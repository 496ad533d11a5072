//! Follows a topic that must be read whole before it is used, and reports to the driver.

use super::Sink;
use crate::supervise::{KeptFollower, Landmark, SessionSupervisor, TopicReadEvent, WholeFollower};
use crate::transport::{Follow, Start, TransportError, TransportErrorKind};
use std::time::Duration;

/// A first read that takes longer is logged: the worker waits for it.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// Follows a topic from its start, through its compacted view. After an error it continues behind
/// the messages passed on, if the landmark shows that the topic is the same. It ends when that
/// topic is gone or was replaced: then the driver gets `None`.
pub(in crate::worker) async fn follow_whole(
    service: SessionSupervisor,
    landmark: Landmark,
    sink: Sink<Option<TopicReadEvent>>,
) {
    let (topic, clock) = (service.topic.clone(), service.clock);
    let since = clock.now();
    let from_start = Follow { start: Start::Earliest, compacted: true };
    let follower = KeptFollower::new(service, from_start).only_where(Some(landmark));
    let mut follower = WholeFollower::new(follower);
    let (mut to_end, mut told) = (false, false);
    loop {
        let followed = match follower.next().await {
            Ok(event) => {
                to_end |= matches!(event, TopicReadEvent::ToEnd);
                Some(event)
            }
            Err(TransportError { kind: TransportErrorKind::NotFound, .. })
                if follower.has_read() =>
            {
                None
            }
            Err(error) => {
                let patient = error.kind == TransportErrorKind::Unreachable
                    && clock.now().since(since) < TOLD_AFTER;
                if !to_end && !told && !patient {
                    told = true;
                    tracing::warn!(%topic, %error, "the register cannot be read: this worker takes no tasks until it can be");
                }
                continue;
            }
        };
        let gone = followed.is_none();
        if sink.send(followed).await.is_err() || gone {
            return;
        }
    }
}
