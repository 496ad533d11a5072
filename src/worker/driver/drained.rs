//! Draining from outside the process: a drain request on the register of one of the worker's queues
//! acts like a request of its own handle. After draining, the worker removes the request, which
//! concerns no other process.

use super::{StopRequest, WorkerDriver};
use crate::transport::OnReceipt;
use futures::future::join_all;
use longhaul_core::protocol::register::{DocumentKind, DocumentName, RegisterEntry, RegisterKey};

impl WorkerDriver {
    /// The name of the document that requests a drain of this worker; `None` if the worker has no
    /// instance name.
    fn request_name(&self) -> Option<DocumentName> {
        let instance = self.config.identity.instance.as_str();
        DocumentName::new(DocumentKind::Drain, instance).ok()
    }

    /// Begins a drain if a register has a request for it. A second request, or the removal of the
    /// first, does not change a drain that has begun.
    pub(super) fn take_up_drain_request(&mut self, queue: usize) {
        let Some(name) = self.request_name() else { return };
        let Some(read) = self.queues.get(queue) else { return };
        let Some(content) = read.core.register().documents().get(&name) else { return };
        if self.told_to_drain.is_some() {
            return;
        }
        let limit = self.env.drain_request.limit();
        tracing::info!(
            register = %read.register(),
            request = %String::from_utf8_lossy(content),
            ?limit,
            "draining: an operator requested it"
        );
        self.told_to_drain = Some(self.env.clock.now() + limit);
        self.env.drain_request.arrive();
    }

    /// The stop request from the handle or from outside; of two deadlines the earlier one counts.
    pub(super) fn asked(&self) -> StopRequest {
        match (*self.stop_request.borrow(), self.told_to_drain) {
            (StopRequest::None, Some(deadline)) => StopRequest::Drain(deadline),
            (StopRequest::Drain(one), Some(other)) => StopRequest::Drain(one.min(other)),
            (asked, _) => asked,
        }
    }

    /// Removes the drain requests for this worker; no other process obeys them. A removal that is
    /// lost is done when the next worker of the queue is drained.
    pub(super) fn remove_drain_requests(&mut self) -> impl Future<Output = ()> + use<> {
        let name = self.request_name();
        let Self { queues, env, .. } = self;
        let mut receipts = Vec::new();
        for queue in queues {
            let documents = queue.core.register().documents();
            for key in name.as_ref().map(|name| documents.entries(name)).unwrap_or_default() {
                let (on_receipt, receipt) = OnReceipt::awaited();
                let tombstone = RegisterEntry::Tombstone(RegisterKey::Document(key));
                queue.publish(env, &tombstone, on_receipt);
                receipts.push(receipt);
            }
        }
        async move {
            join_all(receipts).await;
        }
    }
}
