//! Lists what a store has, and to which times it can be restored.

use crate::catalog::{Catalog, RestorePlan};
use crate::error::BackupError;
use crate::restore::{SegmentLinks, needed};
use crate::store::BackupFolder;

/// The backup of one data directory.
#[derive(Debug)]
pub struct StoredBackup {
    /// Its folder in the store. [`restore`](crate::restore()) takes it, too.
    pub folder: String,
    /// The earliest time to which it can be restored, in ms since the epoch; `None` if it cannot.
    pub oldest: Option<u64>,
    /// The latest such time, that of the newest object; `None` if the newest state is incomplete.
    pub newest: Option<u64>,
    /// Number of stored checkpoints.
    pub checkpoints: usize,
    /// Bytes of all objects.
    pub bytes: u64,
    /// The error that hides times: another version has stored an object.
    pub error: Option<BackupError>,
}

/// The backups in a store, one for each data directory that was stored there.
///
/// # Errors
/// See [`BackupError`].
pub async fn list(place: &str) -> Result<Vec<StoredBackup>, BackupError> {
    let mut backups = Vec::new();
    for folder in BackupFolder::open(place, false)?.folders().await? {
        let (catalog, bytes) = folder.measured().await?;
        if catalog.is_empty() {
            continue;
        }
        let mut search = RestoreTimeSearch::new(&folder);
        let oldest = search.first(&catalog, catalog.beginnings()).await?;
        let newest = search.is_complete(&catalog.plan(u64::MAX)).await?.then(|| catalog.last());
        let error = search.error;
        let (folder, checkpoints) = (folder.to_string(), catalog.checkpoint_count());
        backups.push(StoredBackup { folder, oldest, newest, checkpoints, bytes, error });
    }
    if backups.is_empty() {
        return Err(BackupError::Nothing { place: place.to_owned(), at: None });
    }
    Ok(backups)
}

/// A search for times to which a backup can be restored.
pub(crate) struct RestoreTimeSearch<'a> {
    folder: &'a BackupFolder,
    /// What was fetched: many times have the same segments.
    pub(crate) links: SegmentLinks,
    /// An object has an unknown format.
    error: Option<BackupError>,
}

impl<'a> RestoreTimeSearch<'a> {
    pub(crate) fn new(folder: &'a BackupFolder) -> Self {
        Self { folder, links: SegmentLinks::new(), error: None }
    }

    /// The latest time before this one to which a directory can be restored. Between two states,
    /// the pieces only grow.
    pub(crate) async fn latest(
        &mut self,
        catalog: &Catalog,
        before: u64,
    ) -> Result<Option<u64>, BackupError> {
        let states = catalog.beginnings().into_iter().rev().filter(|&at| at < before);
        let ends = std::iter::once(before).chain(states).map(|at| at.saturating_sub(1));
        self.first(catalog, ends).await
    }

    /// The first of these times to which a directory can be restored. The oldest objects may be
    /// what is left of a time that is no longer kept.
    async fn first(
        &mut self,
        catalog: &Catalog,
        times: impl IntoIterator<Item = u64>,
    ) -> Result<Option<u64>, BackupError> {
        for at in times {
            if self.is_complete(&catalog.plan(at)).await? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether the store has everything that a restore needs.
    async fn is_complete(&mut self, plan: &RestorePlan) -> Result<bool, BackupError> {
        if plan.as_of().is_none() {
            return Ok(false);
        }
        match needed(self.folder, plan, &mut self.links).await {
            Ok(_) => Ok(true),
            Err(BackupError::Incomplete { .. }) => Ok(false),
            Err(error @ BackupError::Format { .. }) => {
                self.error = Some(error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
