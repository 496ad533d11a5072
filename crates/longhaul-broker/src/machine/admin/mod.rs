//! Calls of the admin interface.

mod namespaces;
mod noting;
mod subscriptions;
mod topics;

use super::Machine;
use super::effect::{Effect, Refusal, Waiting};
use crate::admin::request::{AdminError, AdminReply, AdminRequest, SubscriptionCall, TopicCall};
use crate::name::TopicName;
use longhaul_wire::messages::ServerError;

type Answer = Result<AdminReply, AdminError>;

impl Machine {
    /// A call of the admin interface. Its answer is an [`Effect::Reply`] with this ticket.
    pub(crate) fn call(&mut self, ticket: u64, request: AdminRequest) {
        let answer = match request {
            AdminRequest::Health => Ok(AdminReply::Done),
            AdminRequest::Metrics { viewer } => {
                Ok(AdminReply::Metrics(Box::new(self.metrics(viewer.as_ref()))))
            }
            AdminRequest::AllStats => Ok(AdminReply::AllStats(self.all_stats())),
            AdminRequest::Tenants => Ok(self.names(|it| !it.contains('/'))),
            AdminRequest::CreateTenant(name) => self.create_tenant(name),
            AdminRequest::DeleteTenant(name) => self.delete_tenant(&name),
            AdminRequest::Namespaces { tenant } => {
                let prefix = format!("{tenant}/");
                if self.state.has_namespace(&tenant) {
                    Ok(self.names(|it| it.starts_with(&prefix)))
                } else {
                    Err(AdminError::NotFound(format!("tenant {tenant} does not exist")))
                }
            }
            AdminRequest::Namespace { namespace, call } => self.namespace_call(&namespace, call),
            AdminRequest::Topic { topic, call: TopicCall::Message(position) } => {
                return self
                    .read_message(ticket, &topic, |machine, id| machine.ordinal_at(id, position));
            }
            AdminRequest::Topic { topic, call: TopicCall::Examine { from_last, nth } } => {
                return self.read_message(ticket, &topic, |machine, id| {
                    machine.nth_of(id, from_last, nth)
                });
            }
            AdminRequest::Topic { topic, call } => {
                self.parsed(&topic).and_then(|name| self.topic_call(&name, call))
            }
            AdminRequest::Subscription {
                topic,
                subscription,
                call: SubscriptionCall::Peek { nth },
            } => {
                return self.read_message(ticket, &topic, |machine, id| {
                    machine.nth_open_of(id, &subscription, nth)
                });
            }
            AdminRequest::Subscription { topic, subscription, call } => self
                .parsed(&topic)
                .and_then(|name| self.subscription_call(&name, &subscription, &call)),
        };
        self.after_commit(Waiting::Then(Effect::Reply(ticket, answer)));
    }

    fn parsed(&self, topic: &str) -> Result<TopicName, AdminError> {
        TopicName::parse(topic).map_err(|cause| AdminError::PreconditionFailed(cause.to_string()))
    }
}

fn done(result: Result<(), Refusal>) -> Answer {
    result.map(|()| AdminReply::Done).map_err(failed)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not expected here is a defect")]
fn failed(refusal: Refusal) -> AdminError {
    match refusal.code {
        ServerError::TopicNotFound => AdminError::NotFound(refusal.text),
        ServerError::PersistenceError => AdminError::Unavailable(refusal.text),
        ServerError::InvalidTopicName => AdminError::PreconditionFailed(refusal.text),
        ServerError::IncompatibleSchema => AdminError::Conflict(refusal.text),
        _ => AdminError::Internal(refusal.text),
    }
}

fn missing(name: &TopicName) -> AdminError {
    AdminError::NotFound(format!("Topic {name} not found"))
}
