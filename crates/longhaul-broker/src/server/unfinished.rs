//! Limits the memory for incomplete messages of all connections.
//!
//! A message is only processed when it is complete, and each connection may send one of some
//! megabytes: 200 connections that had each sent half a message held a gigabyte. So a message
//! reserves room for its full size before more of it is read. A connection with room can finish its
//! message; a connection that waits for room is not read from. While little room is left, a message
//! keeps its room only if it makes progress: 100 connections that had sent a part and then nothing
//! delayed all others for minutes.
//!
//! A connection has one message at a time, and each message takes at most a quarter of the room, so
//! no connection can block the others. If messages may be larger than that, only one such message
//! is received at a time, and its size above a quarter is not counted.

use crate::clock;
use crate::throttle::WarningThrottle;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Unit of room in bytes. Smaller messages take no room.
const UNIT_BYTES: u32 = 64 * 1024;
/// Total room: 512 MiB.
const UNITS_MAX: u32 = 8 * 1024;
/// Maximum room per connection: 128 MiB.
const UNITS_SHARE: u32 = UNITS_MAX / 4;
/// With less room than this, 64 MiB, connections whose messages make no progress are closed.
const UNITS_LEFT_MIN: usize = 1024;
/// Time limit for a complete message, without the wait for room: 5 MiB at 44 kB/s.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// While room is scarce, another unit of a message must arrive within this time.
const UNIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Room for incomplete messages of all connections.
#[derive(Debug)]
pub(super) struct PartialMessageBudget {
    units: Arc<Semaphore>,
    /// Permit for a message above the share of a connection: one at a time.
    large: Arc<Semaphore>,
    /// Logged closures of connections that made room.
    closed: Mutex<WarningThrottle>,
}

impl PartialMessageBudget {
    pub(super) fn new() -> Arc<Self> {
        let units = Arc::new(Semaphore::new(UNITS_MAX as usize));
        let large = Arc::new(Semaphore::new(1));
        Arc::new(Self { units, large, closed: Mutex::default() })
    }

    /// Waits for room for a message of this many units.
    async fn take(&self, units: u32) -> Result<Permits, AcquireError> {
        let is_large = units > UNITS_SHARE;
        // Acquired first, so that large messages do not block the queue for the other room.
        let large =
            if is_large { Some(Arc::clone(&self.large).acquire_owned().await?) } else { None };
        let units = Arc::clone(&self.units).acquire_many_owned(units.min(UNITS_SHARE)).await?;
        Ok(Permits { large, _units: units })
    }

    /// Whether others may need this room. A connection that waits takes all room that is freed, so
    /// little is left then too.
    fn is_scarce(&self, room: &Permits) -> bool {
        // The semaphore has references from the budget, from the holder of the permit, and from
        // each waiting connection.
        let is_awaited = room.large.is_some() && Arc::strong_count(&self.large) > 2;
        is_awaited || self.units.available_permits() < UNITS_LEFT_MIN
    }

    fn tell(&self, now: Instant) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner).note(now);
        if let Some(closed) = closed {
            tracing::warn!(
                closed,
                "incomplete messages take {} MiB in all: closing connections whose messages stall",
                u64::from(UNITS_MAX) * u64::from(UNIT_BYTES) / (1024 * 1024)
            );
        }
    }
}

/// The reserved room of a message.
#[derive(Debug)]
struct Permits {
    /// Permit of a message above the share of a connection.
    large: Option<OwnedSemaphorePermit>,
    _units: OwnedSemaphorePermit,
}

/// An incomplete message of a connection.
#[derive(Debug)]
pub(super) struct Unfinished {
    all: Arc<PartialMessageBudget>,
    held: Option<PartialMessage>,
}

#[derive(Debug)]
struct PartialMessage {
    room: Permits,
    /// Deadline for the complete message.
    complete_by: Instant,
    /// Bytes of the message when the last unit was complete.
    bytes: usize,
    /// Deadline for the next unit while room is scarce.
    next_by: Instant,
}

impl Unfinished {
    pub(super) const fn new(all: Arc<PartialMessageBudget>) -> Self {
        Self { all, held: None }
    }

    /// Frees the room of a complete message.
    pub(super) fn done(&mut self) {
        self.held = None;
    }

    /// Extends the deadlines by a time in which the broker did not read.
    pub(super) fn stood_still(&mut self, time: Duration) {
        if let Some(held) = &mut self.held {
            held.complete_by += time;
            held.next_by += time;
        }
    }

    /// Waits until there is room for the message that begins in this buffer. Returns when to
    /// [look](Self::look) whether it makes progress.
    ///
    /// # Errors
    /// There is no room for a long time.
    pub(super) async fn wait(&mut self, buffer: &[u8]) -> io::Result<Option<Instant>> {
        if let Some(held) = &mut self.held {
            if buffer.len() >= held.bytes + UNIT_BYTES as usize {
                (held.bytes, held.next_by) = (buffer.len(), clock::monotonic() + UNIT_TIMEOUT);
            }
            return Ok(Some(held.complete_by.min(held.next_by)));
        }
        let Some((size, _)) =
            buffer.split_first_chunk().filter(|_| buffer.len() >= UNIT_BYTES as usize)
        else {
            return Ok(None);
        };
        let units = u32::from_be_bytes(*size).div_ceil(UNIT_BYTES).saturating_add(1);
        let late = |_| late("there are too many incomplete messages");
        let room = timeout(MESSAGE_TIMEOUT, self.all.take(units)).await.map_err(late)?;
        let now = clock::monotonic();
        let next_by = now + UNIT_TIMEOUT;
        // The semaphore is never closed.
        self.held = room.ok().map(|room| PartialMessage {
            room,
            complete_by: now + MESSAGE_TIMEOUT,
            bytes: buffer.len(),
            next_by,
        });
        Ok(Some(next_by))
    }

    /// Notes that nothing has arrived since the last call.
    ///
    /// # Errors
    /// The message is late, or blocks other connections.
    pub(super) fn look(&mut self, now: Instant) -> io::Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        if now >= held.complete_by {
            return Err(late("a message is still incomplete minutes after it began"));
        }
        if now < held.next_by {
            return Ok(());
        }
        if self.all.is_scarce(&held.room) {
            self.all.tell(now);
            return Err(late("a message has stalled, and others wait for its room"));
        }
        held.next_by = now + UNIT_TIMEOUT;
        Ok(())
    }
}

/// The error that ends a late connection.
pub(super) fn late(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// The first bytes of a message of this size.
    fn part(size: u32, bytes: usize) -> Vec<u8> {
        let mut part = size.to_be_bytes().to_vec();
        part.resize(bytes, 0);
        part
    }

    /// 200 connections that had each sent half a message held a gigabyte.
    #[tokio::test(start_paused = true)]
    async fn messages_that_are_not_complete_share_one_limit() {
        let all = PartialMessageBudget::new();
        let half = part(5 * 1024 * 1024, 3 * 1024 * 1024);
        let mut held: Vec<Unfinished> = Vec::new();
        let refused = loop {
            let mut next = Unfinished::new(Arc::clone(&all));
            match next.wait(&half).await {
                Ok(until) => assert!(until.is_some() && held.len() < 200),
                Err(error) => break error,
            }
            held.push(next);
        };
        assert_eq!((refused.kind(), held.len()), (io::ErrorKind::TimedOut, 8192 / 81));
        let mut small = Unfinished::new(Arc::clone(&all));
        assert_eq!(
            small.wait(&part(1000, UNIT_BYTES as usize - 1)).await.unwrap(),
            None,
            "takes no room"
        );
        // A connection keeps its room and frees it with the last byte.
        assert!(held[0].wait(&half).await.unwrap().is_some());
        held[0].done();
        let mut waiting = Unfinished::new(Arc::clone(&all));
        assert!(waiting.wait(&half).await.is_ok());
        drop(held);
        drop(waiting);
        assert_eq!(all.units.available_permits(), 8192);
        let mut largest = Unfinished::new(Arc::clone(&all));
        assert!(
            largest.wait(&part(u32::MAX, UNIT_BYTES as usize)).await.is_ok(),
            "however large it says to be"
        );
    }

    /// 200 connections that had sent half a message of 5 MB, and then nothing, delayed a producer
    /// of 200 kB for 38 s.
    #[tokio::test]
    async fn whoever_sends_nothing_more_makes_room_for_others() {
        let all = PartialMessageBudget::new();
        let half = part(5 * 1024 * 1024, UNIT_BYTES as usize);
        let mut held = Vec::new();
        for _ in 0..8192 / 81 {
            let mut next = Unfinished::new(Arc::clone(&all));
            next.wait(&half).await.unwrap();
            held.push(next);
        }
        let mut honest = Unfinished::new(Arc::clone(&all));
        let large = part(20 * 1024 * 1024, UNIT_BYTES as usize);
        let mut waiting = pin!(honest.wait(&large));
        assert!(timeout(Duration::ZERO, waiting.as_mut()).await.is_err(), "there is no room");
        let soon = clock::monotonic() + UNIT_TIMEOUT;
        let mut sends = held.pop().unwrap();
        // Another unit has arrived, and then a part of the next.
        let more = part(5 * 1024 * 1024, 2 * UNIT_BYTES as usize);
        assert!(sends.wait(&more).await.unwrap().unwrap() > soon);
        held.retain_mut(|silent| silent.look(soon).is_ok());
        assert_eq!(held.len(), 83, "as many are closed as have to be");
        assert!(timeout(Duration::ZERO, waiting).await.unwrap().is_ok());
        assert!(sends.look(soon).is_ok(), "it goes on");
    }

    /// With a limit of 512 MiB per message, one slow message took all of the room, and the second
    /// one blocked the queue for everybody else.
    #[tokio::test]
    async fn one_connection_takes_no_more_than_its_share() {
        let all = PartialMessageBudget::new();
        let large = part(512 * 1024 * 1024, UNIT_BYTES as usize);
        let mut first = Unfinished::new(Arc::clone(&all));
        let mut second = Unfinished::new(Arc::clone(&all));
        first.wait(&large).await.unwrap();
        assert_eq!(all.units.available_permits(), 3 * 8192 / 4);
        let mut waits = pin!(second.wait(&large));
        assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_err(), "there is one at a time");
        let modest_part = part(5 * 1024 * 1024, UNIT_BYTES as usize);
        let mut modest = Vec::new();
        for _ in 0..3 * 8192 / 4 / 81 {
            let mut next = Unfinished::new(Arc::clone(&all));
            let room = timeout(Duration::ZERO, next.wait(&modest_part)).await;
            assert!(room.is_ok_and(|room| room.is_ok()), "{} have room", modest.len());
            modest.push(next);
        }
        drop(modest);
        let soon = clock::monotonic() + UNIT_TIMEOUT;
        assert!(first.look(soon).is_err(), "it stands still, and another one waits for it");
        drop(first);
        assert!(timeout(Duration::ZERO, waits).await.is_ok(), "the next one has its turn");
        assert_eq!(all.units.available_permits(), 3 * 8192 / 4);
    }

    #[tokio::test]
    async fn a_large_message_may_take_its_time_as_long_as_nobody_waits_for_it() {
        let all = PartialMessageBudget::new();
        let mut large = Unfinished::new(Arc::clone(&all));
        large.wait(&part(512 * 1024 * 1024, UNIT_BYTES as usize)).await.unwrap();
        let mut modest = Unfinished::new(Arc::clone(&all));
        modest.wait(&part(5 * 1024 * 1024, UNIT_BYTES as usize)).await.unwrap();
        assert!(large.look(clock::monotonic() + UNIT_TIMEOUT).is_ok());
    }

    #[tokio::test]
    async fn where_there_is_room_a_message_may_take_its_time() {
        let all = PartialMessageBudget::new();
        let mut slow = Unfinished::new(Arc::clone(&all));
        let half = part(5 * 1024 * 1024, UNIT_BYTES as usize);
        let began = clock::monotonic();
        assert!(slow.wait(&half).await.unwrap().unwrap() <= clock::monotonic() + UNIT_TIMEOUT);
        assert!(slow.look(began + Duration::from_secs(119)).is_ok());
        assert!(slow.look(clock::monotonic() + MESSAGE_TIMEOUT).is_err());
    }
}
