//! Makes a data directory of what a store has.

use crate::catalog::{Catalog, ObjectName, PieceName, RestorePlan};
use crate::error::BackupError;
use crate::list::RestoreTimeSearch;
use crate::store::{BackupFolder, PART_BYTES};
use futures::{StreamExt as _, TryStreamExt as _};
use longhaul_broker::rescue::{
    self, RescueReport, SegmentLink, UnknownFormat, checkpoint_segment, listed_segments,
    segment_link,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Segments that are fetched at the same time, and their first bytes.
const AT_ONCE: usize = 8;
const HEADS_AT_ONCE: usize = 64;

/// A data directory that was made of a backup.
#[derive(Debug)]
pub struct Restored {
    /// Everything that was confirmed before this time is there, in ms since the epoch; `None` if
    /// the backup never had all.
    pub as_of: Option<u64>,
    /// What `longhaul broker check` says of the directory. Brokers refuse a damaged one.
    pub report: RescueReport,
    /// If it is damaged, the latest time before the damaged objects to which the backup can be
    /// restored, in ms since the epoch; `None` if that is not known.
    pub earlier: Option<u64>,
    /// The folder of the store that it was made of.
    pub folder: String,
    /// The other folders of the store that have a backup.
    pub others: Vec<String>,
}

/// Makes a data directory `new`, which must be empty or not exist, of the newest backup in a store,
/// or of what it was at the time `at` in ms since the epoch. Messages keep their ids, and no new
/// message gets an id that was given before.
///
/// # Errors
/// See [`BackupError`]. Damage is not an error.
pub async fn restore(place: &str, at: Option<u64>, new: &Path) -> Result<Restored, BackupError> {
    let store = BackupFolder::open(place, false)?;
    let (folder, catalog, mut plan, others) = choose(&store, at).await?;
    let mut search = RestoreTimeSearch::new(&folder);
    let kept = match needed(&folder, &plan, &mut search.links).await {
        Err(BackupError::Incomplete { missing, .. }) => {
            let earlier = search.latest(&catalog, at.unwrap_or(u64::MAX)).await?;
            return Err(BackupError::Incomplete { missing, earlier });
        }
        kept => kept?,
    };
    rescue::begin_restore(new, store.directory.as_deref()).map_err(BackupError::New)?;
    let numbers: Vec<u32> = kept.iter().copied().collect();
    // Until all of them are there, a start refuses the directory.
    rescue::list_segments(new, &numbers)?;
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
        if plan.views.contains(file) {
            fetch(&folder, &[ObjectName::View(file.to_owned())], &new.join(&view)).await?;
        } else if let Some(former) = former_view(&plan.views, file) {
            // The log is stored before the views that it names.
            let name = format!("compact/{former}");
            fetch(&folder, &[ObjectName::View(former.clone())], &new.join(&name)).await?;
            rescue::rebuild_view(new, &view, &name)?;
            fs::remove_file(new.join(&name))
                .map_err(|it| failed("remove", &new.join(&name), it))?;
        }
        // A view that is still missing is damage, and reported as such.
    }
    let report = rescue::adopt(new, cut_off(new, &plan))?;
    let earlier = match stored_at(&plan, &report.places) {
        Some(at) => search.latest(&catalog, at).await?,
        None => None,
    };
    let (as_of, folder) = (plan.as_of(), folder.to_string());
    Ok(Restored { as_of, report, earlier, folder, others })
}

/// The stored view of the same topic that was the last before this one. The names of views are
/// `<topic>-<segment>-<offset>-<number>.seg`, in the order of the log.
fn former_view(stored: &BTreeSet<String>, file: &str) -> Option<String> {
    let place = |name: &str| {
        let mut parts = name.strip_suffix(".seg")?.split('-');
        let mut next = |radix| u64::from_str_radix(parts.next()?, radix).ok();
        Some((next(10)?, (next(10)?, next(10)?, next(16)?)))
    };
    let (topic, at) = place(file)?;
    let former = stored.iter().filter_map(|name| Some((place(name)?, name)));
    let former = former.filter(|((of, then), _)| *of == topic && *then < at);
    former.max_by_key(|((_, then), _)| *then).map(|(_, name)| name.clone())
}

/// The place at which the records of the newest segment end before its bytes do, if there is one.
fn cut_off(new: &Path, plan: &RestorePlan) -> Option<(PathBuf, u64)> {
    let (&number, pieces) = plan.segments.last_key_value()?;
    let mut follower = rescue::follow(new, number, false).ok()??;
    let mut end = 0;
    while let Some(piece) = follower.next(PART_BYTES, false).ok()? {
        end = u64::from(piece.from) + piece.bytes.len() as u64;
    }
    let is_cut = end < pieces.last()?.to.into();
    is_cut.then(|| (new.join(rescue::segment_name(number)), end))
}

/// The earliest time of the objects with these offsets of files; `None` if none has a time.
fn stored_at(plan: &RestorePlan, places: &[(PathBuf, u64)]) -> Option<u64> {
    let times = places.iter().filter_map(|(file, offset)| {
        if file.ends_with("checkpoint") {
            return plan.checkpoint;
        }
        let of = |number: &u32| file.ends_with(rescue::segment_name(*number));
        let (_, pieces) = plan.segments.iter().find(|(number, _)| of(number))?;
        pieces.iter().find(|piece| *offset < piece.to.into()).map(|piece| piece.at)
    });
    times.min()
}

/// The links of segments, by the first piece of each. A piece without a link is damaged, or no
/// longer in the store: the running broker removes what has expired.
pub(crate) type SegmentLinks = BTreeMap<PieceName, Option<SegmentLink>>;

/// The segments that a restore needs. Fetches each first piece that `links` does not have yet.
///
/// # Errors
/// [`BackupError::Incomplete`] if the store does not have all of them.
pub(crate) async fn needed(
    folder: &BackupFolder,
    plan: &RestorePlan,
    links: &mut SegmentLinks,
) -> Result<BTreeSet<u32>, BackupError> {
    let incomplete = |missing| BackupError::Incomplete { missing, earlier: None };
    let gone = || incomplete(Vec::new());
    let mut listed = None;
    if let Some(at) = plan.inventory {
        let name = ObjectName::Inventory(at);
        let bytes = folder.get(&name).await?.ok_or_else(gone)?;
        listed = listed_segments(&bytes).map_err(|it| unread(&name, it))?;
    }
    let mut begins = None;
    if let Some(at) = plan.checkpoint {
        let name = ObjectName::Checkpoint(at);
        let bytes = folder.head(&name).await?.ok_or_else(gone)?;
        begins = checkpoint_segment(&bytes).map_err(|it| unread(&name, it))?;
    }
    let firsts = plan.segments.values().filter_map(|pieces| pieces.first().copied());
    let unknown: Vec<_> = firsts.filter(|first| !links.contains_key(first)).collect();
    let heads = unknown.into_iter().map(|first| async move {
        let name = ObjectName::Piece(first);
        let link = folder.head(&name).await?.map(|bytes| segment_link(&bytes));
        let link = link.transpose().map_err(|it| unread(&name, it))?;
        Ok::<_, BackupError>((first, link.flatten()))
    });
    let heads = futures::stream::iter(heads).buffer_unordered(HEADS_AT_ONCE);
    links.extend(heads.try_collect::<Vec<_>>().await?);
    let linked = plan.segments.iter().filter_map(|(&number, pieces)| {
        let link = links.get(pieces.first()?).copied().flatten()?;
        Some((number, (link, pieces.last()?.to)))
    });
    let kept = connected(&linked.collect(), begins, listed.as_ref());
    let is_needed = |&&number: &&u32| begins.is_none_or(|first| number <= first);
    let needed = listed.iter().flatten().filter(is_needed);
    let missing: Vec<u32> = needed.filter(|number| !kept.contains(number)).copied().collect();
    if !missing.is_empty() || kept.is_empty() {
        return Err(incomplete(missing));
    }
    Ok(kept)
}

/// The folder of the data directory that has the newest state at that time, what it has, what to
/// fetch of that, and the other folders.
async fn choose(
    store: &BackupFolder,
    at: Option<u64>,
) -> Result<(BackupFolder, Catalog, RestorePlan, Vec<String>), BackupError> {
    let mut found = Vec::new();
    for folder in store.folders().await? {
        let catalog = folder.catalog().await?;
        // During a folder's first pass, its checkpoint is newer than the pieces so far.
        let is_there = match at {
            Some(at) => catalog.first_end().is_some_and(|first| first <= at),
            None => !catalog.is_empty(),
        };
        if is_there {
            let plan = catalog.plan(at.unwrap_or(u64::MAX));
            found.push((folder, catalog, plan));
        }
    }
    found.sort_by_key(|(_, _, plan)| plan.as_of());
    let nothing = || BackupError::Nothing { place: store.place.clone(), at };
    let (folder, catalog, plan) = found.pop().ok_or_else(nothing)?;
    let others = found.iter().map(|(folder, ..)| folder.to_string()).collect();
    Ok((folder, catalog, plan, others))
}

/// The segments that are replayed one after another, from the one in which the checkpoint ends or
/// the first, up to the first gap; and of those before it the ones that the inventory lists. The
/// store may have others, which were removed, and perhaps before all of them was stored.
fn connected(
    links: &BTreeMap<u32, (SegmentLink, u32)>,
    begins: Option<u32>,
    listed: Option<&BTreeSet<u32>>,
) -> BTreeSet<u32> {
    let mut kept: BTreeSet<u32> = BTreeSet::new();
    let mut end = None;
    for (&number, &(link, bytes)) in links {
        if begins.is_some_and(|first| number < first) {
            if listed.is_none_or(|listed| listed.contains(&number)) {
                kept.insert(number);
            }
            continue;
        }
        let follows = match end {
            None => begins.map_or(link.previous == 0, |first| number == first),
            Some(end) => end == (link.previous, link.previous_end),
        };
        if !follows {
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
    let file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished);
    let file = file.map_err(|source| failed("make", &unfinished, source))?;
    for name in names {
        folder.fetch(name, &file).await?;
    }
    let renamed = file.sync_all().and_then(|()| fs::rename(&unfinished, path));
    renamed.map_err(|source| failed("write", path, source))
}

fn unread(name: &ObjectName, source: UnknownFormat) -> BackupError {
    BackupError::Format { object: name.to_string(), source }
}

fn failed(what: &str, path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { what: format!("{what} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(previous: u32, previous_end: u32) -> SegmentLink {
        SegmentLink { previous, previous_end }
    }

    fn kept(
        links: &[(u32, SegmentLink, u32)],
        begins: Option<u32>,
        listed: Option<&[u32]>,
    ) -> Vec<u32> {
        let links = links.iter().map(|&(number, link, to)| (number, (link, to))).collect();
        let listed = listed.map(|listed| listed.iter().copied().collect());
        connected(&links, begins, listed.as_ref()).into_iter().collect()
    }

    #[test]
    fn the_former_view_of_a_topic_is_the_last_one_before() {
        let stored = ["1-2-3-a.seg", "1-2-30-9.seg", "1-12-3-b.seg", "2-5-5-1.seg", "odd.seg"];
        let stored: BTreeSet<String> = stored.map(str::to_owned).into();
        for (view, former) in [
            ("1-12-4-c.seg", Some("1-12-3-b.seg")),
            ("1-12-3-b.seg", Some("1-2-30-9.seg")),
            ("1-2-3-a.seg", None),
            ("3-9-9-9.seg", None),
            ("odd.seg", None),
        ] {
            assert_eq!(former_view(&stored, view).as_deref(), former, "{view}");
        }
    }

    /// Regression: a segment that was removed before all of it was stored made each restore fail
    /// for as long as the store had it, and everything that had been removed was fetched.
    #[test]
    fn segments_before_the_checkpoint_are_those_that_are_listed() {
        let links =
            [(1, link(0, 0), 50), (2, link(1, 90), 90), (3, link(2, 90), 90), (4, link(3, 90), 20)];
        assert_eq!(kept(&links, Some(3), Some(&[2, 3, 4])), [2, 3, 4]);
        assert_eq!(kept(&links, Some(3), Some(&[3, 4])), [3, 4]);
        assert_eq!(kept(&links, Some(3), None), [1, 2, 3, 4]);
        assert_eq!(kept(&links, None, Some(&[1, 2, 3, 4])), [1], "the second one does not follow");
    }

    #[test]
    fn the_log_behind_the_checkpoint_has_no_gap() {
        let links = [(3, link(2, 90), 90), (4, link(3, 90), 70), (5, link(4, 90), 90)];
        assert_eq!(kept(&links, Some(3), Some(&[3, 4, 5])), [3, 4], "all of 4 is not stored");
        let links = [(3, link(2, 90), 90), (5, link(4, 90), 90)];
        assert_eq!(kept(&links, Some(3), None), [3]);
        assert_eq!(kept(&links, Some(4), None), [3], "the checkpoint has no segment");
        assert_eq!(kept(&links, None, None), [0; 0], "nor has the log a beginning");
    }
}
