//! The whole broker on a faulty disk: a real directory, behind which single reads and syncs fail as
//! they do in the operating system.

#[path = "../../tests/client/mod.rs"]
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it is, it is wrong")]
pub(super) mod client;

use super::Broker;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use crate::log::{FileStorage, LockError, Storage, StorageFile, StorageLock};
use client::{Client, PATIENCE, ask};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// The file with the faults.
const SEGMENT: &str = "log/0000000001.seg";

/// Fault of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFault {
    /// The operating system refuses the read.
    Refused,
    /// The bytes differ from those that were written.
    Rotten,
}

/// Faults of the first segment.
#[derive(Debug, Default)]
struct DiskFaults {
    /// Reads of any of these bytes fail.
    reads: Mutex<Option<(Range<u64>, ReadFault)>>,
    /// Number of failed reads.
    met: AtomicUsize,
    /// Reads of any of these bytes are counted.
    watched: Mutex<Range<u64>>,
    counted: AtomicUsize,
    /// Whether all syncs fail.
    syncs: AtomicBool,
    /// Whether syncs hang.
    hangs: AtomicBool,
    /// Whether the code that creates a compacted view panics.
    views: AtomicBool,
    /// Files by name, each with a number; and the number of the faulty file.
    files: Mutex<HashMap<String, usize>>,
    segment: AtomicUsize,
}

impl DiskFaults {
    fn plant(&self, range: Range<u64>, fault: ReadFault) {
        *self.reads.lock().unwrap() = Some((range, fault));
    }

    fn mend(&self) {
        *self.reads.lock().unwrap() = None;
    }

    fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    /// The fault of this read, if any.
    fn of(&self, file: usize, bytes: usize, offset: u64) -> Option<ReadFault> {
        let meets = |range: &Range<u64>| {
            let is_meant = self.segment.load(Ordering::SeqCst) == file;
            is_meant && offset < range.end && range.start < offset + bytes as u64
        };
        if meets(&self.watched.lock().unwrap()) {
            self.counted.fetch_add(1, Ordering::SeqCst);
        }
        let (_, fault) = self.reads.lock().unwrap().clone().filter(|(range, _)| meets(range))?;
        self.met.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    /// Reads, with the planned faults.
    fn read<T>(
        &self,
        (file, offset): (usize, u64),
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.of(file, buffer.len(), offset) {
            Some(ReadFault::Refused) => Err(Errno::IO.into()),
            Some(ReadFault::Rotten) => {
                let outcome = read(buffer);
                let bad = self.reads.lock().unwrap().as_ref().map_or(0, |(range, _)| range.start);
                let at = usize::try_from(bad.saturating_sub(offset)).unwrap();
                buffer[at] ^= 1;
                outcome
            }
            None => read(buffer),
        }
    }

    /// Notes the name of a file.
    fn name(&self, name: &str, file: usize) {
        self.files.lock().unwrap().insert(name.to_owned(), file);
        if name == SEGMENT {
            self.segment.store(file, Ordering::SeqCst);
        }
    }
}

/// A directory on a faulty disk.
#[derive(Debug)]
struct BrokenDisk {
    whole: FileStorage,
    faults: Arc<DiskFaults>,
    next: AtomicUsize,
}

impl BrokenDisk {
    fn file(&self, name: &str, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.faults.name(name, number);
        Arc::new(BrokenFile { file, number, faults: Arc::clone(&self.faults) })
    }
}

impl Storage for BrokenDisk {
    fn describe(&self, name: &str) -> String {
        self.whole.describe(name)
    }

    fn lock(&self) -> Result<Box<dyn StorageLock>, LockError> {
        self.whole.lock()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.whole.list(folder)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.file(name, self.whole.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        if name.starts_with("compact/") && self.faults.views.load(Ordering::SeqCst) {
            // Without a backtrace: at the priority of a compaction, among busy tests, that takes
            // longer than the test waits.
            std::panic::resume_unwind(Box::new("a planted panic"));
        }
        Ok(self.file(name, self.whole.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.faults.files.lock().unwrap().remove(from);
        self.faults.name(to, file.unwrap());
        self.whole.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.whole.remove(name)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.whole.free_bytes()
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        self.whole.sync_dir(folder)
    }
}

#[derive(Debug)]
struct BrokenFile {
    file: Arc<dyn StorageFile>,
    number: usize,
    faults: Arc<DiskFaults>,
}

impl StorageFile for BrokenFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn has_other_names(&self) -> io::Result<bool> {
        self.file.has_other_names()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let place = (self.number, offset);
        self.faults.read(place, buffer, |buffer| self.file.read_at(buffer, offset))
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        let place = (self.number, offset);
        self.faults.read(place, buffer, |buffer| self.file.read_cached_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        while self.faults.hangs.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        if self.faults.syncs.load(Ordering::SeqCst) {
            return Err(Errno::IO.into());
        }
        self.file.sync_data()
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.file.allocate(size)
    }
}

const ENTRIES: u64 = 5;
/// The unreadable entry.
const BAD: u64 = 2;

fn body(number: u64) -> Vec<u8> {
    format!("this is entry {number:06}").into_bytes()
}

fn config(data: &Path) -> BrokerConfig {
    // Without a cache, every entry is read from the log.
    BrokerConfig { data: Some(data.to_owned()), recent_bytes: 0, ..BrokerConfig::default() }
}

/// A broker on a faulty disk with confirmed entries of topic `t`, and its producer.
async fn broker(data: &Path, faults: &Arc<DiskFaults>) -> (Broker, Client) {
    let faults = Arc::clone(faults);
    let broken = |root: &Path| -> io::Result<Arc<dyn Storage>> {
        let whole = FileStorage::new(root)?;
        // No file has number 0.
        Ok(Arc::new(BrokenDisk { whole, faults, next: AtomicUsize::new(1) }))
    };
    let broker = Broker::start_on(config(data), Box::new(broken)).unwrap();
    let mut producer = Client::producer(broker.address(), "t").await.unwrap();
    for number in 0..ENTRIES {
        producer.publish_one(1, number, &body(number)).await.unwrap();
    }
    (broker, producer)
}

/// Offsets of an entry's bytes on disk.
fn place(data: &Path, body: &[u8]) -> Range<u64> {
    let bytes = std::fs::read(data.join(SEGMENT)).unwrap();
    let at = bytes.windows(body.len()).position(|window| window == body).unwrap() as u64;
    at..at + body.len() as u64
}

/// The ids of the next entries of `t`, which are acknowledged.
async fn consume(consumer: &mut Client, count: usize) -> Vec<u64> {
    let found = consumer.messages(count).await.unwrap();
    for id in &found {
        let request = consumer.request_id();
        consumer.ack(1, id.clone(), request).await.unwrap();
        consumer.answer().await.unwrap();
    }
    found.iter().map(|id| id.entry_id).collect()
}

async fn subscribe(broker: &Broker) -> Client {
    Client::consumer(broker.address(), "t", "s", 1000).await.unwrap()
}

async fn until(is_so: impl Fn() -> bool) {
    let comes = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, comes).await.unwrap();
}

fn topic(tail: &str) -> String {
    format!("/admin/v2/persistent/public/default/{tail}")
}

fn backlog(broker: &Broker) -> String {
    let stats = ask(broker, "GET", &topic("t/stats"));
    let (_, after) = stats.split_once("\"msgBacklog\":").unwrap();
    after.split([',', '}']).next().unwrap().to_owned()
}

/// Number of entries that were found to be damaged.
fn damaged(broker: &Broker) -> String {
    let metrics = ask(broker, "GET", "/metrics");
    let (_, after) = metrics.split_once("\nlonghaul_broker_unreadable_entries_total ").unwrap();
    after.split('\n').next().unwrap().to_owned()
}

/// If the disk refuses to read an entry, the other entries are delivered, and that one as soon as
/// it can be read, in this run of the broker or in the next.
#[tokio::test]
async fn an_entry_that_the_disk_refuses_to_read_is_delivered_when_it_does() {
    for is_mended_in_time in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (data, faults) = (folder.path(), Arc::<DiskFaults>::default());
        let (broker, producer) = broker(data, &faults).await;
        faults.plant(place(data, &body(BAD)), ReadFault::Refused);
        let mut consumer = subscribe(&broker).await;
        let sound: Vec<u64> = (0..ENTRIES).filter(|&number| number != BAD).collect();
        assert_eq!(consume(&mut consumer, sound.len()).await, sound);
        assert!(faults.met() >= 4, "it was tried again at once");
        assert_eq!(backlog(&broker), "1", "nobody acknowledged it");
        assert_eq!(damaged(&broker), "0", "it is not taken for damaged");
        if is_mended_in_time {
            // It was tried again later, and failed again.
            let before = faults.met();
            until(|| faults.met() > before).await;
            faults.mend();
            assert_eq!(consume(&mut consumer, 1).await, [BAD]);
            assert_eq!(backlog(&broker), "0");
            broker.shutdown().unwrap();
        } else {
            drop((consumer, producer));
            broker.shutdown().unwrap();
            let broker = Broker::start(config(data)).unwrap();
            let mut consumer = subscribe(&broker).await;
            assert_eq!(consume(&mut consumer, 1).await, [BAD]);
            assert_eq!(backlog(&broker), "0");
        }
    }
}

/// Data of a failed sync may be lost although it still reads: the broker ends without a receipt and
/// names the file. Confirmed data is there at the next start.
#[tokio::test]
async fn a_sync_that_fails_ends_the_broker_with_the_file_named() {
    let folder = tempfile::tempdir().unwrap();
    let (data, faults) = (folder.path(), Arc::<DiskFaults>::default());
    let (broker, mut producer) = broker(data, &faults).await;
    faults.syncs.store(true, Ordering::SeqCst);
    producer.publish(1, ENTRIES, b"unconfirmed").await.unwrap();
    let ended = timeout(PATIENCE, broker.ended()).await.unwrap().unwrap_err();
    let BrokerError::Log(cause) = &ended else { panic!("{ended:?}") };
    let cause = cause.to_string();
    for said in ["a sync failed in", SEGMENT, "os error 5"] {
        assert!(cause.contains(said), "{said}: {cause}");
    }
    let said = producer.until_closed().await;
    assert!(said.is_empty(), "no receipt: {said:?}");
    assert!(matches!(broker.shutdown(), Err(BrokerError::Log(_))));
    let broker = Broker::start(config(data)).unwrap();
    let mut consumer = subscribe(&broker).await;
    let confirmed: Vec<u64> = (0..ENTRIES).collect();
    assert_eq!(consume(&mut consumer, confirmed.len()).await, confirmed);
}

/// A segment with one damaged entry keeps only that entry: the cleaner copies the others to the end
/// of the log. The damage is reported and counted, and the file is kept while others are removed.
/// If the fault was temporary, the next start has the entry.
#[tokio::test]
async fn what_is_sound_in_a_damaged_segment_is_copied_and_what_is_not_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (data, faults) = (folder.path(), Arc::<DiskFaults>::default());
    let (broker, mut producer) = broker(data, &faults).await;
    let mut consumer = Client::connect(broker.address()).await.unwrap();
    consumer.subscribe("t", "s", 1).await.unwrap();
    // Four segments, of which nothing else is needed in the end.
    producer.produce("load", 2).await.unwrap();
    ask(&broker, "PUT", &topic("load/subscription/x"));
    let large = vec![7; 1024 * 1024];
    for number in 0..64 {
        producer.publish_one(2, number, &large).await.unwrap();
    }
    // The index was built from an intact segment.
    until(|| data.join("log/0000000001.idx").is_file()).await;
    faults.plant(place(data, &body(BAD)), ReadFault::Rotten);
    *faults.watched.lock().unwrap() = place(data, &body(0));
    ask(&broker, "POST", &topic("load/subscription/x/skip_all"));
    until(|| faults.met() > 0).await;
    // The copy is on disk when reads of the first entry no longer touch the old location.
    let is_moved = || {
        let before = faults.counted.load(Ordering::SeqCst);
        let read = ask(&broker, "GET", &topic("t/ledger/0/entry/0"));
        read.starts_with("HTTP/1.1 200") && faults.counted.load(Ordering::SeqCst) == before
    };
    until(is_moved).await;
    *faults.watched.lock().unwrap() = 0..u64::MAX;
    faults.counted.store(0, Ordering::SeqCst);
    consumer.flow(1, 1000).await.unwrap();
    let sound: Vec<u64> = (0..ENTRIES).filter(|&number| number != BAD).collect();
    assert_eq!(consume(&mut consumer, sound.len()).await, sound);
    until(|| damaged(&broker) == "1").await;
    // Unneeded segments are removed, and this one stays.
    until(|| !data.join("log/0000000002.seg").try_exists().unwrap()).await;
    assert!(data.join(SEGMENT).is_file());
    assert_eq!(backlog(&broker), "1");
    drop(consumer);
    broker.shutdown().unwrap();
    let broker = Broker::start(config(data)).unwrap();
    let mut consumer = subscribe(&broker).await;
    assert_eq!(consume(&mut consumer, 1).await, [BAD]);
}

/// Regression: a compaction panicked, or its thread did not start. The broker waited for its report
/// for ever: no topic was compacted, and no compacted topic trimmed, until the next start.
#[tokio::test]
async fn a_compaction_that_panics_is_reported_and_the_next_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let (data, faults) = (folder.path(), Arc::<DiskFaults>::default());
    let (broker, _producer) = broker(data, &faults).await;
    for (panics, status) in [(true, "ERROR"), (false, "SUCCESS")] {
        faults.views.store(panics, Ordering::SeqCst);
        ask(&broker, "PUT", &topic("t/compaction"));
        until(|| ask(&broker, "GET", &topic("t/compaction")).contains(status)).await;
    }
    broker.shutdown().unwrap();
}

/// Regression: while a group could not be written, the health check, the metrics and every other GET
/// waited for it and got 503 after 30 s, or were not taken at all when much was to be written. Probes
/// restarted the broker in a loop.
#[tokio::test(flavor = "multi_thread")]
async fn reads_of_the_admin_interface_are_answered_while_the_disk_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (data, faults) = (folder.path(), Arc::<DiskFaults>::default());
    let (broker, mut producer) = broker(data, &faults).await;
    faults.hangs.store(true, Ordering::SeqCst);
    let large = vec![7; 4 * 1024 * 1024];
    // Until the broker takes no more.
    for number in ENTRIES.. {
        let published = timeout(Duration::from_secs(1), producer.publish(1, number, &large)).await;
        if published.is_err() {
            break;
        }
    }
    let paths = ["/admin/v2/brokers/health".to_owned(), "/metrics".to_owned(), topic("t/stats")];
    let began = crate::clock::monotonic();
    let answers: Vec<String> = paths.iter().map(|path| ask(&broker, "GET", path)).collect();
    let took = began.elapsed();
    faults.hangs.store(false, Ordering::SeqCst);
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200")), "{answers:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
