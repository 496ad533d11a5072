//! One limit for what all connections together hold of messages that are not complete yet.
//!
//! A message is sorted out when all of it is there, and each connection may send one of some
//! megabytes at a time: 200 connections that sent half of one held a gigabyte. So a message takes
//! its room as a whole before more of it is read. Whoever has room can come to an end, and whoever
//! waits for it is not read from meanwhile. While little room is left, only those keep it whose
//! message goes on coming: 100 connections that sent a part of one and then nothing kept everybody
//! else waiting for minutes.
//!
//! A connection has one message at a time, and each message takes a quarter of the room at most, so
//! that no connection keeps it from the others. Where messages may be larger than that there is one
//! such message at a time, and what it has above a quarter counts for nothing.

use super::crowd::ConnectionWarnings;
use crate::clock;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Room is counted in units of so many bytes. What is smaller takes none.
const UNIT_BYTES: u32 = 64 * 1024;
/// 512 MiB in all.
const UNITS_MAX: u32 = 8 * 1024;
/// A connection takes 128 MiB of that at most.
const UNITS_SHARE: u32 = UNITS_MAX / 4;
/// With less room than this, 64 MiB, connections whose messages do not go on are closed.
const UNITS_LEFT_MIN: usize = 1024;
/// A message is complete after so long, the wait for room not counted: one of 5 MiB at 44 kB/s.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// While there is little room, one more unit of a message has to come within this time.
const UNIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Room for all connections.
#[derive(Debug)]
pub(super) struct PartialMessageBudget {
    units: Arc<Semaphore>,
    /// For a message that is larger than what a connection may take: for one at a time.
    large: Arc<Semaphore>,
    /// What the log was told of connections that were closed to make room.
    closed: Mutex<ConnectionWarnings>,
}

impl PartialMessageBudget {
    pub(super) fn new() -> Arc<Self> {
        let units = Arc::new(Semaphore::new(UNITS_MAX as usize));
        let large = Arc::new(Semaphore::new(1));
        Arc::new(Self { units, large, closed: Mutex::default() })
    }

    /// Room for a message of so many units, as soon as there is some.
    async fn take(&self, units: u32) -> Result<Permits, AcquireError> {
        let is_large = units > UNITS_SHARE;
        // Who waits for this does not stand in the line for the other room.
        let large =
            if is_large { Some(Arc::clone(&self.large).acquire_owned().await?) } else { None };
        let units = Arc::clone(&self.units).acquire_many_owned(units.min(UNITS_SHARE)).await?;
        Ok(Permits { large, _units: units })
    }

    /// Whether others may need what this one has. Whoever waits for room takes what comes free, so
    /// that little is left then, too.
    fn is_scarce(&self, room: &Permits) -> bool {
        // The room itself, who has the permit and whoever waits for it hold the semaphore.
        let is_awaited = room.large.is_some() && Arc::strong_count(&self.large) > 2;
        is_awaited || self.units.available_permits() < UNITS_LEFT_MIN
    }

    fn tell(&self, now: Instant) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner).note(now);
        if let Some(closed) = closed {
            tracing::warn!(
                closed,
                "connections hold parts of {} MiB of messages together: those whose messages do not go on coming are closed",
                u64::from(UNITS_MAX) * u64::from(UNIT_BYTES) / (1024 * 1024)
            );
        }
    }
}

/// Room for a message.
#[derive(Debug)]
struct Permits {
    /// Of one that is larger than what a connection may take.
    large: Option<OwnedSemaphorePermit>,
    _units: OwnedSemaphorePermit,
}

/// What a connection holds of a message.
#[derive(Debug)]
pub(super) struct Unfinished {
    all: Arc<PartialMessageBudget>,
    held: Option<PartialMessage>,
}

#[derive(Debug)]
struct PartialMessage {
    room: Permits,
    /// The message has to be complete then.
    complete_by: Instant,
    /// Of the message that were there when the last unit was complete.
    bytes: usize,
    /// The next unit has to be there then, while there is little room.
    next_by: Instant,
}

impl Unfinished {
    pub(super) const fn new(all: Arc<PartialMessageBudget>) -> Self {
        Self { all, held: None }
    }

    /// What was held is complete.
    pub(super) fn done(&mut self) {
        self.held = None;
    }

    /// The broker has not read for so long.
    pub(super) fn stood_still(&mut self, time: Duration) {
        if let Some(held) = &mut self.held {
            held.complete_by += time;
            held.next_by += time;
        }
    }

    /// Waits until there is room for the message that begins in this buffer. Returns when to
    /// [look](Self::look) whether it goes on.
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
        let late = |_| late("there are too many messages of which only a part has come");
        let room = timeout(MESSAGE_TIMEOUT, self.all.take(units)).await.map_err(late)?;
        let now = clock::monotonic();
        let next_by = now + UNIT_TIMEOUT;
        // The room is never closed.
        self.held = room.ok().map(|room| PartialMessage {
            room,
            complete_by: now + MESSAGE_TIMEOUT,
            bytes: buffer.len(),
            next_by,
        });
        Ok(Some(next_by))
    }

    /// Nothing more has come until now.
    ///
    /// # Errors
    /// The message is late, or keeps others from sending theirs.
    pub(super) fn look(&mut self, now: Instant) -> io::Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        if now >= held.complete_by {
            return Err(late("a message is not complete, minutes after it began"));
        }
        if now < held.next_by {
            return Ok(());
        }
        if self.all.is_scarce(&held.room) {
            self.all.tell(now);
            return Err(late(
                "a message does not go on, and others wait for the room that it takes",
            ));
        }
        held.next_by = now + UNIT_TIMEOUT;
        Ok(())
    }
}

/// Why a connection ends.
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

    /// 200 connections that each sent half a message held a gigabyte.
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
        // Whoever has room keeps it, and gives it back with the last byte.
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

    /// 200 connections that had sent half a message of 5 MB, and then nothing, made an honest
    /// producer of 200 kB wait for 38 s.
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
        // One more unit has come, and then a part of the next.
        let more = part(5 * 1024 * 1024, 2 * UNIT_BYTES as usize);
        assert!(sends.wait(&more).await.unwrap().unwrap() > soon);
        held.retain_mut(|silent| silent.look(soon).is_ok());
        assert_eq!(held.len(), 83, "as many are closed as have to be");
        assert!(timeout(Duration::ZERO, waiting).await.unwrap().is_ok());
        assert!(sends.look(soon).is_ok(), "it goes on");
    }

    /// Where messages may have 512 MiB, one that was sent slowly took all of the room, and the
    /// second one stood in line for it before everybody else.
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
