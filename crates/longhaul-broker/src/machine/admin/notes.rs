//! Properties, grants and policies of topics.

use super::super::BrokerMachine;
use super::AdminResult;
use crate::admin::values::AdminCallError;
use crate::name::TopicName;
use crate::policies::{Grants, Policies, PolicyLevels, ResourceProperties};

/// Maximum size of a topic's properties, names and values together. All of them are written as one
/// record with each change.
const PROPERTIES_BYTES_MAX: usize = 64 * 1024;

fn bytes_of(properties: &ResourceProperties) -> usize {
    properties.iter().map(|(name, value)| name.len() + value.len()).sum()
}

pub(super) fn check_properties(properties: &ResourceProperties) -> AdminResult {
    let bytes = bytes_of(properties);
    if bytes > PROPERTIES_BYTES_MAX {
        let text = format!(
            "the properties of a topic have at most {PROPERTIES_BYTES_MAX} bytes, these would have {bytes}"
        );
        return Err(AdminCallError::PreconditionFailed(text));
    }
    Ok(())
}

impl BrokerMachine {
    /// The properties of a topic, which may be partitioned.
    pub(crate) fn properties(
        &self,
        name: &TopicName,
    ) -> Result<ResourceProperties, AdminCallError> {
        self.all(name)?;
        Ok(self.noted_on(name))
    }

    pub(super) fn noted_on(&self, name: &TopicName) -> ResourceProperties {
        let settings = self.state.settings(name.as_str());
        settings.map(|known| known.properties.clone()).unwrap_or_default()
    }

    /// Changes the properties. [`AdminCallError::PreconditionFailed`] for a partition of a
    /// partitioned topic, and if they become too large.
    pub(crate) fn set_properties(
        &mut self,
        name: &TopicName,
        change: impl FnOnce(&mut ResourceProperties),
    ) -> AdminResult {
        self.whole(name)?;
        let (former, mut properties) = (self.noted_on(name), self.noted_on(name));
        change(&mut properties);
        if bytes_of(&properties) > bytes_of(&former) {
            check_properties(&properties)?;
        }
        Ok(self.set(name.as_str(), |known| known.properties = properties)?)
    }

    /// Stores the properties that the creator of a new topic gives.
    pub(super) fn record_new(
        &mut self,
        name: &TopicName,
        properties: ResourceProperties,
    ) -> AdminResult {
        if properties.is_empty() {
            return Ok(());
        }
        Ok(self.set(name.as_str(), |known| known.properties = properties)?)
    }

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
