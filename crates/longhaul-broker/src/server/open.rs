//! From a data directory to the state that it holds.

use crate::clock;
use crate::config::BrokerConfig;
use crate::error::StartError;
use crate::log::{
    self, CompactedFile, Composer, FileStorage, Kind, Log, Options, Replayed, Slot, Storage,
};
use crate::state::State;
use crate::state::change::ChangeRecord;
use crate::state::entries::Position;
use crate::state::entry::EntryHead;
use prost::Message as _;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where compacted views lie.
const COMPACTED: &str = "compact";

/// What a data directory holds.
pub(super) struct Opened {
    pub(super) state: State,
    pub(super) composer: Composer,
    pub(super) log: Log,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) files: HashMap<String, CompactedFile>,
    pub(super) compacted: HashMap<String, Arc<[Slot]>>,
    pub(super) temporary: Option<tempfile::TempDir>,
}

pub(super) fn open(config: &BrokerConfig) -> Result<Opened, StartError> {
    let began = clock::monotonic();
    let (path, temporary) = directory(config)?;
    let failed = |source| StartError::Directory { path: path.clone(), source };
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(&path).map_err(failed)?);
    let mut state = State::default();
    // A record holds a whole message with its metadata.
    let body = config.message_bytes_max.saturating_add(64 * 1024);
    let options =
        Options { body_bytes_max: u32::try_from(body).unwrap_or(u32::MAX), ..Options::default() };
    let opened = log::open(Arc::clone(&storage), options, &mut |it| replay(&mut state, it));
    let opened = opened.map_err(|source| StartError::Log { path: path.clone(), source })?;
    if let Some(cut) = &opened.truncated {
        tracing::info!(
            file = cut.file,
            offset = cut.offset,
            bytes = cut.bytes,
            "dropped what was being written when the broker ended"
        );
    }
    let (files, compacted) = compacted_views(&state, storage.as_ref())?;
    let took = clock::monotonic().duration_since(began);
    tracing::info!(path = %path.display(), records = opened.records, ?took, "the log is open");
    let (composer, log) = (opened.composer, opened.log);
    Ok(Opened { state, composer, log, storage, files, compacted, temporary })
}

fn directory(config: &BrokerConfig) -> Result<(PathBuf, Option<tempfile::TempDir>), StartError> {
    if let Some(path) = &config.data {
        return Ok((path.clone(), None));
    }
    let made = tempfile::Builder::new().prefix("longhaul-broker-").tempdir();
    let made =
        made.map_err(|source| StartError::Directory { path: std::env::temp_dir(), source })?;
    Ok((made.path().to_owned(), Some(made)))
}

/// Applies one record, as the machine did when it appended it.
fn replay(state: &mut State, it: Replayed<'_>) -> Result<(), String> {
    let apply = |state: &mut State, record: ChangeRecord| {
        let Some(change) = record.change else {
            return Err(
                "a change of a kind that this version does not know: use a newer one".to_owned()
            );
        };
        state.apply(&change).map_err(|cause| cause.to_string())
    };
    match it {
        Replayed::Checkpoint(mut image) => {
            while !image.is_empty() {
                let record = ChangeRecord::decode_length_delimited(&mut image)
                    .map_err(|cause| cause.to_string())?;
                apply(state, record)?;
            }
        }
        Replayed::Record { head, place, body, before_checkpoint } => match head.kind {
            Kind::Entry => {
                let mut body = body;
                let entry = EntryHead::decode(&mut body).ok_or("an entry without a head")?;
                let position = Position { ledger: head.ledger, entry: head.entry };
                state.restore(head.topic, position, place, &entry);
            }
            Kind::Change if before_checkpoint => {}
            Kind::Change => {
                apply(state, ChangeRecord::decode(body).map_err(|cause| cause.to_string())?)?;
            }
        },
    }
    Ok(())
}

type Views = (HashMap<String, CompactedFile>, HashMap<String, Arc<[Slot]>>);

/// Opens the compacted views that are in use, and removes the others.
fn compacted_views(state: &State, storage: &dyn Storage) -> Result<Views, StartError> {
    let (mut files, mut compacted) = (HashMap::new(), HashMap::new());
    let names =
        state.topics().filter_map(|(_, it)| it.compacted.as_ref()).map(|it| it.file.clone());
    for name in names {
        let file = CompactedFile::open(storage, &name).map_err(StartError::Compacted)?;
        compacted.insert(name.clone(), Arc::clone(file.slots()));
        files.insert(name, file);
    }
    for name in storage.list(COMPACTED).unwrap_or_default() {
        let name = format!("{COMPACTED}/{name}");
        if !files.contains_key(&name) {
            // It was written, and the broker ended before it was used, or before it was removed.
            storage.remove(&name).ok();
        }
    }
    Ok((files, compacted))
}
