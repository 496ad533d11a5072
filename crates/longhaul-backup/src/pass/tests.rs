//! Passes over the directory of a running broker.

use super::*;
use crate::run::step;
use crate::{Backup, BackupSettings};
use longhaul_broker::internals::log::{FileStorage, LogOptions, RecordHead, RecordKind, Stepped};
use longhaul_broker::rescue::RescueError;
use longhaul_broker::{BackupProgress, Broker, BrokerConfig};
use std::error::Error;
use std::sync::Arc;
use tempfile::TempDir;

mod listing;

const KEPT: Duration = Duration::ZERO;

struct Bench {
    data: TempDir,
    store: TempDir,
    pass: BackupPass,
    _broker: Broker,
}

impl Bench {
    async fn new() -> Result<Self, Box<dyn Error>> {
        let (data, store) = (TempDir::new()?, TempDir::new()?);
        let listen = "127.0.0.1:0".parse()?;
        let directory = Some(data.path().to_owned());
        let config =
            BrokerConfig { data: directory, listen, admin: None, ..BrokerConfig::default() };
        let broker = Broker::start(config)?;
        let place = store.path().to_str().ok_or("a path is a text")?;
        let folder = BackupFolder::open(place, true)?.within("0-0");
        let pass = BackupPass::new(data.path().to_owned(), folder, KEPT, 1).await?;
        Ok(Self { data, store, pass, _broker: broker })
    }

    async fn stored(&self) -> Result<Catalog, BackupError> {
        self.pass.folder.catalog().await
    }
}

/// A log that the test writes, with segments of 64 KiB, and a store in a directory.
struct WrittenLog {
    data: TempDir,
    store: TempDir,
    log: Stepped,
    entry: u64,
}

impl WrittenLog {
    fn new() -> Result<Self, Box<dyn Error>> {
        let (data, store) = (TempDir::new()?, TempDir::new()?);
        let log = Self::open(data.path())?;
        Ok(Self { data, store, log, entry: 0 })
    }

    fn open(data: &Path) -> Result<Stepped, Box<dyn Error>> {
        let (segment_bytes_first, segment_bytes_max) = (64 * 1024, 64 * 1024);
        let options =
            LogOptions { segment_bytes_first, segment_bytes_max, ..LogOptions::default() };
        Ok(Stepped::open(Arc::new(FileStorage::new(data)?), options, &mut |_| Ok(()))?)
    }

    /// Writes entries of 4000 bytes: a segment has 15 of them.
    fn write(&mut self, entries: u64) -> Result<(), Box<dyn Error>> {
        for _ in 0..entries {
            let head =
                RecordHead { kind: RecordKind::Entry, topic: 0, ledger: 0, entry: self.entry };
            self.log.composer.append(head, &[&[7; 4000]])?;
            let group = self.log.composer.take().ok_or("a group")?;
            self.log.write(&group)?;
            self.log.prepare();
            self.entry += 1;
        }
        Ok(())
    }

    fn write_checkpoint(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.log.checkpoint(self.log.composer.end(), &[])?)
    }

    /// Two passes, each of which has stored a checkpoint.
    async fn two_passes(&mut self) -> Result<BackupPass, Box<dyn Error>> {
        let mut pass = self.pass().await?;
        for _ in 0..2 {
            self.write(2)?;
            self.write_checkpoint()?;
            assert!(pass.run().await?);
        }
        Ok(pass)
    }

    async fn pass(&self) -> Result<BackupPass, Box<dyn Error>> {
        let place = self.store.path().to_str().ok_or("a path is a text")?;
        let folder = BackupFolder::open(place, true)?.within("0-0");
        Ok(BackupPass::new(self.data.path().to_owned(), folder, KEPT, 1).await?)
    }

    /// From now on, the store takes no objects of this kind.
    fn refuse(&self, kind: &str) -> io::Result<()> {
        let folder = self.store.path().join("0-0");
        fs::create_dir_all(folder.join(kind))?;
        fs::rename(folder.join(kind), folder.join(format!("{kind}.away")))?;
        fs::write(folder.join(kind), "")
    }

    fn accept(&self, kind: &str) -> io::Result<()> {
        let folder = self.store.path().join("0-0");
        fs::remove_file(folder.join(kind))?;
        fs::rename(folder.join(format!("{kind}.away")), folder.join(kind))
    }

    /// The number of files in a folder of the store.
    fn count(&self, folder: &str) -> io::Result<usize> {
        Ok(fs::read_dir(self.store.path().join("0-0").join(folder))?.count())
    }
}

/// A full store was never emptied: a pass tried to store a piece until that succeeded, and what had
/// expired was removed after the pass. A pass that failed forgot how far it had read, and the next
/// one stored all open segments again.
#[tokio::test]
async fn a_full_store_is_emptied_and_goes_on() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let mut pass = written.two_passes().await?;
    assert_eq!(written.count("checkpoint")?, 2);
    written.refuse("log")?;
    written.write(40)?;
    let progress = BackupProgress::new(1);
    for passes in 1..4 {
        let refused = step(&mut pass, passes, false, &progress).await;
        assert!(matches!(refused, Err(BackupError::Store { .. })), "{refused:?}");
        assert_eq!(written.count("checkpoint")?, 1, "the earlier one has expired");
        assert!(pass.puts.len() <= PUTS_MAX);
    }
    assert!(pass.catalog.plan(u64::MAX).as_of().is_some(), "a state is kept");
    assert_eq!(progress.stored_to(), None);
    written.accept("log")?;
    assert!(step(&mut pass, 4, false, &progress).await?);
    assert!(progress.stored_to().is_some());
    let plan = pass.catalog.plan(u64::MAX);
    assert_eq!(plan.segments.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    for (segment, pieces) in plan.segments {
        let folder = format!("log/{segment:010}");
        assert_eq!(written.count(&folder)?, 1, "no segment is stored twice");
        let (edition, count) = (pieces.first().map(|piece| piece.edition), pieces.len());
        let folder = format!("{folder}/{:013}", edition.unwrap_or_default());
        assert_eq!(written.count(&folder)?, count, "nor is any piece");
    }
    Ok(())
}

/// The first state was stored ahead of all pieces in the first pass alone. If the store refused it
/// then, the pieces came first, and there was a time at which they could not be restored.
#[tokio::test]
async fn the_first_state_comes_first_though_the_store_refuses_it() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    written.write(2)?;
    written.write_checkpoint()?;
    let mut pass = written.pass().await?;
    written.refuse("checkpoint")?;
    assert!(matches!(pass.run().await, Err(BackupError::Store { .. })));
    assert_eq!(written.count("log").ok(), None);
    written.accept("checkpoint")?;
    assert!(pass.run().await?);
    let stored = pass.catalog.plan(u64::MAX);
    let first = stored.segments.values().flatten().map(|piece| piece.at).min();
    assert!(stored.checkpoint <= first, "{stored:?}");
    Ok(())
}

/// All objects of a pass had the time when it began. A restore to a time within a long pass had what
/// was written after that time, up to the end of the pass.
#[tokio::test]
async fn a_restore_has_nothing_that_was_read_later() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let mut pass = written.pass().await?;
    written.write(2)?;
    assert!(pass.run().await?);
    let first = pass.catalog.last();
    written.write(40)?;
    written.write_checkpoint()?;
    assert!(pass.run().await?);
    let plan = pass.catalog.plan(u64::MAX);
    let pieces = plan.segments.values().flatten();
    let times: Vec<u64> = pieces.map(|piece| piece.at).filter(|&at| at > first).collect();
    assert_eq!(times.len(), 3, "{plan:?}");
    assert!(times.is_sorted_by(|earlier, later| earlier < later), "{times:?}");
    for (number, &at) in times.iter().enumerate() {
        let then = pass.catalog.plan(at);
        let found = then.segments.values().flatten().filter(|piece| piece.at > first).count();
        assert_eq!(found, number + 1, "{then:?}");
        assert_eq!(then.checkpoint, None, "it is newer than these pieces");
    }
    assert!(plan.checkpoint.is_some());
    Ok(())
}

/// The checkpoint of the first pass is stored ahead of its pieces: a restore to a time in that pass
/// failed for lack of the rest, and said that something was missing.
#[tokio::test]
async fn a_backup_begins_with_the_end_of_its_first_pass() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    written.write(40)?;
    written.write_checkpoint()?;
    let mut pass = written.pass().await?;
    assert!(pass.run().await?);
    let times = pass.catalog.plan(u64::MAX).segments.into_values().flatten();
    let first = times.map(|piece| piece.at).min();
    let place = written.store.path().to_str().ok_or("a path is a text")?;
    let refused = crate::restore(place, first, &written.data.path().join("new")).await;
    assert!(matches!(refused, Err(BackupError::Nothing { .. })), "{refused:?}");
    Ok(())
}

/// A machine that fails may lose the end of a segment that is stored to its end: the broker goes on
/// writing that segment. The backup looked for the newest segment when the broker had started. If
/// it had begun another one by then, what it wrote at that end was never stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_segment_that_goes_on_behind_its_stored_end_is_stored() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let (data, log) = (written.data.path().to_owned(), written.data.path().join("log"));
    let place = written.store.path().to_str().ok_or("a path is a text")?.to_owned();
    let settings = || BackupSettings::new(data.clone(), place.clone(), KEPT);
    written.write(2)?;
    let before = fs::read(log.join("0000000001.seg"))?;
    written.write(20)?;
    Backup::start(settings())?.shutdown();
    drop(written.log);
    fs::remove_file(data.join("segments"))?;
    fs::remove_dir_all(&log)?;
    fs::create_dir(&log)?;
    fs::write(log.join("0000000001.seg"), before)?;
    let settings = settings();
    written.log = WrittenLog::open(&data)?;
    written.entry = 100;
    written.write(20)?;
    Backup::start(settings)?.shutdown();
    let folder = BackupFolder::open(&place, false)?;
    let folder = folder.within(fs::read_to_string(data.join("backup"))?.trim());
    let mut stored = Vec::new();
    for piece in &folder.catalog().await?.plan(u64::MAX).segments[&1] {
        stored.extend_from_slice(&folder.get(&ObjectName::Piece(*piece)).await?.ok_or("a piece")?);
    }
    assert!(fs::read(log.join("0000000001.seg"))?.starts_with(&stored));
    Ok(())
}

/// A process that was killed while it stored objects in a directory left unfinished files. They are
/// in no listing, so they stayed for ever.
#[tokio::test]
async fn unfinished_files_of_an_earlier_process_are_removed() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    written.write(2)?;
    written.write_checkpoint()?;
    assert!(written.pass().await?.run().await?);
    let store = written.store.path();
    fs::create_dir(store.join("1-1"))?;
    let left = ["0-0/checkpoint/0000000000007#1", "0-0/log/0000000001/x#12", "1-1/x#1"];
    left.iter().try_for_each(|file| fs::write(store.join(file), "unfinished"))?;
    let pass = written.pass().await?;
    assert_eq!(left.map(|file| store.join(file).is_file()), [false, false, true]);
    assert_eq!((written.count("checkpoint")?, written.count("log/0000000001")?), (1, 1));
    assert!(pass.catalog.plan(u64::MAX).checkpoint.is_some());
    Ok(())
}

/// An object that could not be removed was forgotten for a minute, in which the log said that the
/// backup was up to date again.
#[tokio::test]
async fn an_object_that_cannot_be_removed_is_not_forgotten() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let mut pass = written.two_passes().await?;
    written.refuse("checkpoint")?;
    let progress = BackupProgress::new(1);
    for passes in 0..3 {
        let refused = step(&mut pass, passes, false, &progress).await;
        assert!(matches!(refused, Err(BackupError::Store { .. })), "{refused:?}");
        assert!(!pass.is_refused, "the next pass does not wait longer");
    }
    written.accept("checkpoint")?;
    assert!(step(&mut pass, 3, false, &progress).await?);
    assert_eq!(written.count("checkpoint")?, 1);
    Ok(())
}

/// What has expired is removed although a pass fails, but not if the data directory is lost: then
/// the backup is all that there is.
#[tokio::test]
async fn nothing_expires_while_the_directory_is_empty() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let mut pass = written.two_passes().await?;
    fs::remove_dir_all(written.data.path())?;
    fs::create_dir_all(written.data.path().join("log"))?;
    for passes in 0..2 {
        let refused = step(&mut pass, passes, false, &BackupProgress::new(1)).await;
        assert!(matches!(refused, Err(BackupError::Rescue(RescueError::NoLog { .. }))));
    }
    assert_eq!(written.count("checkpoint")?, 2);
    Ok(())
}

/// With a segment missing in the data directory, no checkpoint was stored any more, and the log said
/// that the store was slower than the writes.
#[tokio::test]
async fn a_segment_that_is_missing_is_named_or_kept() -> Result<(), Box<dyn Error>> {
    for is_stored in [false, true] {
        let mut written = WrittenLog::new()?;
        written.write(40)?;
        written.write_checkpoint()?;
        let mut pass = written.pass().await?;
        if is_stored {
            assert!(pass.run().await?);
        }
        fs::remove_file(written.data.path().join("log/0000000001.seg"))?;
        written.write(2)?;
        written.write_checkpoint()?;
        for passes in 1..4 {
            // What has expired is removed in each of them.
            let stepped = step(&mut pass, passes * 120, false, &BackupProgress::new(1)).await;
            if is_stored {
                assert!(stepped?);
                continue;
            }
            let Err(BackupError::Missing { segments, .. }) = stepped else { panic!("{stepped:?}") };
            assert_eq!(segments, [1]);
        }
        let plan = pass.catalog.plan(u64::MAX);
        assert_eq!(plan.segments.contains_key(&1), is_stored);
        assert_eq!(written.count("log/0000000002")?, 1, "no segment is stored twice");
        if is_stored {
            let links = &mut BTreeMap::new();
            let needed = crate::restore::needed(&pass.folder, &plan, links).await?;
            assert!(needed.contains(&1) && plan.checkpoint.is_some());
        }
    }
    Ok(())
}

/// On a full disk the broker removes its inventory. The backup kept the one that it had stored. When
/// segments that it listed had been removed for longer than the backup keeps anything, no restore
/// was possible any more.
#[tokio::test]
async fn a_backup_can_be_restored_after_a_disk_was_full_for_long() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    written.write(40)?;
    written.write_checkpoint()?;
    let mut pass = written.pass().await?;
    assert!(pass.run().await?);
    let data = written.data.path();
    fs::remove_file(data.join("segments"))?;
    fs::remove_file(data.join("log/0000000001.seg"))?;
    let progress = BackupProgress::new(1);
    written.refuse("segments")?;
    for passes in 1..3 {
        let refused = step(&mut pass, passes, false, &progress).await;
        assert!(matches!(refused, Err(BackupError::Store { .. })), "{refused:?}");
    }
    written.accept("segments")?;
    for passes in 1..4 {
        assert!(step(&mut pass, passes * 120, false, &progress).await?);
        let plan = pass.folder.catalog().await?.plan(u64::MAX);
        let kept = crate::restore::needed(&pass.folder, &plan, &mut BTreeMap::new()).await?;
        assert!(kept.iter().eq(&[2, 3]), "{kept:?}");
    }
    assert!(pass.catalog.whole(1).is_none(), "it has expired");
    Ok(())
}

/// While a view was being stored, which may take minutes, nothing else was.
#[tokio::test]
async fn the_log_does_not_wait_for_a_view() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    written.write(2)?;
    written.write_checkpoint()?;
    let mut pass = written.pass().await?;
    assert!(pass.run().await?);
    fs::create_dir_all(written.data.path().join("compact"))?;
    for name in ["0-1-1-1.seg", "0-1-1-2.seg", "0-1-1-3.seg"] {
        fs::write(written.data.path().join("compact").join(name), "a view")?;
    }
    written.refuse("compact")?;
    written.write(40)?;
    written.write_checkpoint()?;
    for _ in 0..2 {
        assert!(matches!(pass.run().await, Err(BackupError::Store { .. })));
        assert_eq!(written.count("checkpoint")?, 1, "it may name one of them");
    }
    let plan = pass.folder.catalog().await?.plan(u64::MAX);
    assert_eq!(plan.segments.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    let end = plan.segments.values().flatten().map(|piece| u64::from(piece.to - piece.from));
    assert!(end.sum::<u64>() > 42 * 4000, "all is stored: {plan:?}");
    written.accept("compact")?;
    assert!(pass.run().await?);
    assert_eq!((written.count("compact")?, written.count("checkpoint")?), (3, 2));
    Ok(())
}

/// A checkpoint that the store refused ended the thread of the backup: its upload was aborted after
/// it had been shut down, and that panics.
#[tokio::test]
async fn a_checkpoint_that_is_refused_is_stored_later() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    written.write(2)?;
    let mut pass = written.pass().await?;
    assert!(pass.run().await?);
    written.write_checkpoint()?;
    written.refuse("checkpoint")?;
    assert!(matches!(pass.run().await, Err(BackupError::Store { .. })));
    written.accept("checkpoint")?;
    assert!(pass.run().await?);
    assert_eq!(written.count("checkpoint")?, 1);
    Ok(())
}

/// A directory without a log was taken for one that has nothing more to store: all was well, and
/// when the time that is kept had passed, the whole backup expired.
#[tokio::test]
async fn a_backup_outlives_a_directory_that_is_emptied() -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::new().await?;
    assert!(bench.pass.run().await?);
    let stored = bench.stored().await?;
    assert!(stored.last() > 0, "{stored:?}");
    for entry in fs::read_dir(bench.data.path())? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(path)?
        } else {
            fs::remove_file(path)?
        };
    }
    for _ in 0..2 {
        let refused = bench.pass.run().await;
        assert!(matches!(refused, Err(BackupError::Rescue(RescueError::NoLog { .. }))));
        bench.pass.find_expired();
        bench.pass.tidy().await?;
    }
    assert_eq!(bench.stored().await?, stored);
    Ok(())
}

/// The store was listed at the start only. If a rule of the store removed the beginning of a
/// segment, nothing noticed, and no restore was possible any more.
#[tokio::test]
async fn what_the_store_loses_is_stored_again() -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::new().await?;
    assert!(bench.pass.run().await?);
    let stored = bench.stored().await?;
    for entry in fs::read_dir(bench.store.path())? {
        fs::remove_dir_all(entry?.path())?;
    }
    assert_ne!(bench.stored().await?, stored);
    bench.pass.is_listed = false;
    assert!(bench.pass.run().await?);
    let now = bench.stored().await?;
    let plan = |of: &Catalog| of.plan(u64::MAX);
    let numbers = |of: &Catalog| plan(of).segments.into_keys().collect::<Vec<_>>();
    assert_eq!(numbers(&now), numbers(&stored));
    assert!(plan(&now).as_of() > plan(&stored).as_of());
    // The broker may have written its first ones meanwhile.
    assert!(plan(&now).inventory.is_some() >= plan(&stored).inventory.is_some());
    assert!(plan(&now).checkpoint.is_some() >= plan(&stored).checkpoint.is_some());
    assert_eq!(now, bench.pass.catalog);
    Ok(())
}
