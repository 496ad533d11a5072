//! The file of an export, read record by record.

use super::record::{ExportRecord, FORM, QueueRecord, Record};
use super::{MoveError, copy};
use crate::protocol::register::{QueueTask, Stamp, parse_stamp};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Reads an export to its end, so that one that is cut short is refused before anything is written. Returns its head, and the ids of its tasks.
pub(super) fn check(file: &Path) -> Result<(QueueRecord, HashSet<QueueTask>), MoveError> {
    let mut records = records(file)?;
    let head = match records.next().transpose()? {
        Some(Record::Queue(head)) if head.form <= FORM => head,
        Some(Record::Queue(head)) => {
            let cause = format!("its form is {}, and this version knows {FORM}", head.form);
            return Err(MoveError::Form(cause));
        }
        _ => return Err(MoveError::Form("it does not begin with a queue".to_owned())),
    };
    let (mut tasks, mut count, mut end) = (HashSet::new(), 0_u64, None);
    for record in records {
        match record? {
            Record::Task(record) => {
                count += 1;
                tasks.insert(copy::queue_task(&record)?);
            }
            Record::End(record) => end = Some(record),
            Record::Queue(_) | Record::Letter(_) | Record::Schedule(_) => {}
        }
    }
    match end {
        Some(end) if end.tasks == count => Ok((head, tasks)),
        Some(_) => Err(MoveError::Form("it does not hold as many tasks as it says".to_owned())),
        None => Err(MoveError::Form("its end is missing: the export was interrupted".to_owned())),
    }
}

pub(super) fn records(
    file: &Path,
) -> Result<impl Iterator<Item = Result<Record, MoveError>>, MoveError> {
    let lines = BufReader::new(File::open(file)?).lines().enumerate();
    let read = |(number, line): (usize, std::io::Result<String>)| {
        let ExportRecord(record) = serde_json::from_str(&line?)
            .map_err(|error| MoveError::Form(format!("line {}: {error}", number + 1)))?;
        Ok(record)
    };
    Ok(lines.map(read))
}

pub(super) fn source_of(head: &QueueRecord) -> Result<Stamp, MoveError> {
    let source = parse_stamp(&head.source);
    source.ok_or_else(|| MoveError::Form(format!("`{}` names no queue", head.source)))
}
