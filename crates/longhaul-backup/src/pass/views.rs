//! Stores compacted views, beside the log.

use super::{BackupPass, DataFile, ObjectName, ViewPut, failed, open};
use crate::clock;
use crate::complaint::causes;
use crate::error::BackupError;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinError;
use tokio::time::Instant;

/// Views that are stored at the same time, beside the pieces.
const VIEWS_MAX: usize = 2;

impl BackupPass {
    /// Begins to store compacted views that are not stored yet, and returns all. A file that is
    /// opened stays readable after the broker has removed it.
    pub(super) fn begin_views(&mut self) -> Result<BTreeSet<String>, BackupError> {
        let folder = self.directory.join("compact");
        let views = views(&folder)?;
        for name in &views {
            if self.storing.len() >= VIEWS_MAX {
                break;
            }
            if self.is_view_stored(name) || self.storing.contains(name) {
                continue;
            }
            let Some((content, _)) = open(&folder.join(name))? else { continue };
            let (store, view) = (self.folder.clone(), name.clone());
            self.storing.insert(name.clone());
            self.views.spawn(async move {
                let stored = store.put_file(&ObjectName::View(view.clone()), &content).await;
                (view, stored)
            });
        }
        Ok(views)
    }

    fn is_view_stored(&self, name: &str) -> bool {
        self.catalog.has_view(name) || self.rotten.contains(&DataFile::View(name.to_owned()))
    }

    /// Stores the views, for this long at most. Returns all, and whether all are stored.
    pub(super) async fn finish_views(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<(BTreeSet<String>, bool), BackupError> {
        let ends = limit.map(|limit| Instant::from_std(clock::monotonic()) + limit);
        loop {
            let all = self.begin_views()?;
            if all.iter().all(|name| self.is_view_stored(name)) {
                return Ok((all, true));
            }
            let next = self.views.join_next();
            let next = match ends {
                Some(ends) => tokio::time::timeout_at(ends, next).await,
                None => Ok(next.await),
            };
            match next {
                Err(_) => return Ok((all, false)),
                Ok(Some(ended)) => self.view_ended(ended)?,
                // The broker has removed those that were left.
                Ok(None) => return Ok((all, false)),
            }
        }
    }

    pub(super) fn view_ended(
        &mut self,
        ended: Result<ViewPut, JoinError>,
    ) -> Result<(), BackupError> {
        let Ok((name, stored)) = ended else {
            // It panicked, and is tried again.
            self.views.abort_all();
            self.storing.clear();
            return Ok(());
        };
        self.storing.remove(&name);
        match stored {
            Err(error @ BackupError::Io { .. }) => {
                let error = causes(&error);
                tracing::warn!(name, error, "a compacted view cannot be stored");
                self.rotten.insert(DataFile::View(name));
            }
            stored => {
                stored?;
                self.catalog.add(ObjectName::View(name));
            }
        }
        Ok(())
    }
}

/// The finished views.
pub(super) fn views(folder: &Path) -> Result<BTreeSet<String>, BackupError> {
    let mut views = BTreeSet::new();
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(views),
        listed => listed.map_err(failed(folder))?,
    };
    for entry in listed {
        let name = entry.map_err(failed(folder))?.file_name();
        if let Some(name) = name.to_str().filter(|name| name.ends_with(".seg")) {
            views.insert(name.to_owned());
        }
    }
    Ok(views)
}
