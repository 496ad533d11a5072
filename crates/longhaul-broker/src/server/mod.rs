//! The running broker: its ports, its connections, and the driver around the machine.

mod alarm;
#[cfg(test)]
mod broken;
#[cfg(test)]
mod broken_disk;
mod compactions;
mod connection;
mod credentials;
pub(crate) mod descriptors;
mod doors;
mod driver;
mod listener;
mod messages;
mod open;
mod outbox;
mod outcome;
pub(crate) mod requests;
mod unfinished;
mod unreadable;

use crate::admin::call::MachineCall;
use crate::admin::serve::{self as admin, AdminServerContext, Core, Enter};
use crate::admin::values::AdminCallError;
use crate::admin::{Advertised, Seats};
use crate::clock;
use crate::config::BrokerConfig;
use crate::error::{BrokerError, StartError};
use crate::log::{FileStorage, RecordLocation, Storage, Usage};
use crate::machine::{BrokerMachine, MachineSettings};
use crate::upkeep::Upkeep;
use connection::Rules;
use credentials::{BrokerCredentials, WatchedFiles};
use descriptors::{ConnectionClass, DescriptorBudget};
use driver::{BrokerDriver, BrokerEvent, BrokerEventSender, QUEUE, READS};
use listener::BrokerListener;
use longhaul_http::{HostGuard, host};
use longhaul_wire::payload::Payload;
use messages::Messages;
use open::MakeStorage;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use descriptors::open_files_max;

/// Worker threads with TLS; without TLS there is one, besides those of the log. Passing a message
/// to another thread and waking it costs more than all processing of the message. Encryption
/// justifies a second thread.
const THREADS_TLS: usize = 2;

/// A running broker, on threads of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Broker {
    addresses: BrokerAddresses,
    advertised: (String, Option<String>),
    stop: CancellationToken,
    ended: watch::Receiver<Option<Result<(), BrokerError>>>,
    thread: Option<JoinHandle<()>>,
}

/// The addresses that a broker listens on.
#[derive(Clone, Copy, Debug)]
struct BrokerAddresses {
    service: SocketAddr,
    tls: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    admin_tls: Option<SocketAddr>,
}

impl Broker {
    /// Opens the data directory, reads the log and listens. Blocks until clients can connect: some
    /// milliseconds, plus about a second per GB of the log.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: BrokerConfig) -> Result<Self, StartError> {
        Self::start_on(config, Box::new(|path| Ok(Arc::new(FileStorage::new(path)?))))
    }

    /// Starts a broker on the given storage.
    fn start_on(config: BrokerConfig, storage: MakeStorage) -> Result<Self, StartError> {
        config.validate()?;
        let mut runtime = if config.tls.is_some() {
            tokio::runtime::Builder::new_multi_thread()
        } else {
            tokio::runtime::Builder::new_current_thread()
        };
        let runtime = runtime
            .worker_threads(THREADS_TLS)
            .thread_name("longhaul-broker")
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let stop = CancellationToken::new();
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let (ends, ended) = watch::channel(None);
        let token = stop.clone();
        let body = move || {
            let outcome = match runtime.block_on(prepare(config, storage)) {
                Ok(prepared) => {
                    let running = prepared.ready();
                    // Ignored if the caller has given up.
                    ready.send(Ok(running)).ok();
                    runtime.block_on(prepared.run(token))
                }
                Err(error) => {
                    ready.send(Err(error)).ok();
                    Ok(())
                }
            };
            shut_down(runtime);
            ends.send_replace(Some(outcome));
        };
        let thread = std::thread::Builder::new().name("longhaul-broker".to_owned()).spawn(body);
        let thread = thread.map_err(StartError::Thread)?;
        let ended_early = || StartError::Thread(io::Error::other("the broker's thread has ended"));
        let (addresses, advertised) = started.recv().map_err(|_| ended_early())??;
        Ok(Self { addresses, advertised, stop, ended, thread: Some(thread) })
    }

    /// URL for clients: `pulsar://host:port`.
    #[must_use]
    pub fn service_url(&self) -> &str {
        &self.advertised.0
    }

    /// URL for clients with TLS: `pulsar+ssl://host:port`.
    #[must_use]
    pub fn service_url_tls(&self) -> Option<&str> {
        self.advertised.1.as_deref()
    }

    /// URL of the admin interface: `http://host:port`.
    #[must_use]
    pub fn admin_url(&self) -> Option<String> {
        self.addresses.admin.map(|address| format!("http://{address}"))
    }

    /// URL of the admin interface with TLS: `https://host:port`.
    #[must_use]
    pub fn admin_url_tls(&self) -> Option<String> {
        self.addresses.admin_tls.map(|address| format!("https://{address}"))
    }

    /// The listening address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.addresses.service
    }

    /// The listening address for TLS.
    #[must_use]
    pub const fn address_tls(&self) -> Option<SocketAddr> {
        self.addresses.tls
    }

    /// Waits until the broker has ended, by itself or because it was stopped.
    ///
    /// # Errors
    /// The reason why it ended by itself.
    pub async fn ended(&self) -> Result<(), BrokerError> {
        let mut ended = self.ended.clone();
        let outcome = ended.wait_for(Option::is_some).await.map_err(|_| BrokerError::Ended)?;
        outcome.clone().unwrap_or(Err(BrokerError::Ended))
    }

    /// Tells the broker to stop, without waiting for it.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops the broker and waits until it has written everything: clients are disconnected, and no
    /// confirmed data is lost.
    ///
    /// # Errors
    /// The reason why it had ended by itself.
    pub fn shutdown(mut self) -> Result<(), BrokerError> {
        self.join();
        self.ended.borrow().clone().unwrap_or(Err(BrokerError::Ended))
    }

    fn join(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the broker's thread has panicked");
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.join();
    }
}

/// Reads that are no longer needed must not delay the end of the process.
fn shut_down(runtime: Runtime) {
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// A broker that is ready to run.
struct PreparedBroker {
    driver: BrokerDriver,
    events: BrokerEventSender,
    listeners: Vec<BrokerListener>,
    admin: Vec<(TcpListener, AdminServerContext)>,
    watched: Vec<WatchedFiles>,
    addresses: BrokerAddresses,
    advertised: (String, Option<String>),
    room: Arc<DescriptorBudget>,
    rules: Rules,
    messages: Messages,
    upkeep: Arc<Upkeep>,
    /// Removed when the broker has ended.
    _data: Option<tempfile::TempDir>,
}

/// A bound port and its address.
type BoundPort = (TcpListener, SocketAddr);

/// The bound ports.
struct BoundPorts {
    service: BoundPort,
    tls: Option<BoundPort>,
    admin: Option<BoundPort>,
    admin_tls: Option<BoundPort>,
}

impl BoundPorts {
    async fn listen(config: &BrokerConfig) -> Result<Self, StartError> {
        Ok(Self {
            service: listen(config.listen).await?,
            tls: listen_maybe(config.listen_tls).await?,
            admin: listen_maybe(config.admin).await?,
            admin_tls: listen_maybe(config.admin_tls).await?,
        })
    }

    fn addresses(&self) -> BrokerAddresses {
        let address = |port: &Option<BoundPort>| port.as_ref().map(|port| port.1);
        let [tls, admin, admin_tls] = [&self.tls, &self.admin, &self.admin_tls].map(address);
        BrokerAddresses { service: self.service.1, tls, admin, admin_tls }
    }
}

/// The addresses that clients are told.
fn advertise(config: &BrokerConfig, addresses: &BrokerAddresses) -> Advertised {
    let host = |address: SocketAddr| match &config.advertised_host {
        Some(host) => format!("{}:{}", host::in_url(host), address.port()),
        None => address.to_string(),
    };
    let http_url_tls = addresses.admin_tls.map(|address| format!("https://{}", host(address)));
    let http_url = addresses.admin.map(|address| format!("http://{}", host(address)));
    Advertised {
        broker_url: format!("pulsar://{}", host(addresses.service)),
        broker_url_tls: addresses.tls.map(|address| format!("pulsar+ssl://{}", host(address))),
        http_url: http_url.or_else(|| http_url_tls.clone()).unwrap_or_default(),
        http_url_tls,
        message_bytes_max: config.message_bytes_max,
    }
}

fn settings(config: &BrokerConfig, advertised: &Advertised) -> MachineSettings {
    MachineSettings {
        message_bytes_max: config.message_bytes_max,
        service_url: advertised.broker_url.clone(),
        service_url_tls: advertised.broker_url_tls.clone(),
        handles_per_connection: config.handles_per_connection,
        recent_bytes: config.recent_bytes,
        window_bytes: config.window_bytes,
        unsent_bytes_max: config.unsent_bytes_max,
        disk_bytes_max: config.disk_bytes_max,
        topic_defaults: config.topic_defaults.clone(),
        checkpoint_bytes: config.checkpoint_bytes,
        piece_bytes: crate::state::PIECE_BYTES,
    }
}

/// The number of connections that the limit on open files allows.
fn room(config: &BrokerConfig, storage: &Arc<dyn Storage>) -> Arc<DescriptorBudget> {
    let (elsewhere, most) = (config.files_elsewhere, config.connections_max);
    DescriptorBudget::new(Arc::clone(storage), elsewhere, most, admin::CONNECTIONS_MAX)
}

async fn prepare(config: BrokerConfig, storage: MakeStorage) -> Result<PreparedBroker, StartError> {
    let BrokerCredentials { authenticator, tls, watched } = BrokerCredentials::open(&config)?;
    doors::warn_of_clear_text(&config);
    // Ports first: if a port is taken, usually the data directory is too, and the port's error is
    // clearer.
    let ports = BoundPorts::listen(&config).await?;
    let addresses = ports.addresses();
    let advertised = advertise(&config, &addresses);
    // The log opens each of its segments. The allowed number of connections is computed anew for
    // each connection.
    descriptors::raise();
    let opened = open::open(&config, storage)?;
    let messages = Messages::new(opened.log.reader(), opened.files);
    let machine = BrokerMachine::new(
        settings(&config, &advertised),
        authenticator.clone(),
        opened.state,
        (opened.composer, opened.log.status()),
        opened.compacted,
        clock::wall_ms(),
    );
    doors::warn_of_closed_namespaces(&config, &machine);
    let room = room(&config, &opened.storage);
    let (events, received) = mpsc::channel(QUEUE);
    let (reads, to_read) = mpsc::channel(READS);
    let storage = Arc::clone(&opened.storage);
    let upkeep = Arc::new(Upkeep::new(&config, opened.path));
    let core =
        Arc::new(Behind { events: events.clone(), reads, messages: messages.clone(), storage });
    let driver =
        BrokerDriver::new(machine, opened.log, opened.storage, messages.clone(), received, to_read);
    let urls = (advertised.broker_url.clone(), advertised.broker_url_tls.clone());
    let advertised_host = config.advertised_host.as_deref();
    let of_admin = Arc::clone(&room);
    let enter: Enter = Arc::new(move || of_admin.enter(ConnectionClass::Admin).ok());
    let seats = Seats::new(enter);
    let refused = Arc::default();
    let admin_at = |address: SocketAddr, tls| AdminServerContext {
        core: Arc::<Behind>::clone(&core),
        advertised: advertised.clone(),
        guard: HostGuard::new(address.ip(), &config.admin_hosts, advertised_host, &[]),
        authenticator: authenticator.clone(),
        tls,
        clock: Arc::new(|| clock::wall_ms() / 1000),
        limits: admin::AdminServerLimits::default(),
        seats: Arc::clone(&seats),
        upkeep: Arc::clone(&upkeep),
        backup: config.backup.clone(),
        refused: Arc::clone(&refused),
    };
    let admin = ports.admin.map(|(listener, address)| (listener, admin_at(address, None)));
    let admin_tls =
        ports.admin_tls.map(|(listener, address)| (listener, admin_at(address, tls.clone())));
    let plain = BrokerListener { listener: ports.service.0, tls: None };
    let encrypted = ports.tls.map(|(listener, _)| BrokerListener { listener, tls });
    Ok(PreparedBroker {
        driver,
        events,
        listeners: [Some(plain), encrypted].into_iter().flatten().collect(),
        admin: [admin, admin_tls].into_iter().flatten().collect(),
        watched,
        addresses,
        advertised: urls,
        room,
        rules: Rules::new(&config),
        messages,
        upkeep,
        _data: opened.temporary,
    })
}

impl PreparedBroker {
    fn ready(&self) -> (BrokerAddresses, (String, Option<String>)) {
        (self.addresses, self.advertised.clone())
    }

    /// Serves until the stop, or until the broker cannot continue.
    async fn run(self, stop: CancellationToken) -> Result<(), BrokerError> {
        let tasks = TaskTracker::new();
        // Listeners end together with the driver.
        let ending = CancellationToken::new();
        let house = listener::House::new(self.events, self.messages, self.rules, self.room);
        for listener in self.listeners {
            tasks.spawn(listener.run(Arc::clone(&house), ending.clone()));
        }
        for (listener, admin) in self.admin {
            tasks.spawn(admin::serve(listener, admin, ending.clone()));
        }
        tasks.spawn(credentials::watch(self.watched, ending.clone()));
        tasks.spawn(self.upkeep.run(ending.clone()));
        drop(house);
        let outcome = tasks.spawn(self.driver.run(stop)).await;
        ending.cancel();
        tasks.close();
        tasks.wait().await;
        outcome.unwrap_or(Err(BrokerError::Ended))
    }
}

/// The driver, for the admin interface.
struct Behind {
    events: BrokerEventSender,
    reads: mpsc::Sender<MachineCall>,
    messages: Messages,
    storage: Arc<dyn Storage>,
}

impl Core for Behind {
    fn send(&self, call: MachineCall) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // If the broker has ended, the call is dropped, which tells the waiting caller.
        Box::pin(async move {
            if call.is_read {
                drop(self.reads.send(call).await);
            } else {
                drop(self.events.send(BrokerEvent::Call(call)).await);
            }
        })
    }

    fn read(&self, location: RecordLocation) -> Result<Payload, AdminCallError> {
        self.messages.peek(location)
    }

    fn usage(&self) -> io::Result<Usage> {
        Usage::read(&*self.storage)
    }
}

async fn listen(address: SocketAddr) -> Result<BoundPort, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = listener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn listen_maybe(address: Option<SocketAddr>) -> Result<Option<BoundPort>, StartError> {
    let Some(address) = address else { return Ok(None) };
    listen(address).await.map(Some)
}
