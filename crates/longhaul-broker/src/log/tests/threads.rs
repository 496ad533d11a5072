//! The log with its threads, over a directory.

use super::*;
use crate::log::disk::storage::Surprise;
use crate::log::recover::confirmed::Confirmed;
use crate::log::recover::recovery::RecoveredLog;
use crate::log::{BrokerLog, FileStorage, WriteError, open};
use std::fs;
use std::sync::mpsc::{Receiver, sync_channel};

type Outcome = Result<(), WriteError>;

fn open_directory(path: &std::path::Path) -> Result<(RecoveredLog, Vec<Vec<u8>>), OpenError> {
    let storage = Arc::new(FileStorage::new(path).unwrap());
    let mut records = Vec::new();
    let opened = open(storage, small(), &mut |replayed| {
        if let ReplayedItem::Record { body, .. } = replayed {
            records.push(body.to_vec());
        }
        Ok(())
    })?;
    Ok((opened, records))
}

fn submit(log: &BrokerLog, group: crate::log::RecordGroup) -> Receiver<Outcome> {
    let (done, outcome) = sync_channel(1);
    log.submit(group, Box::new(move |result| done.send(result).unwrap()));
    outcome
}

fn checkpoint(opened: &RecoveredLog) -> Receiver<Outcome> {
    let (done, outcome) = sync_channel(1);
    let at = opened.composer.end();
    let image = vec![b"image".to_vec().into()];
    opened.log.checkpoint(at, image, Box::new(move |result| done.send(result).unwrap()));
    outcome
}

fn write_some(opened: &mut RecoveredLog, count: u64) -> Vec<Vec<u8>> {
    let bodies: Vec<Vec<u8>> =
        (0..count).map(|number| number.to_string().repeat(100).into_bytes()).collect();
    for body in &bodies {
        opened.composer.append(entry(0), &[body]).unwrap();
        let group = opened.composer.take().unwrap();
        submit(&opened.log, group).recv().unwrap().unwrap();
    }
    bodies
}

/// Closing a log that was never idle notes its confirmed position.
#[test]
fn a_log_that_is_closed_notes_how_far_it_was_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut opened, _) = open_directory(directory.path()).unwrap();
    write_some(&mut opened, 50);
    let end = opened.composer.end();
    opened.log.close();
    let storage = FileStorage::new(directory.path()).unwrap();
    assert_eq!(Confirmed::read(&storage).unwrap().at(), Some(end));
}

#[test]
fn a_directory_keeps_what_was_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let (mut opened, records) = open_directory(&path).unwrap();
    assert!(records.is_empty());
    let written = write_some(&mut opened, 200);
    assert!(opened.log.status().segments.len() > 2);
    let syncs = opened.log.status().syncs;
    assert!(!syncs.total.is_zero());
    assert!(syncs.counts.iter().sum::<u64>() >= 200, "{syncs:?}");
    opened.log.close();
    let (mut opened, records) = open_directory(&path).unwrap();
    assert_eq!(records, written);
    // A checkpoint waits for the records that it covers.
    opened.composer.append(entry(0), &[b"last"]).unwrap();
    let waits = checkpoint(&opened);
    assert!(waits.try_recv().is_err());
    let busy = checkpoint(&opened);
    assert_eq!(busy.recv().unwrap(), Err(WriteError::Busy));
    let group = opened.composer.take().unwrap();
    submit(&opened.log, group).recv().unwrap().unwrap();
    waits.recv().unwrap().unwrap();
    opened.log.remove(&[1, 2]);
    opened.log.close();
    assert!(!fs::exists(path.join("log/0000000001.seg")).unwrap());
    let (_, records) = open_directory(&path).unwrap();
    assert_eq!(records.last().unwrap(), b"last");
    assert!(records.len() < written.len());
}

#[test]
fn a_second_owner_of_a_directory_is_refused_with_path_and_process() {
    let directory = tempfile::tempdir().unwrap();
    let (opened, _) = open_directory(directory.path()).unwrap();
    let refused = open_directory(directory.path()).unwrap_err().to_string();
    let (path, process) = (directory.path().display(), std::process::id());
    let expected = format!(
        "{path} is in use by process {process}: stop it first, or choose another directory"
    );
    assert_eq!(refused, expected);
    opened.log.close();
    open_directory(directory.path()).unwrap();
}

#[test]
fn a_failed_sync_poisons_the_log_for_writes_alone() {
    let storage = SimulatedStorage::new(1);
    let mut opened = open(Arc::new(storage.clone()), small(), &mut |_| Ok(())).unwrap();
    let location = opened.composer.append(entry(0), &[b"kept"]).unwrap();
    let group = opened.composer.take().unwrap();
    submit(&opened.log, group).recv().unwrap().unwrap();
    opened.composer.append(entry(1), &[b"lost"]).unwrap();
    let group = opened.composer.take().unwrap();
    let waits = checkpoint(&opened);
    // The background may be preparing a segment: every later operation fails.
    (0..500).for_each(|step| storage.surprise(storage.operations() + step, Surprise::Broken));
    let refused = submit(&opened.log, group).recv().unwrap().unwrap_err();
    assert!(
        matches!(&refused, WriteError::Poisoned { reason } if reason.contains("0000000001.seg"))
    );
    assert!(matches!(waits.recv().unwrap(), Err(WriteError::Poisoned { .. })));
    opened.composer.append(entry(2), &[b"late"]).unwrap();
    storage.no_surprises();
    let group = opened.composer.take().unwrap();
    assert_eq!(submit(&opened.log, group).recv().unwrap(), Err(refused));
    let reader = opened.log.reader();
    opened.log.close();
    assert_eq!(&reader.read(location).unwrap()[..], b"kept");
}

#[test]
fn closing_gives_up_a_checkpoint_that_waits() {
    let storage = SimulatedStorage::new(1);
    let mut opened = open(Arc::new(storage), small(), &mut |_| Ok(())).unwrap();
    opened.composer.append(entry(0), &[b"never submitted"]).unwrap();
    let waits = checkpoint(&opened);
    opened.log.close();
    assert_eq!(waits.recv().unwrap(), Err(WriteError::Closed));
}

#[test]
fn readers_in_other_threads_see_what_was_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut opened, _) = open_directory(directory.path()).unwrap();
    let (send, locations) = sync_channel::<(RecordLocation, Vec<u8>)>(64);
    let reader = opened.log.reader();
    let checker = std::thread::spawn(move || {
        for (location, body) in locations {
            assert_eq!(&reader.read(location).unwrap()[..], &body[..]);
        }
    });
    for number in 0..300_u64 {
        let body = number.to_be_bytes().repeat(20);
        let location = opened.composer.append(entry(number), &[&body]).unwrap();
        let group = opened.composer.take().unwrap();
        submit(&opened.log, group).recv().unwrap().unwrap();
        send.send((location, body)).unwrap();
    }
    drop(send);
    checker.join().unwrap();
}
