//! A connection's two streams.

use bytes::{Buf, BytesMut};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the broker.
    Up,
    /// To the client.
    Down,
}

/// One stream: bytes on their way, in order.
#[derive(Debug)]
pub(super) struct Pipe {
    bytes: BytesMut,
    /// What is under way at most: whoever sends more waits.
    capacity: usize,
    /// All that has arrived.
    passed: u64,
    /// Nothing arrives any more, and nobody is told.
    is_deaf: bool,
    /// Nothing is sent any more: the other side learns it behind the last byte.
    is_ended: bool,
    /// The stream breaks when so many bytes have arrived.
    pub(super) cut_at: Option<u64>,
}

/// What comes out of a stream.
#[derive(Debug)]
pub(super) enum Arrival {
    Bytes(BytesMut),
    End,
    /// Where the stream was to be cut, it is.
    Cut,
    Nothing,
}

impl Pipe {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            capacity,
            passed: 0,
            is_deaf: false,
            is_ended: false,
            cut_at: None,
        }
    }

    /// Takes from what waits to be sent, up to `max` bytes. Says whether it took something.
    pub(super) fn send(&mut self, from: &mut BytesMut, max: usize) -> bool {
        let count = self.capacity.saturating_sub(self.bytes.len()).min(max).min(from.len());
        if count == 0 || self.is_ended {
            return false;
        }
        let taken = from.split_to(count);
        if !self.is_deaf {
            self.bytes.extend_from_slice(&taken);
        }
        true
    }

    /// What arrives next, up to `max` bytes.
    pub(super) fn arrive(&mut self, max: usize) -> Arrival {
        if self.is_deaf {
            return Arrival::Nothing;
        }
        let left = self.cut_at.map_or(u64::MAX, |at| at.saturating_sub(self.passed));
        if left == 0 {
            return Arrival::Cut;
        }
        let count = self.bytes.len().min(max).min(usize::try_from(left).unwrap_or(usize::MAX));
        if count > 0 {
            self.passed += count as u64;
            return Arrival::Bytes(self.bytes.split_to(count));
        }
        if self.is_ended { Arrival::End } else { Arrival::Nothing }
    }

    /// What is under way still arrives, and then the end.
    pub(super) const fn end(&mut self) {
        self.is_ended = true;
    }

    /// Of what is under way only a part arrives, and then the end.
    pub(super) fn break_off(&mut self, kept: usize) {
        self.bytes.truncate(kept);
        self.is_ended = true;
        self.cut_at = None;
    }

    /// Nothing arrives any more.
    pub(super) fn go_deaf(&mut self) {
        self.bytes.advance(self.bytes.len());
        self.is_deaf = true;
    }

    pub(super) const fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    pub(super) fn under_way(&self) -> usize {
        self.bytes.len()
    }

    pub(super) const fn passed(&self) -> u64 {
        self.passed
    }
}
