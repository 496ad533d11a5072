//! Encodes questions and decodes the broker's answers.

use super::call::{BrokerResponse, Lookup, LookupQuestion, ProducerOptions};
use super::producer::ConnectionProducer;
use super::requests::{PendingRequest, RequestKind};
use super::{ConnectionMachine, error};
use longhaul_transport::{Backlog, TransportError};
use longhaul_types::Position;
use longhaul_types::moment::Moment;
use longhaul_wire::messages::{
    Command, CommandAckResponse, CommandConsumerStats, CommandConsumerStatsResponse, CommandError,
    CommandGetLastMessageId, CommandGetLastMessageIdResponse, CommandLookupTopic,
    CommandLookupTopicResponse, CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse, CommandProducer, KeyValue, LookupType, MetadataType,
};

/// Metadata key by which producers and consumers name their client.
const CLIENT_NAME: &str = "client";
/// Request id of an error that concerns the whole connection.
const NO_REQUEST: u64 = u64::MAX;

impl<A, P> ConnectionMachine<A, P> {
    /// Starts a request whose answer goes to these receivers. Returns its id.
    pub(super) fn begin(&mut self, kind: RequestKind, tokens: Vec<A>, now: Moment) -> u64 {
        let request_id = self.draw_id();
        self.requests.insert(request_id, kind, tokens, now + self.times.answer);
        request_id
    }

    /// Metadata that the broker shows for a producer or consumer. A producer gets no name of ours:
    /// a broker that drops duplicates knows the sequence ids of a name, and would drop messages
    /// that are published under a used one.
    pub(super) fn introduction(&self) -> Vec<KeyValue> {
        let name = (!self.name.is_empty()).then(|| self.name.to_string());
        name.into_iter().map(|name| KeyValue::new(CLIENT_NAME, name)).collect()
    }

    pub(super) fn ask_partitions(&mut self, topic: String, token: A, now: Moment) {
        let request_id = self.begin(RequestKind::Partitions, vec![token], now);
        let metadata = CommandPartitionedTopicMetadata {
            topic,
            request_id,
            metadata_auto_creation_enabled: Some(false),
            ..CommandPartitionedTopicMetadata::default()
        };
        self.control.push_back(metadata.into());
    }

    pub(super) fn ask_lookup(&mut self, question: LookupQuestion, token: A, now: Moment) {
        let LookupQuestion { topic, authoritative, listener_name } = question;
        let request_id = self.begin(RequestKind::Lookup, vec![token], now);
        let lookup = CommandLookupTopic {
            topic,
            request_id,
            authoritative: Some(authoritative),
            advertised_listener_name: listener_name,
            ..CommandLookupTopic::default()
        };
        self.control.push_back(lookup.into());
    }

    pub(super) fn open_producer(&mut self, options: ProducerOptions, token: A, now: Moment) {
        let producer_id = self.draw_id();
        let request_id = self.begin(RequestKind::Producer(producer_id), vec![token], now);
        let producer = ConnectionProducer::new(options.batching, options.topic.clone());
        self.producers.insert(producer_id, producer);
        let producer = CommandProducer {
            topic: options.topic,
            producer_id,
            request_id,
            user_provided_producer_name: Some(false),
            schema: options.schema,
            metadata: self.introduction(),
            ..CommandProducer::default()
        };
        self.control.push_back(producer.into());
    }

    pub(super) fn ask_last(&mut self, consumer_id: u64, token: A, now: Moment) {
        let request_id = self.begin(RequestKind::Last(consumer_id), vec![token], now);
        self.control.push_back(CommandGetLastMessageId { consumer_id, request_id }.into());
    }

    pub(super) fn ask_stats(&mut self, consumer_id: u64, token: A, now: Moment) {
        let request_id = self.begin(RequestKind::Stats(consumer_id), vec![token], now);
        self.control.push_back(CommandConsumerStats { request_id, consumer_id }.into());
    }

    pub(super) fn handle_answer(&mut self, command: Command) {
        let Some(request_id) = request_id(&command) else {
            // A command that this version does not know or need, such as a change of the active
            // consumer.
            return;
        };
        if let Command::Error(refusal) = &command
            && request_id == NO_REQUEST
        {
            let cause = error::server(&self.address, refusal.error, &refusal.message);
            return self.fail(cause);
        }
        // `None`: the answer to a question that was given up.
        let Some(request) = self.requests.take(request_id) else { return };
        match self.read_answer(request.kind, command) {
            Ok(answer) => self.deliver_answer(request, &answer),
            Err(cause) => self.refuse(request, &cause),
        }
    }

    fn deliver_answer(&mut self, request: PendingRequest<A>, answer: &BrokerResponse) {
        let PendingRequest { kind, tokens, .. } = request;
        if let RequestKind::Consumer(id) = kind {
            self.consumer_opened(id);
        }
        for token in tokens {
            self.answer(token, Ok(answer.clone()));
        }
        if let RequestKind::Consumer(id) = kind {
            self.tell_drained(id);
        }
    }

    /// The broker refused a question: its producer or consumer does not exist.
    fn refuse(&mut self, request: PendingRequest<A>, cause: &TransportError) {
        match request.kind {
            RequestKind::Producer(id) => self.end_producer(id, cause),
            RequestKind::Consumer(id) => self.end_consumer(id, cause),
            RequestKind::Partitions
            | RequestKind::Lookup
            | RequestKind::Last(_)
            | RequestKind::Stats(_)
            | RequestKind::Ack(_)
            | RequestKind::Done => {}
        }
        for token in request.tokens {
            self.answer(token, Err(cause.clone()));
        }
    }

    /// The answer is late or missing. The broker may have opened the producer or consumer, or may
    /// still do so; it is told to close it.
    pub(super) fn give_up(
        &mut self,
        request: PendingRequest<A>,
        cause: &TransportError,
        now: Moment,
    ) {
        let kind = request.kind;
        self.refuse(request, cause);
        match kind {
            RequestKind::Producer(id) => self.close_producer(id, now),
            RequestKind::Consumer(id) => self.close_consumer(id, now),
            RequestKind::Partitions
            | RequestKind::Lookup
            | RequestKind::Last(_)
            | RequestKind::Stats(_)
            | RequestKind::Ack(_)
            | RequestKind::Done => {}
        }
    }

    fn read_answer(
        &mut self,
        kind: RequestKind,
        command: Command,
    ) -> Result<BrokerResponse, TransportError> {
        match (kind, command) {
            (_, Command::Error(CommandError { error, message, .. })) => {
                Err(self.refusal(Some(error), Some(message)))
            }
            (RequestKind::Partitions, Command::PartitionedMetadataResponse(answer)) => {
                self.partitions(answer)
            }
            (RequestKind::Lookup, Command::LookupResponse(answer)) => self.lookup(*answer),
            (RequestKind::Producer(id), Command::ProducerSuccess(success)) => {
                self.producer_opened(id, *success);
                Ok(BrokerResponse::Producer { id, message_bytes_max: self.message_bytes_max })
            }
            (RequestKind::Consumer(id), Command::Success(_)) => Ok(BrokerResponse::Consumer(id)),
            (RequestKind::Last(_), Command::GetLastMessageIdResponse(answer)) => Ok(last(&answer)),
            (RequestKind::Stats(_), Command::ConsumerStatsResponse(answer)) => self.stats(*answer),
            (
                RequestKind::Ack(_) | RequestKind::Done,
                Command::AckResponse(CommandAckResponse { error: Some(code), message, .. }),
            ) => Err(self.refusal(Some(code), message)),
            (
                RequestKind::Ack(_) | RequestKind::Done,
                Command::AckResponse(_) | Command::Success(_),
            ) => Ok(BrokerResponse::Done),
            (_, other) => {
                let cause = format!("an unexpected answer: command {}", other.number());
                Err(error::refused(&self.address, cause))
            }
        }
    }

    fn refusal(&self, code: Option<i32>, message: Option<String>) -> TransportError {
        error::server(&self.address, code.unwrap_or_default(), &message.unwrap_or_default())
    }

    fn partitions(
        &self,
        answer: CommandPartitionedTopicMetadataResponse,
    ) -> Result<BrokerResponse, TransportError> {
        if answer.response() == MetadataType::Success {
            Ok(BrokerResponse::Partitions(answer.partitions()))
        } else {
            Err(self.refusal(answer.error, answer.message))
        }
    }

    fn lookup(&self, answer: CommandLookupTopicResponse) -> Result<BrokerResponse, TransportError> {
        if answer.response.is_none() || answer.response() == LookupType::Failed {
            return Err(self.refusal(answer.error, answer.message));
        }
        Ok(BrokerResponse::Lookup(Lookup {
            redirect: answer.response() == LookupType::Redirect,
            authoritative: answer.authoritative(),
            proxied: answer.proxy_through_service_url(),
            url: answer.broker_service_url.unwrap_or_default(),
            url_tls: answer.broker_service_url_tls.unwrap_or_default(),
        }))
    }

    fn stats(
        &self,
        answer: CommandConsumerStatsResponse,
    ) -> Result<BrokerResponse, TransportError> {
        if answer.error_code.is_some() {
            return Err(self.refusal(answer.error_code, answer.error_message));
        }
        Ok(BrokerResponse::Stats(Backlog {
            entries: answer.msg_backlog(),
            permits: answer.available_permits(),
            blocked: answer.blocked_consumer_on_unacked_msgs(),
        }))
    }
}

/// Id of the request that a command answers.
#[expect(clippy::wildcard_enum_match_arm, reason = "only answers have the number of a request")]
const fn request_id(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Error(answer) => answer.request_id,
        Command::Success(answer) => answer.request_id,
        Command::ProducerSuccess(answer) => answer.request_id,
        Command::LookupResponse(answer) => answer.request_id,
        Command::PartitionedMetadataResponse(answer) => answer.request_id,
        Command::GetLastMessageIdResponse(answer) => answer.request_id,
        Command::ConsumerStatsResponse(answer) => answer.request_id,
        Command::AckResponse(answer) => return answer.request_id,
        _ => return None,
    })
}

fn last(answer: &CommandGetLastMessageIdResponse) -> BrokerResponse {
    let id = &answer.last_message_id;
    let exists = id.ledger_id != u64::MAX && id.entry_id != u64::MAX;
    // For a message outside a batch, brokers send -1, and 0 before 3.0. Index 0 is treated as no
    // batch: that position is not before the one of a batch's only message.
    let batch_index = id.batch_index.and_then(|index| u32::try_from(index).ok());
    let batch_index = batch_index.filter(|index| *index > 0);
    let last = Position { ledger: id.ledger_id, entry: id.entry_id, batch_index };
    BrokerResponse::Last(exists.then_some(last))
}
