//! Processors that block their thread.

use super::execution::{ABORTED_WAIT, reason_of_panic};
use super::processor::{TaskContext, TaskProcessor};
use super::task_error::TaskError;
use futures::future::BoxFuture;
use longhaul_core::task::{FromPayload, ToPayload};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::Span;

/// Processes tasks of one kind by code that blocks its thread: a long calculation, or a wait for
/// something that is not asynchronous.
///
/// [`blocking`] makes it a [`TaskProcessor`], which runs each attempt on a thread of its own
/// (`tokio::task::spawn_blocking`).
///
/// ```
/// use longhaul::{BlockingProcessor, TaskContext, TaskError, TaskProcessor, TestContext, blocking};
///
/// /// Sums up the numbers below a limit.
/// struct Sum;
///
/// impl BlockingProcessor for Sum {
///     type Task = u64;
///     type Output = u64;
///
///     fn process(&self, limit: u64, context: TaskContext) -> Result<u64, TaskError> {
///         let mut sum = 0;
///         for number in 0..limit {
///             if context.is_cancelled() {
///                 return Err(TaskError::retry("cancelled"));
///             }
///             sum += number;
///             context.progress(number, limit, "adding");
///         }
///         Ok(sum)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let result = blocking(Sum).process(10, TestContext::new().context()).await;
/// assert_eq!(result, Ok(45));
/// # }
/// ```
///
/// A thread cannot be ended from outside, so it should check [`TaskContext::is_cancelled`] now and
/// then. A thread that does not keeps its slot after its cancellation until it returns; only
/// [`Cancellation::kill`](crate::Cancellation::kill) frees the slot at once. Tokio has 512 threads by
/// default (`max_blocking_threads` of its runtime): an attempt without a free one waits for it,
/// within its budget.
pub trait BlockingProcessor: Send + Sync + 'static {
    /// The task, read from the payload: any type that `serde` can deserialize.
    type Task: FromPayload;
    /// The result: any type that `serde` can serialize.
    type Output: ToPayload + Send + 'static;

    /// Runs one attempt. Errors and panics are those of [`TaskProcessor::process`].
    ///
    /// # Errors
    /// Why the attempt has no result.
    fn process(&self, task: Self::Task, context: TaskContext) -> Result<Self::Output, TaskError>;
}

/// Makes a [`TaskProcessor`] from a processor that blocks its thread.
pub fn blocking<P: BlockingProcessor>(processor: P) -> Blocking<P> {
    Blocking(Arc::new(processor))
}

/// Makes a processor from a function or closure that blocks its thread. The documentation of
/// [`BlockingProcessor`] applies here, too.
///
/// ```no_run
/// use longhaul::{Client, TaskContext, Text, blocking_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("pulsar://localhost:6650").await?;
/// let read = blocking_fn(|path: Text, _: TaskContext| Ok(Text(std::fs::read_to_string(path.0)?)));
/// let worker = client.worker("files", read).start().await?;
/// # drop(worker);
/// # Ok(())
/// # }
/// ```
pub fn blocking_fn<T, O, F>(function: F) -> Blocking<BlockingFn<T, F>>
where
    T: FromPayload,
    O: ToPayload + Send + 'static,
    F: Fn(T, TaskContext) -> Result<O, TaskError> + Send + Sync + 'static,
{
    blocking(BlockingFn { function, task: PhantomData })
}

/// A [`TaskProcessor`] made from one that blocks its thread: see [`blocking`].
#[derive(Debug)]
pub struct Blocking<P>(Arc<P>);

/// A processor made from a function by [`blocking_fn`].
pub struct BlockingFn<T, F> {
    function: F,
    task: PhantomData<fn(T)>,
}

impl<T, F> fmt::Debug for BlockingFn<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingFn").finish_non_exhaustive()
    }
}

impl<T, O, F> BlockingProcessor for BlockingFn<T, F>
where
    T: FromPayload,
    O: ToPayload + Send + 'static,
    F: Fn(T, TaskContext) -> Result<O, TaskError> + Send + Sync + 'static,
{
    type Task = T;
    type Output = O;

    fn process(&self, task: T, context: TaskContext) -> Result<O, TaskError> {
        (self.function)(task, context)
    }
}

impl<P: BlockingProcessor> TaskProcessor for Blocking<P> {
    type Task = P::Task;
    type Output = P::Output;

    async fn process(
        &self,
        task: Self::Task,
        context: TaskContext,
    ) -> Result<Self::Output, TaskError> {
        let (processor, span) = (Arc::clone(&self.0), Span::current());
        let running = context.shared.threads.enter();
        let thread = tokio::task::spawn_blocking(move || {
            let _running = running;
            let _span = span.entered();
            let result = catch_unwind(AssertUnwindSafe(|| processor.process(task, context)));
            // The place of the panic is known only on its thread.
            result.unwrap_or_else(|panic| Err(TaskError::panicked(reason_of_panic(&*panic))))
        });
        // An attempt that is over before it has got a thread needs none.
        let _unless_begun = AbortOnDrop(thread.abort_handle());
        // The runtime shuts down, which is no failure of the task.
        thread.await.unwrap_or_else(|_| Err(TaskError::snooze(ABORTED_WAIT)))
    }
}

/// Aborts the task of its handle, if that is still possible.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The threads on which blocking processors run one attempt. Usually there are none.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<oneshot::Receiver<Infallible>>>);

impl Threads {
    /// Registers a thread, which runs until it drops the returned value.
    pub(super) fn enter(&self) -> oneshot::Sender<Infallible> {
        let (running, ended) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        running
    }

    /// Resolves when all current threads have ended; `None` if there are none.
    pub(super) fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain_mut(|thread| thread.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        if threads.is_empty() {
            return None;
        }
        let threads = std::mem::take(&mut *threads);
        Some(Box::pin(async move {
            for thread in threads {
                // Nothing is ever sent: it ends when the other side is dropped.
                drop(thread.await);
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskErrorKind, TestContext, Text};
    use std::sync::mpsc;

    #[tokio::test]
    async fn it_runs_on_a_thread_of_its_own_and_may_fail_and_panic() {
        let here = std::thread::current().id();
        let shout = blocking_fn(move |task: Text, context: TaskContext| {
            assert_ne!(std::thread::current().id(), here);
            match task.0.as_str() {
                "panic" => panic!("out of paper"),
                "fail" => Err(TaskError::fatal("no"))?,
                _ => Ok(Text(format!("{} {}", task.0.to_uppercase(), context.attempt()))),
            }
        });
        let test = TestContext::new().attempt(2);
        let run = |text: &str| shout.process(Text(text.to_owned()), test.context());
        assert_eq!(run("hello").await, Ok(Text("HELLO 2".to_owned())));
        assert_eq!(run("fail").await, Err(TaskError::fatal("no")));
        let panicked = run("panic").await.unwrap_err();
        assert_eq!(panicked.kind(), TaskErrorKind::Retry);
        assert!(panicked.message().contains("panicked: out of paper"), "{panicked}");
        assert!(test.context().shared.threads.ended().is_none());
    }

    /// For example, a middleware with a limit of its own drops a processor half-way, while its
    /// thread goes on.
    #[tokio::test]
    async fn a_thread_whose_attempt_was_dropped_is_known_until_it_ends() {
        let (go, gate) = mpsc::channel::<()>();
        let (begun, mut begins) = tokio::sync::mpsc::channel(1);
        let gate = Mutex::new(gate);
        let wait = blocking_fn(move |_: Text, _: TaskContext| {
            begun.blocking_send(())?;
            Ok(gate.lock().unwrap().recv().is_ok())
        });
        let context = TestContext::new().context();
        let mut run = Box::pin(wait.process(Text(String::new()), context.clone()));
        tokio::select! {
            _ = &mut run => panic!("it has ended"),
            begun = begins.recv() => assert_eq!(begun, Some(())),
        }
        drop(run);
        let ended = context.shared.threads.ended().unwrap();
        go.send(()).unwrap();
        ended.await;
        assert!(context.shared.threads.ended().is_none());
    }
}
