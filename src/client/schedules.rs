//! The schedules of a queue: created, changed and read by the client. Workers fire them:
//! `src/worker/driver/schedules.rs`.

use super::documents::DocumentError;
use super::registers::FollowedRegister;
use super::submit::{PreparedSubmission, Submission, SubmitError};
use super::task_ref::TaskRef;
use super::terms::DeliveryTime;
use super::{Client, Queue};
use crate::topics::TopicNames;
use bytes::Bytes;
use longhaul_core::protocol::register::{DocumentKind, DocumentName, KeyKind, KeyName, QueueTask};
use longhaul_core::schedule::firing::{FiringKey, FiringSlot};
use longhaul_core::schedule::{Schedule, ScheduleError, TRIGGERS_MAX, TaskTemplate, check_name};
use longhaul_core::task::text;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often an unconditional change is tried when others change the same schedule.
const TRIES_MAX: usize = 8;

/// The number of next firings to list.
const NEXT_MAX: usize = 10;

/// The schedules of a queue: see [`Queue::schedules`].
#[derive(Clone, Debug)]
pub struct Schedules {
    client: Client,
    topic: String,
}

/// A schedule and its state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The schedule's name.
    pub name: String,
    /// The number of changes. A change names the version that it is based on.
    pub version: u64,
    /// The schedule.
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

/// Why schedules were not read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulesError {
    /// The schedule is invalid.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The task cannot be submitted.
    #[error("the task of the schedule: {0}")]
    Task(#[source] SubmitError),
    /// The task belongs to another queue than these schedules.
    #[error("the task goes to `{task}`, and these are the schedules of `{queue}`")]
    OtherTopic {
        /// The topic of the task.
        task: String,
        /// The queue of the schedules.
        queue: String,
    },
    /// The task of a schedule cannot have this option: the schedule sets it.
    #[error("the task of a schedule has no {0} of its own")]
    OwnTerms(&'static str),
    /// The tasks of a schedule go to one topic as long as the schedule exists. To change the
    /// priority, delete it and create another.
    #[error("the priority of a schedule's tasks cannot be changed")]
    OtherPriority,
    /// A schedule of this name exists already.
    #[error("there is a schedule of this name already")]
    Exists,
    /// There is no schedule of this name.
    #[error("there is no schedule of this name")]
    NotFound,
    /// 100 manual firings are pending already.
    #[error(
        "{TRIGGERS_MAX} firings by hand wait already: is a worker of the queue running that has the feature `schedules`?"
    )]
    TooManyTriggers,
    /// The schedule could not be read or written, or somebody else changed it.
    #[error(transparent)]
    Document(#[from] DocumentError),
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
    /// client.queue("tasks").schedules().create("nightly", nightly, report).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedules(&self) -> Schedules {
        Schedules { client: self.client.clone(), topic: self.topic().to_owned() }
    }
}

/// A schedule and its version on the register.
struct VersionedSchedule {
    version: u64,
    schedule: Schedule,
}

impl Schedules {
    /// Creates a schedule that submits this task: it takes payload, properties and priority from
    /// the [submission](Client::submission), which is not sent. The name has 1 to 200 bytes,
    /// without slashes. Returns the schedule's version.
    ///
    /// # Errors
    /// When the name is taken, when the schedule is invalid or will never fire, and as
    /// [`DocumentError`].
    /// [`DocumentError`].
    pub async fn create(
        &self,
        name: &str,
        schedule: Schedule,
        task: Submission,
    ) -> Result<u64, SchedulesError> {
        let (names, register, document) = self.open(name).await?;
        let version = register.with_documents(|documents| documents.version(&document));
        if self.find(&register, &document)?.is_some() {
            return Err(SchedulesError::Exists);
        }
        let now = self.client.wall_ms();
        let task = self.template(&names, task)?;
        let schedule = Schedule { task, created_at: now, since: now, ..schedule };
        self.check(&schedule, now)?;
        self.put(&register, &document, version, &schedule).await
    }

    /// Changes a schedule if it has this version. Its task stays the same: see
    /// [`Schedules::set_task`]. With new [times](Schedule::with_times_of), only slots after the
    /// change count. Returns the new version.
    ///
    /// ```no_run
    /// use longhaul::ops::{Schedules, SchedulesError};
    /// use longhaul::{Overlap, Schedule};
    ///
    /// async fn earlier(schedules: &Schedules) -> Result<u64, SchedulesError> {
    ///     let found = schedules.get("nightly").await?.ok_or(SchedulesError::NotFound)?;
    ///     let times = Schedule::cron("0 1 * * *").time_zone("Europe/Berlin");
    ///     let change = |it: Schedule| it.with_times_of(times).overlap(Overlap::BufferOne);
    ///     schedules.update("nightly", found.version, change).await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`DocumentError::VersionConflict`] when somebody else has changed it, and as
    /// [`create`](Self::create).
    pub async fn update(
        &self,
        name: &str,
        version: u64,
        change: impl FnOnce(Schedule) -> Schedule,
    ) -> Result<u64, SchedulesError> {
        let (_, register, document) = self.open(name).await?;
        let found = self.find(&register, &document)?.ok_or(SchedulesError::NotFound)?;
        let before = found.schedule;
        let mut schedule = change(before.clone());
        let now = self.client.wall_ms();
        schedule.task = before.task.clone();
        let resumed = before.paused && !schedule.paused;
        if resumed || !schedule.has_times_of(&before) {
            schedule.since = now;
        }
        schedule.check()?;
        if !schedule.has_times_of(&before) {
            self.check(&schedule, now)?;
        }
        self.put(&register, &document, version, &schedule).await
    }

    /// Sets the task that a schedule submits from now on, if the schedule has this version. Returns
    /// the new version.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn set_task(
        &self,
        name: &str,
        version: u64,
        task: Submission,
    ) -> Result<u64, SchedulesError> {
        let (names, register, document) = self.open(name).await?;
        let VersionedSchedule { schedule, .. } =
            self.find(&register, &document)?.ok_or(SchedulesError::NotFound)?;
        let task = self.template(&names, task)?;
        if task.priority() != schedule.task.priority() {
            return Err(SchedulesError::OtherPriority);
        }
        self.put(&register, &document, version, &Schedule { task, ..schedule }).await
    }

    /// Deletes a schedule. Tasks already submitted continue.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`DocumentError`].
    pub async fn delete(&self, name: &str) -> Result<(), SchedulesError> {
        self.change(name, |_, _| Ok(None)).await.map(drop)
    }

    /// Pauses a schedule: it fires only manually. Tasks already submitted continue.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`DocumentError`].
    pub async fn pause(&self, name: &str) -> Result<u64, SchedulesError> {
        self.change(name, |schedule, _| Ok(Some(Schedule { paused: true, ..schedule }))).await
    }

    /// Resumes a paused schedule. Slots missed during the pause are not made up for.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`DocumentError`].
    pub async fn resume(&self, name: &str) -> Result<u64, SchedulesError> {
        let now = self.client.wall_ms();
        let resume = move |schedule: Schedule, _: &FollowedRegister| {
            let since = if schedule.paused { now } else { schedule.since };
            Ok(Some(Schedule { paused: false, since, ..schedule }))
        };
        self.change(name, resume).await
    }

    /// Fires a schedule now, paused or not. Its overlap policy applies: under
    /// [`Overlap::Skip`](crate::Overlap::Skip) nothing is submitted while a task of the schedule is
    /// unfinished.
    ///
    /// # Errors
    /// When there is no such schedule, and as [`DocumentError`].
    pub async fn trigger(&self, name: &str) -> Result<u64, SchedulesError> {
        let now = self.client.wall_ms();
        let trigger = |mut schedule: Schedule, register: &FollowedRegister| {
            schedule.triggers.retain(|ms| {
                holder(register, name, FiringSlot { ms: *ms, by_hand: true }).is_none()
            });
            if schedule.triggers.len() >= TRIGGERS_MAX {
                return Err(SchedulesError::TooManyTriggers);
            }
            let last = schedule.triggers.last().map_or(0, |last| last.saturating_add(1));
            schedule.triggers.push(now.max(last));
            Ok(Some(schedule))
        };
        self.change(name, trigger).await
    }

    /// Reads a schedule; `None` if there is none of this name.
    ///
    /// # Errors
    /// As [`DocumentError`], and when its document cannot be read.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>, SchedulesError> {
        let (names, register, document) = self.open(name).await?;
        let Some(found) = self.find(&register, &document)? else { return Ok(None) };
        self.info(&names, &register, name, found).map(Some)
    }

    /// Lists all readable schedules of the queue, by name.
    ///
    /// # Errors
    /// As [`DocumentError`].
    pub async fn list(&self) -> Result<Vec<ScheduleInfo>, SchedulesError> {
        let names = self.client.names(&self.topic).map_err(DocumentError::Topic)?;
        let register = self.client.register_of(&names).await?;
        let all: Vec<(String, u64, Bytes)> = register.with_documents(|documents| {
            let all = documents.of(DocumentKind::Schedule);
            all.map(|(name, version, content)| (name.text().to_owned(), version, content.clone()))
                .collect()
        });
        let info = |(name, version, content): (String, u64, Bytes)| {
            let found = VersionedSchedule { version, schedule: Schedule::read(&content).ok()? };
            self.info(&names, &register, &name, found).ok()
        };
        Ok(all.into_iter().filter_map(info).collect())
    }

    async fn open(
        &self,
        name: &str,
    ) -> Result<(TopicNames, FollowedRegister, DocumentName), SchedulesError> {
        check_name(name)?;
        let document = DocumentName::new(DocumentKind::Schedule, name)
            .map_err(|error| DocumentError::Name(error.0))?;
        let names = self.client.names(&self.topic).map_err(DocumentError::Topic)?;
        let register = self.client.register_of(&names).await?;
        Ok((names, register, document))
    }

    fn find(
        &self,
        register: &FollowedRegister,
        document: &DocumentName,
    ) -> Result<Option<VersionedSchedule>, SchedulesError> {
        let found = register.with_documents(|documents| {
            documents.get(document).map(|bytes| (documents.version(document), bytes.clone()))
        });
        let Some((version, content)) = found else { return Ok(None) };
        Ok(Some(VersionedSchedule { version, schedule: Schedule::read(&content)? }))
    }

    /// Changes a schedule whatever its version; `None` deletes it.
    async fn change(
        &self,
        name: &str,
        change: impl Fn(Schedule, &FollowedRegister) -> Result<Option<Schedule>, SchedulesError>,
    ) -> Result<u64, SchedulesError> {
        let (_, register, document) = self.open(name).await?;
        for attempt in 1.. {
            let found = self.find(&register, &document)?.ok_or(SchedulesError::NotFound)?;
            let put = match change(found.schedule, &register)? {
                Some(schedule) => self.put(&register, &document, found.version, &schedule).await,
                None => {
                    let deleted = (found.version, Bytes::new());
                    let changed = self.client.change_document(&register, &document, deleted);
                    changed.await.map_err(SchedulesError::from)
                }
            };
            match put {
                Err(SchedulesError::Document(DocumentError::VersionConflict { .. }))
                    if attempt < TRIES_MAX => {}
                put => return put,
            }
        }
        Err(SchedulesError::NotFound)
    }

    async fn put(
        &self,
        register: &FollowedRegister,
        document: &DocumentName,
        version: u64,
        schedule: &Schedule,
    ) -> Result<u64, SchedulesError> {
        let change = (version, schedule.content()?);
        Ok(self.client.change_document(register, document, change).await?)
    }

    /// Refuses an invalid schedule, and one that will never fire.
    fn check(&self, schedule: &Schedule, now_ms: u64) -> Result<(), SchedulesError> {
        schedule.check()?;
        if schedule.next_after(now_ms, 1)?.is_empty() {
            return Err(ScheduleError::NeverFires.into());
        }
        Ok(())
    }

    fn template(
        &self,
        names: &TopicNames,
        task: Submission,
    ) -> Result<TaskTemplate, SchedulesError> {
        let other = self.client.names(&task.topic).map_err(DocumentError::Topic)?;
        if other.task != names.task {
            let (task, queue) = (other.task, names.task.clone());
            return Err(SchedulesError::OtherTopic { task, queue });
        }
        let prepared = task.prepare().map_err(SchedulesError::Task)?;
        let PreparedSubmission { payload, properties, key, priority, delivery } = prepared;
        if key.is_some() {
            return Err(SchedulesError::OwnTerms("idempotency key or dedupe key"));
        }
        if let DeliveryTime::At(_) = delivery {
            return Err(SchedulesError::OwnTerms("start time"));
        }
        if properties.contains_key(text::AFTER) {
            return Err(SchedulesError::OwnTerms("tasks that it waits for"));
        }
        Ok(TaskTemplate::new(&payload, properties, priority))
    }

    fn info(
        &self,
        names: &TopicNames,
        register: &FollowedRegister,
        name: &str,
        VersionedSchedule { version, schedule }: VersionedSchedule,
    ) -> Result<ScheduleInfo, SchedulesError> {
        let now = self.client.wall_ms();
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
            let level = self.client.level_names(names, task.level);
            let topic = level.map_err(DocumentError::Topic)?.task;
            let task = TaskRef { topic, id: task.id };
            Ok::<_, SchedulesError>(Firing { slot: instant(slot.ms), task })
        };
        let last = last.map(firing).transpose()?;
        let next = schedule.next_after(now, NEXT_MAX)?;
        let next = next.into_iter().map(instant).collect();
        Ok(ScheduleInfo { name: name.to_owned(), version, schedule, last, next })
    }
}

fn holder(register: &FollowedRegister, name: &str, slot: FiringSlot) -> Option<QueueTask> {
    let key = FiringKey(name, slot).to_string();
    let key = KeyName::new(KeyKind::Idempotency, key).ok()?;
    register.look(|keys| keys.holder(&key)).map(|holding| holding.task)
}

fn instant(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
