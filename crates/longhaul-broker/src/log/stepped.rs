//! The log without threads, for simulations: the caller runs each step.

use super::error::{OpenError, WriteError};
use super::options::LogOptions;
use super::status::LogStatus;
use crate::log::disk::background;
use crate::log::disk::reserve;
use crate::log::disk::storage::{Storage, StorageLock};
use crate::log::recover::recovery::{self, Apply};
use crate::log::segments::composer::{Composer, RecordGroup};
use crate::log::segments::reader::RecordReader;
use crate::log::segments::record::LogPosition;
use crate::log::segments::writer::LogWriter;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An open log that only works when called.
#[derive(Debug)]
pub struct Stepped {
    /// Continues after the last record.
    pub composer: Composer,
    writer: LogWriter,
    reader: RecordReader,
    _lock: Box<dyn StorageLock>,
}

impl Stepped {
    /// Opens a log as [`super::open`] does.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        apply: Apply<'_>,
    ) -> Result<Self, OpenError> {
        let parts = recovery::recover(storage, options, apply)?;
        Ok(Self {
            composer: parts.composer,
            writer: parts.writer,
            reader: parts.reader,
            _lock: parts.lock,
        })
    }

    /// Writes and syncs a group, as [`super::BrokerLog::submit`] does.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&mut self, group: &RecordGroup) -> Result<(), WriteError> {
        self.writer.write(group)
    }

    /// Writes a checkpoint, as [`super::BrokerLog::checkpoint`] does.
    ///
    /// # Errors
    /// [`WriteError::Busy`] while records before `at` are not yet written, else see [`WriteError`].
    pub fn checkpoint(&mut self, at: LogPosition, image: &[Bytes]) -> Result<(), WriteError> {
        if at > self.writer.shared.durable() {
            return Err(WriteError::Busy);
        }
        background::checkpoint(&self.writer.shared, at, image)
    }

    /// Removes segments, as [`super::BrokerLog::remove`] does.
    pub fn remove(&mut self, segments: &[u32]) {
        background::remove(&self.writer.shared, segments);
    }

    /// Prepares the next segment, as [`super::BrokerLog::prepare`] does.
    pub fn prepare(&mut self) {
        background::prepare(&self.writer.shared);
        while self.writer.shared.reserve_grows.load(Ordering::Relaxed) {
            reserve::grow(&self.writer.shared);
        }
        while background::index(&self.writer.shared) {}
    }

    /// Simulates an idle log, so that the confirmed position is noted as in [`super::BrokerLog`].
    pub fn rest(&mut self) {
        let shared = &self.writer.shared;
        if shared.poison().is_none() && shared.durable() > shared.noted() {
            background::record_confirmed(shared);
        }
    }

    /// A reader for written records.
    #[must_use]
    pub fn reader(&self) -> RecordReader {
        self.reader.clone()
    }

    /// Status of the log.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.writer.shared.status()
    }
}
