//! A function as a processor.

use super::processor::{TaskContext, TaskProcessor};
use super::task_error::TaskError;
use longhaul_core::task::{FromPayload, ToPayload};
use std::fmt;
use std::marker::PhantomData;

/// Makes a processor from an asynchronous function or closure.
///
/// For a processor with state, or one with its own tests, prefer a type that implements
/// [`TaskProcessor`].
///
/// ```no_run
/// use longhaul::{Client, TaskContext, TaskError, processor_fn};
///
/// #[derive(serde::Deserialize)]
/// struct Greeting {
///     name: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("pulsar://localhost:6650").await?;
/// let greet = processor_fn(async |task: Greeting, _context: TaskContext| {
///     Ok(format!("Hello {}", task.name))
/// });
/// let worker = client.worker("greetings", greet).start().await?;
/// # drop(worker);
/// # Ok(())
/// # }
/// ```
pub fn processor_fn<T, O, F, Fut>(function: F) -> ProcessorFn<T, F>
where
    T: FromPayload,
    O: ToPayload,
    F: Fn(T, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, TaskError>> + Send,
{
    ProcessorFn { function, task: PhantomData }
}

/// A processor made from a function by [`processor_fn`].
pub struct ProcessorFn<T, F> {
    function: F,
    task: PhantomData<fn(T)>,
}

impl<T, F> fmt::Debug for ProcessorFn<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorFn").finish_non_exhaustive()
    }
}

impl<T, O, F, Fut> TaskProcessor for ProcessorFn<T, F>
where
    T: FromPayload,
    O: ToPayload,
    F: Fn(T, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, TaskError>> + Send,
{
    type Task = T;
    type Output = O;

    fn process(
        &self,
        task: T,
        context: TaskContext,
    ) -> impl Future<Output = Result<O, TaskError>> + Send {
        (self.function)(task, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TestContext, Text};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    async fn attempt(_task: Text, context: TaskContext) -> Result<u32, TaskError> {
        Ok(context.attempt())
    }

    #[tokio::test]
    async fn functions_and_closures_are_processors() {
        let (task, context) = (Text("2".to_owned()), TestContext::new().attempt(3).context());
        let result = processor_fn(attempt).process(task.clone(), context.clone()).await;
        assert_eq!(result, Ok(3));
        let sum = Arc::new(AtomicU32::new(0));
        let added = Arc::clone(&sum);
        let add = processor_fn(move |task: Text, _| {
            let sum = Arc::clone(&added);
            async move {
                let number: u32 = task.0.parse()?;
                Ok(sum.fetch_add(number, Ordering::Relaxed))
            }
        });
        for before in [0, 2] {
            assert_eq!(add.process(task.clone(), context.clone()).await, Ok(before));
        }
        let refuse = processor_fn(async |task: Text, _: TaskContext| match task.0.as_str() {
            "2" => Err("no twos")?,
            _ => Ok(task),
        });
        assert_eq!(refuse.process(task, context).await, Err(TaskError::retry("no twos")));
    }
}
