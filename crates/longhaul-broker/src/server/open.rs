//! From a data directory to the state that it holds.

use crate::clock;
use crate::compaction;
use crate::config::BrokerConfig;
use crate::error::StartError;
use crate::log::{self, CompactedFile, Composer, FileStorage, Log, Options, Slot, Storage};
use crate::state::State;
use crate::state::replay::replay;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

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
    let views = compaction::views::open(&state, storage.as_ref());
    let (files, compacted) = views.map_err(StartError::Compacted)?;
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
