//! Messages that are not in memory any more: read from the log, or from a compacted view.

use super::outbox::Stored;
use crate::log::{CompactedFile, Place, ReadError, Reader};
use crate::state::entry::EntryHead;
use bytes::{Bytes, BytesMut};
use longhaul_wire::frame;
use longhaul_wire::messages::{Command, CommandMessage};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// Reads messages and puts their commands in front. What has been trimmed meanwhile is left out.
    pub(super) async fn read(
        &self,
        stored: Vec<(CommandMessage, Stored)>,
    ) -> io::Result<Vec<Bytes>> {
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || this.read_now(stored));
        read.await.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    fn read_now(&self, stored: Vec<(CommandMessage, Stored)>) -> Result<Vec<Bytes>, ReadError> {
        let places: Vec<Place> = stored
            .iter()
            .filter_map(|(_, source)| match source {
                Stored::Log(place) => Some(*place),
                Stored::Compacted(..) => None,
            })
            .collect();
        let mut bodies = self.reader.read_many(&places).into_iter();
        let mut out = Vec::with_capacity(2 * stored.len());
        let mut heads = BytesMut::new();
        for (command, source) in stored {
            let body = match source {
                Stored::Log(place) => {
                    bodies.next().unwrap_or(Err(ReadError::Gone { segment: place.segment }))
                }
                Stored::Compacted(file, slot) => file.read(&slot),
            };
            let message = match body {
                Ok(body) => message_of(body),
                // It was acknowledged by everybody while it waited.
                Err(ReadError::Gone { .. }) => continue,
                Err(error) => return Err(error),
            };
            frame::encode_head(Command::Message(command), message.len(), &mut heads);
            out.push(heads.split().freeze());
            out.push(message);
        }
        Ok(out)
    }
}

/// The message of a record's body.
pub(super) fn message_of(mut body: Bytes) -> Bytes {
    // What is stored has a head; if it had none, a client would find out by the checksum.
    drop(EntryHead::decode(&mut body));
    body
}
