//! Processors whose types are erased: encoded bytes in, encoded bytes out.

use super::processor::{TaskContext, TaskProcessor};
use super::task_error::TaskError;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use longhaul_core::task::{FromPayload, ToPayload};
use std::sync::Arc;

/// A processor whose types are erased.
pub(crate) trait ErasedProcessor: Send + Sync + 'static {
    /// Runs one attempt on encoded bytes.
    fn run(
        self: Arc<Self>,
        payload: Bytes,
        context: TaskContext,
    ) -> BoxFuture<'static, Result<Bytes, TaskError>>;
}

impl<P: TaskProcessor> ErasedProcessor for P {
    fn run(
        self: Arc<Self>,
        payload: Bytes,
        context: TaskContext,
    ) -> BoxFuture<'static, Result<Bytes, TaskError>> {
        async move {
            let decoded = P::Task::from_payload(&payload);
            let task = decoded.map_err(|cause| TaskError::unreadable(&cause))?;
            drop(payload);
            let output = self.process(task, context).await?;
            output.to_payload().map_err(|cause| TaskError::not_encoded(&cause))
        }
        .boxed()
    }
}
