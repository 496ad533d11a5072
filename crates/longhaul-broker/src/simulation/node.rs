//! The broker without sockets and threads: the machine, the stepped log, and the driver's work
//! between them.

use crate::compaction::CompactionJob;
use crate::compaction::{self, run};
use crate::defaults::{TopicDefaults, TopicPattern};
use crate::log::{
    CompactedEntry, CompactedFile, LogOptions, LogPosition, LogReadError, OpenError, RecordGroup,
    ReplayedItem, SimulatedStorage, Stepped, Storage, WriteError,
};
use crate::machine::effect::MessageSource;
use crate::machine::effect::Survivor;
use crate::machine::{BrokerMachine, MachineSettings};
use crate::state::BrokerState;
use crate::state::entry::EntryHead;
use crate::state::replay::replay;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A broker that only works when called.
pub(super) struct SimulatedBroker {
    pub(super) machine: BrokerMachine,
    pub(super) log: Stepped,
    storage: SimulatedStorage,
    files: HashMap<String, CompactedFile>,
    in_flight: Option<RecordGroup>,
    pub(super) compactions: VecDeque<CompactionJob>,
    checkpoint: Option<(LogPosition, Vec<Bytes>)>,
    pub(super) copies: VecDeque<Vec<Survivor>>,
    /// Everything before this position is on disk.
    pub(super) durable: LogPosition,
    /// Whether the log is closed for writes; a real broker ends here.
    pub(super) is_dead: bool,
    /// Whether segments were removed, so that the log alone no longer leads to the state.
    pub(super) has_removed: bool,
}

/// Result of a start.
pub(super) struct RecoveredState {
    pub(super) state: BrokerState,
    /// Position after the last record.
    pub(super) end: LogPosition,
}

/// Maximum size of a message.
pub(super) const MESSAGE_BYTES_MAX: usize = 10_000;

/// Segments of a few blocks, and room for the largest frame.
pub(super) fn options() -> LogOptions {
    LogOptions {
        segment_bytes_first: 8192,
        segment_bytes_max: 8192,
        body_bytes_max: 21_000,
        salt: 7,
        facts: Some(EntryHead::facts),
    }
}

fn deduplicated(suffix: &str) -> TopicDefaults {
    TopicDefaults {
        topics: TopicPattern::EndsWith(suffix.to_owned()),
        deduplication: true,
        compaction_threshold_bytes: None,
        retention: None,
        subscription: None,
    }
}

fn settings() -> MachineSettings {
    MachineSettings {
        message_bytes_max: MESSAGE_BYTES_MAX,
        handles_per_connection: 20,
        recent_bytes: 1500,
        window_bytes: 2500,
        // Less than a window for each of five connections.
        unsent_bytes_max: 10_000,
        topic_defaults: vec![deduplicated("-ledger")],
        checkpoint_bytes: 6000,
        // One topic at a time.
        piece_bytes: 1,
        ..crate::kit::settings()
    }
}

/// Recovers the state of a directory.
pub(super) fn read(
    storage: &SimulatedStorage,
    options: LogOptions,
) -> Result<(Stepped, RecoveredState), OpenError> {
    let mut state = BrokerState::default();
    let mut end = LogPosition { segment: 0, offset: 0 };
    let log = Stepped::open(Arc::new(storage.clone()), options, &mut |replayed| {
        if let ReplayedItem::Record { location, .. } = replayed {
            end =
                LogPosition { segment: location.segment, offset: location.offset + location.size };
        }
        replay(&mut state, replayed)
    })?;
    // Records before the checkpoint may only be known from indices.
    let end = log.status().checkpoint.map_or(end, |at| end.max(at));
    Ok((log, RecoveredState { state, end }))
}

/// The state that results from the log without the checkpoint.
pub(super) fn without_checkpoint(storage: &SimulatedStorage) -> BrokerState {
    let copy = storage.fork();
    copy.remove("checkpoint").ok();
    read(&copy, options()).map(|(_, found)| found.state).unwrap()
}

impl SimulatedBroker {
    pub(super) fn open(
        storage: &SimulatedStorage,
        now: u64,
        has_removed: bool,
    ) -> Result<(Self, RecoveredState), OpenError> {
        Self::open_with(storage, options(), now, has_removed)
    }

    pub(super) fn open_with(
        storage: &SimulatedStorage,
        options: LogOptions,
        now: u64,
        has_removed: bool,
    ) -> Result<(Self, RecoveredState), OpenError> {
        let (log, mut found) = read(storage, options)?;
        let views = compaction::views::open(&found.state, storage);
        let (files, compacted) = views.unwrap_or_else(|error| panic!("{error}"));
        found.state.close_ledgers();
        let state = found.state.clone();
        let known = (log.composer.clone(), log.status());
        let machine = BrokerMachine::new(settings(), None, state, known, compacted, now);
        // The log may continue in another segment than that of the last record.
        let durable = machine.recorded();
        let node = Self {
            machine,
            log,
            storage: storage.clone(),
            files,
            in_flight: None,
            compactions: VecDeque::new(),
            checkpoint: None,
            copies: VecDeque::new(),
            durable,
            is_dead: false,
            has_removed,
        };
        Ok((node, found))
    }

    /// Takes the composed group, if none is being written.
    pub(super) fn submit(&mut self) {
        if self.in_flight.is_none() {
            self.in_flight = self.machine.take_group();
        }
    }

    /// Writes the taken group. Returns whether something became durable.
    pub(super) fn write(&mut self) -> bool {
        let Some(group) = &self.in_flight else { return false };
        match self.log.write(group) {
            Ok(()) => {
                self.durable = group.end();
                self.machine.committed(group);
                self.machine.set_log(self.log.status());
                self.in_flight = None;
                return true;
            }
            Err(WriteError::Full { .. }) => {
                self.machine.set_log(self.log.status());
            }
            Err(_) => self.is_dead = true,
        }
        false
    }

    /// Checks the disk, as the driver does once a second.
    pub(super) fn look(&mut self) {
        self.log.prepare();
        self.machine.set_log(self.log.status());
    }

    pub(super) fn set_checkpoint(&mut self, at: LogPosition, image: Vec<Bytes>) {
        assert!(self.checkpoint.is_none(), "two checkpoints at a time");
        self.checkpoint = Some((at, image));
    }

    /// Writes the requested checkpoint, once everything before it is on disk.
    pub(super) fn write_checkpoint(&mut self) {
        let Some((at, image)) = self.checkpoint.take() else { return };
        match self.log.checkpoint(at, &image) {
            Err(WriteError::Busy) => self.checkpoint = Some((at, image)),
            result => {
                self.machine.set_log(self.log.status());
                self.machine.checkpointed(result.is_ok());
            }
        }
    }

    /// Runs the oldest pending compaction, if its thread starts. Returns its job, and the result.
    pub(super) fn compact(
        &mut self,
        starts: bool,
    ) -> Option<(CompactionJob, Option<Arc<[CompactedEntry]>>)> {
        let job = self.compactions.pop_front()?;
        let storage = Arc::new(self.storage.clone());
        let result = if starts {
            run::run_into(&mut self.files, &job, &self.log.reader(), storage)
        } else {
            Err("its thread did not start, or panicked".to_owned())
        };
        let slots = result.as_ref().ok().map(Arc::clone);
        self.machine.compacted(&job, result);
        Some((job, slots))
    }

    /// Reads the entries to be copied, and passes them to the machine.
    pub(super) fn copy(&mut self) {
        let Some(survivors) = self.copies.pop_front() else { return };
        let reader = self.log.reader();
        let read = survivors
            .into_iter()
            .filter_map(|survivor| Some((survivor, reader.read(survivor.location).ok()?)));
        self.machine.copy(read.collect());
    }

    pub(super) fn remove_compacted(&mut self, name: &str) {
        self.files.remove(name);
        self.storage.remove(name).ok();
    }

    pub(super) fn remove_segments(&mut self, segments: &[u32]) {
        self.has_removed = true;
        self.log.remove(segments);
    }

    /// The source of a delivery, as the driver keeps it for a later read.
    pub(super) fn pin(&self, source: MessageSource) -> Pinned {
        match source {
            MessageSource::Memory(body) => Pinned::Memory(body),
            MessageSource::Log(location) => Pinned::Log(location),
            MessageSource::Compacted(name, slot) => {
                Pinned::Compacted(self.files[&*name].clone(), slot)
            }
        }
    }

    /// Reads a delivery. `None` if it was trimmed meanwhile.
    pub(super) fn read(&self, pinned: &Pinned) -> Result<Option<Bytes>, LogReadError> {
        match pinned {
            Pinned::Memory(body) => Ok(Some(body.clone())),
            Pinned::Log(location) => match self.log.reader().read(*location) {
                Err(LogReadError::Gone { .. }) => Ok(None),
                read => read.map(Some),
            },
            Pinned::Compacted(file, slot) => Ok(Some(file.read(slot).unwrap())),
        }
    }
}

/// A delivery that waits to be sent.
pub(super) enum Pinned {
    Memory(Bytes),
    Log(crate::log::RecordLocation),
    Compacted(CompactedFile, CompactedEntry),
}
