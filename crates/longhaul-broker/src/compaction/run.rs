//! Runs a compaction, on a thread of its own.

use super::CompactionJob;
use super::plan::{CompactionFate, LastMessages};
use crate::error::with_causes;
use crate::log::{
    CompactedEntry, CompactedFile, CompactedWriter, RecordLocation, RecordReader, Storage,
};
use crate::state::entry::EntryHead;
use bytes::{Bytes, BytesMut};
use longhaul_wire::payload::Payload;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Entries per read, and their bytes, unless one entry is larger.
const CHUNK: usize = 256;
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;

/// The lowest priority.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;

/// An entry in progress.
struct CompactionEntry {
    ordinal: u64,
    ledger: u64,
    entry: u64,
    /// Head and message.
    body: Bytes,
    head: EntryHead,
    payload: Payload,
}

/// Compacts a topic. `previous` is the view that the job continues. With `given_up`, the broker is
/// running: the file leaves the room on the disk that its log needs, and the broker may stop.
///
/// # Errors
/// The file that could not be read or written; the new file is then removed.
pub(crate) fn run(
    job: &CompactionJob,
    previous: Option<&CompactedFile>,
    reader: &RecordReader,
    storage: Arc<dyn Storage>,
    given_up: Option<&AtomicBool>,
) -> Result<CompactedFile, String> {
    let mut last = LastMessages::default();
    each(
        job,
        previous,
        reader,
        given_up,
        |_| true,
        |entry| {
            last.visit(entry.ordinal, entry.head.facts.publish_time, &entry.payload);
            Ok(())
        },
    )?;
    let viewed = previous.and_then(|view| view.slots().last()).map(|slot| slot.ordinal);
    let mut survivors = last.finish(viewed);
    let mut wanted = survivors.clone();
    let mut writer =
        CompactedWriter::create(storage, &job.file).map_err(|error| with_causes(&error))?;
    if given_up.is_some() {
        writer = writer.within(reader, job.bytes_max);
    }
    each(
        job,
        previous,
        reader,
        given_up,
        |ordinal| wanted.has(ordinal),
        |entry| {
            let body = match survivors.fate(entry.ordinal, &entry.payload) {
                CompactionFate::Drop => return Ok(()),
                CompactionFate::Keep => entry.body,
                CompactionFate::Rewrite(payload) => {
                    let mut body = BytesMut::new();
                    entry.head.encode(&mut body);
                    body.extend_from_slice(payload.bytes());
                    body.freeze()
                }
            };
            let messages = entry.head.facts.batch.unwrap_or(1);
            writer
                .append(entry.ordinal, entry.ledger, entry.entry, messages, &body)
                .map_err(|error| with_causes(&error))
        },
    )?;
    writer.finish().map_err(|error| with_causes(&error))
}

/// Compacts a topic synchronously and adds the new view to `files`: for simulations.
///
/// # Errors
/// The errors of [`run`].
///
/// # Panics
/// If an entry of the job was removed from the log.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn run_into(
    files: &mut std::collections::HashMap<String, CompactedFile>,
    job: &CompactionJob,
    reader: &RecordReader,
    storage: Arc<dyn Storage>,
) -> Result<Arc<[CompactedEntry]>, String> {
    let previous = job.previous.as_deref().and_then(|name| files.get(name)).cloned();
    let file = run(job, previous.as_ref(), reader, storage, Some(&AtomicBool::new(false)))
        .inspect_err(|error| {
            assert!(!error.contains("is not in the log"), "{}: {error}", job.name)
        })?;
    let slots = Arc::clone(file.slots());
    files.insert(job.file.clone(), file);
    Ok(slots)
}

/// Runs work on a thread of this name, at the lowest priority. If the thread does not start, the
/// work is dropped.
pub(crate) fn in_background(name: &str, work: impl FnOnce() + Send + 'static) {
    let work = move || {
        // On Linux the priority belongs to the thread. If it cannot be lowered, the work runs at
        // normal priority.
        #[cfg(target_os = "linux")]
        rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).ok();
        work();
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        tracing::warn!(%error, name, "cannot start a thread");
    }
}

/// Reads the entries that survive, in order, unless the broker stops.
fn each(
    job: &CompactionJob,
    previous: Option<&CompactedFile>,
    reader: &RecordReader,
    given_up: Option<&AtomicBool>,
    mut is_wanted: impl FnMut(u64) -> bool,
    mut visit: impl FnMut(CompactionEntry) -> Result<(), String>,
) -> Result<(), String> {
    let check = || {
        let is_given_up = given_up.is_some_and(|given_up| given_up.load(Ordering::Relaxed));
        if is_given_up { Err("the broker is stopping".to_owned()) } else { Ok(()) }
    };
    if let Some(file) = previous {
        for slot in file.slots().iter() {
            check()?;
            if is_wanted(slot.ordinal) {
                let CompactedEntry { ordinal, ledger, entry, .. } = *slot;
                let body = file.read(slot).map_err(|error| unread(ledger, entry, error))?;
                visit(parse(ordinal, ledger, entry, body)?)?;
            }
        }
    }
    let mut wanted = job.entries.iter().filter(|(ordinal, ..)| is_wanted(*ordinal)).peekable();
    loop {
        check()?;
        let chunk = next_chunk(&mut wanted, |(_, _, location)| location.size);
        if chunk.is_empty() {
            return Ok(());
        }
        let locations: Vec<RecordLocation> =
            chunk.iter().map(|(_, _, location)| *location).collect();
        for ((ordinal, id, _), body) in chunk.into_iter().zip(reader.read_many(&locations)) {
            let body = body.map_err(|error| unread(id.ledger, id.entry, error))?;
            visit(parse(ordinal, id.ledger, id.entry, body)?)?;
        }
    }
}

/// The next entries that are read together.
pub(crate) fn next_chunk<T>(
    entries: &mut Peekable<impl Iterator<Item = T>>,
    size: impl Fn(&T) -> u32,
) -> Vec<T> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while let Some(entry) = entries.next_if(|entry| {
        bytes += u64::from(size(entry));
        chunk.is_empty() || (bytes <= CHUNK_BYTES && chunk.len() < CHUNK)
    }) {
        chunk.push(entry);
    }
    chunk
}

/// The error that ends a compaction: without this message, an older value of its key would replace
/// it.
fn unread(ledger: u64, entry: u64, error: impl std::error::Error) -> String {
    format!("message {ledger}:{entry} cannot be read: {}", with_causes(&error))
}

fn parse(ordinal: u64, ledger: u64, entry: u64, body: Bytes) -> Result<CompactionEntry, String> {
    let mut rest = body.clone();
    let head = EntryHead::decode(&mut rest);
    let head = head.ok_or_else(|| format!("entry {ledger}:{entry} has no head"))?;
    let payload =
        Payload::parse(rest).map_err(|cause| format!("entry {ledger}:{entry}: {cause}"))?;
    Ok(CompactionEntry { ordinal, ledger, entry, body, head, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Facts, LogOptions, RecordHead, RecordKind, SimulatedStorage, Stepped};
    use crate::state::entries::TopicEntries;
    use longhaul_wire::messages::MessageMetadata;

    fn log(storage: &SimulatedStorage) -> Stepped {
        let options = LogOptions {
            segment_bytes_first: 64 * 1024,
            body_bytes_max: 20_000,
            ..LogOptions::default()
        };
        Stepped::open(Arc::new(storage.clone()), options, &mut |_| Ok(())).unwrap()
    }

    fn job(entries: &TopicEntries) -> CompactionJob {
        CompactionJob {
            topic: 0,
            name: "t".to_owned(),
            file: "compact/0.seg".to_owned(),
            previous: None,
            horizon: entries.end(),
            bytes_max: None,
            entries: entries.copy(0, entries.end()),
        }
    }

    /// Regression: only the first of the two passes ended when the broker stopped.
    #[test]
    fn each_pass_ends_when_the_broker_stops() {
        let (log, job) = (log(&SimulatedStorage::new(1)), job(&TopicEntries::default()));
        let stops = AtomicBool::new(true);
        let pass = each(&job, None, &log.reader(), Some(&stops), |_| true, |_| Ok(()));
        assert!(pass.unwrap_err().contains("stopping"));
    }

    /// Regression: 256 entries were read at once, whatever their size: 128 messages of 2 MiB took
    /// 293 MB.
    #[test]
    fn entries_are_read_together_up_to_a_number_of_bytes() {
        const MIB: u32 = 1024 * 1024;
        let chunks = |sizes: Vec<u32>| -> Vec<usize> {
            let mut rest = sizes.into_iter().peekable();
            let next = || Some(next_chunk(&mut rest, |&size| size).len());
            std::iter::from_fn(next).take_while(|&count| count > 0).collect()
        };
        assert_eq!(chunks(vec![2 * MIB; 5]), [2, 2, 1]);
        assert_eq!(chunks(vec![9 * MIB, 1, 9 * MIB]), [1, 1, 1], "a larger one is read alone");
        assert_eq!(chunks(vec![100; 600]), [256, 256, 88]);
    }

    /// Regression: a compaction wrote until the disk was full to the last byte. Nothing was left for
    /// acknowledgements and checkpoints, which free space.
    #[test]
    fn a_compaction_leaves_what_is_reserved_for_acknowledgements() {
        let storage = SimulatedStorage::new(1);
        let mut log = log(&storage);
        let mut entries = TopicEntries::default();
        entries.open_ledger(0, 0);
        for entry in 0..300_u32 {
            let metadata = MessageMetadata {
                partition_key: Some(entry.to_string()),
                ..MessageMetadata::default()
            };
            let mut body = Vec::new();
            EntryHead::default().encode(&mut body);
            body.extend_from_slice(Payload::new(&metadata, &[7; 10_000]).bytes());
            let head =
                RecordHead { kind: RecordKind::Entry, topic: 0, ledger: 0, entry: entry.into() };
            let location = log.composer.append(head, &[&body]).unwrap();
            entries.push(location, &Facts::default());
        }
        let group = log.composer.take().unwrap();
        log.write(&group).unwrap();
        log.prepare();
        let mut job = job(&entries);
        let compact = |job: &CompactionJob| {
            let files = &mut std::collections::HashMap::new();
            run_into(files, job, &log.reader(), Arc::new(storage.clone()))
        };
        assert_eq!(compact(&job).unwrap().len(), 300);
        let view = storage.file(&job.file).unwrap().len() as u64;
        storage.remove(&job.file).unwrap();
        storage.set_bytes_max(Some(1 << 40));
        let used = (1 << 40) - storage.free_bytes().unwrap();
        let kept = u64::from(log.composer.kept_bytes());
        for (free, fits) in [(view + kept - 1, false), (view + kept, true)] {
            storage.set_bytes_max(Some(used + free));
            let result = compact(&job);
            assert_eq!(result.is_ok(), fits, "{:?}", result.err());
        }
        // The limit of the setting was only asked for when a publish came.
        storage.remove(&job.file).unwrap();
        for (bytes, fits) in [(view - 1, false), (view, true)] {
            job.bytes_max = Some(bytes);
            let result = compact(&job);
            assert_eq!(result.is_ok(), fits, "{:?}", result.err());
            assert!(result.err().is_none_or(|error| error.contains("raise it")));
        }
    }
}
