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

/// One stream: bytes in flight, in order.
#[derive(Debug)]
pub(super) struct Pipe {
    bytes: BytesMut,
    /// The most bytes in flight. A sender of more waits.
    capacity: usize,
    /// The number of bytes that have arrived.
    passed: u64,
    /// Whether nothing arrives any more, without a notice to either side.
    is_deaf: bool,
    /// Whether nothing is sent any more. The other side learns it after the last byte.
    is_ended: bool,
    /// The number of arrived bytes at which the stream breaks.
    pub(super) cut_at: Option<u64>,
}

/// The output of a stream.
#[derive(Debug)]
pub(super) enum Arrival {
    Bytes(BytesMut),
    End,
    /// The stream has reached its cut.
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

    /// Takes up to `max` bytes from `from`. Returns whether it took any.
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

    /// Returns the next arrival, of up to `max` bytes.
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

    /// Ends the stream after the bytes in flight.
    pub(super) const fn end(&mut self) {
        self.is_ended = true;
    }

    /// Ends the stream after the first `kept` of the bytes in flight.
    pub(super) fn break_off(&mut self, kept: usize) {
        self.bytes.truncate(kept);
        self.is_ended = true;
        self.cut_at = None;
    }

    /// Drops the bytes in flight and all later ones.
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
