//! Middleware around attempts: timing, logs, limits.

use super::erased::ErasedProcessor;
use super::processor::{TaskContext, TaskProcessor};
use super::task_error::TaskError;
use longhaul_core::task::Raw;
use std::fmt;
use std::sync::Arc;

/// Wraps attempts of any types: it takes the payload as bytes and returns the result as bytes.
/// Between the two it calls [`Next::run`]. It may do anything before and after the call, change the
/// arguments, or skip the call.
///
/// A type may implement it, and so may an asynchronous function or closure:
///
/// ```
/// use longhaul::{Next, Raw, TaskContext, TaskError, TaskProcessor, TestContext, processor_fn};
/// use std::time::Instant;
/// use tracing::Instrument;
///
/// /// Says in the log how long each attempt took, and puts what it logs itself into a span with the customer's number.
/// async fn observe(payload: Raw, context: TaskContext, next: Next) -> Result<Raw, TaskError> {
///     let customer = context.properties().get("customer").cloned().unwrap_or_default();
///     let (task, started) = (context.task_id(), Instant::now());
///     let span = tracing::info_span!("attempt", customer);
///     let result = next.run(payload, context).instrument(span).await;
///     tracing::info!(%task, took = ?started.elapsed(), failed = result.is_err());
///     result
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let double = processor_fn(async |number: u32, _: TaskContext| Ok(2 * number)).with(observe);
/// let result = double.process(Raw("21".into()), TestContext::new().context()).await;
/// assert_eq!(result, Ok(Raw("42".into())));
/// # }
/// ```
///
/// [`WorkerBuilder::middleware`](crate::WorkerBuilder::middleware) puts it around all processors of
/// a worker, [`TaskProcessor::with`] around one of them, such as one of a
/// [`Router`](crate::Router). The middleware added last is the outermost. It runs inside the span
/// of the attempt, its panics are failed attempts, and the budget, a cancellation and the grace
/// after it apply to it as to the processor. A payload encoded by the submitter's codec is decoded
/// before.
///
/// With the feature `tower`, `longhaul::tower::from_layer` makes one of tower layers.
///
/// A future that it drops half-way, including the processor's, ends at its next await point, like
/// any future.
pub trait Middleware: Send + Sync + 'static {
    /// Runs one attempt.
    ///
    /// An implementation writes it as
    /// `async fn around(&self, payload: Raw, context: TaskContext, next: Next) -> Result<Raw, TaskError>`.
    fn around(
        &self,
        payload: Raw,
        context: TaskContext,
        next: Next,
    ) -> impl Future<Output = Result<Raw, TaskError>> + Send;
}

impl<F, Fut> Middleware for F
where
    F: Fn(Raw, TaskContext, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Raw, TaskError>> + Send,
{
    fn around(
        &self,
        payload: Raw,
        context: TaskContext,
        next: Next,
    ) -> impl Future<Output = Result<Raw, TaskError>> + Send {
        self(payload, context, next)
    }
}

/// The part that a [`Middleware`] wraps: the next middleware, or the processor.
#[derive(Clone)]
pub struct Next(Arc<dyn ErasedProcessor>);

impl Next {
    /// Runs it. The [`kind`](TaskError::kind) of an error tells what follows.
    ///
    /// # Errors
    /// The processor's error; that it cannot decode the payload, with the kind
    /// [`Elsewhere`](crate::TaskErrorKind::Elsewhere); or that its result cannot be encoded.
    pub async fn run(&self, payload: Raw, context: TaskContext) -> Result<Raw, TaskError> {
        Arc::clone(&self.0).run(payload.0, context).await.map(Raw)
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

/// A processor with a [`Middleware`] around it: see [`TaskProcessor::with`].
#[derive(Clone)]
pub struct With<M> {
    processor: Arc<dyn ErasedProcessor>,
    middleware: M,
}

impl<M: Middleware> With<M> {
    pub(super) fn new(processor: impl TaskProcessor, middleware: M) -> Self {
        Self { processor: Arc::new(processor), middleware }
    }
}

impl<M: Middleware> TaskProcessor for With<M> {
    type Task = Raw;
    type Output = Raw;

    fn process(
        &self,
        task: Raw,
        context: TaskContext,
    ) -> impl Future<Output = Result<Raw, TaskError>> + Send {
        self.middleware.around(task, context, Next(Arc::clone(&self.processor)))
    }
}

impl<M> fmt::Debug for With<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskErrorKind, TestContext, processor_fn};
    use std::sync::Mutex;

    /// Records the calls, under its name.
    #[derive(Clone)]
    struct Noting(&'static str, Arc<Mutex<Vec<String>>>);

    impl Middleware for Noting {
        async fn around(
            &self,
            payload: Raw,
            context: TaskContext,
            next: Next,
        ) -> Result<Raw, TaskError> {
            let note = |text: &str| self.1.lock().unwrap().push(format!("{} {text}", self.0));
            note(std::str::from_utf8(&payload.0)?);
            let result = next.run(payload, context).await;
            note(
                &result
                    .as_ref()
                    .map_or_else(ToString::to_string, |result| format!("{:?}", result.0)),
            );
            result
        }
    }

    #[tokio::test]
    async fn the_last_one_added_is_the_outermost_and_sees_what_comes_of_it() {
        let seen = Arc::new(Mutex::default());
        let halve = processor_fn(async |number: u32, _: TaskContext| match number % 2 {
            0 => Ok(number / 2),
            _ => Err(TaskError::fatal("odd")),
        });
        let wrapped = halve.with(Noting("inner", Arc::clone(&seen)));
        let wrapped = wrapped.with(Noting("outer", Arc::clone(&seen)));
        let run =
            |text: &'static str| wrapped.process(Raw(text.into()), TestContext::new().context());
        assert_eq!(run("42").await, Ok(Raw("21".into())));
        let error = run("21").await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (TaskErrorKind::Fatal, "odd"));
        assert_eq!(run("x").await.unwrap_err().kind(), TaskErrorKind::Elsewhere);
        let seen = seen.lock().unwrap();
        let of_first = ["outer 42", "inner 42", "inner b\"21\"", "outer b\"21\""];
        let of_second = ["outer 21", "inner 21", "inner odd", "outer odd"];
        assert_eq!(seen[..8], [of_first, of_second].concat());
    }

    #[tokio::test]
    async fn a_function_may_change_the_payload_and_the_result_or_run_nothing() {
        let double = || processor_fn(async |number: u32, _: TaskContext| Ok(2 * number));
        let other = double().with(async |payload: Raw, context: TaskContext, next: Next| {
            let result = next.run(Raw([&payload.0[..], b"0"].concat().into()), context).await?;
            Ok(Raw([b"<", &result.0[..], b">"].concat().into()))
        });
        let context = TestContext::new().context();
        assert_eq!(other.process(Raw("4".into()), context.clone()).await, Ok(Raw("<80>".into())));
        let none = double().with(async |_: Raw, _: TaskContext, _: Next| Err("closed".into()));
        assert_eq!(none.process(Raw("4".into()), context).await, Err(TaskError::retry("closed")));
    }
}
