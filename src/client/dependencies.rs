//! Tasks that wait for other tasks: options of a submission.

use super::Client;
use super::submit::{Submission, SubmitError};
use super::task_ref::TaskRef;
use longhaul_core::protocol::waits::{AfterFailed, DependencyName, WaitsFor};
use longhaul_core::task::text;
use std::collections::BTreeMap;

impl Submission {
    /// Starts the task only when these tasks are over: up to 1,000 tasks of the same topic, in any
    /// partition. Chains, fan-ins and groups with a callback are built this way: the last task
    /// names the ones before. While it waits it takes no slot, and no worker holds its payload.
    ///
    /// If one of them has no result the task fails with that reason, unless
    /// [`after_failed`](Self::after_failed) sets another policy. The processor reads their results
    /// by [`TaskContext::predecessors`](crate::TaskContext::predecessors). Sending fails if one of
    /// the tasks does not exist, as far as the broker reports its last id; an unnoticed one counts
    /// as a task without a result.
    ///
    /// ```no_run
    /// use longhaul::{AfterFailed, Client, SubmitError, TaskRef, Text};
    ///
    /// async fn report_after(client: &Client, pages: Vec<TaskRef>) -> Result<TaskRef, SubmitError> {
    ///     let report = client.submission("tasks", &Text("report".to_owned()));
    ///     report.after(&pages).after_failed(AfterFailed::Run).send().await
    /// }
    /// ```
    pub fn after<'a>(self, tasks: impl IntoIterator<Item = &'a TaskRef>) -> Self {
        let mut names = Vec::new();
        let own = self.client.names(&self.topic).map(|names| names.task);
        for task in tasks {
            if own.as_ref().is_ok_and(|own| *own != task.topic) {
                let problem = format!("{task} is a task of another topic");
                return self.refuse(SubmitError::Property { name: text::AFTER, problem });
            }
            names.push(DependencyName::Task(task.id));
        }
        self.names(names)
    }

    /// Starts the task only when the task with this key is over, too. That is the task with this
    /// [`idempotency_key`](Self::idempotency_key) or, if there is none, this
    /// [`dedupe_key`](Self::dedupe_key); it may be submitted later. For a dedupe key, it is the
    /// task that holds the key, or held it last, when this one is parked.
    ///
    /// A key that no task has taken a day later counts as a task without a result.
    pub fn after_key(self, key: impl Into<String>) -> Self {
        let name = DependencyName::Key(key.into().into());
        if name.keys().is_none() {
            let problem = "a key has 1 to 256 bytes".to_owned();
            return self.refuse(SubmitError::Property { name: text::AFTER, problem });
        }
        self.names([name])
    }

    /// Sets the policy for when a task that this one waits for ends without a result.
    pub fn after_failed(self, policy: AfterFailed) -> Self {
        self.property(text::AFTER_FAILED, policy.word())
    }

    fn names(self, names: impl IntoIterator<Item = DependencyName>) -> Self {
        let before = self.properties.get(text::AFTER).map(|before| WaitsFor::read(before, None));
        let mut list = before.and_then(Result::ok).unwrap_or_default();
        list.names.extend(names);
        self.term(text::AFTER, list.text().map_err(|error| error.to_string()))
    }
}

impl Client {
    /// Refuses a task that would wait for tasks that no worker will find.
    pub(super) async fn check_after(
        &self,
        topic: &str,
        properties: &BTreeMap<String, String>,
    ) -> Result<(), SubmitError> {
        let Some(names) = properties.get(text::AFTER) else { return Ok(()) };
        let refused = |problem| SubmitError::Property { name: text::AFTER, problem };
        let failed = properties.get(text::AFTER_FAILED).map(String::as_str);
        let list = WaitsFor::read(names, failed).map_err(|error| refused(error.to_string()))?;
        for name in &list.names {
            let DependencyName::Task(id) = name else { continue };
            if let Some(cause) = self.inner.existence.objection(topic, *id).await {
                return Err(refused(format!("no task {id}: {cause}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;
    use crate::client::fake::{Fake, FakeTransport};
    use std::sync::Arc;

    fn submission() -> Submission {
        let transport = FakeTransport(Fake::new());
        Client::on_transport(Arc::new(transport)).submission("tasks", &1_u32)
    }

    const fn id(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    fn list(submission: &Submission) -> WaitsFor {
        let property = |name| submission.properties.get(name).map(String::as_str);
        WaitsFor::read(property(text::AFTER).unwrap(), property(text::AFTER_FAILED)).unwrap()
    }

    #[test]
    fn a_task_waits_for_tasks_of_its_own_topic() {
        let task = |topic: &str, entry| TaskRef { topic: topic.to_owned(), id: id(entry) };
        let own = submission().client.names("tasks").unwrap().task;
        let named: Vec<_> = (0..=1_000).map(|entry| task(&own, entry)).collect();
        let waits = submission().after(&named[..2]).after_failed(AfterFailed::Skip);
        assert_eq!(list(&waits), WaitsFor::of([id(0), id(1)], AfterFailed::Skip));
        assert!(submission().after(&named[..1_000]).refused().is_none());
        let refused = |submission: Submission| submission.refused().unwrap().to_string();
        let many = refused(submission().after(&named));
        assert!(many.starts_with("AFTER: more than 1000 tasks are named"), "{many}");
        let other = refused(submission().after(&[task("others", 1)]));
        assert!(other.ends_with("is a task of another topic"), "{other}");
    }

    #[test]
    fn keys_are_added_to_ids() {
        let own = submission().client.names("tasks").unwrap().task;
        let task = TaskRef { topic: own, id: id(7) };
        let waits = submission().after(&[task]).after_key("a, b").after_key("c");
        let key = |text: &str| DependencyName::Key(text.into());
        let expected = [DependencyName::Task(id(7)), key("a, b"), key("c")].into();
        assert_eq!(list(&waits), WaitsFor { names: expected, failed: AfterFailed::Fail });
        for wrong in [String::new(), "k".repeat(257)] {
            let told = submission().after_key(wrong).refused().unwrap().to_string();
            assert_eq!(told, "AFTER: a key has 1 to 256 bytes");
        }
    }
}
