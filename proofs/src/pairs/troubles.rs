//! Acts of clients and operators, and troubles of the broker, while a queue works.

use super::notes::{Act, Done};
use super::world::{SECOND, SELF_FENCE, SUBSCRIPTION, TOPIC, World, register};
use longhaul::ops::QueueSettings;
use longhaul_memory::Loss;
use longhaul_transport::TopicPartition;
use std::time::Duration;

/// How long a history may show the effects of a trouble. A worker reopens a follower that received
/// nothing for one minute, and a consumer that holds something after ten minutes. The minute may
/// begin half a minute after the trouble, with the last message that still came.
const SILENT: Duration = Duration::from_secs(120);
const STALLED: Duration = Duration::from_secs(720);

impl World<'_> {
    pub(super) async fn cancel(&self) {
        let Some(task) = self
            .any(|done, number| !done.runs.iter().any(|run| run.number == number && run.returned))
        else {
            return;
        };
        while self.client().cancel(&task).await.is_err() {
            tokio::time::sleep(SECOND).await;
        }
        self.notes.act(task.id, Act::Cancel);
    }

    pub(super) async fn delete(&self) {
        let Some(task) = self.any(|done, number| !done.has_begun(number)) else { return };
        let fails = self.draw(0..2) == 0;
        let done = if fails {
            self.client().queue(&task.topic).force_fail(task.id, Some(0), "not wanted").await
        } else {
            self.client().queue(&task.topic).delete(task.id, "not wanted").await
        };
        match done {
            Ok(_) => self.notes.act(task.id, if fails { Act::Fail } else { Act::Delete }),
            Err(_) if self.is_troubled() => self.notes.unsure(task.id),
            // The task has begun meanwhile, or is over.
            Err(_) => {}
        }
    }

    pub(super) async fn release(&self) {
        let runs = |done: &Done, number| done.running().any(|run| run.number == number);
        let Some(task) = self.any(runs) else { return };
        let Ok(view) = self.client().queue(&task.topic).tasks().await else { return };
        let Ok(Some(info)) = view.get(task.id) else { return };
        match self
            .client()
            .queue(&task.topic)
            .force_release(task.id, Some(info.epoch), "stuck")
            .await
        {
            Ok(_) => self.notes.act(task.id, Act::Release),
            Err(_) if self.is_troubled() => self.notes.unsure(task.id),
            Err(_) => {}
        }
    }

    /// Whether a request to the broker may now take effect without an answer.
    fn is_troubled(&self) -> bool {
        let now = self.notes.now();
        self.notes.lock().is_troubled(&(now..now + SECOND))
    }

    pub(super) async fn pause_or_resume(&self) {
        if self.notes.is_paused() {
            self.resume().await;
        } else {
            self.set_paused(true).await;
            self.notes.pause();
        }
    }

    pub(super) async fn resume(&self) {
        if self.notes.is_paused() {
            // Tasks may begin from now on.
            self.notes.resume();
            self.set_paused(false).await;
        }
    }

    async fn set_paused(&self, paused: bool) {
        let queue = self.client().queue(TOPIC);
        loop {
            if let Ok(current) = queue.settings().await {
                let change = |settings: &mut QueueSettings| settings.paused = paused;
                if current.settings.paused == paused
                    || queue.update(current.version, change).await.is_ok()
                {
                    return;
                }
            }
            tokio::time::sleep(SECOND).await;
        }
    }

    /// A trouble of the broker. It is over before a worker counts as silent.
    pub(super) async fn trouble(&self) {
        let time = Duration::from_millis(self.draw(100..8_000));
        let losses = [Loss::Error, Loss::SilenceThenError(time), Loss::Replay(time)];
        let Some(loss) = self.rng.borrow_mut().choice(losses) else { return };
        let what = self.draw(0..6);
        let is_ledger = |at: &TopicPartition| at.topic.ends_with("-ledger");
        let (felt, stops_ledger) = match what {
            0 => {
                self.broker().restart(time, self.draw(0..2) == 0, loss);
                (SILENT, true)
            }
            1 => {
                self.broker().hang(time);
                (SILENT, true)
            }
            2 => {
                let at = self.any_topic();
                self.broker().unload(&at, loss);
                (SILENT, is_ledger(&at))
            }
            3 => {
                self.broker().stall_publishes(&self.any_topic(), time);
                (SILENT, false)
            }
            4 => {
                let at = self.any_topic();
                self.broker().stall_followers(&at);
                (SILENT, is_ledger(&at))
            }
            _ => {
                let task_topics = self.topics().flat_map(|it| self.partitions(&it));
                for at in task_topics.collect::<Vec<_>>() {
                    self.broker().stall_subscription(&at, SUBSCRIPTION);
                }
                (STALLED, false)
            }
        };
        self.notes.trouble(felt, stops_ledger);
        tokio::time::sleep(time + SECOND).await;
    }

    /// Nobody can read the ledgers of a topic until all workers that read them have fenced
    /// themselves.
    pub(super) async fn fence(&self) {
        let time = SELF_FENCE + Duration::from_millis(self.draw(1_000..10_000));
        let topics: Vec<String> = self.topics().collect();
        let Some(topic) = self.rng.borrow_mut().choice(&topics) else { return };
        for ledger in self.partitions(&format!("{topic}-ledger")) {
            self.broker().silence_followers(&ledger, time);
        }
        self.notes.trouble(SILENT, true);
        tokio::time::sleep(time + SECOND).await;
    }

    /// Compacts and trims topics at random, as a broker may at any time.
    pub(super) fn compact(&self) {
        for at in self.partitions_of(&["-ledger", "-metadata"]) {
            if self.draw(0..2) == 0 {
                self.broker().compact(&at);
                self.broker().trim(&at);
            }
        }
        self.notes.count("compacted");
    }

    /// A partition of any topic of the queue.
    fn any_topic(&self) -> TopicPartition {
        let mut all = self.partitions_of(&["", "-ledger", "-metadata"]);
        let number = self.rng.borrow_mut().usize(..all.len());
        all.swap_remove(number)
    }

    /// The register, and the partitions of the topics with these suffixes.
    fn partitions_of(&self, names: &[&str]) -> Vec<TopicPartition> {
        let mut all: Vec<TopicPartition> = Vec::new();
        for topic in self.topics() {
            for name in names {
                all.extend(self.partitions(&format!("{topic}{name}")));
            }
        }
        all.push(register());
        all
    }
}
