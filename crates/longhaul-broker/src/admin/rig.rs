//! The interface on a machine with a log that never fails, for tests.

use super::answer::{AdminResponse, Advertised};
use super::call::MachineCall;
use super::route::{AdminRequest, AdminRoute, Work, access_of, route};
use super::serve::Core;
use super::target::RequestTarget;
use super::values::{AdminCallError, StoredEntryLocation, StoredMessage};
use crate::kit;
pub(super) use crate::kit::START;
use crate::log::{LogOptions, RecordLocation, SimulatedStorage, Stepped, Usage};
use crate::machine::BrokerMachine;
use crate::machine::effect::{ClientRequest, MachineEffect};
use crate::server::requests::verified;
use crate::state::entry::EntryHead;
use longhaul_wire::messages::{
    Command, CommandConnect, CommandProducer, CommandSend, CommandSubscribe, MessageMetadata,
};
use longhaul_wire::payload::Payload;
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;

/// The answer without content.
pub(super) const DONE: (u16, Value) = (204, Value::Null);

pub(super) struct AdminRig {
    pub(super) machine: BrokerMachine,
    log: Stepped,
    now: u64,
    last_number: u64,
}

impl AdminRig {
    /// Creates a rig with one connection.
    pub(super) fn new() -> Self {
        let options = LogOptions {
            segment_bytes_first: 1 << 16,
            segment_bytes_max: 1 << 20,
            body_bytes_max: 1 << 16,
            salt: 1,
            facts: Some(EntryHead::facts),
        };
        let storage = SimulatedStorage::new(1);
        let (machine, log) = kit::machine(kit::settings(), &options, &storage, None);
        let mut rig = Self { machine, log, now: START, last_number: 0 };
        rig.machine.opened(1, "/test".to_owned());
        rig.command(CommandConnect { protocol_version: Some(21), ..CommandConnect::default() });
        rig
    }

    /// The answer to a request: its status, and its body as JSON, or else as text.
    pub(super) fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.answer(method, path, body).unwrap_or_else(AdminResponse::from);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let value = if text.is_empty() { Value::Null } else { Value::String(text.clone()) };
        (answer.status.as_u16(), serde_json::from_str(&text).unwrap_or(value))
    }

    pub(super) fn answer(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<AdminResponse, AdminCallError> {
        Ok(match routed(method, path, body)?.work {
            Work::Ask(work) => self.call(work)?(&advertised()),
            Work::Read(find) => {
                let StoredEntryLocation { position, location } = self.call(find)?;
                AdminResponse::message(&StoredMessage { position, payload: self.read(location)? })
            }
            Work::Metrics(Some(selection)) => {
                AdminResponse::metrics(&self.machine.selected_metrics(None, &selection))
            }
            Work::Metrics(None) => AdminResponse::metrics(&self.machine.metrics(None)),
            Work::Tell(show) => show(&advertised()),
            Work::Backup(work) => work(None)?,
        })
    }

    /// Runs a call, and returns its result when it is on disk.
    pub(super) fn call<T>(&mut self, work: impl FnOnce(&mut BrokerMachine) -> T) -> T {
        self.last_number += 1;
        let ticket = self.last_number;
        let result = self.machine.call(ticket, work);
        let effects = self.settle();
        assert!(
            effects
                .iter()
                .any(|effect| matches!(effect, MachineEffect::Reply(told) if *told == ticket))
        );
        result
    }

    fn read(&self, location: RecordLocation) -> Result<Payload, AdminCallError> {
        let mut body = self.log.reader().read(location).unwrap();
        EntryHead::skip(&mut body);
        Payload::parse(body).map_err(|error| AdminCallError::Internal(error.to_string()))
    }

    fn settle(&mut self) -> Vec<MachineEffect> {
        kit::settle(&mut self.machine, &mut self.log);
        self.machine.take_effects()
    }

    fn command(&mut self, command: impl Into<Command>) {
        self.machine.request(1, ClientRequest::Command(command.into()));
        self.settle();
    }

    /// Advances the time.
    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.machine.set_time(self.now, self.now);
    }

    /// Opens a producer of a topic, by its short name. Returns its id.
    pub(super) fn produce(&mut self, topic: &str) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.command(CommandProducer {
            topic: topic.to_owned(),
            producer_id: number,
            request_id: number,
            ..CommandProducer::default()
        });
        number
    }

    /// Publishes a message.
    pub(super) fn publish(&mut self, producer_id: u64, metadata: &MessageMetadata, body: &[u8]) {
        let send = CommandSend { producer_id, ..CommandSend::default() };
        let message = verified(Payload::new(metadata, body));
        self.machine.request(1, ClientRequest::Publish(send, message));
        self.settle();
    }

    /// Publishes this many messages, one per second, starting now.
    pub(super) fn fill(&mut self, topic: &str, count: u8) {
        let producer = self.produce(topic);
        for number in 0..count {
            let metadata = MessageMetadata { publish_time: self.now, ..MessageMetadata::default() };
            self.publish(producer, &metadata, &[b'0' + number]);
            self.pass(1000);
        }
    }

    /// Opens a consumer of a topic, by its short name.
    pub(super) fn consume(&mut self, topic: &str, subscription: &str) {
        self.last_number += 1;
        self.command(CommandSubscribe {
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            consumer_id: self.last_number,
            request_id: self.last_number,
            initial_position: Some(1),
            ..CommandSubscribe::default()
        });
    }
}

pub(super) fn routed(method: &str, path: &str, body: &str) -> Result<AdminRoute, AdminCallError> {
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let target = RequestTarget::parse(path, query)?;
    let routed = route(AdminRequest { method, target: &target, body: body.as_bytes() });
    if let Ok(route) = &routed
        && method != "GET"
    {
        let before = access_of(method, &target).ok();
        assert_eq!(before.as_ref(), Some(&route.access), "before the body is read");
    }
    routed
}

pub(super) fn advertised() -> Advertised {
    Advertised {
        broker_url: "pulsar://broker:6650".to_owned(),
        broker_url_tls: None,
        http_url: "http://broker:8080".to_owned(),
        http_url_tls: None,
        message_bytes_max: 5_242_880,
    }
}

/// The rig behind a socket.
pub(super) struct SharedAdminRig(pub(super) Mutex<AdminRig>);

impl Core for SharedAdminRig {
    fn send(&self, call: MachineCall) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut rig = self.0.lock().unwrap();
        let tell = rig.call(|machine| call.run(machine));
        tell();
        Box::pin(std::future::ready(()))
    }

    fn read(&self, location: RecordLocation) -> Result<Payload, AdminCallError> {
        self.0.lock().unwrap().read(location)
    }

    fn usage(&self) -> io::Result<Usage> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Accepts calls and never runs them.
pub(super) struct StuckCore;

impl Core for StuckCore {
    fn send(&self, call: MachineCall) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(call);
        })
    }

    fn read(&self, _: RecordLocation) -> Result<Payload, AdminCallError> {
        Err(AdminCallError::Internal("nothing is read".to_owned()))
    }

    fn usage(&self) -> io::Result<Usage> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
