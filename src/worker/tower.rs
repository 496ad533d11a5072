//! [Tower](https://docs.rs/tower) layers around attempts, behind the feature `tower`: limits,
//! timeouts, retries, tracing and whatever else that world has.
//!
//! ```
//! use longhaul::{Raw, TaskContext, TaskProcessor, TestContext, processor_fn};
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let layers = ServiceBuilder::new()
//!     .rate_limit(100, Duration::from_secs(60))
//!     .timeout(Duration::from_secs(5));
//! let double = processor_fn(async |number: u32, _: TaskContext| Ok(2 * number))
//!     .with(longhaul::tower::from_layer(layers));
//! let result = double.process(Raw("21".into()), TestContext::new().context()).await;
//! assert_eq!(result, Ok(Raw("42".into())));
//! # }
//! ```

use super::middleware::{Middleware, Next};
use super::processor::TaskContext;
use super::task_error::TaskError;
use futures::future::BoxFuture;
use longhaul_core::task::Raw;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::sync::Mutex;
use tower_layer::Layer;
use tower_service::Service;

/// The request of the services that a layer wraps. A layer that retries within one attempt clones
/// it.
#[derive(Clone)]
#[non_exhaustive]
pub struct AttemptRequest {
    /// The encoded task.
    pub payload: Raw,
    /// The context of the attempt.
    pub context: TaskContext,
}

impl fmt::Debug for AttemptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptRequest")
            .field("task", &self.context.task_id())
            .field("payload_bytes", &self.payload.0.len())
            .finish_non_exhaustive()
    }
}

/// The error of the innermost service: a [`TaskError`] as a [`std::error::Error`], which layers can
/// pass on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptError(pub TaskError);

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for AttemptError {}

impl Service<AttemptRequest> for Next {
    type Response = Raw;
    type Error = AttemptError;
    type Future = BoxFuture<'static, Result<Raw, AttemptError>>;

    /// The processor is always ready: the worker's slots limit its attempts.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AttemptError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, AttemptRequest { payload, context }: AttemptRequest) -> Self::Future {
        let next = self.clone();
        Box::pin(async move { next.run(payload, context).await.map_err(AttemptError) })
    }
}

/// A tower layer as a [`Middleware`]: see [`from_layer`].
pub struct FromLayer<L: Layer<Next>> {
    layer: L,
    /// The wrapped processor, from the first attempt on.
    service: Mutex<Option<L::Service>>,
}

/// Puts a tower layer around attempts.
///
/// The layer wraps the processor once, and all attempts share the service, so that its limits hold
/// over all of them. The service need not be `Clone`: attempts wait one behind the other until it is
/// ready, and then run beside each other.
///
/// A [`TaskError`] passes through the layer unchanged. An error of the layer's own, such as a
/// timeout, fails the attempt, and another one follows. An attempt that waits for the layer holds
/// its slot and uses up its budget.
pub const fn from_layer<L: Layer<Next>>(layer: L) -> FromLayer<L> {
    FromLayer { layer, service: Mutex::const_new(None) }
}

impl<L: Layer<Next>> fmt::Debug for FromLayer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromLayer").finish_non_exhaustive()
    }
}

impl<L> Middleware for FromLayer<L>
where
    L: Layer<Next> + Send + Sync + 'static,
    L::Service: Service<AttemptRequest, Response = Raw> + Send,
    <L::Service as Service<AttemptRequest>>::Error: Into<Box<dyn Error + Send + Sync>>,
    <L::Service as Service<AttemptRequest>>::Future: Send,
{
    async fn around(
        &self,
        payload: Raw,
        context: TaskContext,
        next: Next,
    ) -> Result<Raw, TaskError> {
        let answer = {
            let mut service = self.service.lock().await;
            let service = service.get_or_insert_with(|| self.layer.layer(next));
            poll_fn(|context| service.poll_ready(context)).await.map_err(task_error)?;
            service.call(AttemptRequest { payload, context })
        };
        answer.await.map_err(task_error)
    }
}

/// The processor's own error, if it is one, or an error of a layer.
fn task_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> TaskError {
    match error.into().downcast::<AttemptError>() {
        Ok(error) => error.0,
        Err(error) => TaskError::retry(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskErrorKind, TaskProcessor, TestContext, processor_fn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tower::ServiceBuilder;

    fn run<P: TaskProcessor<Task = Raw, Output = Raw>>(
        processor: &P,
        payload: &'static str,
    ) -> impl Future<Output = Result<Raw, TaskError>> {
        processor.process(Raw(payload.into()), TestContext::new().context())
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_a_layer_holds_over_all_attempts() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (at_work, seen) = (Arc::clone(&running), Arc::clone(&most));
        let slow = processor_fn(move |number: u32, _: TaskContext| {
            let (running, most) = (Arc::clone(&at_work), Arc::clone(&seen));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(number)
            }
        });
        let slow = slow.with(from_layer(ServiceBuilder::new().concurrency_limit(2)));
        let began = crate::clock::runtime_now();
        let results = futures::future::join_all((0..6).map(|_| run(&slow, "7"))).await;
        assert!(results.iter().all(|result| *result == Ok(Raw("7".into()))), "{results:?}");
        assert_eq!(
            (most.load(Ordering::SeqCst), (crate::clock::runtime_now() - began).as_secs()),
            (2, 3)
        );
    }

    /// Dropped while it waits for the service, an attempt takes nothing with it.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_dropped_while_it_waits_keeps_nobody_out() {
        let hour = Duration::from_secs(3_600);
        let echo = processor_fn(async |number: u32, _: TaskContext| Ok(number));
        let echo = echo.with(from_layer(ServiceBuilder::new().rate_limit(1, hour)));
        assert_eq!(run(&echo, "1").await, Ok(Raw("1".into())));
        let impatient = tokio::time::timeout(Duration::from_secs(1), run(&echo, "2")).await;
        assert!(impatient.is_err());
        assert_eq!(run(&echo, "3").await, Ok(Raw("3".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn errors_of_the_processor_pass_and_those_of_a_layer_are_tried_again() {
        let picky = processor_fn(async |number: u64, _: TaskContext| match number {
            0 => Err(TaskError::fatal("nothing to do")),
            seconds => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok(seconds)
            }
        });
        let layers = ServiceBuilder::new().timeout(Duration::from_secs(5));
        let picky = picky.with(from_layer(layers));
        assert_eq!(run(&picky, "1").await, Ok(Raw("1".into())));
        assert_eq!(run(&picky, "0").await, Err(TaskError::fatal("nothing to do")));
        let late = run(&picky, "60").await.unwrap_err();
        assert_eq!((late.kind(), late.message()), (TaskErrorKind::Retry, "request timed out"));
        // A payload that is none is for another worker, layer or not.
        assert_eq!(run(&picky, "x").await.unwrap_err().kind(), TaskErrorKind::Elsewhere);
    }
}
