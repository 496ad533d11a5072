//! Connections of the admin interface, with limits on connections, concurrent requests, headers,
//! bodies and time.
//!
//! A failing connection or request does not affect others. A request that is not answered in time
//! gets 503, but may still take effect.

use super::answer::{AdminResponse, Advertised};
use super::call::MachineCall;
use super::guard;
use super::route::{AdminAccess, AdminRequest, Work, access_of, route};
use super::seats::{Seat, Seats};
use super::target::RequestTarget;
use super::values::{AdminCallError, StoredEntryLocation, StoredMessage};
use crate::auth::{AuthError, AuthRefusalReason, AuthRefusals, AuthRole, Authenticator};
use crate::backup::BackupProgress;
use crate::clock;
use crate::log::{RecordLocation, Usage};
use crate::machine::BrokerMachine;
use crate::metrics::MetricsPart;
use crate::policies::{AuthAction, Grants};
use crate::throttle::WarningThrottle;
use crate::upkeep::Upkeep;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use longhaul_http::{ACCEPT_PAUSE, ConnectionLimits, HostGuard};
use longhaul_wire::payload::Payload;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Why a role is refused that has no grant.
const NO_PRODUCE: &str = "may not produce to this topic: ask a superuser for a grant";
const NO_GRANT: &str = "may not use this namespace: ask a superuser for a grant";

/// The broker behind the interface.
pub(crate) trait Core: Send + Sync {
    /// Sends a call to the machine, as soon as the machine has room for it. The call is dropped
    /// when the broker ends.
    fn send(&self, call: MachineCall) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Reads an entry. Blocks.
    fn read(&self, location: RecordLocation) -> Result<Payload, AdminCallError>;

    /// Measures the files of the data directory. Blocks.
    fn usage(&self) -> io::Result<Usage>;
}

/// Seconds since 1970.
pub(crate) type UnixClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Admits a connection for as long as it keeps the permit, if there is room.
pub(crate) type Enter = Arc<dyn Fn() -> Option<OwnedSemaphorePermit> + Send + Sync>;

/// Prefix of a token in the header.
const BEARER: &[u8] = b"Bearer ";
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;

/// Time limit for measuring the data directory.
const USAGE_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum number of connections, if the system allows it.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// Limits of the admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminServerLimits {
    /// Size of a body in bytes.
    pub(crate) body_bytes: usize,
    /// Time until a request's head is complete, and maximum idle time of a connection.
    pub(crate) head_timeout: Duration,
    /// Time from a request's head to its answer.
    pub(crate) request_timeout: Duration,
    /// Time for connections to end after the stop.
    pub(crate) stop_timeout: Duration,
}

impl Default for AdminServerLimits {
    fn default() -> Self {
        Self {
            body_bytes: 1024 * 1024,
            head_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(2),
        }
    }
}

/// State of the interface besides its ports.
#[derive(Clone)]
pub(crate) struct AdminServerContext {
    /// The broker.
    pub(crate) core: Arc<dyn Core>,
    /// Addresses and limits for clients.
    pub(crate) advertised: Advertised,
    /// Accepted values of the `Host` header.
    pub(crate) guard: HostGuard,
    /// Verifies tokens, if they are required.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    /// The present TLS configuration, if connections are encrypted.
    pub(crate) tls: Option<watch::Receiver<TlsAcceptor>>,
    /// The time, for the expiry of tokens.
    pub(crate) clock: UnixClock,
    /// Limits.
    pub(crate) limits: AdminServerLimits,
    /// Places for connections, shared by all ports.
    pub(crate) seats: Arc<Seats>,
    /// The scrubs.
    pub(crate) upkeep: Arc<Upkeep>,
    /// The backup of the data directory, if there is one.
    pub(crate) backup: Option<Arc<BackupProgress>>,
    /// Logged refusals of tokens.
    pub(crate) refused: Arc<Mutex<AuthRefusals>>,
}

/// Serves until the stop; requests in progress are answered, within limits.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: AdminServerContext,
    stop: CancellationToken,
) {
    let admin = Arc::new(admin);
    let tasks = TaskTracker::new();
    let mut failures = WarningThrottle::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if let Some(times) = failures.note(clock::monotonic()) {
                    tracing::warn!(%error, times, "the admin interface cannot accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // A connection above the limit is closed at once instead of waiting.
        let Some(seat) = admin.seats.take(clock::monotonic()) else { continue };
        let (admin, stop) = (Arc::clone(&admin), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = connect(stream, &admin, &seat, &stop) => {}
                () = seat.is_lost() => tracing::debug!("a connection of the admin interface made room"),
            }
        });
    }
    tasks.close();
    if timeout(admin.limits.stop_timeout, tasks.wait()).await.is_err() {
        tracing::warn!("connections of the admin interface did not end in time");
    }
}

async fn connect(
    stream: TcpStream,
    admin: &AdminServerContext,
    seat: &Seat,
    stop: &CancellationToken,
) {
    // Without it, small answers could wait for an acknowledgement; if it cannot be set, they do.
    stream.set_nodelay(true).ok();
    let Ok(peer) = stream.peer_addr() else { return };
    let Some(tls) = &admin.tls else { return converse(stream, peer, admin, seat, stop).await };
    let tls = tls.borrow().clone();
    match timeout(admin.limits.head_timeout, tls.accept(stream)).await {
        Ok(Ok(stream)) => converse(stream, peer, admin, seat, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS on the admin interface"),
        Err(_) => tracing::debug!("no TLS handshake in time on the admin interface"),
    }
}

async fn converse<S>(
    stream: S,
    peer: SocketAddr,
    admin: &AdminServerContext,
    seat: &Seat,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| async {
        Ok::<_, Infallible>(admin.answer(request, peer, seat).await)
    });
    let limits = ConnectionLimits {
        head_time: admin.limits.head_timeout,
        head_bytes: HEAD_BYTES_MAX,
        headers: HEADERS_MAX,
        half_close: true,
    };
    let late = async {
        stop.cancelled().await;
        sleep(admin.limits.stop_timeout).await;
    };
    tokio::select! {
        biased;
        ended = longhaul_http::converse(stream, service, limits, stop) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection of the admin interface ended");
            }
        }
        () = late => {}
    }
}

impl AdminServerContext {
    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        seat: &Seat,
    ) -> Response<Full<Bytes>> {
        let late = "not answered in time: the request may still take effect";
        let processed = timeout(self.limits.request_timeout, self.process(request, peer, seat));
        let answer = match processed.await {
            Ok(Ok(answer) | Err(answer)) => answer,
            Err(_) => AdminResponse::refusal(StatusCode::SERVICE_UNAVAILABLE, late),
        };
        seat.waits(clock::monotonic());
        response(answer)
    }

    /// `Ok` and `Err` are both answers; `Err` is a refusal.
    async fn process(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        seat: &Seat,
    ) -> Result<AdminResponse, AdminResponse> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        guard::check(&self.guard, request.uri(), request.headers(), scheme)?;
        let asker = self.authenticate(&request).map_err(|error| {
            self.tell(peer, error);
            unknown(&error)
        })?;
        let (head, body) = request.into_parts();
        let target = RequestTarget::parse(head.uri.path(), head.uri.query())?;
        // Without a token, no request has a body that counts.
        let body = if asker.is_none() || head.method == Method::GET {
            Bytes::new()
        } else {
            let access = access_of(head.method.as_str(), &target)?;
            self.authorize(asker.as_ref(), access, peer).await?;
            self.read(body).await?
        };
        if !seat.is_asked() {
            let text = "this connection made room for others: nothing was done";
            return Err(AdminResponse::refusal(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        let asked = AdminRequest { method: head.method.as_str(), target: &target, body: &body };
        let route = match route(asked) {
            Ok(route) => route,
            // Without a token, the answer does not reveal what exists.
            Err(_) if asker.is_none() => return Err(unknown(&AuthError::Missing)),
            Err(error) => return Err(error.into()),
        };
        if asker.is_none() && route.access != AdminAccess::Everybody {
            self.tell(peer, AuthError::Missing);
        }
        self.authorize(asker.as_ref(), route.access, peer).await?;
        Ok(match route.work {
            Work::Tell(show) => show(&self.advertised),
            Work::Backup(work) => work(self.backup.as_deref())?,
            Work::Ask(work) => self.ask(head.method == Method::GET, work).await?(&self.advertised),
            Work::Read(find) => {
                AdminResponse::message(&self.read_entry(self.ask(true, find).await?).await?)
            }
            Work::Metrics(selection) => {
                // `None` is unreachable: metrics need a token.
                let role = asker.unwrap_or_default();
                // A monitor sees all metrics.
                let viewer = if role.monitor { None } else { Some(role) };
                let asked = move |machine: &mut BrokerMachine| {
                    Ok(match selection {
                        Some(selection) => machine.selected_metrics(viewer.as_ref(), &selection),
                        None => machine.metrics(viewer.as_ref()),
                    })
                };
                let mut metrics = self.ask(true, asked).await?;
                if metrics.part == MetricsPart::All {
                    metrics.log.usage = self.usage().await;
                    metrics.log.upkeep = self.upkeep.figures(self.backup.as_deref());
                }
                AdminResponse::metrics(&metrics)
            }
        })
    }

    /// Runs work in the machine. Unless it only reads, its result is on disk then.
    async fn ask<T: Send + 'static>(
        &self,
        is_read: bool,
        work: impl FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError> + Send + 'static,
    ) -> Result<T, AdminCallError> {
        let (call, result) = MachineCall::new(is_read, work);
        self.core.send(call).await;
        let ending = |_| AdminCallError::Unavailable("the broker is stopping".to_owned());
        result.await.map_err(ending)?
    }

    async fn read_entry(
        &self,
        found: StoredEntryLocation,
    ) -> Result<StoredMessage, AdminCallError> {
        let core = Arc::clone(&self.core);
        let failed = |error: JoinError| AdminCallError::Internal(error.to_string());
        let payload = spawn_blocking(move || core.read(found.location)).await.map_err(failed)??;
        Ok(StoredMessage { position: found.position, payload })
    }

    /// Sizes of the data directory; `None` if the disk does not tell.
    async fn usage(&self) -> Option<Usage> {
        let core = Arc::clone(&self.core);
        // A disk that does not answer must not hide the other metrics.
        let usage = timeout(USAGE_TIME_MAX, spawn_blocking(move || core.usage())).await;
        let usage = usage.ok()?.ok()?;
        usage
            .inspect_err(|error| tracing::debug!(%error, "the data directory is not looked at"))
            .ok()
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, AdminResponse> {
        let limit = self.limits.body_bytes;
        match Limited::new(body, limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                let reason = format!("the body has more than {limit} bytes, the limit");
                Err(AdminResponse::refusal(StatusCode::PAYLOAD_TOO_LARGE, &reason))
            }
            Err(_) => {
                Err(AdminResponse::refusal(StatusCode::BAD_REQUEST, "the body is incomplete"))
            }
        }
    }

    /// The role of the sender. Without a token, which suffices for a few paths, there is none.
    fn authenticate(&self, request: &Request<Incoming>) -> Result<Option<AuthRole>, AuthError> {
        let Some(authenticator) = &self.authenticator else {
            return Ok(Some(AuthRole::trusted()));
        };
        let Some(header) = request.headers().get(AUTHORIZATION) else { return Ok(None) };
        let header = header.as_bytes().split_at_checked(BEARER.len());
        let bearer = header.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BEARER));
        let (_, token) = bearer.ok_or(AuthError::Missing)?;
        authenticator.authenticate("token", token, (self.clock)()).map(Some)
    }

    fn tell(&self, peer: SocketAddr, why: impl Into<AuthRefusalReason>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let told = refused.note(&peer.to_string(), why, (self.clock)());
        drop(refused);
        if let Some(text) = told {
            tracing::warn!("admin interface: {text}");
        }
    }

    async fn authorize(
        &self,
        asker: Option<&AuthRole>,
        access: AdminAccess,
        peer: SocketAddr,
    ) -> Result<(), AdminResponse> {
        let role = match asker {
            None if access == AdminAccess::Everybody => return Ok(()),
            None => return Err(unknown(&AuthError::Missing)),
            Some(role) if role.superuser => return Ok(()),
            Some(role) => role,
        };
        let denied = |why| {
            let text = format!("the role `{}` {why}", role.name);
            self.tell(peer, AuthRefusalReason::Request(text.clone()));
            Err(AdminCallError::Forbidden(text).into())
        };
        match access {
            AdminAccess::Everybody | AdminAccess::Authenticated => Ok(()),
            AdminAccess::Superuser => denied("is not a superuser"),
            AdminAccess::Viewer(_) if role.monitor => Ok(()),
            AdminAccess::Tenant(tenant) => {
                let name = role.name.clone();
                let administers =
                    move |machine: &mut BrokerMachine| Ok(machine.administers(&name, &tenant));
                if self.ask(true, administers).await? {
                    Ok(())
                } else {
                    denied("is not a superuser and does not administer this tenant")
                }
            }
            AdminAccess::Namespace(namespace) => {
                let tenant = namespace.split('/').next().unwrap_or_default().to_owned();
                let grants = move |machine: &mut BrokerMachine| Ok(machine.grants_in(&namespace));
                if self.is_granted(role, tenant, None, grants).await? {
                    Ok(())
                } else {
                    denied(NO_GRANT)
                }
            }
            AdminAccess::Producer(topic) => {
                let tenant = topic.tenant().to_owned();
                let grants = move |machine: &mut BrokerMachine| machine.grants(&topic).map(Some);
                let produce = Some(AuthAction::Produce);
                if self.is_granted(role, tenant, produce, grants).await? {
                    Ok(())
                } else {
                    denied(NO_PRODUCE)
                }
            }
            AdminAccess::User(topic) | AdminAccess::Viewer(topic) => {
                let tenant = topic.tenant().to_owned();
                let grants = move |machine: &mut BrokerMachine| machine.grants(&topic).map(Some);
                if self.is_granted(role, tenant, None, grants).await? {
                    Ok(())
                } else {
                    denied(NO_GRANT)
                }
            }
        }
    }

    /// Whether the role administers the tenant, or one of these grants is for it and this action.
    async fn is_granted(
        &self,
        role: &AuthRole,
        tenant: String,
        action: Option<AuthAction>,
        grants: impl FnOnce(&mut BrokerMachine) -> Result<Option<Grants>, AdminCallError>
        + Send
        + 'static,
    ) -> Result<bool, AdminCallError> {
        let name = role.name.clone();
        let read = move |machine: &mut BrokerMachine| {
            let grants = grants(machine)?;
            Ok((machine.administers(&name, &tenant), grants))
        };
        let (administers, grants) = self.ask(true, read).await?;
        let authenticator = self.authenticator.as_ref();
        let grants = [grants.as_ref(), None];
        let allows = |known: &Arc<Authenticator>| match action {
            Some(action) => known.allows(role, grants, action),
            None => known.allows_any(role, grants),
        };
        Ok(administers || authenticator.is_some_and(allows))
    }
}

fn unknown(error: &AuthError) -> AdminResponse {
    let mut answer = AdminResponse::refusal(StatusCode::UNAUTHORIZED, &error.to_string());
    answer.headers.push((WWW_AUTHENTICATE.to_string(), "Bearer".to_owned()));
    answer
}

/// Converts an answer. Headers from messages that cannot be sent are left out.
fn response(answer: AdminResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    if let Some(content_type) = answer.content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    for (name, value) in answer.headers {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    response
}
