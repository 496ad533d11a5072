//! What the admin interface has the machine do: a method for each call.
//!
//! They take names that are valid and say whether there is what these name. What they give back is
//! told when it is on disk, which is what [`BrokerMachine::call`] is for.

mod messages;
mod namespaces;
mod notes;
mod schemas;
mod subscriptions;
mod topics;

use super::BrokerMachine;
use super::effect::{MachineEffect, PendingCommit, RequestRefusal};
use crate::admin::values::AdminCallError;
use crate::name::TopicName;
use longhaul_wire::messages::ServerError;

/// What becomes of a call that has no result.
type AdminResult = Result<(), AdminCallError>;

impl BrokerMachine {
    /// Does a call of the admin interface. Its result may be told when an [`MachineEffect::Reply`] with
    /// this ticket comes: everything that was recorded so far is on disk then.
    pub(crate) fn call<T>(&mut self, ticket: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        let result = work(self);
        self.after_commit(PendingCommit::Then(Box::new(MachineEffect::Reply(ticket))));
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
