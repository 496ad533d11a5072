//! A disk in memory that loses unsynced data, as a seed decides, and fails on request.
//!
//! Bytes reach the disk in sectors of 512 bytes, in any order and at any time; only a sync
//! guarantees it. Names are kept in a journal: a crash keeps the changes up to some point. A sync
//! that fails keeps some sectors and forgets that the others were written, although they still read
//! as new, as on Linux.

use super::{LockError, Storage, StorageFile, StorageLock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR_BYTES: usize = 512;

/// The failure of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surprise {
    /// The device fails.
    Broken,
    /// The disk is full.
    Full,
    /// The process has no file descriptor left: only operations that open a file fail.
    Exhausted,
    /// The power fails: this operation and all later ones fail, until [`SimulatedStorage::crash`].
    PowerCut,
}

/// A simulated data directory. Clones are the same directory.
#[derive(Clone, Debug)]
pub struct SimulatedStorage {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug)]
struct Disk {
    random: u64,
    nodes: Vec<SimulatedInode>,
    /// The current names, and the durable ones.
    names: BTreeMap<String, usize>,
    names_on_disk: BTreeMap<String, usize>,
    /// Renames that may not be durable yet.
    journal: Vec<Rename>,
    locked: bool,
    /// Number of the process: files opened by an earlier process are closed.
    process: u64,
    operations: u64,
    surprises: BTreeMap<u64, Surprise>,
    power_is_cut: bool,
    /// Whether the process has no file descriptor left.
    is_exhausted: bool,
    bytes_max: Option<u64>,
}

/// A file, independent of its names.
#[derive(Debug, Default)]
struct SimulatedInode {
    /// Content for reads.
    cache: Vec<u8>,
    /// Content after a crash.
    disk: Vec<u8>,
    /// Sectors whose durable content may be older.
    dirty: BTreeSet<usize>,
}

/// A rename within a folder: `from` disappears, and `to` names the node.
#[derive(Clone, Debug)]
struct Rename {
    from: Option<String>,
    to: Option<(String, usize)>,
}

impl SimulatedStorage {
    /// An empty directory.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
            random: seed,
            nodes: Vec::new(),
            names: BTreeMap::new(),
            names_on_disk: BTreeMap::new(),
            journal: Vec::new(),
            locked: false,
            process: 0,
            operations: 0,
            surprises: BTreeMap::new(),
            power_is_cut: false,
            is_exhausted: false,
            bytes_max: None,
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Simulates a power failure and a restart.
    pub fn crash(&self) {
        self.disk().crash();
    }

    /// Simulates the end of the process: its writes remain, but are not synced.
    pub fn kill(&self) {
        let mut disk = self.disk();
        disk.process += 1;
        disk.locked = false;
        disk.power_is_cut = false;
        disk.is_exhausted = false;
    }

    /// Number of operations so far that a surprise can affect.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// Makes the operation after this many operations fail.
    pub fn surprise(&self, operation: u64, surprise: Surprise) {
        self.disk().surprises.insert(operation, surprise);
    }

    /// Cancels the planned failures.
    pub fn no_surprises(&self) {
        self.disk().surprises.clear();
    }

    /// Sets whether the process has no file descriptor left. A new process has some.
    pub fn set_exhausted(&self, is_exhausted: bool) {
        self.disk().is_exhausted = is_exhausted;
    }

    /// Whether the power was cut and is not back.
    #[must_use]
    pub fn has_lost_power(&self) -> bool {
        self.disk().power_is_cut
    }

    /// Flips bits of a byte, for current and later readers.
    pub fn rot(&self, name: &str, offset: usize, bits: u8) {
        let mut disk = self.disk();
        let Some(&node) = disk.names.get(name) else { return };
        let Some(node) = disk.nodes.get_mut(node) else { return };
        for byte in [node.cache.get_mut(offset), node.disk.get_mut(offset)].into_iter().flatten() {
            *byte ^= bits;
        }
    }

    /// Limits the total size of all files, in bytes.
    pub fn set_bytes_max(&self, bytes_max: Option<u64>) {
        self.disk().bytes_max = bytes_max;
    }

    /// The content of a file.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        let node = *disk.names.get(name)?;
        disk.nodes.get(node).map(|node| node.cache.clone())
    }

    /// Adds a durable file.
    pub fn set_file(&self, name: &str, bytes: &[u8]) {
        let mut disk = self.disk();
        let node = disk.add_node();
        if let Some(node) = disk.nodes.get_mut(node) {
            (node.cache, node.disk) = (bytes.to_vec(), bytes.to_vec());
        }
        disk.names.insert(name.to_owned(), node);
        disk.names_on_disk.insert(name.to_owned(), node);
    }

    /// An independent copy of the current state, with everything durable.
    #[must_use]
    pub fn fork(&self) -> Self {
        let (copy, disk) = (Self::new(0), self.disk());
        for (name, node) in &disk.names {
            if let Some(node) = disk.nodes.get(*node) {
                copy.set_file(name, &node.cache);
            }
        }
        drop(disk);
        copy
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_of(&self, node: usize) -> Arc<dyn StorageFile> {
        let process = self.disk().process;
        Arc::new(SimulatedFile { storage: self.clone(), node, process })
    }
}

impl Disk {
    /// A random number below the bound.
    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = (bound as u64).max(1);
        usize::try_from((mixed ^ (mixed >> 31)) % bound).unwrap_or(0)
    }

    fn crash(&mut self) {
        self.process += 1;
        self.locked = false;
        self.power_is_cut = false;
        self.is_exhausted = false;
        let kept = self.journal.len() + 1;
        let kept = self.below(kept);
        for change in self.journal.drain(..).take(kept) {
            apply(&mut self.names_on_disk, &change);
        }
        self.names = self.names_on_disk.clone();
        // Sometimes no unsynced sector reaches the disk, sometimes all do, mostly some.
        let luck = self.below(4);
        for index in 0..self.nodes.len() {
            let dirty = self.nodes.get_mut(index).map(|node| std::mem::take(&mut node.dirty));
            for sector in dirty.unwrap_or_default() {
                if self.below(3) < luck {
                    self.write_back(index, sector);
                }
            }
            if let Some(node) = self.nodes.get_mut(index) {
                node.cache.clone_from(&node.disk);
            }
        }
    }

    fn write_back(&mut self, node: usize, sector: usize) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        let from = sector * SECTOR_BYTES;
        let Some(bytes) = node.cache.get(from..) else { return };
        let bytes = bytes.get(..SECTOR_BYTES).unwrap_or(bytes);
        let end = from + bytes.len();
        if node.disk.len() < end {
            node.disk.resize(end, 0);
        }
        if let Some(on_disk) = node.disk.get_mut(from..end) {
            on_disk.copy_from_slice(bytes);
        }
    }

    fn add_node(&mut self) -> usize {
        self.nodes.push(SimulatedInode::default());
        self.nodes.len() - 1
    }

    /// Counts an operation, and returns its failure, if any.
    fn operate(&mut self) -> Result<(), (Surprise, io::Error)> {
        let operation = self.operations;
        self.operations += 1;
        let surprise = self.surprises.remove(&operation);
        self.power_is_cut |= surprise == Some(Surprise::PowerCut);
        if self.power_is_cut {
            return Err((Surprise::PowerCut, io::Error::other("the power is cut")));
        }
        match surprise {
            None | Some(Surprise::Exhausted) => Ok(()),
            Some(Surprise::Full) => Err((Surprise::Full, io::ErrorKind::StorageFull.into())),
            Some(other) => Err((other, io::Error::other("the device is broken"))),
        }
    }

    /// Like `operate`, for an operation that opens a file.
    fn operate_to_open(&mut self) -> io::Result<()> {
        let is_surprise = self.surprises.get(&self.operations) == Some(&Surprise::Exhausted);
        let is_exhausted = self.is_exhausted || is_surprise;
        self.operate().map_err(|(_, error)| error)?;
        if is_exhausted { Err(rustix::io::Errno::MFILE.into()) } else { Ok(()) }
    }

    fn change(&mut self, change: Rename) {
        apply(&mut self.names, &change);
        self.journal.push(change);
    }

    fn used(&self) -> u64 {
        let bytes = |node: &usize| self.nodes.get(*node).map_or(0, |node| node.cache.len() as u64);
        self.names.values().map(bytes).sum()
    }

    /// Writes as much as there is room for, and returns how much.
    fn write(&mut self, node: usize, bytes: &[u8], from: usize) -> usize {
        let room = self.bytes_max.map(|max| max.saturating_sub(self.used()));
        let Some(file) = self.nodes.get_mut(node) else { return 0 };
        let growth = (from + bytes.len()).saturating_sub(file.cache.len());
        let missing = room
            .map_or(0, |room| growth.saturating_sub(usize::try_from(room).unwrap_or(usize::MAX)));
        let fits = bytes.len().saturating_sub(missing);
        let end = from + fits;
        if fits == 0 {
            return 0;
        }
        if file.cache.len() < end {
            file.cache.resize(end, 0);
        }
        if let (Some(to), Some(bytes)) = (file.cache.get_mut(from..end), bytes.get(..fits)) {
            to.copy_from_slice(bytes);
        }
        file.dirty.extend(from / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES);
        fits
    }

    /// Occasionally writes a sector to the disk without a sync.
    fn maybe_write_back(&mut self, node: usize) {
        let count = self.nodes.get(node).map_or(0, |node| node.dirty.len());
        if self.below(4) == 0 {
            let chosen = self.below(count);
            let sector = self.nodes.get(node).and_then(|node| node.dirty.iter().nth(chosen));
            if let Some(&sector) = sector {
                self.write_back(node, sector);
            }
        }
    }
}

fn apply(names: &mut BTreeMap<String, usize>, change: &Rename) {
    if let Some(from) = &change.from {
        names.remove(from);
    }
    if let Some((to, node)) = &change.to {
        names.insert(to.clone(), *node);
    }
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Storage for SimulatedStorage {
    fn describe(&self, name: &str) -> String {
        format!("simulated/{name}")
    }

    fn lock(&self) -> Result<Box<dyn StorageLock>, LockError> {
        let mut disk = self.disk();
        if std::mem::replace(&mut disk.locked, true) {
            return Err(LockError::Held(Some(1)));
        }
        let process = disk.process;
        drop(disk);
        Ok(Box::new(SimulatedLock { storage: self.clone(), process }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let disk = self.disk();
        let inside = disk.names.keys().filter(|name| folder_of(name) == folder);
        Ok(inside.map(|name| name.rsplit('/').next().unwrap_or_default().to_owned()).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let node = self.disk().names.get(name).copied();
        node.map(|node| self.file_of(node)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut disk = self.disk();
        disk.operate_to_open()?;
        let node = disk.add_node();
        disk.change(Rename { from: None, to: Some((name.to_owned(), node)) });
        drop(disk);
        Ok(self.file_of(node))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.operate().map_err(|(_, error)| error)?;
        let node = *disk.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        disk.change(Rename { from: Some(from.to_owned()), to: Some((to.to_owned(), node)) });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.operate().map_err(|(_, error)| error)?;
        if !disk.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change(Rename { from: Some(name.to_owned()), to: None });
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = self.disk();
        Ok(disk.bytes_max.map_or(u64::MAX, |max| max.saturating_sub(disk.used())))
    }

    /// Every named file counts as open.
    fn open_files(&self) -> usize {
        self.disk().names.len()
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.operate().map_err(|(_, error)| error)?;
        let name = |change: &Rename| {
            change.to.as_ref().map(|(to, _)| to).or(change.from.as_ref()).cloned()
        };
        let within = |change: &Rename| name(change).is_some_and(|path| folder_of(&path) == folder);
        let (synced, rest) = disk.journal.drain(..).partition::<Vec<_>, _>(within);
        disk.journal = rest;
        for change in synced {
            apply(&mut disk.names_on_disk, &change);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    storage: SimulatedStorage,
    node: usize,
    process: u64,
}

impl SimulatedFile {
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.storage.disk();
        if disk.process == self.process {
            return Ok(disk);
        }
        Err(io::Error::other("the process has ended"))
    }
}

impl StorageFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk()?.nodes.get(self.node).map_or(0, |node| node.cache.len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let disk = self.disk()?;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let node = disk.nodes.get(self.node);
        let bytes = node.and_then(|node| node.cache.get(from..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk()?;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        if let Err((_, error)) = disk.operate() {
            // Some of it may have been written.
            let some = disk.below(bytes.len() + 1);
            disk.write(self.node, bytes.get(..some).unwrap_or_default(), from);
            return Err(error);
        }
        let written = disk.write(self.node, bytes, from);
        disk.maybe_write_back(self.node);
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk()?;
        let result = disk.operate();
        if matches!(result, Err((Surprise::PowerCut, _))) {
            return result.map_err(|(_, error)| error);
        }
        let dirty = disk.nodes.get_mut(self.node).map(|node| std::mem::take(&mut node.dirty));
        for sector in dirty.unwrap_or_default() {
            if result.is_ok() || disk.below(2) == 0 {
                disk.write_back(self.node, sector);
            }
        }
        result.map_err(|(_, error)| error)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let mut disk = self.disk()?;
        disk.operate().map_err(|(_, error)| error)?;
        let room = disk.bytes_max.map_or(u64::MAX, |max| max.saturating_sub(disk.used()));
        // The file already has some of it.
        let own = disk.nodes.get(self.node).map_or(0, |node| node.cache.len() as u64);
        if size > room.saturating_add(own) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

#[derive(Debug)]
struct SimulatedLock {
    storage: SimulatedStorage,
    process: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut disk = self.storage.disk();
        if disk.process == self.process {
            disk.locked = false;
        }
    }
}

impl StorageLock for SimulatedLock {}
