//! The settings of a queue, read and changed by people: limits, and what applies to tasks that do
//! not say it.

use super::registers::FollowedRegister;
use super::{Client, DocumentError};
use bytes::Bytes;
use longhaul_core::protocol::register::DocumentName;
use longhaul_core::settings::{QueueSettings, QueueSettingsError};

/// So often a change that depends on no version is tried again when somebody else was quicker.
const CONFLICTS_MAX: usize = 10;

/// The settings of a queue: see [`Client::queue`].
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    topic: String,
}

/// Settings as they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedSettings {
    /// Counts the changes; 0 if there was none yet.
    pub version: u64,
    /// What they say.
    pub settings: QueueSettings,
}

impl Client {
    /// The settings of a queue, named by its task topic: limits that hold over all workers, and
    /// what applies to tasks whose messages do not say it. A change takes effect in each worker as
    /// soon as it is read, within a second.
    ///
    /// ```no_run
    /// use longhaul::{Client, DocumentError, Rate};
    /// use std::time::Duration;
    ///
    /// async fn limit(client: &Client) -> Result<(), DocumentError> {
    ///     let queue = client.queue("tasks");
    ///     let stands = queue.settings().await?;
    ///     let version = queue.update(stands.version, |settings| {
    ///         settings.limit.max_in_flight = Some(20);
    ///         settings.per_key.rate = Some(Rate::new(100, Duration::from_secs(60)));
    ///     });
    ///     println!("version {} stands", version.await?);
    ///     queue.pause().await?;
    ///     queue.resume().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn queue(&self, topic: impl Into<String>) -> Queue {
        Queue { client: self.clone(), topic: topic.into() }
    }
}

impl Queue {
    /// The settings that stand.
    ///
    /// # Errors
    /// When the register cannot be read. [`DocumentError::Invalid`] when this version of longhaul
    /// cannot read the settings that stand: see [`Queue::repair`].
    pub async fn settings(&self) -> Result<VersionedSettings, DocumentError> {
        let (register, name) = self.register().await?;
        let (version, content) = register.look_at_documents(|documents| {
            (documents.version(&name), documents.get(&name).cloned().unwrap_or_default())
        });
        let settings = QueueSettings::read(&content).map_err(|error| {
            DocumentError::Invalid(format!(
                "version {version} of the queue's settings cannot be read ({error}); what applies are the last ones before it that can, if any. If no newer \
                 longhaul has written it, `Queue::repair` writes a readable version in its place"
            ))
        })?;
        Ok(VersionedSettings { version, settings })
    }

    /// Changes the settings, if this version of them still stands, and returns the next one. What
    /// this version of longhaul does not know of them stays as it is.
    ///
    /// # Errors
    /// [`DocumentError::VersionConflict`] when another version stands: somebody else has changed
    /// them meanwhile, and nothing was changed here. [`DocumentError::Invalid`] when a setting is
    /// out of its bounds.
    pub async fn update(
        &self,
        expected_version: u64,
        change: impl FnOnce(&mut QueueSettings),
    ) -> Result<u64, DocumentError> {
        let VersionedSettings { version: current, mut settings } = self.settings().await?;
        if current != expected_version {
            return Err(DocumentError::VersionConflict { current });
        }
        change(&mut settings);
        self.write(expected_version, &settings).await
    }

    /// Writes settings in the place of some that cannot be read, and returns their version: those
    /// that apply meanwhile, the last that could be read, with this change; without a change, the
    /// same again. What this version of longhaul cannot read another one may, which has written it:
    /// then change it with that one. Settings that can be read are changed as well, whatever their
    /// version.
    ///
    /// # Errors
    /// As [`Queue::update`]; when somebody else changes the settings at the same time it is tried
    /// again, with those.
    pub async fn repair(&self, change: impl Fn(&mut QueueSettings)) -> Result<u64, DocumentError> {
        let mut conflicts = 0;
        loop {
            let (register, name) = self.register().await?;
            let (version, content) = register.look_at_documents(|documents| {
                (documents.version(&name), documents.readable(&name).cloned().unwrap_or_default())
            });
            let settings = QueueSettings::read(&content);
            let mut settings = settings.map_err(|error| invalid(&error))?;
            change(&mut settings);
            match self.write(version, &settings).await {
                Err(DocumentError::VersionConflict { .. }) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                }
                end => return end,
            }
        }
    }

    async fn register(&self) -> Result<(FollowedRegister, DocumentName), DocumentError> {
        let names = self.client.names(&self.topic)?;
        Ok((self.client.register_of(&names).await?, DocumentName::queue_settings()))
    }

    /// Writes the version after this one.
    async fn write(&self, version: u64, settings: &QueueSettings) -> Result<u64, DocumentError> {
        let content = settings.to_document().map_err(|error| invalid(&error))?;
        let (register, name) = self.register().await?;
        self.client.change_document(&register, &name, (version, Bytes::from(content))).await
    }

    /// From now on no worker begins a task, or another attempt of one. What runs goes on. Returns
    /// the version that stands.
    ///
    /// # Errors
    /// As [`Queue::update`]; when somebody else changes the settings at the same time it is tried
    /// again.
    pub async fn pause(&self) -> Result<u64, DocumentError> {
        self.set_paused(true).await
    }

    /// Workers begin tasks again. Returns the version that stands.
    ///
    /// # Errors
    /// As [`Queue::pause`].
    pub async fn resume(&self) -> Result<u64, DocumentError> {
        self.set_paused(false).await
    }

    async fn set_paused(&self, paused: bool) -> Result<u64, DocumentError> {
        let mut conflicts = 0;
        loop {
            let VersionedSettings { version, settings } = self.settings().await?;
            if settings.paused == paused {
                return Ok(version);
            }
            match self.update(version, |settings| settings.paused = paused).await {
                Err(DocumentError::VersionConflict { .. }) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                }
                end => return end,
            }
        }
    }
}

fn invalid(error: &QueueSettingsError) -> DocumentError {
    DocumentError::Invalid(error.to_string())
}
