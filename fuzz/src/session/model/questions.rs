//! Questions, acks and ends: which frame asks what, and which answer belongs to it.

use super::{ANSWER_MAX, Context, Model, Stage, Step, Waiting};
use longhaul_session::machine::call::{BrokerRequest, BrokerResponse, ConnectionCall};
use longhaul_transport::TransportError;
use longhaul_transport::moment::Moment;
use longhaul_wire::messages::{Command, LookupType, MetadataType};

/// What a request is about. Numbers are those of producers and consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Partitions,
    Lookup,
    Producer(u64),
    Consumer(u64),
    Last(u64),
    Stats(u64),
    Ack(u64),
    Close,
}

impl Kind {
    /// Whether the broker ends with this command what the question is about.
    pub(super) fn is_closed_by(self, command: &Command) -> bool {
        let (consumer, producer) = match command {
            Command::CloseConsumer(it) => (Some(it.consumer_id), None),
            Command::CloseProducer(it) => (None, Some(it.producer_id)),
            Command::TopicMigrated(it) if it.resource_type == 0 => (None, Some(it.resource_id)),
            Command::TopicMigrated(it) => (Some(it.resource_id), None),
            _ => return false,
        };
        match self {
            Self::Producer(id) => producer == Some(id),
            Self::Consumer(id) | Self::Last(id) | Self::Stats(id) | Self::Ack(id) => {
                consumer == Some(id)
            }
            Self::Partitions | Self::Lookup | Self::Close => false,
        }
    }
}

/// A request that is written and has no answer.
#[derive(Clone, Debug)]
pub(in super::super) struct Request {
    pub(in super::super) kind: Kind,
    pub(super) tokens: Vec<u64>,
}

impl Request {
    pub(super) const fn of_nobody() -> Self {
        Self { kind: Kind::Close, tokens: Vec::new() }
    }
}

/// A question whose command is not written yet.
#[derive(Debug)]
pub(super) struct Asked {
    question: BrokerRequest,
}

impl Asked {
    pub(super) fn of(question: &BrokerRequest) -> Self {
        Self { question: question.clone() }
    }
}

/// Which request a command answers.
pub(super) fn request_id(command: &Command) -> Option<u64> {
    match command {
        Command::Error(it) => Some(it.request_id),
        Command::Success(it) => Some(it.request_id),
        Command::ProducerSuccess(it) => Some(it.request_id),
        Command::LookupResponse(it) => Some(it.request_id),
        Command::PartitionedMetadataResponse(it) => Some(it.request_id),
        Command::GetLastMessageIdResponse(it) => Some(it.request_id),
        Command::ConsumerStatsResponse(it) => Some(it.request_id),
        Command::AckResponse(it) => it.request_id,
        _ => None,
    }
}

/// Whether a command answers a request of this kind with a yes.
fn grants(kind: Kind, command: &Command) -> bool {
    match (kind, command) {
        (Kind::Partitions, Command::PartitionedMetadataResponse(it)) => {
            it.response() == MetadataType::Success
        }
        (Kind::Lookup, Command::LookupResponse(it)) => {
            it.response.is_some() && it.response() != LookupType::Failed
        }
        (Kind::Producer(_), Command::ProducerSuccess(_))
        | (Kind::Consumer(_) | Kind::Ack(_) | Kind::Close, Command::Success(_))
        | (Kind::Last(_), Command::GetLastMessageIdResponse(_)) => true,
        (Kind::Stats(_), Command::ConsumerStatsResponse(it)) => it.error_code.is_none(),
        (Kind::Ack(_) | Kind::Close, Command::AckResponse(it)) => it.error.is_none(),
        _ => false,
    }
}

/// Whether an answer says what the broker has said.
fn tells(answer: &BrokerResponse, command: &Command) -> bool {
    match (answer, command) {
        (BrokerResponse::Partitions(count), Command::PartitionedMetadataResponse(it)) => {
            *count == it.partitions()
        }
        (BrokerResponse::Lookup(found), Command::LookupResponse(it)) => {
            let redirect = it.response() == LookupType::Redirect;
            found.url == it.broker_service_url() && found.redirect == redirect
        }
        (BrokerResponse::Last(last), Command::GetLastMessageIdResponse(it)) => {
            let id = &it.last_message_id;
            let exists = id.ledger_id != u64::MAX && id.entry_id != u64::MAX;
            last.map(|it| (it.ledger, it.entry)) == exists.then_some((id.ledger_id, id.entry_id))
        }
        (BrokerResponse::Stats(stats), Command::ConsumerStatsResponse(it)) => {
            stats.entries == it.msg_backlog() && stats.permits == it.available_permits()
        }
        (BrokerResponse::Producer { .. }, Command::ProducerSuccess(_))
        | (BrokerResponse::Consumer(_), Command::Success(_))
        | (BrokerResponse::Done, Command::AckResponse(_) | Command::Success(_)) => true,
        _ => false,
    }
}

impl Model {
    /// A token has come back from a question or an ack.
    pub(super) fn answered(
        &mut self,
        step: &Step,
        context: &Context,
        token: u64,
        result: &Result<BrokerResponse, TransportError>,
    ) -> Option<ConnectionCall<u64, u64>> {
        let waiting = self.waiting.remove(&token).expect("a token came that nobody waits for");
        let request = context.answered.as_ref().filter(|it| it.tokens.contains(&token));
        match (result, step) {
            (Ok(answer), Step::Heard(frame)) => {
                assert!(tells(answer, &frame.command), "{answer:?} is not what was said");
                match request {
                    Some(it) => assert!(grants(it.kind, &frame.command), "not for {:?}", it.kind),
                    None => assert!(self.may_be_guessed(token), "not for this question"),
                }
                return self.opened(token, answer, request.map(|it| it.kind), &frame.command);
            }
            (Ok(answer), _) => panic!("{answer:?}, and the broker said nothing"),
            (Err(_), _) if context.is_over || self.phase == super::Phase::Ended => {}
            (Err(_), Step::Call(Some(called))) => {
                assert!(*called == token && self.may_be_refused(&waiting), "refused: {waiting:?}");
            }
            (Err(cause), Step::Heard(frame)) => {
                let refused = request.is_some_and(|it| !self.is_granted(it.kind, &frame.command));
                let closed = self.is_closed(token, &waiting, &frame.command);
                let allowed = refused
                    || closed
                    || self.may_be_guessed(token)
                    || self.is_lost(&waiting, context);
                assert!(allowed, "{waiting:?} has the error of another: {cause}");
            }
            (Err(cause), Step::Tick) => {
                let since = match &waiting {
                    Waiting::Question { since } => Some(*since),
                    Waiting::Ack { written, .. } => *written,
                    Waiting::Publish { .. } => None,
                };
                let is_late = since.is_some_and(|at| self.now >= at + ANSWER_MAX);
                assert!(is_late || self.is_lost(&waiting, context), "{waiting:?} early: {cause}");
            }
            (Err(cause), _) => panic!("{waiting:?} has an error from nowhere: {cause}"),
        }
        None
    }

    /// What was opened for somebody; if that one is gone it is closed at once.
    fn opened(
        &mut self,
        token: u64,
        answer: &BrokerResponse,
        kind: Option<Kind>,
        command: &Command,
    ) -> Option<ConnectionCall<u64, u64>> {
        let is_forsaken = self.forsaken.remove(&token);
        if let BrokerResponse::Producer { id, message_bytes_max } = answer {
            assert!(kind.is_none_or(|it| it == Kind::Producer(*id)), "another producer");
            assert_eq!(*message_bytes_max, self.message_bytes_max);
            let opened = self.producers.entry(*id).or_default();
            assert!(!opened.is_over, "a producer that is over is no answer");
            if let Some((_, Asked { question: BrokerRequest::Producer(options) })) =
                self.asked.iter().find(|(asked, _)| *asked == token)
            {
                opened.batching = options.batching;
            }
            if let Command::ProducerSuccess(success) = command {
                opened.open(success.last_sequence_id());
            }
            return is_forsaken.then_some(ConnectionCall::CloseProducer(*id));
        }
        if let BrokerResponse::Consumer(id) = answer {
            assert!(kind.is_none_or(|it| it == Kind::Consumer(*id)), "another consumer");
            let opened = self.consumers.entry(*id).or_default();
            assert!(!opened.is_over, "a consumer that is over is no answer");
            if let Some((_, Asked { question: BrokerRequest::Consumer(options) })) =
                self.asked.iter().find(|(asked, _)| *asked == token)
            {
                opened.subscribe(options);
            }
            opened.stage = Stage::Open;
            return is_forsaken.then_some(ConnectionCall::CloseConsumer(*id));
        }
        None
    }

    /// The broker may answer what it has not been asked yet.
    fn may_be_guessed(&self, token: u64) -> bool {
        !self.guessed.is_empty() && self.asked.iter().any(|(asked, _)| *asked == token)
    }

    /// The broker has ended what this question was about, or what it would have opened.
    fn is_closed(&self, token: u64, waiting: &Waiting, command: &Command) -> bool {
        let is_of = |kind: Kind| kind.is_closed_by(command);
        let written = self.requests.values().find(|it| it.tokens.contains(&token));
        let asked = self.asked.iter().find(|(asked, _)| *asked == token);
        let is_asked = match asked.map(|(_, it)| &it.question) {
            Some(BrokerRequest::Last { consumer } | BrokerRequest::Stats { consumer }) => {
                is_of(Kind::Last(*consumer))
            }
            // What it is to be called is not known before it is written.
            Some(BrokerRequest::Consumer(_)) => !matches!(command, Command::CloseProducer(_)),
            Some(BrokerRequest::Producer(_)) => !matches!(command, Command::CloseConsumer(_)),
            _ => false,
        };
        let is_ack =
            matches!(waiting, Waiting::Ack { consumer, .. } if is_of(Kind::Ack(*consumer)));
        written.is_some_and(|it| is_of(it.kind)) || is_asked || is_ack
    }

    fn may_be_refused(&self, waiting: &Waiting) -> bool {
        match waiting {
            Waiting::Ack { consumer, .. } => {
                self.consumers.get(consumer).is_none_or(|it| it.is_over)
            }
            Waiting::Question { .. } | Waiting::Publish { .. } => false,
        }
    }

    /// An ack that was not written when its consumer ended.
    fn is_lost(&self, waiting: &Waiting, context: &Context) -> bool {
        matches!(waiting, Waiting::Ack { consumer, written: None } if context.consumers_over.contains(consumer))
    }

    /// A yes to something that is over comes to nothing.
    fn is_granted(&self, kind: Kind, command: &Command) -> bool {
        grants(kind, command)
            && match kind {
                Kind::Producer(id) => self.producers.get(&id).is_some_and(|it| !it.is_over),
                Kind::Consumer(id) => self.consumers.get(&id).is_some_and(|it| !it.is_over),
                _ => true,
            }
    }

    /// Whoever waits for this answer has it.
    pub(super) fn check_answered(&mut self, request: &Request, command: &Command) {
        let is_granted = self.is_granted(request.kind, command);
        let forgotten = request.tokens.iter().find(|it| self.waiting.contains_key(it));
        assert!(forgotten.is_none(), "{forgotten:?} is not told its answer");
        if !grants(request.kind, command) || is_granted {
            return;
        }
        // It is open at the broker and nowhere else.
        match request.kind {
            Kind::Producer(id) if self.producers.get(&id).is_none_or(|it| !it.is_closed) => {
                self.producers_to_close.insert(id);
            }
            Kind::Consumer(id) if self.consumers.get(&id).is_none_or(|it| !it.is_closed) => {
                self.consumers_to_close.insert(id);
            }
            _ => {}
        }
    }

    /// A question was asked: it waits to be written, or was refused at once.
    pub(super) fn take_question(&mut self, token: u64) {
        let waits = self.waiting.contains_key(&token);
        if !waits && self.asked.back().is_some_and(|(it, _)| *it == token) {
            self.asked.pop_back();
        }
    }

    /// A command that asks something was written: it belongs to the first question that was not written yet.
    pub(super) fn wrote_question(&mut self, command: &Command) {
        let (token, Asked { question }) = self.asked.pop_front().expect("nobody asked");
        let topic_of_token = format!("topic-{token}");
        let (id, kind) = match (command, &question) {
            (Command::PartitionedMetadata(it), BrokerRequest::Partitions { topic }) => {
                assert_eq!((&it.topic, topic), (topic, &topic_of_token));
                (it.request_id, Kind::Partitions)
            }
            (Command::Lookup(it), BrokerRequest::Lookup(asked)) => {
                assert_eq!((&it.topic, it.authoritative()), (&asked.topic, asked.authoritative));
                assert_eq!(it.advertised_listener_name, asked.listener_name);
                (it.request_id, Kind::Lookup)
            }
            (Command::Producer(it), BrokerRequest::Producer(options)) => {
                assert_eq!(it.topic, options.topic);
                self.producers.entry(it.producer_id).or_default().batching = options.batching;
                (it.request_id, Kind::Producer(it.producer_id))
            }
            (Command::Subscribe(it), BrokerRequest::Consumer(options)) => {
                assert_eq!(it.topic, options.topic);
                let consumer = self.consumers.entry(it.consumer_id).or_default();
                // The broker may have guessed the number of this request, and answered it.
                if consumer.stage == Stage::Opening {
                    consumer.subscribe(options);
                }
                (it.request_id, Kind::Consumer(it.consumer_id))
            }
            (Command::GetLastMessageId(it), BrokerRequest::Last { consumer }) => {
                assert_eq!(it.consumer_id, *consumer);
                (it.request_id, Kind::Last(*consumer))
            }
            (Command::ConsumerStats(it), BrokerRequest::Stats { consumer }) => {
                assert_eq!(it.consumer_id, *consumer);
                (it.request_id, Kind::Stats(*consumer))
            }
            other => panic!("not what was asked: {other:?}"),
        };
        if self.waiting.contains_key(&token) {
            let before = self.requests.insert(id, Request { kind, tokens: vec![token] });
            assert!(before.is_none(), "a number of a request twice");
        }
    }

    pub(super) fn record_ack(
        &mut self,
        request: u64,
        consumer: u64,
        tokens: Vec<u64>,
        now: Moment,
    ) {
        for token in &tokens {
            match self.waiting.get_mut(token) {
                Some(Waiting::Ack { written, .. }) => *written = Some(now),
                other => panic!("an ack that nobody waits for: {other:?}"),
            }
        }
        self.requests.insert(request, Request { kind: Kind::Ack(consumer), tokens });
    }
}
