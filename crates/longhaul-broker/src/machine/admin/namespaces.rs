//! Tenants and namespaces. A namespace is named `tenant/namespace`; unless stated otherwise, a
//! missing one gives [`AdminCallError::NotFound`].

use super::super::BrokerMachine;
use super::AdminResult;
use crate::admin::values::AdminCallError;
use crate::name::TopicName;
use crate::policies::{Grants, Policies, PolicyChange, Tenant};
use crate::state::ResourceSettings;
use crate::state::change::{CreateNamespace, DeleteNamespace};

impl BrokerMachine {
    /// All tenants, in order.
    pub(crate) fn tenants(&self) -> Vec<String> {
        self.state.namespaces().filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }

    /// Creates a tenant. [`AdminCallError::Conflict`] if it exists.
    pub(crate) fn create_tenant(&mut self, name: &str) -> AdminResult {
        if self.state.has_namespace(name) {
            return Err(AdminCallError::Conflict(format!("tenant {name} exists")));
        }
        Ok(self.change(CreateNamespace { name: name.to_owned() })?)
    }

    /// The settings of a tenant; [`AdminCallError::NotFound`] if it does not exist.
    pub(crate) fn tenant(&self, name: &str) -> Result<Tenant, AdminCallError> {
        if !self.state.has_namespace(name) {
            return Err(AdminCallError::NotFound("Tenant does not exist".to_owned()));
        }
        let known = self.state.settings(name).and_then(|known| known.tenant.clone());
        Ok(known.unwrap_or_default())
    }

    /// Changes the settings of a tenant. Producers and consumers that are no longer permitted end.
    pub(crate) fn set_tenant(&mut self, name: &str, tenant: Tenant) -> AdminResult {
        if self.tenant(name)? == tenant {
            return Ok(());
        }
        self.set(name, |known| known.tenant = Some(tenant))?;
        for namespace in self.namespaces_of(name)? {
            self.end_unpermitted(&namespace);
        }
        Ok(())
    }

    /// Deletes a tenant. [`AdminCallError::Conflict`] while it has namespaces.
    pub(crate) fn delete_tenant(&mut self, name: &str) -> AdminResult {
        if !self.namespaces_of(name)?.is_empty() {
            let text = format!("tenant {name} has namespaces: delete them first");
            return Err(AdminCallError::Conflict(text));
        }
        Ok(self.change(DeleteNamespace { name: name.to_owned() })?)
    }

    /// The namespaces of a tenant, in order.
    pub(crate) fn namespaces_of(&self, tenant: &str) -> Result<Vec<String>, AdminCallError> {
        if !self.state.has_namespace(tenant) {
            return Err(AdminCallError::NotFound(format!("tenant {tenant} does not exist")));
        }
        let prefix = format!("{tenant}/");
        let names = self.state.namespaces().filter(|name| name.starts_with(&prefix));
        Ok(names.map(str::to_owned).collect())
    }

    /// Creates a namespace with these policies, usually none. [`AdminCallError::Conflict`] if it
    /// exists, [`AdminCallError::NotFound`] if its tenant does not.
    pub(crate) fn create_namespace(
        &mut self,
        namespace: &str,
        policies: Vec<PolicyChange>,
    ) -> AdminResult {
        let tenant = namespace.split('/').next().unwrap_or_default();
        if !self.state.has_namespace(tenant) {
            return Err(AdminCallError::NotFound(format!("tenant {tenant} does not exist")));
        }
        if self.state.has_namespace(namespace) {
            return Err(AdminCallError::Conflict(format!("namespace {namespace} exists")));
        }
        self.change(CreateNamespace { name: namespace.to_owned() })?;
        let set = |known: &mut ResourceSettings| {
            policies.into_iter().for_each(|change| change(&mut known.policies));
        };
        Ok(self.set(namespace, set)?)
    }

    /// Deletes a namespace. [`AdminCallError::Conflict`] while it has topics, unless `force` is
    /// set.
    pub(crate) fn delete_namespace(&mut self, namespace: &str, force: bool) -> AdminResult {
        self.check_exists(namespace)?;
        let topics = self.ids_in(namespace);
        let partitioned = self.partitioned_in(namespace);
        let is_empty = topics.is_empty() && partitioned.is_empty();
        if !force && !is_empty {
            return Err(AdminCallError::Conflict(format!(
                "namespace {namespace} has topics: delete them first, or force it"
            )));
        }
        for name in partitioned {
            self.remove_partitioned(&name, force)?;
        }
        // The partitions are already deleted.
        for topic in topics {
            self.delete_topic(topic)?;
        }
        Ok(self.change(DeleteNamespace { name: namespace.to_owned() })?)
    }

    /// Full names of unpartitioned topics and of partitions, in order.
    pub(crate) fn topics_of(&self, namespace: &str) -> Result<Vec<String>, AdminCallError> {
        self.check_exists(namespace)?;
        Ok(self.topics_in(namespace))
    }

    /// Full names of partitioned topics, in order.
    pub(crate) fn partitioned_topics_of(
        &self,
        namespace: &str,
    ) -> Result<Vec<String>, AdminCallError> {
        self.check_exists(namespace)?;
        Ok(self.partitioned_in(namespace).iter().map(ToString::to_string).collect())
    }

    /// All settings of a namespace.
    pub(crate) fn namespace_settings(
        &self,
        namespace: &str,
    ) -> Result<ResourceSettings, AdminCallError> {
        self.check_exists(namespace)?;
        Ok(self.state.settings(namespace).cloned().unwrap_or_default())
    }

    /// Sets or unsets policies.
    pub(crate) fn set_namespace_policy(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Policies),
    ) -> AdminResult {
        self.check_exists(namespace)?;
        Ok(self.set(namespace, |known| change(&mut known.policies))?)
    }

    /// Changes the grants of a namespace. From the first grant on, even after it was revoked, only
    /// roles with a grant may use the namespace.
    pub(crate) fn set_namespace_grants(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Grants),
    ) -> AdminResult {
        self.check_exists(namespace)?;
        let set = self.set(namespace, |known| change(&mut known.grants));
        self.end_unpermitted(namespace);
        Ok(set?)
    }

    fn check_exists(&self, namespace: &str) -> AdminResult {
        if self.state.has_namespace(namespace) {
            return Ok(());
        }
        Err(AdminCallError::NotFound(format!("namespace {namespace} does not exist")))
    }

    /// Ids of unpartitioned topics and of partitions.
    fn ids_in(&self, namespace: &str) -> Vec<u32> {
        let topics = self.state.topics().filter(|(_, topic)| topic.name.namespace() == namespace);
        topics.map(|(id, _)| id).collect()
    }

    fn partitioned_in(&self, namespace: &str) -> Vec<TopicName> {
        let names = self.state.partitioned().filter_map(|(name, _)| TopicName::parse(name).ok());
        names.filter(|name| name.namespace() == namespace).collect()
    }
}
