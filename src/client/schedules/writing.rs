//! Creates and changes schedules.

use super::{Schedules, find};
use crate::client::ActionError;
use crate::client::registers::FollowedRegister;
use crate::client::submit::{PreparedSubmission, Submission};
use crate::client::terms::DeliveryTime;
use bytes::Bytes;
use longhaul_core::protocol::register::DocumentName;
use longhaul_core::schedule::{Schedule, ScheduleError, TaskTemplate};
use longhaul_core::task::text;

impl Schedules {
    /// Creates a schedule that submits this task: it takes payload, properties and priority from
    /// the [submission](crate::Client::submission), which is not sent. The name has 1 to 200 bytes,
    /// without slashes. Returns the schedule's version.
    ///
    /// # Errors
    /// When the name is taken, when the schedule is invalid or will never fire, and as
    /// [`ActionError`].
    pub async fn create(
        &self,
        name: &str,
        schedule: Schedule,
        task: Submission,
    ) -> Result<u64, ActionError> {
        let (task, now) = (self.template(task)?, self.queue.client.wall_ms());
        let first = Schedule { task, created_at: now, since: now, ..schedule };
        let next = |found, _: &FollowedRegister| match found {
            Some(_) => Err(ActionError::ScheduleExists),
            None => self.first(&first),
        };
        self.write(name, "create", next).await
    }

    /// Creates a schedule as [`get`](Self::get) has returned it, of this queue or another one: with
    /// its task, paused or not, and with the slots and the firings by hand that are still to come.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn restore(&self, name: &str, schedule: &Schedule) -> Result<u64, ActionError> {
        let next = |found, _: &FollowedRegister| match found {
            Some(_) => Err(ActionError::ScheduleExists),
            None => Ok(Some(schedule.content()?)),
        };
        self.write(name, "create", next).await
    }

    /// Creates a schedule as [`create`](Self::create) does, or changes the existing one to this
    /// schedule and this task. Returns the version that has them.
    ///
    /// A program can call this at each start. If nothing differs, nothing is written. If several
    /// programs set the same schedule at once, one of them writes it, and all succeed. With other
    /// [times](Schedule::with_times_of), only slots after the change count. A schedule that an
    /// operator has paused stays paused: [`Schedule::paused`] counts only for a new schedule.
    ///
    /// ```no_run
    /// use longhaul::ActionError;
    /// use longhaul::{Client, Schedule, Text};
    ///
    /// async fn at_each_start(client: &Client) -> Result<(), ActionError> {
    ///     let nightly = Schedule::cron("30 2 * * *").time_zone("Europe/Berlin");
    ///     let report = client.submission("tasks", &Text("report".to_owned())).max_attempts(3);
    ///     client.queue("tasks").schedules().set("nightly", nightly, report).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// When the schedule is invalid, when new times will never fire, when the task has another
    /// priority than before, and as [`ActionError`].
    /// [`ActionError::VersionConflict`] when 11 tries in a row lost to other changes.
    pub async fn set(
        &self,
        name: &str,
        schedule: Schedule,
        task: Submission,
    ) -> Result<u64, ActionError> {
        let (task, now) = (self.template(task)?, self.queue.client.wall_ms());
        let wanted = Schedule { task, created_at: now, since: now, ..schedule };
        let next = |found: Option<Schedule>, _: &FollowedRegister| {
            let Some(before) = found else { return self.first(&wanted) };
            same_priority(&before, &wanted.task)?;
            let mut task = wanted.task.clone();
            task.other.clone_from(&before.task.other);
            // Operators set the first four fields, and a later version of longhaul the last one.
            let Schedule { paused, created_at, since, .. } = before;
            let (triggers, other) = (before.triggers.clone(), before.other.clone());
            let wanted = wanted.clone();
            let after = Schedule { task, paused, created_at, since, triggers, other, ..wanted };
            if after == before {
                return Ok(None);
            }
            self.successor(&before, after)?.content().map(Some).map_err(Into::into)
        };
        self.write(name, "set", next).await
    }

    /// Changes a schedule if it has this version. Its task stays the same: see
    /// [`Schedules::set_task`]. With new [times](Schedule::with_times_of), only slots after the
    /// change count. Returns the new version.
    ///
    /// ```no_run
    /// use longhaul::{ActionError, ops::Schedules};
    /// use longhaul::{Overlap, Schedule};
    ///
    /// async fn earlier(schedules: &Schedules) -> Result<u64, ActionError> {
    ///     let found = schedules.get("nightly").await?.ok_or(ActionError::NoSuchSchedule)?;
    ///     let times = Schedule::cron("0 1 * * *").time_zone("Europe/Berlin");
    ///     let change = |it: Schedule| it.with_times_of(times).overlap(Overlap::BufferOne);
    ///     schedules.update("nightly", found.version, change).await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ActionError::VersionConflict`] when somebody else has changed it, and as
    /// [`create`](Self::create).
    pub async fn update(
        &self,
        name: &str,
        version: u64,
        change: impl FnOnce(Schedule) -> Schedule,
    ) -> Result<u64, ActionError> {
        let (_, register, document) = self.open(name).await?;
        let (_, before) = find(&register, &document)?.ok_or(ActionError::NoSuchSchedule)?;
        let after = Schedule { task: before.task.clone(), ..change(before.clone()) };
        let after = self.successor(&before, after)?;
        self.put(&register, &document, version, &after).await
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
    ) -> Result<u64, ActionError> {
        let (_, register, document) = self.open(name).await?;
        let (_, schedule) = find(&register, &document)?.ok_or(ActionError::NoSuchSchedule)?;
        let task = self.template(task)?;
        same_priority(&schedule, &task)?;
        self.put(&register, &document, version, &Schedule { task, ..schedule }).await
    }

    /// Changes an existing schedule whatever its version; empty content deletes it.
    pub(super) async fn change(
        &self,
        name: &str,
        verb: &'static str,
        change: impl Fn(Schedule, &FollowedRegister) -> Result<Bytes, ActionError>,
    ) -> Result<u64, ActionError> {
        let next = |found: Option<Schedule>, register: &FollowedRegister| {
            change(found.ok_or(ActionError::NoSuchSchedule)?, register).map(Some)
        };
        self.write(name, verb, next).await
    }

    /// Writes the content that `next` makes of a schedule, or of none; no content writes nothing.
    async fn write(
        &self,
        name: &str,
        verb: &'static str,
        next: impl Fn(Option<Schedule>, &FollowedRegister) -> Result<Option<Bytes>, ActionError>,
    ) -> Result<u64, ActionError> {
        let (_, register, document) = self.open(name).await?;
        let next = |_, content: Option<&Bytes>| {
            let found = content.map(|content| Schedule::read(content)).transpose()?;
            next(found, &register)
        };
        self.queue
            .client
            .rewrite_document(&register, &document, self.queue.action(verb), next)
            .await
    }

    /// The content of a new schedule.
    fn first(&self, schedule: &Schedule) -> Result<Option<Bytes>, ActionError> {
        self.check(schedule, schedule.since)?;
        Ok(Some(schedule.content()?))
    }

    /// A changed schedule. If it has other times, or is no longer paused, slots count from now on.
    fn successor(&self, before: &Schedule, after: Schedule) -> Result<Schedule, ActionError> {
        let now = self.queue.client.wall_ms();
        let has_other_times = !after.has_times_of(before);
        let is_resumed = before.paused && !after.paused;
        let since = if has_other_times || is_resumed { now } else { after.since };
        let after = Schedule { since, ..after };
        after.check()?;
        if has_other_times {
            self.check(&after, now)?;
        }
        Ok(after)
    }

    async fn put(
        &self,
        register: &FollowedRegister,
        document: &DocumentName,
        version: u64,
        schedule: &Schedule,
    ) -> Result<u64, ActionError> {
        let change = (version, schedule.content()?);
        self.queue
            .client
            .change_document(register, document, change, self.queue.action("update"))
            .await
    }

    /// Refuses an invalid schedule, and one that will never fire.
    fn check(&self, schedule: &Schedule, now_ms: u64) -> Result<(), ActionError> {
        schedule.check()?;
        if schedule.next_after(now_ms, 1)?.is_empty() {
            return Err(ScheduleError::NeverFires.into());
        }
        Ok(())
    }

    fn template(&self, task: Submission) -> Result<TaskTemplate, ActionError> {
        let names = self.queue.names()?;
        let other = self.queue.client.names(&task.topic)?;
        if other.task != names.task {
            let (task, queue) = (other.task, names.task);
            return Err(ActionError::OtherQueue { task, queue });
        }
        let prepared = task.prepare()?;
        let PreparedSubmission { payload, properties, key, priority, delivery } = prepared;
        if key.is_some() {
            return Err(ActionError::ScheduleSets("an idempotency key or a dedupe key"));
        }
        if let DeliveryTime::At(_) = delivery {
            return Err(ActionError::ScheduleSets("a start time"));
        }
        if properties.contains_key(text::AFTER) {
            return Err(ActionError::ScheduleSets("tasks that it waits for"));
        }
        Ok(TaskTemplate::new(&payload, properties, priority))
    }
}

fn same_priority(schedule: &Schedule, task: &TaskTemplate) -> Result<(), ActionError> {
    if task.priority() == schedule.task.priority() {
        return Ok(());
    }
    Err(ActionError::OtherPriority)
}
