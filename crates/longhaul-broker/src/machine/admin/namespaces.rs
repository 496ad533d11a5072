//! Tenants and namespaces.

use super::super::Machine;
use super::{Answer, done, failed};
use crate::admin::policies::Policy;
use crate::admin::request::{AdminError, AdminReply, NamespaceCall};
use crate::name::TopicName;
use crate::state::change::{CreateNamespace, DeleteNamespace};

impl Machine {
    pub(in crate::machine) fn names(&self, is_wanted: impl Fn(&str) -> bool) -> AdminReply {
        AdminReply::Names(
            self.state.namespaces().filter(|it| is_wanted(it)).map(str::to_owned).collect(),
        )
    }

    pub(in crate::machine) fn create_tenant(&mut self, name: String) -> Answer {
        if self.state.has_namespace(&name) {
            return Err(AdminError::Conflict(format!("tenant {name} exists")));
        }
        done(self.change(CreateNamespace { name }))
    }

    pub(in crate::machine) fn delete_tenant(&mut self, name: &str) -> Answer {
        if !self.state.has_namespace(name) {
            return Err(AdminError::NotFound(format!("tenant {name} does not exist")));
        }
        let prefix = format!("{name}/");
        if self.state.namespaces().any(|it| it.starts_with(&prefix)) {
            return Err(AdminError::Conflict(format!(
                "tenant {name} has namespaces: delete them first"
            )));
        }
        done(self.change(DeleteNamespace { name: name.to_owned() }))
    }

    pub(in crate::machine) fn namespace_call(
        &mut self,
        namespace: &str,
        call: NamespaceCall,
    ) -> Answer {
        if let NamespaceCall::Create { policies } = call {
            return self.create_namespace(namespace, policies);
        }
        if !self.state.has_namespace(namespace) {
            return Err(AdminError::NotFound(format!("namespace {namespace} does not exist")));
        }
        match call {
            NamespaceCall::Create { .. } => Ok(AdminReply::Done),
            NamespaceCall::Delete { force } => self.delete_namespace(namespace, force),
            NamespaceCall::Topics => Ok(AdminReply::Names(self.topics_in(namespace))),
            NamespaceCall::PartitionedTopics => {
                let names = self.partitioned_in(namespace);
                Ok(AdminReply::Names(names.iter().map(ToString::to_string).collect()))
            }
            NamespaceCall::Unload => {
                self.ids_in(namespace).into_iter().for_each(|it| self.unload(it));
                Ok(AdminReply::Done)
            }
            NamespaceCall::Policies => {
                let policies = self.state.settings(namespace).map(|it| it.policies.clone());
                Ok(AdminReply::Policies(Box::new(policies.unwrap_or_default())))
            }
            NamespaceCall::SetPolicy(policy) => {
                done(self.set(namespace, |it| it.policies.apply(policy)))
            }
            NamespaceCall::Grants => Ok(AdminReply::Grants(
                self.state.settings(namespace).map(|it| it.grants.clone()).unwrap_or_default(),
            )),
            NamespaceCall::Grant { role, actions } => {
                let set = self.set(namespace, |it| it.grants.grant(&role, actions));
                self.end_unpermitted(namespace);
                done(set)
            }
            NamespaceCall::Revoke { role } => {
                let set = self.set(namespace, |it| it.grants.revoke(&role));
                self.end_unpermitted(namespace);
                done(set)
            }
        }
    }

    pub(in crate::machine) fn create_namespace(
        &mut self,
        namespace: &str,
        policies: Vec<Policy>,
    ) -> Answer {
        let tenant = namespace.split('/').next().unwrap_or_default();
        if !self.state.has_namespace(tenant) {
            return Err(AdminError::NotFound(format!("tenant {tenant} does not exist")));
        }
        if self.state.has_namespace(namespace) {
            return Err(AdminError::Conflict(format!("namespace {namespace} exists")));
        }
        self.change(CreateNamespace { name: namespace.to_owned() }).map_err(failed)?;
        done(
            self.set(namespace, |it| {
                policies.into_iter().for_each(|policy| it.policies.apply(policy))
            }),
        )
    }

    pub(in crate::machine) fn delete_namespace(&mut self, namespace: &str, force: bool) -> Answer {
        let topics = self.ids_in(namespace);
        let partitioned = self.partitioned_in(namespace);
        let is_empty = topics.is_empty() && partitioned.is_empty();
        if !force && !is_empty {
            return Err(AdminError::Conflict(format!(
                "namespace {namespace} has topics: delete them first, or force it"
            )));
        }
        for name in partitioned {
            self.delete_partitioned(&name, force)?;
        }
        // Partitions are gone by now.
        for topic in topics {
            self.delete_topic(topic).map_err(failed)?;
        }
        done(self.change(DeleteNamespace { name: namespace.to_owned() }))
    }

    /// Topics without partitions, and partitions.
    fn ids_in(&self, namespace: &str) -> Vec<u32> {
        let topics = self.state.topics().filter(|(_, it)| it.name.namespace() == namespace);
        topics.map(|(id, _)| id).collect()
    }

    fn partitioned_in(&self, namespace: &str) -> Vec<TopicName> {
        let names = self.state.partitioned().filter_map(|(name, _)| TopicName::parse(name).ok());
        names.filter(|it| it.namespace() == namespace).collect()
    }
}
