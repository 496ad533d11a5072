//! Grants and policies of topics.

use super::super::BrokerMachine;
use super::AdminResult;
use crate::admin::values::AdminCallError;
use crate::name::TopicName;
use crate::policies::{Grants, Policies, PolicyLevels};

impl BrokerMachine {
    /// The grants for a topic, from its namespace and from the topic itself. The topic need not
    /// exist, its namespace must.
    pub(crate) fn grants(&self, name: &TopicName) -> Result<Grants, AdminCallError> {
        self.check_namespace(name)?;
        let grants = self.grants_of(name).into_iter().flatten();
        Ok(grants.fold(Grants::default(), Grants::and))
    }

    /// The grants for all topics of the namespace; `None` if it has no settings.
    pub(crate) fn grants_in(&self, namespace: &str) -> Option<Grants> {
        self.state.settings(namespace).map(|known| known.grants.clone())
    }

    /// Changes the grants of the topic, which apply in addition to those of the namespace.
    /// [`AdminCallError::PreconditionFailed`] for a partition of a partitioned topic.
    pub(crate) fn set_grants(
        &mut self,
        name: &TopicName,
        change: impl FnOnce(&mut Grants),
    ) -> AdminResult {
        self.whole(name)?;
        let set = self.set(name.as_str(), |known| change(&mut known.grants));
        self.end_unpermitted(name.namespace());
        Ok(set?)
    }

    /// The policies of all levels. The topic may be partitioned;
    /// [`AdminCallError::PreconditionFailed`] for one of its partitions.
    pub(crate) fn policies(&self, name: &TopicName) -> Result<PolicyLevels, AdminCallError> {
        self.whole(name)?;
        Ok(self.policy_levels(name))
    }

    /// Sets or unsets policies of a topic, which may be partitioned; otherwise like
    /// [`policies`](Self::policies).
    pub(crate) fn set_policy(
        &mut self,
        name: &TopicName,
        change: impl FnOnce(&mut Policies),
    ) -> AdminResult {
        self.whole(name)?;
        Ok(self.set(name.as_str(), |known| change(&mut known.policies))?)
    }
}
