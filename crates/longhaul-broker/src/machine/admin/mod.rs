//! The machine's side of the admin interface: a method for each call.
//!
//! The methods take valid names and report whether the named object exists. Their results may be
//! sent when they are on disk; [`BrokerMachine::call`] takes care of that. Results of reads are sent
//! at once: [`BrokerMachine::read`].

mod messages;
mod namespaces;
mod schemas;
mod settings;
mod subscriptions;
mod topics;

use super::BrokerMachine;
use super::effect::{MachineEffect, PendingCommit, RequestRefusal};
use crate::admin::values::AdminCallError;
use crate::name::TopicName;
use longhaul_wire::messages::ServerError;

/// Result of a call without an answer.
type AdminResult = Result<(), AdminCallError>;

impl BrokerMachine {
    /// Executes a call of the admin interface. Its result may be sent when an
    /// [`MachineEffect::Reply`] with this ticket comes: everything recorded so far is then on disk.
    pub(crate) fn call<T>(&mut self, ticket: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        let result = work(self);
        self.after_commit(PendingCommit::Then(Box::new(MachineEffect::Reply(ticket))));
        result
    }

    /// Executes a call that only reads. Its result may be sent at once, also while the disk is full
    /// or hangs: an operator must see that. It may show a change that is not on disk yet. If the
    /// call has recorded something after all, it waits like any other.
    pub(crate) fn read<T>(&mut self, ticket: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.composer.end();
        let result = work(self);
        let reply = MachineEffect::Reply(ticket);
        if self.composer.end() == before {
            self.effects.push(reply);
        } else {
            self.after_commit(PendingCommit::Then(Box::new(reply)));
        }
        result
    }
}

impl From<RequestRefusal> for AdminCallError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not expected here is a defect")]
    fn from(refusal: RequestRefusal) -> Self {
        match refusal.code {
            ServerError::TopicNotFound => Self::NotFound(refusal.text),
            ServerError::PersistenceError => Self::Unavailable(refusal.text),
            ServerError::NotAllowedError => Self::PreconditionFailed(refusal.text),
            ServerError::IncompatibleSchema => Self::Conflict(refusal.text),
            _ => Self::Internal(refusal.text),
        }
    }
}

fn missing(name: &TopicName) -> AdminCallError {
    AdminCallError::NotFound(format!("Topic {name} not found"))
}
