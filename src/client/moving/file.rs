//! Reads the file of an export record by record.

use super::record::{EndRecord, ExportLine, ExportRecord, FORM, QueueRecord};
use super::{MoveError, copy};
use longhaul_core::protocol::register::{QueueTask, Stamp, parse_stamp};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Reads an export to its end, so that a truncated file is refused before anything is written.
/// Returns its head, and the ids of its tasks.
pub(super) fn check(file: &Path) -> Result<(QueueRecord, HashSet<QueueTask>), MoveError> {
    let mut records = records(file)?;
    let head = match records.next().transpose()? {
        Some(ExportLine::Queue(head)) if head.form <= FORM => head,
        Some(ExportLine::Queue(head)) => {
            let cause = format!("its form is {}, but this version reads {FORM}", head.form);
            return Err(MoveError::Form(cause));
        }
        _ => return Err(MoveError::Form("it does not begin with a queue".to_owned())),
    };
    let (mut tasks, mut found, mut end) = (HashSet::new(), EndRecord::default(), None);
    for record in records {
        let record = record?;
        if end.is_some() {
            return Err(MoveError::Form("it continues after its end".to_owned()));
        }
        match record {
            ExportLine::Task(record) => {
                found.tasks += 1;
                tasks.insert(copy::queue_task(&record)?);
            }
            ExportLine::Letter(_) => found.letters += 1,
            ExportLine::Schedule(_) => found.schedules += 1,
            ExportLine::End(record) => end = Some(record),
            ExportLine::Queue(_) => {
                return Err(MoveError::Form("it has a second queue".to_owned()));
            }
        }
    }
    let end = end.ok_or_else(|| {
        MoveError::Form("its end is missing: the export was interrupted".to_owned())
    })?;
    if end != found {
        let cause = format!("it holds {found}, but its end says {end}");
        return Err(MoveError::Form(cause));
    }
    Ok((head, tasks))
}

pub(super) fn records(
    file: &Path,
) -> Result<impl Iterator<Item = Result<ExportLine, MoveError>>, MoveError> {
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
