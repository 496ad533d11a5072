//! One look at a data directory: stores what is new, and removes what is too old.

mod views;

use crate::catalog::{Catalog, DataFile, ObjectName, PieceName};
use crate::clock;
use crate::error::BackupError;
use crate::store::{BackupFolder, PART_BYTES};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use longhaul_broker::rescue::{
    SegmentFollower, SegmentPiece, encode_inventory, follow, listed_segments, missing_segments,
    segments,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use views::views;

/// Pieces of a segment above which it is stored anew: a slow log has one a second, and a restore
/// fetches each of them. A finished segment has no more to come, so a few are enough.
const PIECES_MAX: usize = 1000;
const PIECES_MAX_WHOLE: usize = 64;
/// Passes with a gap, one after another, of which nothing is said: half a minute.
const GAPS_MAX: u32 = 60;
/// How far the names of a backup may be ahead of the clock, in s.
const AHEAD_S: u64 = 60;
/// Objects that are removed after a pass.
const REMOVED_MAX: usize = 20;
/// How long a pass waits for its views. Without them, the next one goes on with the log.
const VIEWS_WAIT: Duration = Duration::from_secs(1);
/// Pieces that are stored at the same time: a store that answers after a tenth of a second is to
/// take more than 80 MB a second.
const PUTS_MAX: usize = 4;

/// A file, as it was when it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// A data directory, and the folder that has a copy of it.
#[derive(Debug)]
pub(crate) struct BackupPass {
    directory: PathBuf,
    folder: BackupFolder,
    catalog: Catalog,
    /// Objects that no restore needs are kept for this long, in ms.
    keep_ms: u64,
    /// Segments that are read, with their editions.
    followed: BTreeMap<u32, (u64, SegmentFollower)>,
    /// Segments that were read to their end, with their editions.
    done: BTreeMap<u32, u64>,
    /// The newest segment at the start, which the broker may have gone on writing behind an end
    /// that was stored: it is stored anew, and so are later ones.
    newest_at_start: u32,
    /// Whether a segment was removed before it was stored. Then the state that goes with it is not
    /// stored.
    has_gap: bool,
    /// How many passes one after another had a gap.
    gaps: u32,
    /// Segments that are stored and have been damaged since, and views that cannot be read.
    rotten: BTreeSet<DataFile>,
    gone: BTreeMap<DataFile, u64>,
    /// Objects that are to be removed.
    expired: VecDeque<ObjectName>,
    checkpoint: Option<FileVersion>,
    inventory: Option<Vec<u8>>,
    /// The time in the name of the newest object.
    last: u64,
    /// Whether the catalog is up to date. Otherwise, the next pass lists the store.
    pub(crate) is_listed: bool,
    /// Whether the store refused something in the last pass.
    pub(crate) is_refused: bool,
    /// Pieces that were read and are not stored yet. The next pass stores what a failed one leaves.
    puts: FuturesUnordered<LocalBoxFuture<'static, PiecePut>>,
    /// Views that are being stored: they may be large, and the log goes on meanwhile.
    views: JoinSet<ViewPut>,
    storing: BTreeSet<String>,
    /// Whether no pass follows.
    pub(crate) is_last: bool,
}

/// A view, and whether it was stored.
type ViewPut = (String, Result<(), BackupError>);

/// A piece, and whether it was stored.
type PiecePut = (ObjectName, Bytes, Result<(), BackupError>);

impl BackupPass {
    /// Looks at what the folder has.
    pub(crate) async fn new(
        directory: PathBuf,
        folder: BackupFolder,
        keep: Duration,
        newest_at_start: u32,
    ) -> Result<Self, BackupError> {
        folder.remove_unfinished();
        let catalog = folder.catalog().await?;
        let last = catalog.last();
        let ahead = last.saturating_sub(clock::wall_ms()) / 1000;
        if ahead > AHEAD_S {
            tracing::warn!(
                seconds = ahead,
                "the backup has files with times in the future: until then, `--at` finds nothing \
                 newer"
            );
        }
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            directory,
            folder,
            catalog,
            keep_ms,
            followed: BTreeMap::new(),
            done: BTreeMap::new(),
            newest_at_start,
            has_gap: false,
            gaps: 0,
            rotten: BTreeSet::new(),
            gone: BTreeMap::new(),
            expired: VecDeque::new(),
            checkpoint: None,
            inventory: None,
            last,
            is_listed: true,
            is_refused: false,
            puts: FuturesUnordered::new(),
            views: JoinSet::new(),
            storing: BTreeSet::new(),
            is_last: false,
        })
    }

    /// Stores everything that was confirmed before the call, and returns whether it is all there:
    /// the broker may have removed a segment meanwhile. Nothing is tried twice: if the store fails,
    /// the next pass goes on where this one ended.
    pub(crate) async fn run(&mut self) -> Result<bool, BackupError> {
        let done = self.store().await;
        self.is_refused = matches!(done, Err(BackupError::Store { .. }));
        if done.as_ref().is_err_and(BackupError::is_of_directory) {
            // What cannot be read is read from its beginning, for new editions.
            self.followed.clear();
        }
        done
    }

    async fn store(&mut self) -> Result<bool, BackupError> {
        let began = clock::wall_ms();
        if !self.is_listed {
            self.list_again().await?;
            self.is_listed = true;
        }
        self.finish(0).await?;
        while let Some(ended) = self.views.try_join_next() {
            // What the store refused is tried again in this pass.
            drop(self.view_ended(ended));
        }
        // Opened first and stored last: the checkpoint must not be newer than the pieces. The
        // inventory must not be older than it.
        let checkpoint = open(&self.directory.join("checkpoint"))?;
        let inventory = read(&self.directory.join("segments"))?;
        if self.checkpoint.is_none() && self.catalog.plan(u64::MAX).as_of().is_none() {
            // Nothing is restored of a folder before its first pass has ended, and then it must
            // have them.
            self.store_state(&checkpoint, &inventory).await?;
            self.finish_views(None).await?;
        }
        // What the stored state names, although the broker may remove it before the pass ends.
        let mut needed = views(&self.directory.join("compact"))?;
        // An error if the directory was emptied: what is stored must not expire then.
        let numbers = segments(&self.directory)?;
        self.followed.retain(|number, _| numbers.binary_search(number).is_ok());
        self.done.retain(|number, _| numbers.binary_search(number).is_ok());
        self.has_gap = false;
        for &number in &numbers {
            self.store_segment(number, &numbers, began).await?;
        }
        self.finish(0).await?;
        // Segments of many pieces begin a new edition.
        let catalog = &self.catalog;
        self.followed.retain(|&number, _| catalog.count(number) <= PIECES_MAX);
        let limit = (!self.is_last).then_some(VIEWS_WAIT);
        let (all, is_stored) = self.finish_views(limit).await?;
        needed.extend(all);
        let listed = inventory.as_deref().map(listed_segments);
        let listed = listed.and_then(Result::ok).flatten().unwrap_or_default();
        let mut numbers = numbers;
        numbers.extend(self.missing(&listed, &numbers)?);
        numbers.sort_unstable();
        let is_there = |number: &u32| numbers.binary_search(number).is_ok();
        if self.has_gap || !listed.iter().all(is_there) {
            // The broker has removed a segment meanwhile. Its next state needs it no more.
            (self.checkpoint, self.inventory) = (None, None);
            self.gaps = self.gaps.saturating_add(1);
            return if self.gaps < GAPS_MAX { Ok(false) } else { Err(BackupError::Behind) };
        }
        self.gaps = 0;
        if !is_stored {
            // The state may name a view that is not stored yet.
            return Ok(false);
        }
        // On a full disk there is no inventory. The one that is stored lists segments which were
        // removed since, and expire.
        let inventory =
            inventory.or_else(|| checkpoint.as_ref().map(|_| encode_inventory(&numbers).to_vec()));
        let at = self.store_state(&checkpoint, &inventory).await?;
        // After a gap the state that is stored may need what is gone.
        self.note_gone(&numbers, &needed, at);
        Ok(true)
    }

    /// The segments that the data directory lacks, and the store has. They are kept: they are the
    /// only copies.
    fn missing(
        &mut self,
        listed: &BTreeSet<u32>,
        numbers: &[u32],
    ) -> Result<Vec<u32>, BackupError> {
        let missing = missing_segments(&self.directory, listed, numbers)?;
        let (stored, lost): (Vec<u32>, Vec<u32>) =
            missing.into_iter().partition(|&number| self.catalog.whole(number).is_some());
        if !lost.is_empty() {
            (self.checkpoint, self.inventory) = (None, None);
            return Err(BackupError::Missing { directory: self.directory.clone(), segments: lost });
        }
        for &number in &stored {
            if self.rotten.insert(DataFile::Segment(number)) {
                tracing::error!(
                    directory = %self.directory.display(),
                    segment = number,
                    "a segment of the log is missing; the backup has it: stop the broker, and \
                     restore the backup"
                );
            }
        }
        Ok(stored)
    }

    /// The time for the name of a new object. Later objects have later names, whatever the clock
    /// does.
    fn next_time(&mut self) -> u64 {
        self.last = clock::wall_ms().max(self.last + 1);
        self.last
    }

    /// Stores the checkpoint and the inventory, if they have changed, and returns their time: a
    /// restore that takes them takes all pieces that were read before.
    async fn store_state(
        &mut self,
        checkpoint: &Option<(File, FileVersion)>,
        inventory: &Option<Vec<u8>>,
    ) -> Result<u64, BackupError> {
        let at = self.next_time();
        if let Some(bytes) = inventory
            && self.inventory.as_ref() != Some(bytes)
        {
            self.put(ObjectName::Inventory(at), Bytes::from(bytes.clone())).await?;
            self.inventory = Some(bytes.clone());
        }
        if let Some((file, stamp)) = checkpoint
            && self.checkpoint != Some(*stamp)
        {
            self.put_file(ObjectName::Checkpoint(at), file).await?;
            self.checkpoint = Some(*stamp);
        }
        Ok(at)
    }

    /// Stores what a segment has beyond what is stored.
    async fn store_segment(
        &mut self,
        number: u32,
        numbers: &[u32],
        began: u64,
    ) -> Result<(), BackupError> {
        let is_newest = numbers.last() == Some(&number);
        let is_past = numbers.iter().rev().nth(1).is_some_and(|&second| number < second);
        if !self.followed.contains_key(&number) {
            if self.is_stored(number) {
                return Ok(());
            }
            let follower = follow(&self.directory, number, is_past)?;
            let Some(follower) = follower else {
                self.has_gap = true;
                return Ok(());
            };
            let edition = self.next_time();
            self.followed.insert(number, (edition, follower));
        }
        loop {
            // What is read is kept until it is stored, so there is room for a piece first.
            self.finish(PUTS_MAX - 1).await?;
            let Some((edition, follower)) = self.followed.get_mut(&number) else { return Ok(()) };
            let edition = *edition;
            let what = || format!("read segment {number} of {}", self.directory.display());
            let piece = follower.next(PART_BYTES, is_past);
            let piece = piece.map_err(|source| BackupError::Io { what: what(), source })?;
            let Some(SegmentPiece { from, bytes, is_all, is_sound, is_last }) = piece else {
                self.has_gap |= is_past || follower.is_gone();
                return Ok(());
            };
            if !is_sound && self.catalog.whole(number).is_some() {
                // What is stored is better than what the disk has now.
                self.followed.remove(&number);
                self.rotten.insert(DataFile::Segment(number));
                return Ok(());
            }
            if is_last {
                // Files are not kept open: the broker's limit on them counts these, too.
                self.followed.remove(&number);
                self.done.insert(number, edition);
            }
            // A restore to this time has nothing that was written later.
            let at = self.next_time();
            self.begin_views()?;
            let to = from.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            let end = (is_newest && is_all).then_some(began);
            let name = PieceName { segment: number, edition, from, to, at, end, is_last };
            // A piece that is there before an earlier one counts once that is there.
            self.begin_put(ObjectName::Piece(name), Bytes::from(bytes));
            if is_all || is_last {
                return Ok(());
            }
        }
    }

    /// Whether the store has the whole segment in few pieces.
    fn is_stored(&self, number: u32) -> bool {
        let Some(edition) = self.catalog.whole(number) else { return false };
        if self.rotten.contains(&DataFile::Segment(number)) {
            return true;
        }
        let is_read = self.done.get(&number).is_some_and(|&done| done <= edition);
        let is_known = number < self.newest_at_start || is_read;
        is_known && self.catalog.count(number) <= PIECES_MAX_WHOLE
    }

    fn begin_put(&self, name: ObjectName, bytes: Bytes) {
        let folder = self.folder.clone();
        self.puts.push(Box::pin(async move {
            let stored = folder.put(&name, bytes.clone()).await;
            (name, bytes, stored)
        }));
    }

    /// Waits until no more than `left` pieces are being stored, or until all have ended if one has
    /// failed.
    async fn finish(&mut self, left: usize) -> Result<(), BackupError> {
        let (mut done, mut refused) = (Ok(()), Vec::new());
        while (self.puts.len() > left || done.is_err())
            && let Some((name, bytes, stored)) = self.puts.next().await
        {
            match stored {
                Ok(()) => self.catalog.add(name),
                Err(error) => {
                    refused.push((name, bytes));
                    done = Err(error);
                }
            }
        }
        refused.into_iter().for_each(|(name, bytes)| self.begin_put(name, bytes));
        done
    }

    fn note_gone(&mut self, numbers: &[u32], views: &BTreeSet<String>, at: u64) {
        let gone = self.catalog.gone(numbers, views);
        let gone = gone.into_iter().map(|file| {
            let since = self.gone.get(&file).copied().unwrap_or(at);
            (file, since)
        });
        self.gone = gone.collect();
    }

    /// Lists the store anew. What something else has removed there, such as a lifecycle rule, is
    /// stored again as far as the data directory still has it.
    async fn list_again(&mut self) -> Result<(), BackupError> {
        let stored = self.folder.catalog().await?;
        if stored != self.catalog {
            tracing::warn!("the backup was changed from outside: what is missing is stored again");
            self.catalog = stored;
            self.followed.clear();
            self.expired.clear();
            (self.checkpoint, self.inventory) = (None, None);
        }
        Ok(())
    }

    /// Finds what no restore needs to a time that is kept. That time goes on while the store fails:
    /// the newest state that can be restored is needed however old it is.
    pub(crate) fn find_expired(&mut self) {
        let oldest = clock::wall_ms().max(self.last).saturating_sub(self.keep_ms);
        self.expired = self.catalog.expired(oldest, &self.gone).into();
    }

    /// Removes some of what was found: the next pass is not to wait for long.
    pub(crate) async fn tidy(&mut self) -> Result<(), BackupError> {
        for _ in 0..REMOVED_MAX {
            let Some(name) = self.expired.pop_front() else { break };
            if let Err(error) = self.folder.remove(&name).await {
                // Others come first. The log does not say that all is well while one is left.
                self.expired.push_back(name);
                return Err(error);
            }
            self.catalog.remove(&name);
        }
        Ok(())
    }

    async fn put(&mut self, name: ObjectName, bytes: Bytes) -> Result<(), BackupError> {
        self.folder.put(&name, bytes).await?;
        self.catalog.add(name);
        Ok(())
    }

    async fn put_file(&mut self, name: ObjectName, file: &File) -> Result<(), BackupError> {
        self.folder.put_file(&name, file).await?;
        self.catalog.add(name);
        Ok(())
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError + '_ {
    |source| BackupError::Io { what: format!("read {}", path.display()), source }
}

/// Opens a file that is replaced and never changed; `None` if there is none.
fn open(path: &Path) -> Result<Option<(File, FileVersion)>, BackupError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed(path))?,
    };
    let about = file.metadata().map_err(failed(path))?;
    let changed = (about.mtime(), about.mtime_nsec());
    Ok(Some((file, FileVersion { inode: about.ino(), bytes: about.len(), changed })))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, BackupError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(failed(path)),
    }
}

#[cfg(test)]
mod tests;
