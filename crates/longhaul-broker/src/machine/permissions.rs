//! Permissions of roles: checked when something is opened, and again while it is open.

use super::BrokerMachine;
use crate::auth::AuthRole;
use crate::name::TopicName;
use crate::policies::{AuthAction, Grants};
use std::collections::BTreeSet;

impl BrokerMachine {
    /// Whether the role may do this with the topic.
    pub(super) fn allows(&self, role: &AuthRole, topic: &TopicName, action: AuthAction) -> bool {
        self.auth.as_ref().is_none_or(|auth| auth.allows(role, self.grants_of(topic), action))
            || self.administers(&role.name, topic.tenant())
    }

    /// Whether the role administers the tenant. As in Pulsar, such roles may do everything with its
    /// topics too.
    pub(crate) fn administers(&self, role: &str, tenant: &str) -> bool {
        let tenant = self.state.settings(tenant).and_then(|settings| settings.tenant.as_ref());
        tenant.is_some_and(|tenant| tenant.admin_roles.contains(role))
    }

    /// Grants of the topic's namespace, and of the topic alone.
    pub(super) fn grants_of(&self, topic: &TopicName) -> [Option<&Grants>; 2] {
        let whole = topic.whole();
        [topic.namespace(), whole.as_str()]
            .map(|scope| self.state.settings(scope).map(|settings| &settings.grants))
    }

    /// Whether the role may produce or consume on the topic.
    pub(super) fn allows_any(&self, role: &AuthRole, topic: &TopicName) -> bool {
        self.auth.as_ref().is_none_or(|auth| auth.allows_any(role, self.grants_of(topic)))
            || self.administers(&role.name, topic.tenant())
    }

    /// Whether the role may produce or consume in the namespace, or on one of its topics.
    pub(super) fn allows_some(&self, role: &AuthRole, namespace: &str) -> bool {
        let Some(auth) = &self.auth else { return true };
        let whole = self.state.settings(namespace).map(|settings| &settings.grants);
        let start = TopicName::start_in(namespace);
        let mut topics =
            self.state.settings_of_topics(&start).map(|settings| Some(&settings.grants));
        self.administers(&role.name, namespace.split('/').next().unwrap_or_default())
            || auth.allows_any(role, [whole, None])
            || topics.any(|topic| auth.allows_any(role, [whole, topic]))
    }

    /// The namespaces that have topics and never had a grant.
    #[must_use]
    pub fn namespaces_without_grants(&self) -> BTreeSet<&str> {
        let used = self.state.topics().map(|(_, topic)| topic.name.namespace());
        let has_grants = |namespace: &str| {
            self.state.settings(namespace).is_some_and(|settings| settings.grants.is_closed())
        };
        used.filter(|namespace| !has_grants(namespace)).collect()
    }
}
