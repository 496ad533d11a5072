//! What a client does through the admin API.

use super::{Client, ClientBuilder, ClientSettings};
use crate::topics::{
    Admin, AdminError, AdminOptions, CompactionState, Priority, SetupError, SetupReport, SetupStep,
    TopicFinding, TopicNameError, TopicNames, TopicSettings, check, compact, compactions, dry_run,
    queues, setup, setup_levels,
};
use longhaul_session::ConnectOptions;

/// The topics are not set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupTopicsError {
    /// The client does not know where the admin API is.
    #[error(
        "topics are set up through the admin API: give the client its URL with `ClientBuilder::admin_url`"
    )]
    NoAdminUrl,
    /// The task topic's name is not one.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// It was tried.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Client {
    /// The task topics of a namespace (`public/default`) that were set up for the client's
    /// subscription, by name.
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn queues(&self, namespace: &str) -> Result<Vec<String>, SetupTopicsError> {
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let found = queues(admin, namespace, &self.inner.settings.subscription).await;
        found.map_err(|error| SetupTopicsError::Setup(error.into()))
    }

    /// What is not as the task protocol needs it about the topics of a task topic, the worst first.
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn check_topics(
        &self,
        task_topic: &str,
        settings: TopicSettings,
    ) -> Result<Vec<TopicFinding>, SetupTopicsError> {
        let names = self.names(task_topic)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let subscription = self.inner.settings.subscription.clone();
        let found = check(admin, &names, &TopicSettings { subscription, ..settings }).await;
        found.map_err(|error| SetupTopicsError::Setup(error.into()))
    }

    /// What [`setup_topics_with`](Self::setup_topics_with) would change, without changing it.
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn plan_topics(
        &self,
        task_topic: &str,
        settings: TopicSettings,
    ) -> Result<Vec<SetupStep>, SetupTopicsError> {
        let names = self.names(task_topic)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let subscription = self.inner.settings.subscription.clone();
        Ok(dry_run(admin, &names, &TopicSettings { subscription, ..settings }).await?)
    }

    /// Makes the topics of a task topic as the task protocol needs them, or puts right what is not,
    /// through the admin API ([`ClientBuilder::admin_url`]). What is right is left alone, so that
    /// it may be called at every start. It is what [`topics::setup`](crate::topics::setup) does
    /// with the default settings, and what a worker with an admin URL does by itself.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = longhaul::Client::builder("pulsar://localhost:6650")
    ///     .admin_url("http://localhost:8080")
    ///     .connect()
    ///     .await?;
    /// for step in client.setup_topics("tasks").await?.steps {
    ///     println!("{step}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn setup_topics(&self, task_topic: &str) -> Result<SetupReport, SetupTopicsError> {
        self.setup_topics_with(task_topic, TopicSettings::default()).await
    }

    /// As [`setup_topics`](Self::setup_topics), with other settings: partitions, retentions. The
    /// subscription is the client's.
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn setup_topics_with(
        &self,
        task_topic: &str,
        settings: TopicSettings,
    ) -> Result<SetupReport, SetupTopicsError> {
        let names = self.names(task_topic)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let subscription = self.inner.settings.subscription.clone();
        Ok(setup(admin, &names, &TopicSettings { subscription, ..settings }).await?)
    }
}

impl Client {
    /// The topics of the levels of a queue, without those of the queue itself.
    pub(super) fn levels_of(&self, queue: &TopicNames) -> Result<[TopicNames; 2], TopicNameError> {
        let [high, low] =
            [Priority::High, Priority::Low].map(|level| self.level_names(queue, level));
        Ok([high?, low?])
    }

    /// As [`setup_topics_with`](Self::setup_topics_with), for a queue with levels: the topics of
    /// `<T>`, `<T>-high` and `<T>-low`. A level that is new gets as many partitions as the task
    /// topic has.
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn setup_levels(
        &self,
        task_topic: &str,
        settings: TopicSettings,
    ) -> Result<SetupReport, SetupTopicsError> {
        let names = self.names(task_topic)?;
        let levels = self.levels_of(&names)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let subscription = self.inner.settings.subscription.clone();
        let settings = TopicSettings { subscription, ..settings };
        Ok(setup_levels(admin, &names, &levels, &settings).await?)
    }
}

impl Client {
    /// Has the broker compact the topics of a task topic and of its levels: see
    /// [`topics::compact`](crate::topics::compact()).
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn compact_topics(&self, task_topic: &str) -> Result<(), SetupTopicsError> {
        let names = self.names(task_topic)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let started = compact(admin, &names, &self.levels_of(&names)?).await;
        started.map_err(|error| SetupTopicsError::Setup(error.into()))
    }

    /// How far the compactions of the topics of a task topic have come.
    ///
    /// # Errors
    /// See [`SetupTopicsError`].
    pub async fn compactions(
        &self,
        task_topic: &str,
    ) -> Result<Vec<CompactionState>, SetupTopicsError> {
        let names = self.names(task_topic)?;
        let admin = self.inner.preflight.admin().ok_or(SetupTopicsError::NoAdminUrl)?;
        let states = compactions(admin, &names, &self.levels_of(&names)?).await;
        states.map_err(|error| SetupTopicsError::Setup(error.into()))
    }
}

impl ClientBuilder {
    /// Where Pulsar's admin API is, such as `http://localhost:8080`, or `http://one:8080,two:8080`
    /// with several hosts that are tried in turn: workers then check their topics before they
    /// start, set them up ([`Client::setup_topics`]), and say what is at risk if that cannot be
    /// done. It is given the client's credentials, and trusts the client's certificate authorities
    /// alone if there are any.
    pub fn admin_url(mut self, url: impl Into<String>) -> Self {
        self.settings.admin_url = Some(url.into());
        self
    }
}

impl ClientSettings {
    /// The admin API, if its URL is known: with the same credentials, and the own certificate
    /// authorities if there are any.
    pub(super) fn admin(&self) -> Result<Option<Admin>, AdminError> {
        let ConnectOptions { credentials, tls, .. } = &self.options;
        let mut options = AdminOptions { credentials: credentials.clone(), tls: tls.clone() };
        let given = tls.ca_certificate_pem.is_some() || tls.ca_certificate_path.is_some();
        options.tls.ca_certificate_only |= given;
        self.admin_url.as_ref().map(|url| Admin::new(url, &options)).transpose()
    }
}
