//! Attempts of tasks whose payloads a codec has encoded. For other tasks this costs one check of
//! their properties.

use super::erased::ErasedProcessor;
use super::processor::{Coding, TaskContext};
use super::task_error::TaskError;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use longhaul_core::task::{Codec, Codecs, PayloadError, decode, encode};
use std::sync::Arc;

/// A processor behind the codecs of its worker.
pub(super) struct Coded {
    pub(super) processor: Arc<dyn ErasedProcessor>,
    pub(super) codecs: Codecs,
}

impl ErasedProcessor for Coded {
    fn run(
        self: Arc<Self>,
        payload: Bytes,
        context: TaskContext,
    ) -> BoxFuture<'static, Result<Bytes, TaskError>> {
        let processor = Arc::clone(&self.processor);
        if context.codec().is_none() {
            return processor.run(payload, context);
        }
        async move {
            let (codec, plain, context) =
                self.decode(&payload, context).map_err(|cause| TaskError::unreadable(&cause))?;
            drop(payload);
            let result = processor.run(plain, context).await?;
            encode(&*codec, &result).map_err(|cause| TaskError::not_encoded(&cause))
        }
        .boxed()
    }
}

impl Coded {
    /// Decodes the input of the processor.
    fn decode(
        &self,
        payload: &[u8],
        context: TaskContext,
    ) -> Result<(Arc<dyn Codec>, Bytes, TaskContext), PayloadError> {
        let name = context.codec().unwrap_or_default();
        let codec = Arc::clone(self.codecs.get(name)?);
        let plain = decode(&*codec, payload)?;
        let checkpoint = context.last_checkpoint().map(|bytes| decode(&*codec, bytes));
        let coding = Coding { codec: Arc::clone(&codec), last_checkpoint: checkpoint.transpose()? };
        Ok((codec, plain, context.coded(coding)))
    }
}
