//! Messages that are not in memory any more: read from the log, or from a compacted view.

use crate::log::{CompactedFile, Held, ReadError, Reader, Slot};
use crate::machine::effect::Source;
use crate::state::entry::EntryHead;
use bytes::{Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandMessage};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Larger messages are not copied together with others.
pub(super) const COPY_BYTES_MAX: usize = 16 * 1024;
/// More is read by another thread, wherever it lies: other connections wait meanwhile.
const CACHED_BYTES_MAX: u32 = 64 * 1024;

/// A message that can be read, whatever is removed meanwhile.
#[derive(Debug)]
pub(super) enum Stored {
    Memory(Bytes),
    Log(Held),
    Compacted(CompactedFile, Slot),
}

/// Reads messages. Clones are cheap.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    reader: Reader,
    compacted: Arc<Mutex<HashMap<String, CompactedFile>>>,
}

impl Messages {
    pub(super) fn new(reader: Reader, compacted: HashMap<String, CompactedFile>) -> Self {
        Self { reader, compacted: Arc::new(Mutex::new(compacted)) }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, CompactedFile>> {
        self.compacted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn reader(&self) -> &Reader {
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

    /// Takes hold of a message that is to be read later: it stays readable, whatever is removed meanwhile. `None` when it has
    /// gone already.
    pub(super) fn hold(&self, source: Source) -> Option<Stored> {
        match source {
            Source::Memory(body) => Some(Stored::Memory(body)),
            Source::Log(place) => self.reader.hold(place).ok().map(Stored::Log),
            Source::Compacted(name, slot) => Some(Stored::Compacted(self.file(&name)?, slot)),
        }
    }

    /// Reads messages and puts their commands in front.
    pub(super) async fn read(
        &self,
        stored: Vec<(CommandMessage, Stored)>,
    ) -> io::Result<Vec<Bytes>> {
        // What the operating system has in memory takes less time than to ask another thread for it.
        if let Some(bodies) = self.read_cached(&stored) {
            let commands = stored.into_iter().map(|(command, _)| command);
            return Ok(framed(commands.zip(bodies)));
        }
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || this.read_now(stored));
        let read = read.await.map_err(io::Error::other)?;
        read.map_err(|error| {
            // The client comes back for the same message, again and again: somebody has to know.
            tracing::error!(%error, "a message cannot be read, and its consumer is cut off");
            io::Error::other(error)
        })
    }

    fn read_now(&self, stored: Vec<(CommandMessage, Stored)>) -> Result<Vec<Bytes>, ReadError> {
        let held = stored.iter().filter_map(|(_, stored)| match stored {
            Stored::Log(held) => Some(held),
            Stored::Memory(_) | Stored::Compacted(..) => None,
        });
        let mut bodies = self.reader.read_held(held).into_iter();
        let mut found = Vec::with_capacity(stored.len());
        for (command, stored) in stored {
            let body = match stored {
                Stored::Memory(body) => body,
                Stored::Log(_) => bodies.next().unwrap_or(Err(ReadError::Gone { segment: 0 }))?,
                Stored::Compacted(file, slot) => file.read(&slot)?,
            };
            found.push((command, body));
        }
        Ok(framed(found))
    }

    /// The bodies of a few messages of the log, unless the disk has to be waited for.
    fn read_cached(&self, stored: &[(CommandMessage, Stored)]) -> Option<Vec<Bytes>> {
        let mut held = Vec::with_capacity(stored.len());
        let mut bytes = 0;
        for (_, stored) in stored {
            let Stored::Log(it) = stored else { return None };
            bytes += it.size();
            if bytes > CACHED_BYTES_MAX {
                return None;
            }
            held.push(it);
        }
        self.reader.read_cached(held)
    }
}

/// The frames of messages. Small ones lie in one piece: each piece is sent by itself.
fn framed(messages: impl IntoIterator<Item = (CommandMessage, Bytes)>) -> Vec<Bytes> {
    let mut out = Vec::new();
    let mut buffer = BytesMut::new();
    for (command, body) in messages {
        let message = message_of(body);
        frame::encode_head(Command::Message(command), message.len(), &mut buffer);
        if message.len() <= COPY_BYTES_MAX {
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

/// The message of a record's body.
pub(super) fn message_of(mut body: Bytes) -> Bytes {
    // What is stored has a head; if it had none, a client would find out by the checksum.
    EntryHead::skip(&mut body);
    body
}
