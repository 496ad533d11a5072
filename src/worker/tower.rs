//! [Tower](https://docs.rs/tower) layers around attempts, behind the feature `tower`: limits,
//! timeouts, retries and tracing of that world. A layer fits if it keeps the request and the
//! response, as those of the crate `tower` do.
//!
//! ```
//! use longhaul::{Raw, TaskContext, TaskProcessor, TestContext, processor_fn};
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let layers = ServiceBuilder::new().concurrency_limit(4).timeout(Duration::from_secs(5));
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
use tower_layer::Layer;
use tower_service::Service;

type BoxError = Box<dyn Error + Send + Sync>;

/// The request of the services that a layer wraps: one attempt. A layer that retries within the
/// attempt clones it.
#[derive(Clone)]
#[non_exhaustive]
pub struct AttemptRequest {
    /// The encoded task.
    pub payload: Raw,
    /// The context of the attempt.
    pub context: TaskContext,
    next: Next,
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
/// pass on. A layer that wraps it returns it as its [`source`](Error::source).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptError(pub TaskError);

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for AttemptError {}

/// The innermost service, which a layer wraps: it runs the processor. It is always ready, because
/// the worker's slots limit its attempts.
#[derive(Clone, Copy, Debug)]
pub struct AttemptService(());

impl Service<AttemptRequest> for AttemptService {
    type Response = Raw;
    type Error = AttemptError;
    type Future = BoxFuture<'static, Result<Raw, AttemptError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AttemptError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AttemptRequest) -> Self::Future {
        let AttemptRequest { payload, context, next } = request;
        Box::pin(async move { next.run(payload, context).await.map_err(AttemptError) })
    }
}

/// Tower layers as a [`Middleware`]: see [`from_layer`]. Clones share the limits of their layers.
#[derive(Clone, Debug)]
pub struct FromLayer<S> {
    service: S,
}

/// Puts tower layers around attempts.
///
/// Each attempt clones the service, so that all attempts share its limits. A service that is not
/// `Clone`, such as a rate limit, needs a `buffer` around it.
///
/// A [`TaskError`] passes through. Any other error is one of the layer, such as a timeout: it fails
/// the attempt, and another one follows. An attempt that waits for the layer holds its slot and
/// uses up its budget; a cancellation ends the wait.
pub fn from_layer<L: Layer<AttemptService>>(layer: L) -> FromLayer<L::Service> {
    FromLayer { service: layer.layer(AttemptService(())) }
}

impl<S> Middleware for FromLayer<S>
where
    S: Service<AttemptRequest, Response = Raw> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    async fn around(
        &self,
        payload: Raw,
        context: TaskContext,
        next: Next,
    ) -> Result<Raw, TaskError> {
        let mut service = self.service.clone();
        tokio::select! {
            biased;
            () = context.cancelled() => return Err("cancelled while it waited for a layer".into()),
            ready = poll_fn(|context| service.poll_ready(context)) => ready.map_err(task_error)?,
        }
        service.call(AttemptRequest { payload, context, next }).await.map_err(task_error)
    }
}

/// The processor's own error, if it is in the chain, or an error of a layer.
fn task_error(error: impl Into<BoxError>) -> TaskError {
    let error = error.into();
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(it) = cause {
        if let Some(AttemptError(own)) = it.downcast_ref() {
            return own.clone();
        }
        cause = it.source();
    }
    TaskError::retry(error)
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

    /// A limit that two processors share: the permit that a dropped attempt of one had queued for
    /// went to it, and nobody used it.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_dropped_or_cancelled_while_it_waits_keeps_nobody_out() {
        let minute = Duration::from_secs(60);
        let slow = processor_fn(async |seconds: u64, _: TaskContext| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(seconds)
        });
        let limit = from_layer(ServiceBuilder::new().concurrency_limit(1));
        let echo = processor_fn(async |number: u64, _: TaskContext| Ok(number));
        let (slow, echo) = (slow.with(limit.clone()), echo.with(limit));
        let long = async { assert!(run(&slow, "30").await.is_ok()) };
        let impatient = async {
            let waiting = tokio::time::timeout(Duration::from_secs(1), run(&slow, "1"));
            assert!(waiting.await.is_err());
            let test = TestContext::new();
            test.cancel();
            let cancelled = slow.process(Raw("1".into()), test.context()).await.unwrap_err();
            assert_eq!(cancelled.message(), "cancelled while it waited for a layer");
            let other = tokio::time::timeout(minute, run(&echo, "3"));
            assert_eq!(other.await.unwrap(), Ok(Raw("3".into())));
        };
        futures::join!(long, impatient);
    }

    /// A layer that gives the errors beneath it a context kept their kind from being seen.
    #[tokio::test]
    async fn an_error_that_a_layer_has_wrapped_is_still_the_processors() {
        #[derive(Debug, thiserror::Error)]
        #[error("with a context")]
        struct Wrapped(#[source] AttemptError);

        let picky = processor_fn(async |_: u64, _: TaskContext| -> Result<u64, TaskError> {
            Err(TaskError::fatal("nothing to do"))
        });
        let picky = picky.with(from_layer(ServiceBuilder::new().map_err(Wrapped)));
        assert_eq!(run(&picky, "0").await, Err(TaskError::fatal("nothing to do")));
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
