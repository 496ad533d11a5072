//! Routes several kinds of tasks on one topic to their processors.

use super::erased::ErasedProcessor;
use super::processor::{TaskContext, TaskProcessor};
use super::task_error::TaskError;
use longhaul_core::task::{FailureCause, Raw, text};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Processes tasks of several types on one topic. The property `TASK_TYPE` of a task's message
/// selects the processor; [`Submission::task_type`](crate::Submission::task_type) sets it, and any
/// Pulsar producer may set it.
///
/// ```no_run
/// use longhaul::{Client, Router, TaskContext, TaskError, TaskProcessor, Text, processor_fn};
///
/// struct Resize;
///
/// impl TaskProcessor for Resize {
///     type Task = u32;
///     type Output = u32;
///
///     async fn process(&self, width: u32, _context: TaskContext) -> Result<u32, TaskError> {
///         Ok(width / 2)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("pulsar://localhost:6650").await?;
/// let router = Router::new()
///     .route("resize", Resize)
///     .route("export", processor_fn(async |path: Text, _: TaskContext| Ok(path)));
/// let worker = client.worker("images", router).start().await?;
/// let task = client.submission("images", &640).task_type("resize").send().await?;
/// println!("{}", client.wait::<u32>(&task).await?);
/// # drop(worker);
/// # Ok(())
/// # }
/// ```
///
/// A task whose type has no processor here may have one at another worker, for example during a
/// rolling deployment. So it is tried again after a long pause, like a task whose payload cannot be
/// decoded. When no attempt is left it has failed for good, with the type and this worker's types
/// in the reason.
#[derive(Clone, Default)]
pub struct Router {
    routes: BTreeMap<String, Arc<dyn ErasedProcessor>>,
    untyped: Option<Arc<dyn ErasedProcessor>>,
}

impl Router {
    /// Creates a router without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the processor of a type. Replaces an earlier one of the type.
    #[must_use]
    pub fn route(mut self, task_type: impl Into<String>, processor: impl TaskProcessor) -> Self {
        self.routes.insert(task_type.into(), Arc::new(processor));
        self
    }

    /// Adds the processor of tasks without a type. Without it they are tried again elsewhere, like
    /// those of an unknown type.
    #[must_use]
    pub fn untyped(mut self, processor: impl TaskProcessor) -> Self {
        self.untyped = Some(Arc::new(processor));
        self
    }
}

impl TaskProcessor for Router {
    type Task = Raw;
    type Output = Raw;

    async fn process(&self, task: Raw, context: TaskContext) -> Result<Raw, TaskError> {
        let task_type = context.task_type();
        let processor = match task_type {
            Some(task_type) => self.routes.get(task_type),
            None => self.untyped.as_ref(),
        };
        let Some(processor) = processor else {
            let reason = text::unknown_type(task_type, self.routes.keys());
            return Err(TaskError::unsuitable(FailureCause::NoProcessor, reason));
        };
        Arc::clone(processor).run(task.0, context).await.map(Raw)
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("types", &self.routes.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskErrorKind, TestContext, Text, processor_fn};

    fn router() -> Router {
        Router::new()
            .route("double", processor_fn(async |number: u32, _: TaskContext| Ok(2 * number)))
            .route("greet", processor_fn(async |name: Text, _: TaskContext| Ok(name)))
    }

    async fn routed(router: &Router, task_type: Option<&str>) -> Result<Raw, TaskError> {
        let context = TestContext::new();
        let context = match task_type {
            Some(task_type) => context.property("TASK_TYPE", task_type),
            None => context,
        };
        router.process(Raw("21".into()), context.context()).await
    }

    #[tokio::test]
    async fn a_task_goes_to_the_processor_of_its_type() {
        let router = router();
        assert_eq!(routed(&router, Some("double")).await, Ok(Raw("42".into())));
        assert_eq!(routed(&router, Some("greet")).await, Ok(Raw("21".into())));
        let again =
            router.route("double", processor_fn(async |text: Text, _: TaskContext| Ok(text)));
        assert_eq!(routed(&again, Some("double")).await, Ok(Raw("21".into())));
    }

    #[tokio::test]
    async fn a_type_without_a_processor_is_for_another_worker_and_the_reason_names_the_types() {
        for (task_type, reason) in [
            (Some("shout"), "Task type `shout` has no processor here, only `double`, `greet`"),
            (None, "The task has no TASK_TYPE, and only `double`, `greet` have a processor here"),
            (
                Some(""),
                "The task has no TASK_TYPE, and only `double`, `greet` have a processor here",
            ),
        ] {
            let error = routed(&router(), task_type).await.unwrap_err();
            assert_eq!((error.kind(), error.message()), (TaskErrorKind::Elsewhere, reason));
        }
        let alone =
            Router::new().route("greet", processor_fn(async |text: Text, _: TaskContext| Ok(text)));
        let error = routed(&alone, None).await.unwrap_err();
        let reason = "The task has no TASK_TYPE, and only `greet` has a processor here";
        assert_eq!(error.message(), reason);
        let all = router().untyped(processor_fn(async |text: Text, _: TaskContext| Ok(text.0)));
        assert_eq!(routed(&all, None).await, Ok(Raw("\"21\"".into())));
    }
}
