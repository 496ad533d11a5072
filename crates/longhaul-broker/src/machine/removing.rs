//! Terminating and deleting topics.

use super::BrokerMachine;
use super::effect::{MachineEffect, PendingCommit, RequestRefusal};
use crate::state::change::{DeleteTopic, Terminate};

impl BrokerMachine {
    /// Deletes a topic with everything that belongs to it.
    pub(super) fn delete_topic(&mut self, topic: u32) -> Result<(), RequestRefusal> {
        // The deletion of a namespace reaches the partitions of its topics twice.
        let Some(kept) = self.state.topic(topic) else { return Ok(()) };
        let file = kept.compacted.as_ref().map(|view| view.file.clone());
        let name = kept.name.clone();
        self.close_all(topic);
        self.change(DeleteTopic { topic })?;
        self.watchers.note(&name);
        if name.partition().is_none() {
            self.delete_schemas(&name)?;
        }
        self.refresh_neighbours(&name.whole());
        self.live.remove(&topic);
        self.recent.forget(topic);
        if let Some(file) = file {
            self.compacted.remove(&file);
            self.after_commit(PendingCommit::Then(Box::new(MachineEffect::RemoveCompacted(file))));
        }
        Ok(())
    }

    /// Closes all producers and consumers of a topic.
    pub(super) fn close_all(&mut self, topic: u32) {
        self.close_producers(topic);
        let Some(live) = self.invariants.served(self.live.get(&topic)) else { return };
        let subscriptions: Vec<u32> = live.dispatchers.keys().copied().collect();
        subscriptions
            .into_iter()
            .for_each(|subscription| self.close_consumers(topic, subscription));
    }

    /// Terminates a topic for ever, after everything published so far.
    pub(super) fn terminate(&mut self, topic: u32) -> Result<(), RequestRefusal> {
        let Some(kept) = self.invariants.kept(self.state.topic(topic)) else { return Ok(()) };
        if kept.is_terminated {
            return Ok(());
        }
        self.change(Terminate { topic })?;
        // Their clients open producers again, and are told that the topic has ended.
        self.close_producers(topic);
        self.tell_ends(topic);
        Ok(())
    }
}
