//! Performs the effects of the queues and reports their results to the queues.

use super::lanes::LaneId;
use super::queue::OwnQueue;
use super::{PublishResult, WorkerDriver, WorkerEvent};
use crate::transport::OnReceipt;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, Entry};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::QueueTask;
#[cfg(feature = "schedules")]
use longhaul_core::queue::ScheduledSubmission;
use longhaul_core::queue::{Intent, QueueEffect, Remark};
use longhaul_core::task::Failure;
use longhaul_core::task::TaskId;

/// Result of an effect of a queue.
pub(in crate::worker) enum QueueEvent {
    /// An entry of the register may not be stored.
    NotStored(Intent),
    /// The message of the first task, which the second one overwrites, was read or is gone; with
    /// the number of tasks in its entry.
    OverwrittenRead { tasks: (QueueTask, QueueTask), batch_size: Option<u32> },
    /// At this time the topic has no messages of the `gone` tasks, for which this task waits.
    Looked { task: QueueTask, gone: Vec<TaskId>, at: Moment },
    /// The id of a schedule's task, if the task is stored.
    #[cfg(feature = "schedules")]
    Fired { firing: Box<ScheduledSubmission>, task: Option<TaskId> },
    /// Whether the cancel request for a task that blocks a schedule is stored.
    #[cfg(feature = "schedules")]
    Cancelled { schedule: Box<str>, task: QueueTask, stored: bool },
}

impl WorkerDriver {
    pub(super) fn handle_queue(&mut self, number: usize, event: QueueEvent) {
        self.on_queue(number, |queue, context| match event {
            QueueEvent::NotStored(intent) => queue.handle_not_stored(intent, context.now),
            QueueEvent::OverwrittenRead { tasks, batch_size } => {
                queue.handle_overwritten_read(tasks, batch_size, context);
            }
            QueueEvent::Looked { task, gone, at } => queue.handle_looked(task, gone, at, context),
            #[cfg(feature = "schedules")]
            QueueEvent::Fired { firing, task } => queue.handle_fired(&firing, task, context.now),
            #[cfg(feature = "schedules")]
            QueueEvent::Cancelled { schedule, task, stored } => {
                queue.handle_cancelled(&schedule, task, stored, context);
            }
        });
    }

    pub(super) fn perform_of_queue(&mut self, number: usize, effect: QueueEffect) {
        match effect {
            QueueEffect::Publish(entry, intent) => {
                let on_receipt = self.not_stored(number, intent);
                if let Some(queue) = self.queues.get_mut(number) {
                    queue.publish(&mut self.env, &entry, on_receipt);
                }
            }
            QueueEffect::Close(task, claim, why) => self.close(number, task, claim, &why),
            #[cfg(feature = "schedules")]
            QueueEffect::Cancel(task, schedule) => self.cancel_for(number, task, schedule),
            #[cfg(feature = "schedules")]
            QueueEffect::Fire(firing) => self.fire(number, *firing),
            QueueEffect::ReadOverwritten(task, by) => self.read_overwritten(number, task, by),
            QueueEffect::LookFor { task, named } => self.look_for(number, task, named),
            QueueEffect::Show(task, kind) => {
                if let Some(lane) = self.lane_of_queue_task(number, task) {
                    self.show_end_unless_shown(lane, task.id, kind);
                }
            }
            QueueEffect::SettingsChanged => self.apply_settings_of_queue(number),
            QueueEffect::DrainRequested => {
                self.take_up_drain_request(number);
                self.refuse_drained();
            }
            QueueEffect::Read => self.take_tasks_of_queue(number),
            QueueEffect::Log(remark) => {
                if let Some(queue) = self.queues.get(number) {
                    queue.log(&remark);
                }
            }
        }
    }

    pub(super) fn lane_of_queue_task(&self, number: usize, task: QueueTask) -> Option<LaneId> {
        self.queues.get(number)?.lane_of(task)
    }

    /// Reports to the queue if the entry may not be stored.
    fn not_stored(&self, queue: usize, intent: Option<Intent>) -> OnReceipt {
        let Some(intent) = intent else { return OnReceipt::ignored() };
        let answers = self.env.answers.clone();
        OnReceipt::new(move |published| {
            if PublishResult::from(published) != PublishResult::Stored {
                answers.put(WorkerEvent::Queue { queue, event: QueueEvent::NotStored(intent) });
            }
        })
    }

    fn close(&mut self, number: usize, task: QueueTask, claim: Claim, why: &Failure) {
        let expires = Some(self.env.clock.now() + self.config.heartbeat);
        let Some(id) = self.lane_of_queue_task(number, task) else { return };
        let Some(lane) = self.lanes.get(&id) else { return };
        let on_receipt =
            lane.tell_with_pause(move |fate| WorkerEvent::Published { lane: id, fate });
        lane.publish_message(ledger::failure(&Entry::Claim(claim), why), expires, on_receipt);
    }

    fn read_overwritten(&mut self, queue: usize, task: QueueTask, by: QueueTask) {
        let lane = self.lane_of_queue_task(queue, task).and_then(|id| self.lanes.get(&id));
        let Some(topic) = lane.map(|lane| lane.topics.task.clone()) else { return };
        self.read_at_last(topic, task.id.position(), move |message| {
            let batch_size = message.and_then(|message| message.batch_size);
            let event = QueueEvent::OverwrittenRead { tasks: (task, by), batch_size };
            WorkerEvent::Queue { queue, event }
        });
    }

    #[cfg(feature = "schedules")]
    fn cancel_for(&mut self, queue: usize, task: QueueTask, schedule: Box<str>) {
        let lane = self.lane_of_queue_task(queue, task).and_then(|id| self.lanes.get(&id));
        let Some(lane) = lane else { return };
        let answers = self.env.answers.clone();
        let on_receipt = OnReceipt::new(move |published| {
            let stored = published.is_ok();
            let event = QueueEvent::Cancelled { schedule, task, stored };
            answers.put(WorkerEvent::Queue { queue, event });
        });
        lane.publish(&Entry::Cancel(task.id), b"", None, on_receipt);
    }

    #[cfg(feature = "schedules")]
    fn fire(&mut self, number: usize, firing: ScheduledSubmission) {
        use crate::telemetry;
        use crate::transport::{Batching, TopicSchema};
        use crate::worker::session::Publish;

        if self.asked() != super::StopRequest::None {
            // Another worker fires it.
            return;
        }
        let Self { queues, lanes, env, .. } = self;
        let Some(queue) = queues.get_mut(number) else { return };
        let at = TaskId { ledger: 0, entry: 0, partition: firing.partition, batch_index: None };
        let Some(id) = queue.lane_of(QueueTask { level: firing.level, id: at }) else { return };
        let Some(lane) = lanes.get(&id) else { return };
        tracing::debug!(schedule = %firing.schedule, slot = firing.slot.ms, "fires");
        let topic = &lane.topics.task;
        let mailbox = queue
            .firings
            .entry(id)
            .or_insert_with(|| env.publisher(topic, Batching::Off, TopicSchema::None));
        let (answers, topic) = (env.answers.clone(), lane.topics.task.clone());
        let message = firing.message.clone();
        let payload_bytes = message.payload.len();
        let on_receipt = OnReceipt::new(move |published| {
            let task = published.ok().map(|position| TaskId::new(position, topic.partition));
            if task.is_some() {
                telemetry::submitted(&topic.topic, payload_bytes);
            }
            let event = QueueEvent::Fired { firing: Box::new(firing), task };
            answers.put(WorkerEvent::Queue { queue: number, event });
        });
        mailbox.put(Publish { message, on_receipt, expires: None });
    }
}

impl OwnQueue {
    fn log(&self, remark: &Remark) {
        let register = self.register();
        match remark {
            Remark::AfterUnreadable(task, error) => {
                tracing::warn!(%task, %error, "AFTER cannot be read: the task fails");
            }
            Remark::ParkedUnreadable(task, error) => {
                tracing::error!(%task, %error, "a parked task cannot continue: it fails");
            }
            Remark::DependencyMissing(task, named) => {
                tracing::warn!(%task, %named, "a task waits for one that does not exist");
            }
            Remark::TicketAbandoned(ticket) => {
                let (task, owner, gate) = (&ticket.task, &ticket.owner, &ticket.gate);
                tracing::debug!(%task, %owner, %gate, "an abandoned ticket is given back");
            }
            Remark::SettingsUnreadable(version, error) => {
                tracing::error!(%register, %error, version, "the settings of the queue cannot be read: the previous ones apply");
            }
            Remark::Paused(paused) => {
                let what = if *paused { "paused" } else { "resumed" };
                tracing::info!(%register, "the queue is {what}");
            }
            Remark::ScheduleUnusable(schedule, error) => {
                tracing::error!(%schedule, %error, "a schedule cannot be used: it does not fire");
            }
        }
    }
}
