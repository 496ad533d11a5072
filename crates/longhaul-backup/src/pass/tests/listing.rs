//! Lists of backups, and backups that cannot be restored.

use super::*;
use crate::catalog::RestorePlan;
use crate::complaint::causes;
use crate::restore::{SegmentLinks, needed};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Nothing listed the times to which a backup can be restored.
#[tokio::test]
async fn a_store_lists_its_backups_and_the_times_to_restore_to() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let place = written.store.path().to_str().ok_or("a path is a text")?.to_owned();
    assert!(matches!(crate::list(&place).await, Err(BackupError::Nothing { .. })));
    let mut pass = written.pass().await?;
    written.write(2)?;
    assert!(pass.run().await?);
    let first = pass.catalog.plan(u64::MAX);
    let mut pass = written.two_passes().await?;
    let [listed] = &crate::list(&place).await?[..] else { return Err("one backup".into()) };
    assert!(listed.folder.ends_with("0-0"), "{}", listed.folder);
    assert_eq!((listed.checkpoints, listed.newest), (2, Some(pass.catalog.last())));
    let oldest = listed.oldest.ok_or("a time")?;
    assert_eq!(pass.catalog.plan(oldest).as_of(), first.as_of());
    let bytes: u64 = files(written.store.path())?.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(listed.bytes, bytes);
    // What is left when the oldest state has expired.
    pass.find_expired();
    while !pass.expired.is_empty() {
        pass.tidy().await?;
    }
    let [later] = &crate::list(&place).await?[..] else { return Err("one backup".into()) };
    assert_eq!(later.checkpoints, 1);
    assert!(later.oldest > Some(oldest) && later.newest == listed.newest, "{later:?}");
    Ok(())
}

/// `newest` was listed although no restore took it. A folder with an unknown format hid the others.
#[tokio::test]
async fn a_list_has_only_times_that_a_restore_takes() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let place = written.store.path().to_str().ok_or("a path is a text")?.to_owned();
    written.write(40)?;
    written.write_checkpoint()?;
    let mut pass = written.pass().await?;
    assert!(pass.run().await?);
    written.write(40)?;
    assert!(pass.run().await?);
    let whole = written.store.path().join("0-0");
    let later = written.store.path().join("1-1");
    copy(&whole, &later)?;
    write_version(&later.join("checkpoint"))?;
    // A rule of the store has removed a segment between others.
    fs::remove_dir_all(whole.join("log/0000000003"))?;
    let mut listed = crate::list(&place).await?;
    listed.sort_by(|one, other| one.folder.cmp(&other.folder));
    let [lacking, unknown] = &listed[..] else { return Err("two backups".into()) };
    assert_eq!((lacking.oldest, lacking.newest), (None, None), "{lacking:?}");
    assert!(lacking.error.is_none() && lacking.bytes > 0, "{lacking:?}");
    let error = unknown.error.as_ref().ok_or("an error")?;
    assert!(causes(error).contains("format version 9"), "{error}");
    assert_eq!((unknown.newest, unknown.checkpoints), (None, 1));
    Ok(())
}

/// A backup that had lost the first object of its log was not in the list, and a restore took the
/// store for an empty one.
#[tokio::test]
async fn a_backup_without_its_beginning_is_incomplete() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let place = written.store.path().to_str().ok_or("a path is a text")?.to_owned();
    let pass = written.two_passes().await?;
    let newest = pass.catalog.last();
    let piece = *pass.catalog.plan(newest).segments[&1].first().ok_or("a piece")?;
    pass.folder.remove(&ObjectName::Piece(piece)).await?;
    let [listed] = &crate::list(&place).await?[..] else { return Err("one backup".into()) };
    assert_eq!((listed.oldest, listed.newest, listed.checkpoints), (None, None, 2));
    let new = written.data.path().join("new");
    for at in [None, Some(newest)] {
        let refused = crate::restore(&place, at, &new).await;
        let Err(error @ BackupError::Incomplete { earlier: None, .. }) = refused else {
            return Err(format!("{at:?}: {refused:?}").into());
        };
        assert!(error.to_string().contains("incomplete or damaged"), "{error}");
        assert!(!new.try_exists()?, "nothing was created");
    }
    let before = crate::restore(&place, Some(piece.at - 1), &new).await;
    assert!(matches!(before, Err(BackupError::Nothing { .. })), "{before:?}");
    Ok(())
}

/// The restore of a damaged backup named a time two seconds before the newest state. It took the
/// same damaged object, or nothing of what the backup had.
#[tokio::test]
async fn the_earlier_time_is_the_one_before_the_damaged_object() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let place = written.store.path().to_str().ok_or("a path is a text")?.to_owned();
    let mut pass = written.two_passes().await?;
    written.write(2)?;
    assert!(pass.run().await?);
    let plan = pass.catalog.plan(u64::MAX);
    let (at, pieces) = (plan.checkpoint.ok_or("a checkpoint")?, &plan.segments[&1]);
    let object = written.store.path().join("0-0").join(ObjectName::Checkpoint(at).to_string());
    let sound = fs::read(&object)?;
    damage(&object)?;
    let restored = crate::restore(&place, None, &written.data.path().join("1")).await?;
    assert_eq!(restored.earlier, Some(at - 1), "{}", restored.report);
    fs::write(object, sound)?;
    // The damage of the newest one was taken for the end of the log.
    for number in [1, 2] {
        let object = ObjectName::Piece(pieces[number]).to_string();
        let object = written.store.path().join("0-0").join(object);
        let sound = fs::read(&object)?;
        damage(&object)?;
        let new = written.data.path().join(format!("damaged {number}"));
        let restored = crate::restore(&place, None, &new).await?;
        let before = pieces[number].at - 1;
        assert_eq!(restored.earlier, Some(before), "{}", restored.report);
        assert_eq!(pass.catalog.plan(before).segments[&1], pieces[..number]);
        fs::write(object, sound)?;
    }
    let restored = crate::restore(&place, None, &written.data.path().join("sound")).await?;
    assert!(restored.report.is_sound(), "{}", restored.report);
    Ok(())
}

/// The running broker removes what has expired: an object that was gone before it was fetched failed
/// the whole list.
#[tokio::test]
async fn an_object_that_is_gone_makes_its_time_incomplete() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    let pass = written.two_passes().await?;
    let (folder, plan) = (&pass.folder, pass.catalog.plan(u64::MAX));
    let mut links = SegmentLinks::new();
    assert!(needed(folder, &plan, &mut links).await.is_ok());
    let gone = plan.checkpoint.map(ObjectName::Checkpoint).ok_or("a checkpoint")?;
    folder.remove(&gone).await?;
    let refused = needed(folder, &plan, &mut links).await;
    assert!(matches!(refused, Err(BackupError::Incomplete { .. })), "{refused:?}");
    let piece = *plan.segments[&1].first().ok_or("a piece")?;
    folder.remove(&ObjectName::Piece(piece)).await?;
    let without = RestorePlan { checkpoint: None, inventory: None, ..plan };
    assert!(needed(folder, &without, &mut links).await.is_ok(), "each piece is fetched once");
    let refused = needed(folder, &without, &mut SegmentLinks::new()).await;
    assert!(matches!(refused, Err(BackupError::Incomplete { .. })), "{refused:?}");
    Ok(())
}

/// If the thread of the backup panicked, callers waited for ever for its next pass.
#[test]
fn the_end_of_the_thread_is_noted() -> Result<(), Box<dyn Error>> {
    let (written, admin) = (WrittenLog::new()?, Some(([127, 0, 0, 1], 0).into()));
    let place = written.store.path().to_str().ok_or("a path is a text")?.to_owned();
    let settings = BackupSettings::new(written.data.path().to_owned(), place, KEPT);
    let backup = Some(Arc::clone(&settings.progress));
    let broker = Broker::start(BrokerConfig { admin, backup, ..BrokerConfig::default() })?;
    let url = broker.admin_url().ok_or("it has an admin interface")?;
    let address = url.trim_start_matches("http://");
    let status = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        let request = "GET /admin/v2/brokers/backup HTTP/1.1\r\nHost: localhost\r\n\
            Connection: close\r\n\r\n";
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let backup = Backup::start(settings)?;
    assert!(status()?.contains("storedPass"));
    backup.shutdown();
    assert!(status()?.contains("the backup has ended"));
    Ok(())
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for (path, _) in files(from)? {
        let new = to.join(path.strip_prefix(from).map_err(io::Error::other)?);
        fs::create_dir_all(new.parent().unwrap_or(to))?;
        fs::copy(path, new)?;
    }
    Ok(())
}

/// Changes a byte in the middle of a file.
fn damage(path: &Path) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes)
}

/// Gives the checkpoints in a folder format version 9.
fn write_version(folder: &Path) -> io::Result<()> {
    for (path, _) in files(folder)? {
        let mut bytes = fs::read(&path)?;
        let (version, crc) = (8..12, 32..36);
        bytes[version].copy_from_slice(&9_u32.to_be_bytes());
        let sum = crc32c::crc32c(&bytes[..32]);
        bytes[crc].copy_from_slice(&sum.to_be_bytes());
        fs::write(path, bytes)?;
    }
    Ok(())
}

/// Files below a folder, with their sizes.
fn files(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(found)
}

/// The version was not looked at, and the backup was said to be incomplete.
#[tokio::test]
async fn an_unknown_format_in_the_store_is_refused_by_its_version() -> Result<(), Box<dyn Error>> {
    let mut written = WrittenLog::new()?;
    drop(written.two_passes().await?);
    write_version(&written.store.path().join("0-0").join("checkpoint"))?;
    let place = written.store.path().to_str().ok_or("a path is a text")?;
    let new = TempDir::new()?;
    let refused = crate::restore(place, None, new.path()).await;
    let Err(error @ BackupError::Format { .. }) = refused else { return Err("restored".into()) };
    assert!(causes(&error).contains("format version 9"), "{error}");
    Ok(())
}
