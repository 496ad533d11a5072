//! The schedules of a queue: created, changed and read by the client. Workers fire them:
//! `crates/longhaul-core/src/queue/schedules.rs`.

mod writing;

use super::ActionError;
use super::registers::FollowedRegister;
use super::task_ref::TaskRef;
use super::{Queue, ReadError, partition};
use crate::topics::TopicNames;
use crate::transport::{Follow, Message, Start};
use bytes::Bytes;
use longhaul_core::protocol::register::{
    DocumentKind, DocumentName, KeyKind, KeyName, QueueTask, Register,
};
use longhaul_core::register;
use longhaul_core::schedule::firing::{FiringKey, FiringSlot};
use longhaul_core::schedule::{Schedule, TRIGGERS_MAX, check_name};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of next firings to list.
const NEXT_MAX: usize = 10;

/// The schedules of a queue: see [`Queue::schedules`].
#[derive(Clone, Debug)]
pub struct Schedules {
    queue: Queue,
}

/// A schedule and its state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The schedule's name.
    pub name: String,
    /// The number of changes. A change names the version that it is based on.
    pub version: u64,
    /// The schedule, with the firings by hand that are still to come.
    pub schedule: Schedule,
    /// The last settled slot.
    pub last: Option<Firing>,
    /// The next slots, up to ten, whether it is paused or not.
    pub next: Vec<SystemTime>,
}

/// A settled slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Firing {
    /// The slot.
    pub slot: SystemTime,
    /// The task of the slot; for a skipped slot, the task that was in its way.
    pub task: TaskRef,
}

impl Queue {
    /// Returns the schedules of the queue. Its workers fire them and need the feature `schedules`,
    /// too.
    ///
    /// ```no_run
    /// use longhaul::{Client, Schedule, Text};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::connect("pulsar://localhost:6650").await?;
    /// let report = client.submission("tasks", &Text("report".to_owned())).max_attempts(3);
    /// let nightly = Schedule::cron("30 2 * * *").time_zone("Europe/Berlin");
    /// client.queue("tasks").schedules().set("nightly", nightly, report).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedules(&self) -> Schedules {
        // Schedules need no view, and would keep it open.
        let mut queue = self.clone();
        queue.view = None;
        Schedules { queue }
    }
}

impl Schedules {
    /// Deletes a schedule. Tasks already submitted continue.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`ActionError`].
    pub async fn delete(&self, name: &str) -> Result<(), ActionError> {
        self.change(name, "delete", |_, _| Ok(Bytes::new())).await.map(drop)
    }

    /// Pauses a schedule: it fires only manually. Tasks already submitted continue.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`ActionError`].
    pub async fn pause(&self, name: &str) -> Result<u64, ActionError> {
        let pause = |schedule, _: &_| Ok(Schedule { paused: true, ..schedule }.content()?);
        self.change(name, "pause", pause).await
    }

    /// Resumes a paused schedule. Slots missed during the pause are not made up for.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`ActionError`].
    pub async fn resume(&self, name: &str) -> Result<u64, ActionError> {
        let now = self.queue.client.wall_ms();
        let resume = move |schedule: Schedule, _: &FollowedRegister| {
            let since = if schedule.paused { now } else { schedule.since };
            Ok(Schedule { paused: false, since, ..schedule }.content()?)
        };
        self.change(name, "resume", resume).await
    }

    /// Fires a schedule now, paused or not. Its overlap policy applies: under
    /// [`Overlap::Skip`](crate::Overlap::Skip) nothing is submitted while a task of the schedule is
    /// unfinished.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`ActionError`].
    pub async fn trigger(&self, name: &str) -> Result<u64, ActionError> {
        let now = self.queue.client.wall_ms();
        let trigger = |mut schedule: Schedule, register: &FollowedRegister| {
            schedule.triggers.retain(|ms| is_pending(register, name, *ms));
            if schedule.triggers.len() >= TRIGGERS_MAX {
                return Err(ActionError::TooManyTriggers(TRIGGERS_MAX));
            }
            let last = schedule.triggers.last().map_or(0, |last| last.saturating_add(1));
            schedule.triggers.push(now.max(last));
            Ok(schedule.content()?)
        };
        self.change(name, "trigger", trigger).await
    }

    /// Reads a schedule; `None` if there is none of this name.
    ///
    /// # Errors
    /// As [`ActionError`], and when its document cannot be read.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>, ActionError> {
        let (names, register, document) = self.open(name).await?;
        let Some(found) = find(&register, &document)? else { return Ok(None) };
        self.info(&names, &register, name, found).map(Some)
    }

    /// Lists all readable schedules of the queue, by name.
    ///
    /// # Errors
    /// As [`ActionError`].
    pub async fn list(&self) -> Result<Vec<ScheduleInfo>, ActionError> {
        let names = self.queue.names()?;
        let register = self.queue.client.register_of(&names).await?;
        let all: Vec<(String, u64, Bytes)> = register.with_documents(|documents| {
            let all = documents.of(DocumentKind::Schedule);
            all.map(|(name, version, content)| (name.text().to_owned(), version, content.clone()))
                .collect()
        });
        let info = |(name, version, content): (String, u64, Bytes)| {
            let found = (version, Schedule::read(&content).ok()?);
            self.info(&names, &register, &name, found).ok()
        };
        Ok(all.into_iter().filter_map(info).collect())
    }

    /// Whether the queue has schedules, paused ones included. Reads the register once, where the
    /// other methods follow it from then on: for programs that look at thousands of queues.
    ///
    /// # Errors
    /// When the register cannot be read.
    pub async fn any(&self) -> Result<bool, ReadError> {
        let (names, mut fold) = (self.queue.names()?, Register::default());
        // Reading a topic would create it.
        if self.queue.client.inner.transport.exists(&names.register).await? {
            let take = |message: &Message| {
                if let Ok(entry) = register::read(message) {
                    fold.apply(&entry, message.position);
                }
            };
            let whole = Follow { start: Start::Earliest, compacted: true };
            let (logs, place) = (self.queue.client.logs(), partition(names.register, -1));
            logs.read_if_exists(&place, whole, take).await?;
        }
        Ok(fold.documents().of(DocumentKind::Schedule).next().is_some())
    }

    async fn open(
        &self,
        name: &str,
    ) -> Result<(TopicNames, FollowedRegister, DocumentName), ActionError> {
        check_name(name)?;
        let document = DocumentName::new(DocumentKind::Schedule, name)
            .map_err(|error| ActionError::Name(error.0))?;
        let names = self.queue.names()?;
        let register = self.queue.client.register_of(&names).await?;
        Ok((names, register, document))
    }

    fn info(
        &self,
        names: &TopicNames,
        register: &FollowedRegister,
        name: &str,
        (version, schedule): (u64, Schedule),
    ) -> Result<ScheduleInfo, ActionError> {
        let now = self.queue.client.wall_ms();
        let last = register.look(|keys| {
            let lasts = [false, true].into_iter().filter_map(|by_hand| {
                let (from, to) = FiringKey::range(name, by_hand, now);
                let between = keys.between(KeyKind::Idempotency, from, to).rev();
                let firing = |(key, task)| Some((FiringKey::parse(KeyName::text(key))?.1, task));
                between.filter_map(firing).next()
            });
            lasts.max_by_key(|(slot, _)| slot.ms)
        });
        let firing = |(slot, task): (FiringSlot, QueueTask)| {
            let level = self.queue.client.level_names(names, task.level);
            let topic = level?.task;
            let task = TaskRef { topic, id: task.id };
            Ok::<_, ActionError>(Firing { slot: instant(slot.ms), task })
        };
        let last = last.map(firing).transpose()?;
        let next = schedule.next_after(now, NEXT_MAX)?;
        let next = next.into_iter().map(instant).collect();
        let mut schedule = schedule;
        schedule.triggers.retain(|ms| is_pending(register, name, *ms));
        Ok(ScheduleInfo { name: name.to_owned(), version, schedule, last, next })
    }
}

/// A schedule, and its version on the register.
fn find(
    register: &FollowedRegister,
    document: &DocumentName,
) -> Result<Option<(u64, Schedule)>, ActionError> {
    let found = register.with_documents(|documents| {
        documents.get(document).map(|bytes| (documents.version(document), bytes.clone()))
    });
    let Some((version, content)) = found else { return Ok(None) };
    Ok(Some((version, Schedule::read(&content)?)))
}

/// Whether a firing by hand has no task yet.
fn is_pending(register: &FollowedRegister, name: &str, ms: u64) -> bool {
    let key = FiringKey(name, FiringSlot { ms, by_hand: true }).to_string();
    let key = KeyName::new(KeyKind::Idempotency, key);
    key.is_ok_and(|key| register.look(|keys| keys.holder(&key)).is_none())
}

fn instant(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
