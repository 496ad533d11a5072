//! Queues and tasks as people name them, and as the API does.

use super::GatewayRoute;
use crate::exit::CommandFailure;
use crate::service::{short_topic, tasks::named};
use anyhow::Context as _;
use longhaul::TaskRef;
use longhaul_api::{QueueLevel, QueueName, QueueNameError, TaskName};
use std::fmt;

/// The namespace of a queue that is named without one.
pub(super) const NAMESPACE: &str = "public/default";

/// A queue or one of its levels, in its namespace.
#[derive(Clone, Debug)]
pub(super) struct QueueAddress {
    namespace: String,
    pub(super) level: QueueLevel,
}

impl QueueAddress {
    /// The queue and the level that a task topic names.
    pub(super) fn of(topic: &str) -> Result<Self, CommandFailure> {
        let path = topic.strip_prefix("persistent://").unwrap_or(topic);
        let (namespace, name) = path.rsplit_once('/').unwrap_or((NAMESPACE, path));
        if namespace.split('/').count() != 2 {
            let what = format!(
                "`{topic}` is not a queue name: expected `mails` or `tenant/namespace/mails`"
            );
            return Err(CommandFailure::usage(what));
        }
        let level = name.parse();
        let level =
            level.map_err(|error: QueueNameError| CommandFailure::usage(error.to_string()))?;
        Ok(Self { namespace: namespace.to_owned(), level })
    }

    /// The queue and the level of a task, and its name there.
    pub(super) fn of_task(task: &TaskRef) -> Result<(Self, TaskName), CommandFailure> {
        let of = Self::of(&task.topic)?;
        let name = of.level.task(task.id);
        Ok((of, name))
    }

    const fn queue(&self) -> &QueueName {
        self.level.queue()
    }

    /// A path below the level.
    pub(super) fn below(&self, rest: &[&str]) -> GatewayRoute {
        GatewayRoute { level: self.level.level(), ..self.whole(rest) }
    }

    /// A path below the queue, for what has no level: settings, or tasks whose names have it.
    pub(super) fn whole(&self, rest: &[&str]) -> GatewayRoute {
        let path = [&["queues", self.queue().as_str()], rest].concat();
        GatewayRoute::new(&self.namespace, &path)
    }

    /// The task with this name in the queue.
    pub(super) fn task(&self, name: &str) -> anyhow::Result<TaskRef> {
        let name: TaskName = name.parse().context("cannot read the gateway's answer")?;
        let (namespace, level) = (&self.namespace, name.in_queue(self.queue()));
        Ok(TaskRef::new(&format!("persistent://{namespace}/{level}"), name.id)?)
    }

    /// Replaces the name of a task in the queue by its name for people.
    pub(super) fn rename(&self, name: &mut String) {
        *name = self.shown(name);
    }

    /// The name of a task of the queue for people.
    pub(super) fn shown(&self, name: &str) -> String {
        self.task(name).map_or_else(|_| name.to_owned(), |task| named(&task))
    }
}

/// As people name it.
impl fmt::Display for QueueAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(short_topic(&format!("persistent://{}/{}", self.namespace, self.level)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_one_name_here_and_another_there() {
        for (here, queue, there) in [
            ("tasks@12:3:-1", "tasks", "12:3:-1"),
            ("tasks-high@12:3:0", "tasks", "high~12:3:0"),
            ("tasks-low@12:3:0:7", "tasks", "low~12:3:0:7"),
            ("persistent://acme/prod/tasks-low@12:3:0:7", "tasks", "low~12:3:0:7"),
        ] {
            let task: TaskRef = here.parse().unwrap();
            let (of, name) = QueueAddress::of_task(&task).unwrap();
            assert_eq!((of.queue().as_str(), &*name.to_string()), (queue, there));
            assert_eq!(of.task(there).unwrap(), task);
            assert_eq!(of.shown(there), here);
        }
        for bad in ["", "a/b", "a/b/c/d", "mails-ledger"] {
            assert!(QueueAddress::of(bad).is_err(), "{bad}");
        }
    }
}
