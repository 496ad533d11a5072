//! A queue, named by its task topic, and its settings: limits, and defaults for tasks whose
//! messages do not set them.

use super::documents::DocumentAction;
use super::registers::FollowedRegister;
use super::tasks::ViewScope;
use super::{ActionError, Client, ReadError, TaskRef, TaskView};
use crate::topics::{TopicNameError, TopicNames};
use bytes::Bytes;
use longhaul_core::protocol::register::{DocumentName, LimitUse};
use longhaul_core::settings::{QueueSettings, QueueSettingsError};
use longhaul_core::task::{TaskId, text};

/// A queue of a client: see [`Client::queue`]. Cheap to create and to clone.
///
/// | what for | methods |
/// |---|---|
/// | its tasks | [`tasks`](Self::tasks), [`find`](Self::find), [`watch_from`](Self::watch_from), [`why`](Self::why), [`history`](Self::history), [`submitted`](Self::submitted) |
/// | actions on tasks | [`delete`](Self::delete), [`force_fail`](Self::force_fail), [`force_release`](Self::force_release), [`reschedule`](Self::reschedule), [`purge`](Self::purge), [`action_log`](Self::action_log) |
/// | its settings | [`settings`](Self::settings), [`change`](Self::change), [`update`](Self::update), [`pause`](Self::pause), [`resume`](Self::resume) |
/// | workers | [`drain_worker`](Self::drain_worker), [`zombies`](Self::zombies) |
/// | what failed for good | [`dead_letters`](Self::dead_letters) |
/// | its logs | [`verify`](Self::verify), [`tasks_at`](Self::tasks_at) |
#[derive(Clone, Debug)]
pub struct Queue {
    pub(super) client: Client,
    topic: String,
    /// The view that answers, in place of a new one per question.
    pub(super) view: Option<TaskView>,
    /// The reason of changes to settings and schedules.
    reason: String,
}

/// The current settings and their version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedSettings {
    /// The number of changes so far; 0 without any.
    pub version: u64,
    /// The settings.
    pub settings: QueueSettings,
    /// The use of its limits, that of the queue first.
    pub limits: Vec<LimitUse>,
}

impl Client {
    /// Returns a queue, named by its task topic. This sends no request: the methods of the queue
    /// check that it exists.
    ///
    /// ```no_run
    /// use longhaul::ActionError;
    /// use longhaul::{Client, Rate};
    /// use std::time::Duration;
    ///
    /// async fn limit(client: &Client) -> Result<(), ActionError> {
    ///     let queue = client.queue("tasks");
    ///     let version = queue
    ///         .change(|settings| {
    ///             settings.limit.max_in_flight = Some(20);
    ///             settings.per_key.rate = Some(Rate::new(100, Duration::from_secs(60)));
    ///         })
    ///         .await?;
    ///     println!("the limits are in version {version}");
    ///     queue.pause().await?;
    ///     queue.resume().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The topic of a level, such as `tasks-high`, is a queue of its own here:
    /// `client.queue(&task.topic)` is always the one that a [`TaskRef`] belongs to. It has the
    /// tasks and dead letters of that level, and the settings of the queue. Settings, schedules
    /// and workers are changed on the queue without a level: [`ActionError::Level`].
    pub fn queue(&self, topic: impl Into<String>) -> Queue {
        Queue { client: self.clone(), topic: topic.into(), view: None, reason: String::new() }
    }
}

impl Queue {
    /// Makes [`why`](Self::why) and [`drain_worker`](Self::drain_worker) use this view, where it is
    /// one of this queue that follows its topics by this client. Otherwise each call reads its own
    /// view; `why` does so too if the view has claimed tasks only.
    #[must_use]
    pub fn with_view(mut self, view: &TaskView) -> Self {
        self.view = Some(view.clone());
        self
    }

    /// Sets the reason for changes to the settings and schedules of the queue, as
    /// the [log of actions](Self::action_log) shows it. Default: none. Other actions take a reason
    /// of their own.
    ///
    /// ```no_run
    /// # async fn stop(client: longhaul::Client) -> Result<(), longhaul::ActionError> {
    /// client.queue("tasks").with_reason("the mail server is down").pause().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = text::shortened(reason.into());
        self
    }

    /// The view set by `with_view`, or a new one. It has these tasks at least.
    pub(super) async fn view(&self, scope: ViewScope) -> Result<TaskView, ReadError> {
        let names = self.names()?;
        let transport = &self.client.inner.transport;
        match &self.view {
            Some(view) if view.follows(transport, &names, scope) => Ok(view.clone()),
            Some(_) | None => self.task_view(scope).await,
        }
    }

    /// The task topic, as given.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The topics of the queue.
    pub(super) fn names(&self) -> Result<TopicNames, TopicNameError> {
        self.client.names(&self.topic)
    }

    /// The topics of the queue. Fails if it does not exist.
    pub(super) async fn existing(&self) -> Result<TopicNames, ReadError> {
        let names = self.names()?;
        self.client.require_queue(&names).await?;
        Ok(names)
    }

    /// A task of the queue.
    pub(super) fn task(&self, id: TaskId) -> Result<TaskRef, TopicNameError> {
        Ok(TaskRef { topic: self.names()?.task, id })
    }

    /// Reads the current settings, and who uses the limits: limits over all workers, and defaults for tasks whose messages
    /// do not set them.
    ///
    /// # Errors
    /// When the register cannot be read. [`ActionError::Invalid`] when this version of longhaul
    /// cannot read the current settings: see [`Queue::repair`].
    pub async fn settings(&self) -> Result<VersionedSettings, ActionError> {
        // Those of a level are its queue's.
        let (queue, _) = self.client.level_of(&self.names()?).await?;
        let (register, name) =
            (self.client.register_of(&queue).await?, DocumentName::queue_settings());
        let (version, content, limits) = register.with_register(|register| {
            let documents = register.documents();
            let content = documents.get(&name).cloned().unwrap_or_default();
            (documents.version(&name), content, register.gates().usage(self.client.wall_ms()))
        });
        let settings = readable(version, &content)?;
        Ok(VersionedSettings { version, settings, limits })
    }

    /// Changes the settings whatever their version, and returns the version that has the change. A
    /// program can call this at each start: if the change changes nothing, nothing is written. If
    /// another program changes the settings at the same time, `change` is called again, with the
    /// settings of that program. Workers apply the change within a second, as with
    /// [`update`](Self::update).
    ///
    /// ```no_run
    /// use longhaul::Client;
    /// use longhaul::ActionError;
    ///
    /// async fn at_each_start(client: &Client) -> Result<(), ActionError> {
    ///     let queue = client.queue("tasks");
    ///     queue.change(|settings| settings.limit.max_in_flight = Some(20)).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ActionError::Invalid`] when a setting is out of bounds, or this version of longhaul cannot
    /// read the current settings. [`ActionError::VersionConflict`] when 11 tries in a row lost to
    /// other changes.
    pub async fn change(&self, change: impl Fn(&mut QueueSettings)) -> Result<u64, ActionError> {
        self.change_as("update", change).await
    }

    async fn change_as(
        &self,
        verb: &'static str,
        change: impl Fn(&mut QueueSettings),
    ) -> Result<u64, ActionError> {
        let (register, name) = self.register().await?;
        let next = |version, content: Option<&Bytes>| {
            let before = readable(version, content.unwrap_or(&Bytes::new()))?;
            let mut after = before.clone();
            change(&mut after);
            if after == before { Ok(None) } else { self.content_of(&after).map(Some) }
        };
        self.client.rewrite_document(&register, &name, self.action(verb), next).await
    }

    /// Changes the settings if `expected_version` is still current, and returns the new version.
    /// Each worker applies the change as soon as it has read it, within a second. Settings unknown
    /// to this version of longhaul stay as they are.
    ///
    /// # Errors
    /// [`ActionError::VersionConflict`] when another version is current: somebody else changed
    /// the settings, and this call changed nothing. [`ActionError::Invalid`] when a setting is
    /// out of bounds.
    pub async fn update(
        &self,
        expected_version: u64,
        change: impl FnOnce(&mut QueueSettings),
    ) -> Result<u64, ActionError> {
        let VersionedSettings { version: current, mut settings, .. } = self.settings().await?;
        if current != expected_version {
            return Err(ActionError::VersionConflict { current });
        }
        change(&mut settings);
        let (register, name) = self.register().await?;
        let content = self.content_of(&settings)?;
        let action = self.action("update");
        self.client.change_document(&register, &name, (current, content), action).await
    }

    /// Replaces settings that this version of longhaul cannot read, and returns the new version.
    /// Workers meanwhile apply the last readable settings; `repair` writes those, with your change
    /// applied. With an empty change it writes them again. The longhaul version that wrote the
    /// unreadable settings can read them: prefer to change them with that version. Readable
    /// settings are changed as well, whatever their version.
    ///
    /// # Errors
    /// As [`Queue::change`].
    pub async fn repair(&self, change: impl Fn(&mut QueueSettings)) -> Result<u64, ActionError> {
        let (register, name) = self.register().await?;
        let next = |_, _: Option<&Bytes>| {
            let content = register.with_documents(|it| it.readable(&name).cloned());
            let settings = QueueSettings::read(&content.unwrap_or_default());
            let mut settings = settings.map_err(|error| invalid(&error))?;
            change(&mut settings);
            self.content_of(&settings).map(Some)
        };
        self.client.rewrite_document(&register, &name, self.action("repair"), next).await
    }

    /// The document of these settings, if the queue may have them.
    fn content_of(&self, settings: &QueueSettings) -> Result<Bytes, ActionError> {
        let names = self.names()?;
        let queue = names.task.rsplit('/').next().unwrap_or_default();
        let valid = settings.validate_for(queue).and_then(|()| settings.to_document());
        valid.map(Bytes::from).map_err(|error| invalid(&error))
    }

    pub(super) fn action(&self, verb: &'static str) -> DocumentAction<'_> {
        DocumentAction { verb, reason: &self.reason }
    }

    async fn register(&self) -> Result<(FollowedRegister, DocumentName), ActionError> {
        let names = self.names()?;
        Ok((self.client.register_of(&names).await?, DocumentName::queue_settings()))
    }

    /// Pauses the queue: workers start no task and no further attempt. Running tasks continue.
    /// Returns the new version.
    ///
    /// # Errors
    /// As [`Queue::change`].
    pub async fn pause(&self) -> Result<u64, ActionError> {
        self.change_as("pause", |settings| settings.paused = true).await
    }

    /// Resumes the queue: workers start tasks again. Returns the new version.
    ///
    /// # Errors
    /// As [`Queue::change`].
    pub async fn resume(&self) -> Result<u64, ActionError> {
        self.change_as("resume", |settings| settings.paused = false).await
    }
}

/// The current settings of a queue.
fn readable(version: u64, content: &Bytes) -> Result<QueueSettings, ActionError> {
    QueueSettings::read(content).map_err(|error| {
        ActionError::Invalid(format!(
            "version {version} of the queue's settings cannot be read ({error}): the last readable \
             version applies, if any. If no newer longhaul wrote it, replace it with \
             `Queue::repair`"
        ))
    })
}

fn invalid(error: &QueueSettingsError) -> ActionError {
    ActionError::Invalid(error.to_string())
}
