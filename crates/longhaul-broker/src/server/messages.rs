//! Messages that are no longer in memory: read from the log, or from a compacted view.

use super::unreadable;
use crate::admin::values::AdminCallError;
use crate::log::{
    CompactedEntry, CompactedFile, LogReadError, PinnedRecord, RecordLocation, RecordReader,
};
use crate::machine::COPIED_BYTES_MAX;
use crate::machine::effect::MessageSource;
use crate::machine::unreadable::Unreadable;
use crate::state::entry::EntryHead;
use bytes::{Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandMessage};
use longhaul_wire::payload::Payload;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// More bytes are read by another thread, even from the page cache: other connections wait
/// meanwhile.
const CACHED_BYTES_MAX: u32 = 64 * 1024;

/// A message that stays readable even if its file is removed.
#[derive(Debug)]
pub(super) enum Stored {
    Memory(Bytes),
    Log(PinnedRecord),
    Compacted(CompactedFile, CompactedEntry),
}

/// Result of reading messages.
#[derive(Debug)]
pub(super) struct MessageReadResult {
    /// Commands and messages.
    pub(super) frames: Vec<Bytes>,
    /// Unreadable messages.
    pub(super) unreadable: Vec<Unreadable>,
}

/// Reads messages. Clones are cheap.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    reader: RecordReader,
    compacted: Arc<Mutex<HashMap<String, CompactedFile>>>,
}

impl Messages {
    pub(super) fn new(reader: RecordReader, compacted: HashMap<String, CompactedFile>) -> Self {
        Self { reader, compacted: Arc::new(Mutex::new(compacted)) }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, CompactedFile>> {
        self.compacted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn reader(&self) -> &RecordReader {
        &self.reader
    }

    pub(super) fn add(&self, name: &str, file: CompactedFile) {
        self.files().insert(name.to_owned(), file);
    }

    pub(super) fn remove(&self, name: &str) {
        self.files().remove(name);
    }

    pub(super) fn file(&self, name: &str) -> Option<CompactedFile> {
        self.files().get(name).cloned()
    }

    /// Holds a message that is to be read later: it stays readable even if its segment or file is
    /// removed. `None` if it is already gone.
    pub(super) fn hold(&self, source: MessageSource) -> Option<Stored> {
        match source {
            MessageSource::Memory(body) => Some(Stored::Memory(body)),
            MessageSource::Log(location) => self.reader.hold(location).ok().map(Stored::Log),
            MessageSource::Compacted(name, slot) => {
                Some(Stored::Compacted(self.file(&name)?, slot))
            }
        }
    }

    /// Reads a message for the admin interface. Blocks.
    pub(super) fn peek(&self, location: RecordLocation) -> Result<Payload, AdminCallError> {
        let gone = |error: LogReadError| AdminCallError::NotFound(error.to_string());
        let body = self.reader.read(location).map_err(gone)?;
        Payload::parse(message_of(body))
            .map_err(|error| AdminCallError::Internal(error.to_string()))
    }

    /// Reads messages and adds their commands in front. A failing read is tried again a few times;
    /// then the message is left out.
    pub(super) async fn read(
        &self,
        conn: u64,
        stored: Vec<(CommandMessage, Stored)>,
    ) -> io::Result<MessageReadResult> {
        // Reading from the page cache takes less time than switching to another thread.
        if let Some(bodies) = self.read_cached(&stored) {
            let commands = stored.into_iter().map(|(command, _)| command);
            let frames = framed(commands.zip(bodies));
            return Ok(MessageReadResult { frames, unreadable: Vec::new() });
        }
        let (commands, stored): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
        let stored = Arc::new(stored);
        let mut bodies: Vec<Option<Result<Bytes, LogReadError>>> = vec![None; stored.len()];
        for pause in [Duration::ZERO].into_iter().chain(unreadable::PAUSES) {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let (this, stored) = (self.clone(), Arc::clone(&stored));
            let read = tokio::task::spawn_blocking(move || this.read_missing(&stored, bodies));
            bodies = read.await.map_err(io::Error::other)?;
            if bodies.iter().all(|body| matches!(body, Some(Ok(_)))) {
                break;
            }
        }
        let mut read = Vec::with_capacity(bodies.len());
        let mut unreadable = Vec::new();
        for ((command, stored), body) in commands.into_iter().zip(stored.iter()).zip(bodies) {
            match body.unwrap_or(Err(LogReadError::Gone { segment: 0 })) {
                Ok(body) => read.push((command, body)),
                Err(cause) => unreadable.push(unreadable::of(conn, &command, stored, cause)),
            }
        }
        Ok(MessageReadResult { frames: framed(read), unreadable })
    }

    /// Reads the remaining messages.
    fn read_missing(
        &self,
        stored: &[Stored],
        mut bodies: Vec<Option<Result<Bytes, LogReadError>>>,
    ) -> Vec<Option<Result<Bytes, LogReadError>>> {
        let missing = |body: &Option<Result<Bytes, LogReadError>>| !matches!(body, Some(Ok(_)));
        let held = stored.iter().zip(&bodies).filter_map(|(stored, body)| match stored {
            Stored::Log(held) if missing(body) => Some(held),
            Stored::Log(_) | Stored::Memory(_) | Stored::Compacted(..) => None,
        });
        let mut read = self.reader.read_held(held).into_iter();
        for (stored, body) in stored.iter().zip(&mut bodies).filter(|(_, body)| missing(body)) {
            *body = match stored {
                Stored::Memory(body) => Some(Ok(body.clone())),
                Stored::Log(_) => read.next(),
                Stored::Compacted(file, slot) => Some(file.read(slot)),
            };
        }
        bodies
    }

    /// The bodies of a few messages of the log, if no disk access is needed.
    fn read_cached(&self, stored: &[(CommandMessage, Stored)]) -> Option<Vec<Bytes>> {
        let mut held = Vec::with_capacity(stored.len());
        let mut bytes = 0;
        for (_, stored) in stored {
            let Stored::Log(entry) = stored else { return None };
            bytes += entry.size();
            if bytes > CACHED_BYTES_MAX {
                return None;
            }
            held.push(entry);
        }
        self.reader.read_cached(held)
    }
}

/// The frames of messages. Small ones are joined: each piece is sent separately.
fn framed(messages: impl IntoIterator<Item = (CommandMessage, Bytes)>) -> Vec<Bytes> {
    let mut out = Vec::new();
    let mut buffer = BytesMut::new();
    for (command, body) in messages {
        let message = message_of(body);
        frame::encode_head(Command::Message(command), message.len(), &mut buffer);
        if message.len() <= COPIED_BYTES_MAX {
            buffer.extend_from_slice(&message);
        } else {
            out.push(buffer.split().freeze());
            out.push(message);
        }
    }
    if !buffer.is_empty() {
        out.push(buffer.freeze());
    }
    out
}

/// The message in a record's body.
pub(super) fn message_of(mut body: Bytes) -> Bytes {
    // Stored entries have a head; without one, the client would detect it by the checksum.
    EntryHead::skip(&mut body);
    body
}
