//! One limit for what all connections together hold of messages that are not complete yet.
//!
//! A message is sorted out when all of it is there, and each connection may send one of some megabytes at a time: 200 connections that sent half of one held
//! a gigabyte. So a message takes its room as a whole before more of it is read. Whoever has room can come to an end, and
//! whoever waits for it is not read from meanwhile.

use crate::clock;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Room is counted in units of so many bytes. What is smaller takes none.
const UNIT_BYTES: u32 = 64 * 1024;
/// 512 MiB in all.
const UNITS_MAX: u32 = 8 * 1024;
/// A message is complete after so long, the wait for room not counted: one of 5 MiB at 44 kB/s.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// What a connection holds of a message.
#[derive(Debug)]
pub(super) struct Unfinished {
    all: Arc<Semaphore>,
    held: Option<(OwnedSemaphorePermit, Instant)>,
}

impl Unfinished {
    /// Room for all connections.
    pub(super) fn room() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(UNITS_MAX as usize))
    }

    pub(super) const fn new(all: Arc<Semaphore>) -> Self {
        Self { all, held: None }
    }

    /// What was held is complete.
    pub(super) fn done(&mut self) {
        self.held = None;
    }

    /// The broker has not read for so long.
    pub(super) fn stood_still(&mut self, time: Duration) {
        if let Some((_, until)) = &mut self.held {
            *until += time;
        }
    }

    /// Waits until there is room for the message that begins in this buffer. Returns when it has to be complete.
    ///
    /// # Errors
    /// There is no room for a long time.
    pub(super) async fn wait(&mut self, buffer: &[u8]) -> io::Result<Option<Instant>> {
        if let Some((_, until)) = &self.held {
            return Ok(Some(*until));
        }
        let Some((size, _)) =
            buffer.split_first_chunk().filter(|_| buffer.len() >= UNIT_BYTES as usize)
        else {
            return Ok(None);
        };
        let units = u32::from_be_bytes(*size).div_ceil(UNIT_BYTES).saturating_add(1);
        let room = Arc::clone(&self.all).acquire_many_owned(units.min(UNITS_MAX));
        let late = |_| late("there are too many messages of which only a part has come");
        let room = timeout(MESSAGE_TIMEOUT, room).await.map_err(late)?;
        let until = clock::monotonic() + MESSAGE_TIMEOUT;
        // The room is never closed.
        self.held = room.ok().map(|room| (room, until));
        Ok(Some(until))
    }
}

/// Why a connection ends.
pub(super) fn late(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a message of this size.
    fn part(size: u32, bytes: usize) -> Vec<u8> {
        let mut part = size.to_be_bytes().to_vec();
        part.resize(bytes, 0);
        part
    }

    /// 200 connections that each sent half a message held a gigabyte.
    #[tokio::test(start_paused = true)]
    async fn messages_that_are_not_complete_share_one_limit() {
        let all = Unfinished::room();
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
        assert_eq!(all.available_permits(), 8192);
        let mut largest = Unfinished::new(Arc::clone(&all));
        assert!(
            largest.wait(&part(u32::MAX, UNIT_BYTES as usize)).await.is_ok(),
            "however large it says to be"
        );
    }
}
