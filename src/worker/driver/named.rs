//! Whether the tasks exist that others wait for. The ledger says nothing of a task that nobody has
//! claimed; its message must be on the task topic then, for it was not acknowledged. So where the
//! ledger says nothing of a named task, and its message is not there either, no task has that id.

use super::lanes::LaneId;
use super::parked::is_new;
use super::parking::ParkedEvent;
use super::{Driver, Environment, Event};
use crate::transport::TopicPartition;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest pause between two looks.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Whether there is a message with the id of a task, once the broker has said.
type Look = Shared<BoxFuture<'static, bool>>;

/// The messages that are being looked for. However many tasks wait for one, its message is asked
/// for once at a time: while a worker is cut off it would be asked for without end.
#[derive(Debug, Default)]
pub(super) struct Looks {
    under_way: BTreeMap<(u16, TaskId), WeakShared<BoxFuture<'static, bool>>>,
    /// How many there may be before those that are over are taken out.
    tidy_at: usize,
}

impl Looks {
    fn share(
        &mut self,
        number: u16,
        named: TaskId,
        topic: TopicPartition,
        env: &mut Environment,
    ) -> Look {
        let under_way = self.under_way.get(&(number, named)).and_then(WeakShared::upgrade);
        if let Some(look) = under_way.filter(|look| look.peek().is_none()) {
            return look;
        }
        let read = env.fetch_at_last(topic, named.position());
        let look = read.map(|message| message.is_some()).boxed().shared();
        if let Some(weak) = look.downgrade() {
            self.under_way.insert((number, named), weak);
        }
        if self.under_way.len() > self.tidy_at {
            self.under_way
                .retain(|_, look| look.upgrade().is_some_and(|look| look.peek().is_none()));
            self.tidy_at = 2 * self.under_way.len();
        }
        look
    }
}

impl Driver {
    /// A task waits. Who holds its delivery, or has parked it, looks after a while whether those
    /// exist that nothing is known of; again and again, and ever less often, for a message may be
    /// deleted later.
    pub(super) fn look_for_named(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let machine = lane.core.machine();
        let is_to_look =
            machine.task(task).is_some_and(|known| known.held || machine.is_own(known.fold.owner));
        let Some(waiting) = self.parked.get_mut((id, task)).filter(|_| is_to_look) else { return };
        let Some(looked) = waiting.looked.take() else { return };
        // Most of them are claimed, or over, by then.
        let pause = (2 * self.config.heartbeat * (1 << looked.min(16))).min(LOOK_PAUSE_MAX);
        let (clock, until) = (self.env.clock, now + pause);
        self.pending.push(Box::pin(async move {
            clock.sleep_until(until).await;
            let event = ParkedEvent::Due { looked };
            Event::Parked { lane: id, id: task, event }
        }));
    }

    /// Asks the topic for the messages of named tasks that nothing is known of.
    pub(super) fn handle_named_due(&mut self, id: LaneId, task: TaskId, looked: u32, now: Moment) {
        let Some(waiting) =
            self.parked.get_mut((id, task)).filter(|waiting| waiting.looked.is_none())
        else {
            return;
        };
        let lanes = &self.lanes;
        let lane_of = |named: &TaskId| lanes.get(&LaneId::new(id.topic, named.partition));
        let held = |named: &TaskId| {
            let known = lane_of(named).and_then(|lane| lane.core.machine().task(*named));
            known.is_some_and(|known| known.held)
        };
        let unseen = |named: &TaskId| is_new(lanes, id.topic, *named) && !held(named);
        let named: Vec<(TaskId, TopicPartition)> = waiting
            .tasks()
            .filter(unseen)
            .filter_map(|named| Some((named, lane_of(&named)?.topics.task.clone())))
            .collect();
        if named.is_empty() {
            waiting.looked = Some(looked + 1);
            return self.look_for_named(id, task, now);
        }
        let looks: Vec<(TaskId, Look)> = named
            .into_iter()
            .map(|(named, topic)| (named, self.looks.share(id.topic, named, topic, &mut self.env)))
            .collect();
        let clock = self.env.clock;
        self.pending.push(Box::pin(async move {
            let mut gone = Vec::new();
            for (named, look) in looks {
                if !look.await {
                    gone.push(named);
                }
            }
            let event = ParkedEvent::Looked { looked, gone, at: clock.now() };
            Event::Parked { lane: id, id: task, event }
        }));
    }

    /// The topic was asked, and has no messages of these. Their ends may be on the ledger, and not
    /// have been read by then: that counts as soon as all was read that stood there.
    pub(super) fn handle_named_looked(
        &mut self,
        id: LaneId,
        task: TaskId,
        looked: u32,
        (gone, at): (Vec<TaskId>, Moment),
        now: Moment,
    ) {
        let Some(waiting) =
            self.parked.get_mut((id, task)).filter(|waiting| waiting.looked.is_none())
        else {
            return;
        };
        let read_to = |named: &TaskId| {
            let lane = self.lanes.get(&LaneId::new(id.topic, named.partition));
            lane.and_then(|lane| lane.core.view_at())
        };
        if gone.iter().any(|named| read_to(named) <= Some(at)) {
            let (clock, until) = (self.env.clock, now + self.config.heartbeat);
            self.pending.push(Box::pin(async move {
                clock.sleep_until(until).await;
                let event = ParkedEvent::Looked { looked, gone, at };
                Event::Parked { lane: id, id: task, event }
            }));
            return;
        }
        for named in &gone {
            tracing::warn!(%task, %named, "a task waits for one that does not exist");
        }
        waiting.unknown.extend(gone);
        waiting.looked = Some(looked + 1);
        self.tell_standing(id, task, now);
    }
}
