//! Recovers the state from a data directory.

use crate::clock;
use crate::compaction;
use crate::config::BrokerConfig;
use crate::error::StartError;
use crate::log::{self, BrokerLog, CompactedEntry, CompactedFile, Composer, LogOptions, Storage};
use crate::rescue::{self, UNFINISHED};
use crate::state::BrokerState;
use crate::state::entry::EntryHead;
use crate::state::replay::replay;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Content of a data directory.
pub(super) struct RecoveredData {
    pub(super) state: BrokerState,
    pub(super) composer: Composer,
    pub(super) log: BrokerLog,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) files: HashMap<String, CompactedFile>,
    pub(super) compacted: HashMap<String, Arc<[CompactedEntry]>>,
    pub(super) path: PathBuf,
    pub(super) temporary: Option<tempfile::TempDir>,
}

/// Creates the storage of a data directory.
pub(super) type MakeStorage = Box<dyn FnOnce(&Path) -> io::Result<Arc<dyn Storage>> + Send>;

pub(super) fn open(
    config: &BrokerConfig,
    storage: MakeStorage,
) -> Result<RecoveredData, StartError> {
    let began = clock::monotonic();
    let (path, temporary) = directory(config)?;
    let failed = |source| StartError::Directory { path: path.clone(), source };
    let storage = storage(&path).map_err(failed)?;
    if storage.open(UNFINISHED).is_ok() {
        let what = "a restore into it has not ended. Delete it, and restore again";
        return Err(failed(io::Error::other(what)));
    }
    let mut state = BrokerState::default();
    // A record holds a whole message with its metadata.
    let body = config.message_bytes_max.saturating_add(64 * 1024);
    let options = LogOptions {
        body_bytes_max: u32::try_from(body).unwrap_or(u32::MAX),
        facts: Some(EntryHead::facts),
        ..LogOptions::default()
    };
    let opened =
        log::open(Arc::clone(&storage), options, &mut |replayed| replay(&mut state, replayed));
    let opened = opened.map_err(|source| StartError::Log { path: path.clone(), source })?;
    // A check that was killed has left its links, which keep segments on the disk.
    rescue::remove_stale(&path).ok();
    if let Some(cut) = &opened.truncated {
        tracing::info!(
            file = cut.file,
            offset = cut.offset,
            bytes = cut.bytes,
            "dropped an incomplete write of the last run"
        );
    }
    let open_views = || compaction::views::open(&state, storage.as_ref());
    let views = open_views().or_else(|_| {
        compaction::rebuild::mend(&state, &opened.log.reader(), &storage);
        open_views()
    });
    let (files, compacted) = views.map_err(StartError::Compacted)?;
    let took = clock::monotonic().duration_since(began);
    tracing::info!(path = %path.display(), records = opened.records, ?took, "the log is open");
    let (composer, log) = (opened.composer, opened.log);
    Ok(RecoveredData { state, composer, log, storage, files, compacted, path, temporary })
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
