//! Tenants and namespaces. A namespace is named `tenant/namespace`; unless it says otherwise, one
//! that does not exist is [`AdminError::NotFound`].

use super::super::Machine;
use super::Done;
use crate::admin::policies::{Change, Grants, Policies};
use crate::admin::values::{AdminError, Properties, Tenant};
use crate::name::TopicName;
use crate::state::Settings;
use crate::state::change::{CreateNamespace, DeleteNamespace};

impl Machine {
    /// All tenants, in order.
    pub(crate) fn tenants(&self) -> Vec<String> {
        self.state.namespaces().filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }

    /// [`AdminError::Conflict`] when it exists.
    pub(crate) fn create_tenant(&mut self, name: &str) -> Done {
        if self.state.has_namespace(name) {
            return Err(AdminError::Conflict(format!("tenant {name} exists")));
        }
        Ok(self.change(CreateNamespace { name: name.to_owned() })?)
    }

    /// Who administers a tenant; [`AdminError::NotFound`] when it does not exist.
    pub(crate) fn tenant(&self, name: &str) -> Result<Tenant, AdminError> {
        if !self.state.has_namespace(name) {
            return Err(AdminError::NotFound("Tenant does not exist".to_owned()));
        }
        let known = self.state.settings(name).and_then(|known| known.tenant.clone());
        Ok(known.unwrap_or_default())
    }

    /// Changes that. What nobody may do any more ends.
    pub(crate) fn set_tenant(&mut self, name: &str, tenant: Tenant) -> Done {
        if self.tenant(name)? == tenant {
            return Ok(());
        }
        self.set(name, |known| known.tenant = Some(tenant))?;
        for namespace in self.namespaces_of(name)? {
            self.end_unpermitted(&namespace);
        }
        Ok(())
    }

    /// [`AdminError::Conflict`] while it has namespaces.
    pub(crate) fn delete_tenant(&mut self, name: &str) -> Done {
        if !self.namespaces_of(name)?.is_empty() {
            let text = format!("tenant {name} has namespaces: delete them first");
            return Err(AdminError::Conflict(text));
        }
        Ok(self.change(DeleteNamespace { name: name.to_owned() })?)
    }

    /// The namespaces of a tenant, in order.
    pub(crate) fn namespaces_of(&self, tenant: &str) -> Result<Vec<String>, AdminError> {
        if !self.state.has_namespace(tenant) {
            return Err(AdminError::NotFound(format!("tenant {tenant} does not exist")));
        }
        let prefix = format!("{tenant}/");
        let names = self.state.namespaces().filter(|name| name.starts_with(&prefix));
        Ok(names.map(str::to_owned).collect())
    }

    /// With these policies, mostly none. [`AdminError::Conflict`] when it exists,
    /// [`AdminError::NotFound`] when its tenant does not.
    pub(crate) fn create_namespace(&mut self, namespace: &str, policies: Vec<Change>) -> Done {
        let tenant = namespace.split('/').next().unwrap_or_default();
        if !self.state.has_namespace(tenant) {
            return Err(AdminError::NotFound(format!("tenant {tenant} does not exist")));
        }
        if self.state.has_namespace(namespace) {
            return Err(AdminError::Conflict(format!("namespace {namespace} exists")));
        }
        self.change(CreateNamespace { name: namespace.to_owned() })?;
        let set = |known: &mut Settings| {
            policies.into_iter().for_each(|change| change(&mut known.policies));
        };
        Ok(self.set(namespace, set)?)
    }

    /// [`AdminError::Conflict`] while it has topics, unless forced.
    pub(crate) fn delete_namespace(&mut self, namespace: &str, force: bool) -> Done {
        self.check_exists(namespace)?;
        let topics = self.ids_in(namespace);
        let partitioned = self.partitioned_in(namespace);
        let is_empty = topics.is_empty() && partitioned.is_empty();
        if !force && !is_empty {
            return Err(AdminError::Conflict(format!(
                "namespace {namespace} has topics: delete them first, or force it"
            )));
        }
        for name in partitioned {
            self.remove_partitioned(&name, force)?;
        }
        // Partitions are gone by now.
        for topic in topics {
            self.delete_topic(topic)?;
        }
        Ok(self.change(DeleteNamespace { name: namespace.to_owned() })?)
    }

    /// Full names of topics without partitions, and of partitions, in order.
    pub(crate) fn topics_of(&self, namespace: &str) -> Result<Vec<String>, AdminError> {
        self.check_exists(namespace)?;
        Ok(self.topics_in(namespace))
    }

    /// Full names of partitioned topics, in order.
    pub(crate) fn partitioned_topics_of(&self, namespace: &str) -> Result<Vec<String>, AdminError> {
        self.check_exists(namespace)?;
        Ok(self.partitioned_in(namespace).iter().map(ToString::to_string).collect())
    }

    /// Closes all producers and consumers of all its topics, and starts new ledgers.
    pub(crate) fn unload_namespace(&mut self, namespace: &str) -> Done {
        self.check_exists(namespace)?;
        self.ids_in(namespace).into_iter().for_each(|topic| self.unload(topic));
        Ok(())
    }

    /// Acknowledges everything on all its topics, for one subscription or for all.
    pub(crate) fn clear_backlog(&mut self, namespace: &str, subscription: Option<&str>) -> Done {
        self.check_exists(namespace)?;
        for topic in self.ids_in(namespace) {
            let readable = self.readable(topic);
            let only = subscription.map(|name| self.state.topic(topic)?.subscription_id(name));
            match only {
                Some(None) => {}
                Some(only @ Some(_)) => self.skip_to(topic, only, readable)?,
                None => self.skip_to(topic, None, readable)?,
            }
        }
        Ok(())
    }

    /// Deletes a subscription of all its topics; [`AdminError::PreconditionFailed`] while it has
    /// consumers.
    pub(crate) fn unsubscribe_all(&mut self, namespace: &str, subscription: &str) -> Done {
        self.check_exists(namespace)?;
        let of =
            |topic: u32| Some((topic, self.state.topic(topic)?.subscription_id(subscription)?));
        let known: Vec<(u32, u32)> = self.ids_in(namespace).into_iter().filter_map(of).collect();
        if known.iter().any(|&(topic, id)| self.dispatcher(topic, id).is_some()) {
            let text = "the subscription has consumers: end them first";
            return Err(AdminError::PreconditionFailed(text.to_owned()));
        }
        for (topic, id) in known {
            self.delete_subscription(topic, id)?;
        }
        Ok(())
    }

    /// What its operators note about it.
    pub(crate) fn namespace_properties(&self, namespace: &str) -> Result<Properties, AdminError> {
        Ok(self.namespace_settings(namespace)?.properties)
    }

    /// Changes that.
    pub(crate) fn set_namespace_properties(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Properties),
    ) -> Done {
        self.check_exists(namespace)?;
        Ok(self.set(namespace, |known| change(&mut known.properties))?)
    }

    /// All that is set on it.
    pub(crate) fn namespace_settings(&self, namespace: &str) -> Result<Settings, AdminError> {
        self.check_exists(namespace)?;
        Ok(self.state.settings(namespace).cloned().unwrap_or_default())
    }

    /// What is set on it.
    pub(crate) fn namespace_policies(&self, namespace: &str) -> Result<Policies, AdminError> {
        self.check_exists(namespace)?;
        Ok(self.state.settings(namespace).map(|known| known.policies.clone()).unwrap_or_default())
    }

    /// Sets or unsets policies.
    pub(crate) fn set_namespace_policy(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Policies),
    ) -> Done {
        self.check_exists(namespace)?;
        Ok(self.set(namespace, |known| change(&mut known.policies))?)
    }

    /// Who may use its topics.
    pub(crate) fn namespace_grants(&self, namespace: &str) -> Result<Grants, AdminError> {
        self.check_exists(namespace)?;
        Ok(self.state.settings(namespace).map(|known| known.grants.clone()).unwrap_or_default())
    }

    /// Changes who may. From the first grant on, also after it was revoked, only who was granted
    /// something may use the namespace.
    pub(crate) fn set_namespace_grants(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut Grants),
    ) -> Done {
        self.check_exists(namespace)?;
        let set = self.set(namespace, |known| change(&mut known.grants));
        self.end_unpermitted(namespace);
        Ok(set?)
    }

    fn check_exists(&self, namespace: &str) -> Done {
        if self.state.has_namespace(namespace) {
            return Ok(());
        }
        Err(AdminError::NotFound(format!("namespace {namespace} does not exist")))
    }

    /// Topics without partitions, and partitions.
    fn ids_in(&self, namespace: &str) -> Vec<u32> {
        let topics = self.state.topics().filter(|(_, topic)| topic.name.namespace() == namespace);
        topics.map(|(id, _)| id).collect()
    }

    fn partitioned_in(&self, namespace: &str) -> Vec<TopicName> {
        let names = self.state.partitioned().filter_map(|(name, _)| TopicName::parse(name).ok());
        names.filter(|name| name.namespace() == namespace).collect()
    }
}
