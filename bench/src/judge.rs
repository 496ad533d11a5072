//! Whether a run was sound: each task ended once, as the metadata topic says, and was started once,
//! as the workers say.

use crate::stage::{Stage, Topics};
use crate::worker::Ended;
use anyhow::{Result, ensure};
use longhaul::{TaskMetadata, TaskState};
use longhaul_transport::Message;
use std::collections::HashSet;

/// Checks a run of workers that nothing happened to.
///
/// # Errors
/// A task was lost, started twice, or ended twice or otherwise than well.
pub(crate) async fn judge(
    stage: &Stage,
    topics: &Topics,
    tasks: usize,
    ended: &[Ended],
) -> Result<()> {
    let mut completed = Completed::default();
    let take = |message: &Message| match message.null {
        true => Ok(()),
        false => completed.take(&serde_json::from_slice(&message.payload)?),
    };
    stage.read(&topics.parts(&topics.names.metadata), take).await?;
    let found = completed.tasks.len();
    ensure!(found == tasks, "of {tasks} tasks {found} are completed on the metadata topic");
    let started: usize = ended.iter().map(|ended| ended.started).sum();
    ensure!(started == tasks, "of {tasks} tasks {started} attempts were started");
    Ok(())
}

/// What the metadata topic has.
#[derive(Default)]
struct Completed {
    tasks: HashSet<String>,
}

impl Completed {
    fn take(&mut self, entry: &TaskMetadata) -> Result<()> {
        let TaskMetadata { message_id: task, state, .. } = entry;
        ensure!(entry.attempts == 1, "task {task} had a second attempt");
        if !entry.is_terminal() {
            return Ok(());
        }
        ensure!(*state == TaskState::Completed, "task {task} has not completed: {entry:?}");
        ensure!(self.tasks.insert(task.clone()), "task {task} was completed twice");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, state: &str) -> TaskMetadata {
        let text = format!(
            r#"{{"messageId":"{id}","state":"{state}","created":1,"lastUpdated":2,"attempts":1}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_did_not_complete_once_is_told() {
        let mut completed = Completed::default();
        completed.take(&entry("1:1:-1", "PROCESSING")).unwrap();
        completed.take(&entry("1:1:-1", "COMPLETED")).unwrap();
        completed.take(&entry("1:2:-1", "COMPLETED")).unwrap();
        assert_eq!(completed.tasks.len(), 2);
        let twice = completed.take(&entry("1:1:-1", "COMPLETED")).unwrap_err();
        assert_eq!(twice.to_string(), "task 1:1:-1 was completed twice");
        let mut failed = entry("1:3:-1", "FAILED");
        failed.outcome = Some(longhaul::TaskOutcome::Final);
        assert!(completed.take(&failed).is_err());
        let again = TaskMetadata { attempts: 2, ..entry("1:4:-1", "COMPLETED") };
        assert!(completed.take(&again).is_err());
    }
}
