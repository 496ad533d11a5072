//! The client's admin API operations: set up, check, compact and delete topics.

use super::builder::ClientSettings;
use super::{Client, ClientBuilder, Queue};
use crate::topics::{
    Admin, AdminError, AdminOptions, CompactionState, Priority, SetupError, SetupReport, SetupStep,
    TopicNameError, TopicNames, TopicReport, TopicSettings, compact, compactions, dry_run, inspect,
    queues, remove, setup, setup_levels,
};
use longhaul_session::ConnectOptions;

impl Client {
    /// The task topics of a namespace (`public/default`) that were set up for the client's
    /// subscription, by name.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn queues(&self, namespace: &str) -> Result<Vec<String>, SetupError> {
        let admin = self.inner.preflight.admin().ok_or(SetupError::NoAdminUrl)?;
        let found = queues(admin, namespace, &self.inner.settings.subscription).await;
        found.map_err(SetupError::from)
    }
}

impl Queue {
    fn admin(&self) -> Result<&Admin, SetupError> {
        self.client.inner.preflight.admin().ok_or(SetupError::NoAdminUrl)
    }

    /// The settings, with the client's subscription.
    fn of_client(&self, mut settings: TopicSettings) -> TopicSettings {
        settings.subscription.clone_from(&self.client.inner.settings.subscription);
        settings
    }

    /// Returns the queue's topics with what is stored of them, and the differences to what the task
    /// protocol needs, the worst first.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn check_topics(&self, settings: TopicSettings) -> Result<TopicReport, SetupError> {
        let names = self.names()?;
        Ok(inspect(self.admin()?, &names, &self.of_client(settings)).await?)
    }

    /// Returns the changes that [`setup_topics`](Self::setup_topics) would make, without making
    /// them.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn plan_topics(&self, settings: TopicSettings) -> Result<Vec<SetupStep>, SetupError> {
        let names = self.names()?;
        dry_run(self.admin()?, &names, &self.of_client(settings)).await
    }

    /// Creates the topics of the queue as the task protocol needs them, and corrects existing ones,
    /// through the admin API ([`ClientBuilder::admin_url`]). Correct topics stay unchanged, so you
    /// may call it at every start. The settings give partitions and retentions; the client's
    /// subscription replaces theirs. A worker with an admin URL does the same at its start, with
    /// the default settings.
    ///
    /// ```no_run
    /// use longhaul::topics::TopicSettings;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = longhaul::Client::builder("pulsar://localhost:6650")
    ///     .admin_url("http://localhost:8080")
    ///     .connect()
    ///     .await?;
    /// for step in client.queue("tasks").setup_topics(TopicSettings::default()).await?.steps {
    ///     println!("{step}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn setup_topics(&self, settings: TopicSettings) -> Result<SetupReport, SetupError> {
        let names = self.names()?;
        setup(self.admin()?, &names, &self.of_client(settings)).await
    }

    /// As [`setup_topics`](Self::setup_topics), for a queue with priority levels: the topics of
    /// `<T>`, `<T>-high` and `<T>-low`. A new level gets as many partitions as the task topic has.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn setup_levels(&self, settings: TopicSettings) -> Result<SetupReport, SetupError> {
        let names = self.names()?;
        let levels = self.client.levels_of(&names)?;
        setup_levels(self.admin()?, &names, &levels, &self.of_client(settings)).await
    }

    /// Makes the broker compact the topics of the queue and of its levels: see
    /// [`topics::compact`](crate::topics::compact()).
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn compact_topics(&self) -> Result<(), SetupError> {
        let names = self.names()?;
        let started = compact(self.admin()?, &names, &self.client.levels_of(&names)?).await;
        Ok(started?)
    }

    /// Returns the progress of the compactions of the queue's topics.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub async fn compactions(&self) -> Result<Vec<CompactionState>, SetupError> {
        let names = self.names()?;
        let states = compactions(self.admin()?, &names, &self.client.levels_of(&names)?).await;
        Ok(states?)
    }

    /// Deletes the queue through the admin API: its task topic, those of its levels, and all topics
    /// that belong to them. Stop its workers first: see [`topics::remove`](crate::topics::remove).
    ///
    /// # Errors
    /// See [`SetupError`]. The call can be repeated.
    pub async fn delete_topics(&self) -> Result<(), SetupError> {
        let names = self.names()?;
        let levels = self.client.levels_of(&names)?;
        let removed = remove(self.admin()?, &names, &levels).await;
        for topics in levels.iter().chain([&names]) {
            self.client.inner.existence.forget_queue(&topics.task);
        }
        Ok(removed?)
    }
}

impl Client {
    /// The topics of the queue's other levels.
    pub(super) fn levels_of(&self, queue: &TopicNames) -> Result<[TopicNames; 2], TopicNameError> {
        let [high, low] =
            [Priority::High, Priority::Low].map(|level| self.level_names(queue, level));
        Ok([high?, low?])
    }
}

impl ClientBuilder {
    /// Sets the URL of Pulsar's admin API, such as `http://localhost:8080`, or
    /// `http://one:8080,two:8080` for several hosts that are tried in turn. With it, workers check
    /// their topics before they start, set them up ([`Queue::setup_topics`]), and report what is at
    /// risk if that fails. Requests use the client's credentials. If the client has certificate
    /// authorities of its own, the admin API trusts only those.
    pub fn admin_url(mut self, url: impl Into<String>) -> Self {
        self.settings.admin_url = Some(url.into());
        self
    }

    /// The admin API with these settings, without a connection to the broker.
    ///
    /// # Errors
    /// When the URL, the token or the certificates are unusable.
    #[doc(hidden)]
    pub fn admin(&self) -> Result<Option<Admin>, AdminError> {
        self.settings.admin()
    }
}

impl ClientSettings {
    /// The admin API, if its URL is set: with the client's credentials, and with only its own
    /// certificate authorities if it has any.
    pub(super) fn admin(&self) -> Result<Option<Admin>, AdminError> {
        let ConnectOptions { credentials, tls, .. } = &self.options;
        let mut options = AdminOptions { credentials: credentials.clone(), tls: tls.clone() };
        let given = tls.ca_certificate_pem.is_some() || tls.ca_certificate_path.is_some();
        options.tls.ca_certificate_only |= given;
        self.admin_url.as_ref().map(|url| Admin::new(url, &options)).transpose()
    }
}
