//! A worker that is drained from outside: somebody has left a word for it on the register of one of its queues, which it obeys as it does a request
//! of its own handle. When it has drained it takes the word away, for no other process goes by it.

use super::{Driver, StopRequest};
use crate::protocol::moment::Moment;
use crate::protocol::register::{DocumentKind, DocumentName, Entry, Key};
use crate::transport::OnReceipt;
use futures::future::join_all;

impl Driver {
    /// The name of the document that has this worker drain; `None` if it does not say who it is.
    fn word_name(&self) -> Option<DocumentName> {
        let instance = self.config.identity.instance.as_str();
        DocumentName::new(DocumentKind::Drain, instance).ok()
    }

    /// Drains, if a register says so. Once only: neither the word again, nor its end, changes a drain that has begun.
    pub(super) fn take_up_word(&mut self, register: usize, now: Moment) {
        let Some(name) = self.word_name() else { return };
        let Some(read) = self.registers.get(register) else { return };
        let Some(content) = read.fold.documents().get(&name) else { return };
        if self.told_to_drain.is_some() {
            return;
        }
        let limit = self.env.word.limit();
        tracing::info!(
            register = %read.topic(),
            word = %String::from_utf8_lossy(content),
            ?limit,
            "draining: somebody has asked for it from outside"
        );
        self.told_to_drain = Some(now + limit);
        self.env.word.hear();
    }

    /// What is asked of the worker by its handle and from outside: the earlier deadline counts.
    pub(super) fn asked(&self) -> StopRequest {
        match (*self.stop_request.borrow(), self.told_to_drain) {
            (StopRequest::None, Some(deadline)) => StopRequest::Drain(deadline),
            (StopRequest::Drain(one), Some(other)) => StopRequest::Drain(one.min(other)),
            (asked, _) => asked,
        }
    }

    /// Takes the words to this worker away: nobody goes by them any more. What gets lost here is removed when the next worker of the queue is drained.
    pub(super) fn take_words_away(&mut self) -> impl Future<Output = ()> + use<> {
        let name = self.word_name();
        let Self { registers, env, services, .. } = self;
        let mut receipts = Vec::new();
        for register in registers {
            let documents = register.fold.documents();
            for key in name.as_ref().map(|name| documents.entries(name)).unwrap_or_default() {
                let (on_receipt, receipt) = OnReceipt::awaited();
                let tombstone = Entry::Tombstone(Key::Document(key));
                register.publish(env, services, &tombstone, on_receipt);
                receipts.push(receipt);
            }
        }
        async move {
            join_all(receipts).await;
        }
    }
}
