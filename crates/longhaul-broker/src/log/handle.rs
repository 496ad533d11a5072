//! The log with its two threads, around steps that need no thread.

use super::error::{OpenError, WriteError};
use super::options::LogOptions;
use super::shared::{SharedLogState, lock};
use super::status::LogStatus;
use crate::clock;
use crate::log::disk::background;
use crate::log::disk::reserve;
use crate::log::disk::storage::{Storage, StorageLock};
use crate::log::indices::aging::Aging;
use crate::log::recover::confirmed::LogIdleDetector;
use crate::log::recover::recovery::{self, RecoveredLog, ReplayedItem};
use crate::log::segments::composer::RecordGroup;
use crate::log::segments::reader::RecordReader;
use crate::log::segments::record::LogPosition;
use crate::log::segments::writer::LogWriter;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Receives the result of a write, on a thread of the log. It must not block.
pub type WriteCallback = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// Opens a log: replays it, then starts its threads.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    storage: Arc<dyn Storage>,
    options: LogOptions,
    apply: &mut dyn FnMut(ReplayedItem<'_>) -> Result<(), String>,
) -> Result<RecoveredLog, OpenError> {
    let parts = recovery::recover(storage, options, apply)?;
    let log = BrokerLog::start(parts.writer, parts.reader, parts.lock)
        .map_err(|source| OpenError::Io { what: "start a thread of the log".to_owned(), source })?;
    log.prepare();
    let (composer, truncated, records) = (parts.composer, parts.truncated, parts.records);
    Ok(RecoveredLog { composer, log, truncated, records })
}

/// An open log. Dropping it is the same as [`BrokerLog::close`].
pub struct BrokerLog {
    shared: Arc<SharedLogState>,
    reader: RecordReader,
    /// Channel of groups to the writer; `None` once the log is being closed.
    groups: Option<SyncSender<(RecordGroup, WriteCallback)>>,
    jobs: Arc<BackgroundJobs>,
    writer: Option<JoinHandle<()>>,
    background: Option<JoinHandle<()>>,
    /// Keeps other processes away until the threads have ended.
    _lock: Box<dyn StorageLock>,
}

impl BrokerLog {
    fn start(
        writer: LogWriter,
        reader: RecordReader,
        lock: Box<dyn StorageLock>,
    ) -> std::io::Result<Self> {
        let shared = Arc::clone(&writer.shared);
        let jobs = Arc::new(BackgroundJobs::default());
        let (groups, received) = sync_channel(1);
        let mut log = Self {
            shared: Arc::clone(&shared),
            reader,
            groups: Some(groups),
            jobs: Arc::clone(&jobs),
            writer: None,
            background: None,
            _lock: lock,
        };
        let for_writer = Arc::clone(&jobs);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        log.writer =
            Some(named("log-writer").spawn(move || write(writer, &received, &for_writer))?);
        log.background = Some(named("log-background").spawn(move || jobs.run(&shared))?);
        Ok(log)
    }

    /// A reader for written records. Readers may outlive the log.
    #[must_use]
    pub fn reader(&self) -> RecordReader {
        self.reader.clone()
    }

    /// Writes and syncs a group, then calls `done`. One group may be in flight, and groups must
    /// come in the order in which the composer returned them. After [`WriteError::Full`] submit the
    /// same group again: nothing of it is lost, and nothing else can be written before it.
    pub fn submit(&self, group: RecordGroup, done: WriteCallback) {
        let Some(groups) = &self.groups else { return done(Err(WriteError::Closed)) };
        match groups.try_send((group, done)) {
            Ok(()) => {}
            Err(TrySendError::Full((_, done))) => done(Err(WriteError::Busy)),
            Err(TrySendError::Disconnected((_, done))) => done(Err(WriteError::Closed)),
        }
    }

    /// Writes a checkpoint in the background: the state after all records before `at`, in pieces
    /// that replay passes on one by one. `at` may be after records that are still in flight or not
    /// yet submitted: the checkpoint waits for them. One checkpoint may be in progress.
    pub fn checkpoint(&self, at: LogPosition, image: Vec<Bytes>, done: WriteCallback) {
        let mut pending = lock(&self.jobs.pending);
        let refused = if pending.stop {
            Some(WriteError::Closed)
        } else if pending.checkpoint.is_some() || pending.busy {
            Some(WriteError::Busy)
        } else {
            None
        };
        if let Some(error) = refused {
            drop(pending);
            return done(Err(error));
        }
        pending.checkpoint = Some((at, image, done));
        drop(pending);
        self.jobs.wake.notify_all();
    }

    /// Removes segments in the background. Segments at or after the durable checkpoint's position
    /// are kept, so remove a segment only after the checkpoint behind it was reported as written.
    /// After a crash a removed segment may exist again.
    pub fn remove(&self, segments: &[u32]) {
        lock(&self.jobs.pending).remove.extend(segments);
        self.jobs.wake.notify_all();
    }

    /// Status of the log.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        self.shared.status()
    }

    /// Tries in the background to prepare the next segment. Call it now and then while the disk is
    /// full.
    pub fn prepare(&self) {
        lock(&self.jobs.pending).prepare = true;
        self.jobs.wake.notify_all();
    }

    /// Ends the threads after their current work. A checkpoint that waits for records is given up.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for BrokerLog {
    fn drop(&mut self) {
        self.groups = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer of the log panicked");
        }
        lock(&self.jobs.pending).stop = true;
        self.jobs.wake.notify_all();
        if let Some(background) = self.background.take()
            && background.join().is_err()
        {
            tracing::error!("the background of the log panicked");
        }
    }
}

impl fmt::Debug for BrokerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerLog").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// The writer's thread.
fn write(
    mut writer: LogWriter,
    groups: &Receiver<(RecordGroup, WriteCallback)>,
    jobs: &BackgroundJobs,
) {
    while let Ok((group, done)) = groups.recv() {
        let result = writer.write(&group);
        // The driver may continue before the background learns of it.
        done(result);
        if writer.wants_prepare() {
            lock(&jobs.pending).prepare = true;
            jobs.wake.notify_all();
        } else {
            let mut pending = lock(&jobs.pending);
            if std::mem::take(&mut pending.is_at_rest) || pending.checkpoint.is_some() {
                jobs.wake.notify_all();
            }
        }
    }
}

/// Work for the background. Each kind of work is pending at most once, so the queue cannot grow.
#[derive(Default)]
struct BackgroundJobs {
    pending: Mutex<PendingJobs>,
    wake: Condvar,
}

#[derive(Default)]
struct PendingJobs {
    prepare: bool,
    remove: BTreeSet<u32>,
    /// Waits until the disk has confirmed the records that it covers.
    checkpoint: Option<(LogPosition, Vec<Bytes>, WriteCallback)>,
    /// Whether a checkpoint is being written.
    busy: bool,
    /// Whether the confirmed position is noted, and the background waits for more.
    is_at_rest: bool,
    stop: bool,
}

enum BackgroundJob {
    Prepare,
    Remove(BTreeSet<u32>),
    Checkpoint(LogPosition, Vec<Bytes>, WriteCallback),
    Reserve,
    Index,
    /// The log is idle, or ends.
    NoteConfirmed,
    /// A checkpoint for records that will not be written.
    GiveUp(WriteCallback, WriteError),
    Stop,
}

impl BackgroundJobs {
    /// The background's thread.
    fn run(&self, shared: &SharedLogState) {
        let (mut rest, mut aging) = (LogIdleDetector::default(), Aging::default());
        loop {
            match self.next(shared, &mut rest, &mut aging) {
                BackgroundJob::Prepare => background::prepare(shared),
                BackgroundJob::Remove(numbers) => {
                    let numbers: Vec<u32> = numbers.into_iter().collect();
                    background::remove(shared, &numbers);
                }
                BackgroundJob::Checkpoint(at, image, done) => {
                    let result = background::checkpoint(shared, at, &image);
                    lock(&self.pending).busy = false;
                    done(result);
                }
                BackgroundJob::Reserve => reserve::grow(shared),
                BackgroundJob::Index => drop(background::index(shared)),
                BackgroundJob::NoteConfirmed => background::record_confirmed(shared),
                BackgroundJob::GiveUp(done, error) => done(Err(error)),
                BackgroundJob::Stop => return,
            }
        }
    }

    /// Waits for work. Work for the writer comes first.
    fn next(
        &self,
        shared: &SharedLogState,
        rest: &mut LogIdleDetector,
        aging: &mut Aging,
    ) -> BackgroundJob {
        let mut pending = lock(&self.pending);
        loop {
            if std::mem::take(&mut pending.prepare) && !pending.stop {
                return BackgroundJob::Prepare;
            }
            if !pending.remove.is_empty() {
                return BackgroundJob::Remove(std::mem::take(&mut pending.remove));
            }
            let durable = shared.durable();
            if let Some((at, image, done)) = pending.checkpoint.take_if(|(at, ..)| *at <= durable) {
                pending.busy = true;
                return BackgroundJob::Checkpoint(at, image, done);
            }
            let hopeless = shared.poison().is_some() || pending.stop;
            if hopeless && let Some((_, _, done)) = pending.checkpoint.take() {
                let reason = shared.poison().map(str::to_owned);
                let error =
                    reason.map_or(WriteError::Closed, |reason| WriteError::Poisoned { reason });
                return BackgroundJob::GiveUp(done, error);
            }
            let is_poisoned = shared.poison().is_some();
            let is_noted = is_poisoned || durable <= shared.noted();
            if pending.stop {
                return if is_noted { BackgroundJob::Stop } else { BackgroundJob::NoteConfirmed };
            }
            if shared.reserve_grows.load(Ordering::Relaxed) {
                return BackgroundJob::Reserve;
            }
            let now = clock::monotonic();
            let index_in = match shared.without_index() {
                // The log is idle.
                Some(_) if is_noted => Some(Duration::ZERO),
                without => aging.wait(without, now),
            };
            if index_in == Some(Duration::ZERO) {
                return BackgroundJob::Index;
            }
            let record_in = rest.wait(durable, shared.noted(), now).filter(|_| !is_poisoned);
            if record_in == Some(Duration::ZERO) {
                return BackgroundJob::NoteConfirmed;
            }
            pending.is_at_rest = record_in.is_none();
            pending = match record_in.into_iter().chain(index_in).min() {
                Some(wait) => {
                    let waited = self.wake.wait_timeout(pending, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(pending).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
