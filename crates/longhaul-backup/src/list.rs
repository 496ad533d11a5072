//! Lists what a store has, and to which times it can be restored.

use crate::catalog::Catalog;
use crate::error::BackupError;
use crate::restore::needed;
use crate::store::BackupFolder;

/// The backup of one data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBackup {
    /// Its folder in the store. [`restore`](crate::restore()) takes it, too.
    pub folder: String,
    /// The earliest time to which it can be restored, in ms since the epoch; `None` if it cannot.
    pub oldest: Option<u64>,
    /// The latest such time, that of the newest object; `None` if the backup never had all.
    pub newest: Option<u64>,
    /// Number of stored checkpoints.
    pub checkpoints: usize,
    /// Bytes of all objects.
    pub bytes: u64,
}

/// The backups in a store, one for each data directory that was stored there.
///
/// # Errors
/// See [`BackupError`]. A store without a backup is not an error.
pub async fn list(place: &str) -> Result<Vec<StoredBackup>, BackupError> {
    let mut backups = Vec::new();
    for folder in BackupFolder::open(place, false)?.folders().await? {
        let (catalog, bytes) = folder.measured().await?;
        let plan = catalog.plan(u64::MAX);
        if plan.segments.is_empty() {
            continue;
        }
        backups.push(StoredBackup {
            folder: folder.to_string(),
            oldest: oldest(&folder, &catalog).await?,
            newest: plan.as_of().map(|_| catalog.last()),
            checkpoints: catalog.checkpoint_count(),
            bytes,
        });
    }
    Ok(backups)
}

/// The earliest time to which a directory can be restored. The oldest objects may be what is left of
/// a time that is no longer kept.
async fn oldest(folder: &BackupFolder, catalog: &Catalog) -> Result<Option<u64>, BackupError> {
    for at in catalog.beginnings() {
        let plan = catalog.plan(at);
        if plan.as_of().is_none() {
            continue;
        }
        match needed(folder, &plan).await {
            Ok(_) => return Ok(Some(at)),
            Err(BackupError::Incomplete { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
