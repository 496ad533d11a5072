//! Sends messages from the log to a follower, through the compacted view or past it.

use super::agenda::{ConnectionId, PartitionId, SessionId};
use super::history::Happening;
use super::state::{MemoryBrokerState, lost};
use longhaul_transport::{Message, Position, Start, TransportError};
use std::sync::Arc;

impl MemoryBrokerState {
    /// Sends a follower the messages for which it has room. A later compaction affects only
    /// messages that are not in flight.
    pub(super) fn feed(&mut self, id: SessionId) {
        let now = self.now();
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.attached) else {
            return;
        };
        let (room, connection, at) = (session.room(), session.connection, session.partition);
        let Some(following) = session.following().filter(|following| !following.stalled) else {
            return;
        };
        let Some(partition) = self.partitions.get(&at).filter(|it| it.silent_until <= now) else {
            return;
        };
        let compacted = following.follow.compacted;
        let mut messages = partition.log.read(following.cursor, compacted, room);
        if let Some(last) = messages.last() {
            following.cursor = Some(last.position);
            self.miss_one(connection, at, &mut messages);
            self.send_messages(id, messages);
        }
    }

    /// Sends all followers of a partition the messages for which they have room.
    pub(super) fn feed_all(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let followers: Vec<SessionId> = partition.followers.iter().copied().collect();
        for follower in followers {
            self.feed(follower);
        }
    }

    /// Leaves out the message to be withheld, if it has just been published.
    fn miss_one(&mut self, id: ConnectionId, at: PartitionId, messages: &mut Vec<Message>) {
        let Some(log) = self.partitions.get(&at).map(|partition| partition.log.all()) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(missing) = connection.missing.as_ref().filter(|it| it.partition == at) else {
            return;
        };
        let is_new = |last: &Message| log.last().is_some_and(|new| new.position == last.position);
        let matches = |last: &mut Message| is_new(last) && (missing.matches)(log, last);
        let Some(Message { position, .. }) = messages.pop_if(matches) else { return };
        let by = Arc::clone(&connection.name);
        connection.missing = None;
        let partition = self.name(at);
        self.happened(Happening::Missed { by, partition, position });
    }

    /// Moves a follower to its start, also after a reconnect, because the client has no better
    /// position.
    pub(super) fn rewind(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let partition = session.partition;
        let Some(partition) = self.partitions.get_mut(&partition) else { return };
        let Some(following) = session.following() else { return };
        following.cursor = match following.follow.start {
            Start::Earliest => None,
            Start::Latest => partition.log.end(),
            Start::After(position) => Some(position),
        };
        partition.followers.insert(id);
    }

    /// The last position for a follower; no answer while the client has no connection.
    pub(super) fn last_position(
        &mut self,
        id: SessionId,
    ) -> Option<Result<Option<Position>, TransportError>> {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.is_open()) else {
            return Some(Err(lost("follower", "the session is over")));
        };
        let (attached, partition) = (session.attached, session.partition);
        let compacted = session.following()?.follow.compacted;
        let partition = self.partitions.get(&partition).filter(|_| attached)?;
        Some(Ok(partition.log.last(compacted)))
    }
}
