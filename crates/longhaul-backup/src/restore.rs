//! Makes a data directory of what a store has.

use crate::catalog::{ObjectName, RestorePlan};
use crate::error::BackupError;
use crate::store::BackupFolder;
use futures::{StreamExt as _, TryStreamExt as _};
use longhaul_broker::rescue::{self, RescueReport, SegmentLink, checkpoint_segment, segment_link};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Segments that are fetched at the same time.
const AT_ONCE: usize = 8;

/// A data directory that was made of a backup.
#[derive(Debug)]
pub struct Restored {
    /// Everything that was confirmed before this time is there, in ms since the epoch; `None` if
    /// the backup never had all.
    pub as_of: Option<u64>,
    /// What `longhaul broker check` says of the directory.
    pub report: RescueReport,
}

/// Makes a data directory `new`, which must be empty or not exist, of the newest backup in a store,
/// or of what it was at the time `at` in ms since the epoch. Messages keep their ids, and no new
/// message gets an id that was given before.
///
/// # Errors
/// See [`BackupError`].
pub async fn restore(place: &str, at: Option<u64>, new: &Path) -> Result<Restored, BackupError> {
    let (folder, mut plan) = choose(&BackupFolder::open(place, false)?, at).await?;
    rescue::make_directory(new)?;
    let kept = list_needed(&folder, &plan, new).await?;
    plan.segments.retain(|number, _| kept.contains(number));
    if let Some(at) = plan.checkpoint {
        fetch(&folder, &[ObjectName::Checkpoint(at)], &new.join("checkpoint")).await?;
    }
    let fetches = plan.segments.iter().map(|(&number, pieces)| {
        let names: Vec<_> = pieces.iter().copied().map(ObjectName::Piece).collect();
        let (folder, path) = (folder.clone(), new.join(rescue::segment_name(number)));
        async move { fetch(&folder, &names, &path).await }
    });
    let fetches = futures::stream::iter(fetches).buffer_unordered(AT_ONCE);
    fetches.try_collect::<Vec<()>>().await?;
    for view in rescue::named_views(new)? {
        let Some(file) = view.strip_prefix("compact/") else { continue };
        // A view that is missing is damage, and reported as such.
        if plan.views.contains(file) {
            fetch(&folder, &[ObjectName::View(file.to_owned())], &new.join(&view)).await?;
        }
    }
    let report = rescue::adopt(new)?;
    if !report.is_sound() {
        let (path, report) = (new.to_owned(), report.to_string());
        return Err(BackupError::Damaged { path, report });
    }
    Ok(Restored { as_of: plan.as_of(), report })
}

/// Finds out which segments are needed, and lists them in the directory's inventory: until all of
/// them are there, a start refuses it.
async fn list_needed(
    folder: &BackupFolder,
    plan: &RestorePlan,
    new: &Path,
) -> Result<BTreeSet<u32>, BackupError> {
    let mut listed = BTreeSet::new();
    if let Some(at) = plan.inventory {
        fetch(folder, &[ObjectName::Inventory(at)], &new.join("segments")).await?;
        listed = rescue::listed_segments(new)?.unwrap_or_default();
    }
    let mut begins = None;
    if let Some(at) = plan.checkpoint {
        begins = checkpoint_segment(&folder.head(&ObjectName::Checkpoint(at)).await?);
    }
    let mut links = BTreeMap::new();
    for (&number, pieces) in &plan.segments {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { continue };
        let head = folder.head(&ObjectName::Piece(*first)).await?;
        if let Some(link) = segment_link(&head) {
            links.insert(number, (link, last.to));
        }
    }
    let kept = connected(&links, begins);
    let needed = listed.iter().filter(|&&number| begins.is_none_or(|first| number <= first));
    let missing: Vec<u32> = needed.filter(|number| !kept.contains(number)).copied().collect();
    if !missing.is_empty() || kept.is_empty() {
        return Err(BackupError::Incomplete { missing });
    }
    let numbers: Vec<u32> = kept.iter().copied().collect();
    rescue::list_segments(new, &numbers)?;
    Ok(kept)
}

/// The folder of the data directory that has the newest state at that time, and what to fetch of it.
async fn choose(
    store: &BackupFolder,
    at: Option<u64>,
) -> Result<(BackupFolder, RestorePlan), BackupError> {
    let mut newest: Option<(BackupFolder, RestorePlan)> = None;
    for name in store.folders().await? {
        let folder = store.within(&name);
        let plan = folder.catalog().await?.plan(at.unwrap_or(u64::MAX));
        let is_newer = newest.as_ref().is_none_or(|(_, best)| plan.as_of() > best.as_of());
        if is_newer && !plan.segments.is_empty() {
            newest = Some((folder, plan));
        }
    }
    newest.ok_or_else(|| BackupError::Nothing { place: store.place().to_owned(), at })
}

/// The segments that are replayed one after another, from the one in which the checkpoint ends or
/// the first, up to the first gap; and those before, which the checkpoint needs.
fn connected(links: &BTreeMap<u32, (SegmentLink, u32)>, begins: Option<u32>) -> BTreeSet<u32> {
    let mut kept: BTreeSet<u32> = BTreeSet::new();
    let mut end = None;
    for (&number, &(link, bytes)) in links {
        let is_before = begins.is_some_and(|first| number <= first);
        let follows = match end {
            None => begins.is_none() && link.previous == 0,
            Some(end) => end == (link.previous, link.previous_end),
        };
        if !is_before && !follows {
            break;
        }
        kept.insert(number);
        end = Some((number, bytes));
    }
    kept
}

/// Fetches objects into a file, which has its name only when it is complete.
async fn fetch(
    folder: &BackupFolder,
    names: &[ObjectName],
    path: &Path,
) -> Result<(), BackupError> {
    let unfinished = PathBuf::from(format!("{}.tmp", path.display()));
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&unfinished);
    let file = file.map_err(|source| failed("make", &unfinished, source))?;
    for name in names {
        folder.fetch(name, &file).await?;
    }
    let renamed = file.sync_all().and_then(|()| fs::rename(&unfinished, path));
    renamed.map_err(|source| failed("write", path, source))
}

fn failed(what: &str, path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { what: format!("{what} {}", path.display()), source }
}
