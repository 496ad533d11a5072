//! What is noted on a topic, who may use it alone, and its end.

use super::super::Machine;
use super::super::stats::before;
use super::{Answer, done, failed, missing};
use crate::admin::policies::Grants;
use crate::admin::request::{AdminError, AdminReply, Position, TopicCall};
use crate::name::TopicName;
use std::collections::BTreeMap;

impl Machine {
    #[expect(clippy::wildcard_enum_match_arm, reason = "whoever calls it has sorted them")]
    pub(in crate::machine) fn note_on_topic(
        &mut self,
        name: &TopicName,
        call: TopicCall,
    ) -> Answer {
        self.whole(name)?;
        match call {
            TopicCall::SetProperties(properties) => {
                done(self.set(name.as_str(), |it| it.properties.extend(properties)))
            }
            TopicCall::RemoveProperty(key) => {
                done(self.set(name.as_str(), |it| drop(it.properties.remove(&key))))
            }
            TopicCall::Grant { role, actions } => {
                self.set_grants(name, |it| it.grant(&role, actions))
            }
            TopicCall::Revoke { role } => self.set_grants(name, |it| it.revoke(&role)),
            _ => Err(missing(name)),
        }
    }

    fn set_grants(&mut self, name: &TopicName, set: impl FnOnce(&mut Grants)) -> Answer {
        let done = done(self.set(name.as_str(), |it| set(&mut it.grants)));
        self.end_unpermitted(name.namespace());
        done
    }

    pub(in crate::machine) fn terminate_one(&mut self, name: &TopicName) -> Answer {
        let id = self.one(name)?;
        self.end_of(id, name).map(AdminReply::MessageId)
    }

    pub(in crate::machine) fn terminate_partitions(&mut self, name: &TopicName) -> Answer {
        if self.state.partitions(name.as_str()).is_none() {
            return Err(AdminError::NotFound(format!("{name} is not a partitioned topic")));
        }
        let mut last = BTreeMap::new();
        for (partition, id) in (0..).zip(self.numbers_of(name)) {
            last.insert(partition, self.end_of(id, name)?);
        }
        Ok(AdminReply::MessageIds(last))
    }

    /// Terminates a topic. Its last entry may not be on disk yet: whoever answers with it waits for that.
    fn end_of(&mut self, topic: u32, name: &TopicName) -> Result<Position, AdminError> {
        self.terminate(topic).map_err(failed)?;
        let kept = self.state.topic(topic).ok_or_else(|| missing(name))?;
        Ok(before(kept, kept.entries.end()))
    }
}
