//! Producers: what they were given, what they wrote, and the receipts.

use super::{Context, Model, Step, Waiting};
use longhaul_transport::moment::Moment;
use longhaul_transport::{Batching, Position, PublishError};
use longhaul_wire::batch::Singles;
use longhaul_wire::messages::{Command, CommandSend};
use longhaul_wire::payload::Payload;
use std::collections::VecDeque;
use std::time::Duration;

const RECEIPT_MAX: Duration = Duration::from_secs(30);
/// Entries of a producer that batches which may be without a receipt.
const BATCHES_MAX: usize = 4;
/// A message may be refused that is nearer to the limit than this, which is more than its metadata have.
const METADATA_BYTES_MAX: usize = 256;

pub(in super::super) struct Producer {
    pub(super) batching: Batching,
    /// The sequence id that comes next, when it is open.
    next: Option<u64>,
    /// What was not written yet.
    pub(super) queue: VecDeque<u64>,
    pub(in super::super) in_flight: VecDeque<Entry>,
    pub(super) is_closing: bool,
    pub(super) is_closed: bool,
    pub(super) is_over: bool,
}

impl Default for Producer {
    fn default() -> Self {
        Self {
            batching: Batching::Off,
            next: None,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            is_closing: false,
            is_closed: false,
            is_over: false,
        }
    }
}

/// An entry that was written.
#[derive(Debug)]
pub(in super::super) struct Entry {
    pub(in super::super) sequence: u64,
    pub(super) tokens: Vec<u64>,
    since: Moment,
    is_batch: bool,
}

impl Producer {
    /// The broker has opened it, and knows sequence ids of its name up to this one.
    pub(super) fn open(&mut self, last: i64) {
        assert!(self.next.is_none(), "opened twice");
        self.next = Some(last.saturating_add(1).max(0).unsigned_abs());
    }

    /// The broker has refused the entry with a message of this sequence id. Behind a batch each goes alone.
    pub(super) fn refused(&mut self, sequence: u64) -> Option<Entry> {
        let end = |it: &Entry| it.sequence + it.tokens.len() as u64;
        let holds = |it: &Entry| (it.sequence..end(it)).contains(&sequence);
        let at = self.in_flight.iter().position(holds)?;
        let entry = self.in_flight.remove(at)?;
        if entry.is_batch {
            self.batching = Batching::Off;
        }
        Some(entry)
    }

    pub(super) fn has_written_all(&self) {
        if self.is_over || self.next.is_none() {
            return;
        }
        let is_full = self.batching == Batching::On && self.in_flight.len() >= BATCHES_MAX;
        assert!(self.queue.is_empty() || is_full, "a producer is stuck");
        let is_done = self.queue.is_empty() && self.in_flight.is_empty();
        assert!(!self.is_closing || !is_done, "a producer is not closed");
    }
}

/// Which messages an entry has, by key, and how large each is.
fn messages(payload: &Payload) -> Vec<(u64, usize)> {
    let token = |key: Option<String>| key.and_then(|it| it.parse().ok()).unwrap_or_default();
    payload.verify().expect("its checksum is right");
    let metadata = payload.metadata().expect("it can be read");
    match metadata.num_messages_in_batch {
        None => vec![(token(metadata.partition_key), payload.body().len())],
        Some(count) => {
            let count = usize::try_from(count).expect("a count");
            let singles = Singles::new(payload.body(), count).map(|it| it.expect("a message"));
            singles.map(|it| (token(it.metadata.partition_key), it.body.len())).collect()
        }
    }
}

impl Model {
    pub(super) fn wrote_send(&mut self, send: &CommandSend, payload: Option<&Payload>) {
        let payload = payload.expect("a SEND has a message");
        let messages = messages(payload);
        let limit = self.message_bytes_max + METADATA_BYTES_MAX;
        assert!(payload.bytes().len() <= limit, "an entry that is too large");
        let now = self.now;
        let Some(producer) = self.producers.get_mut(&send.producer_id) else {
            panic!("a SEND of nobody");
        };
        assert!(!producer.is_over && !producer.is_closed, "a SEND behind the end");
        assert_eq!(producer.next, Some(send.sequence_id), "the sequence goes on");
        let count = u64::try_from(messages.len()).expect("a count");
        assert_eq!(send.highest_sequence_id, Some(send.sequence_id + count - 1));
        assert_eq!(i64::from(send.num_messages()), count.cast_signed());
        producer.next = Some(send.sequence_id + count);
        let mut tokens = Vec::new();
        for (token, found) in messages {
            // What is skipped is refused in the same step: see `published`.
            let skipped = producer.queue.iter().position(|it| *it == token);
            producer.queue.drain(..=skipped.expect("written once, and in order"));
            let Some(Waiting::Publish { producer: owner, bytes, is_written }) =
                self.waiting.get_mut(&token)
            else {
                panic!("a message that nobody waits for");
            };
            assert_eq!((*owner, *bytes), (send.producer_id, found), "another message");
            assert!(!std::mem::replace(is_written, true), "a message is written once");
            tokens.push(token);
        }
        let is_batch = payload.metadata().is_ok_and(|it| it.num_messages_in_batch.is_some());
        let entry = Entry { sequence: send.sequence_id, tokens, since: now, is_batch };
        producer.in_flight.push_back(entry);
        let fits = producer.batching == Batching::Off || producer.in_flight.len() <= BATCHES_MAX;
        assert!(fits, "too many batches at once");
    }

    /// A token has come back from a publish.
    pub(super) fn published(
        &mut self,
        step: &Step,
        context: &Context,
        token: u64,
        result: &Result<Position, PublishError>,
    ) {
        let waiting = self.waiting.remove(&token).expect("a token came that nobody waits for");
        let Waiting::Publish { producer, bytes, is_written } = waiting else {
            panic!("a receipt for a question");
        };
        let entry = context.entry.as_ref().filter(|it| it.tokens.contains(&token));
        let receipt = match step {
            Step::Heard(frame) => match &frame.command {
                Command::SendReceipt(it) => Some(it.message_id.as_ref()),
                _ => None,
            },
            _ => None,
        };
        match (result, entry, receipt) {
            (Ok(place), Some(entry), Some(Some(id))) => {
                let index = entry.tokens.iter().position(|it| *it == token);
                let index = index.and_then(|it| u32::try_from(it).ok());
                assert_eq!((place.ledger, place.entry), (id.ledger_id, id.entry_id));
                assert_eq!(place.batch_index, index.filter(|_| entry.is_batch));
                assert!(place.ledger != u64::MAX && place.entry != u64::MAX, "no place");
            }
            (Ok(place), ..) => panic!("stored at {place:?}, and the broker has not said so"),
            (Err(PublishError::Refused(_)), Some(entry), None) => {
                assert!(!entry.is_batch, "it may have been another message of the batch");
            }
            (Err(PublishError::NotStored(_)), Some(entry), None) => {
                assert!(entry.is_batch, "it is refused for what it is");
            }
            (Err(PublishError::Refused(cause)), ..) => panic!("refused by nobody: {cause}"),
            (Err(PublishError::TooLarge { bytes: whole, bytes_max }), None, _) => {
                let is_judged = matches!(step, Step::Wrote) && !is_written;
                assert!(is_judged, "judged when it cannot be written: {step:?}");
                assert_eq!(*bytes_max, self.message_bytes_max, "the limit is the broker's");
                assert!(whole > bytes_max, "{whole} bytes are not too large");
                let body = bytes..=bytes + METADATA_BYTES_MAX;
                assert!(body.contains(whole), "{bytes} bytes and metadata are {whole}");
                if let Some(producer) = self.live_producer(producer) {
                    producer.queue.retain(|it| *it != token);
                }
            }
            (Err(_), Some(_), Some(id)) => {
                let is_place =
                    id.is_some_and(|it| it.ledger_id != u64::MAX && it.entry_id != u64::MAX);
                assert!(!is_place, "the broker has said where it is stored");
            }
            (Err(cause), ..) => {
                let is_over = self.producers.get(&producer).is_none_or(|it| it.is_over);
                let at_once = matches!(step, Step::Call(Some(it)) if *it == token) && is_over;
                let allowed = at_once || context.producers_over.contains(&producer);
                assert!(allowed, "lost by nobody: {cause}");
                let is_sent = !matches!(cause, PublishError::NotStored(_));
                assert_eq!(is_sent, is_written, "what was not written is not stored");
            }
        }
    }

    /// A producer has ended, and that for a reason.
    pub(super) fn record_producer_end(&mut self, step: &Step, id: u64, context: &mut Context) {
        let now = self.now;
        let is_guessed = !self.guessed.is_empty();
        let producer = self.producers.entry(id).or_default();
        assert!(!std::mem::replace(&mut producer.is_over, true), "a producer ends twice");
        context.producers_over.insert(id);
        if context.is_over {
            return;
        }
        let is_told = match step {
            Step::Heard(frame) => match &frame.command {
                Command::CloseProducer(it) => {
                    assert_eq!(it.producer_id, id);
                    true
                }
                Command::SendError(it) => {
                    assert_eq!(it.producer_id, id);
                    false
                }
                Command::TopicMigrated(it) => {
                    assert!(it.resource_id == id && it.resource_type == 0);
                    false
                }
                _ => {
                    let kind = context.answered.as_ref().map(|it| it.kind);
                    assert!(
                        kind == Some(super::Kind::Producer(id)) || kind.is_none() && is_guessed
                    );
                    true
                }
            },
            Step::Tick => {
                let first = producer.in_flight.front();
                let is_late = first.is_some_and(|it| now >= it.since + RECEIPT_MAX);
                assert!(is_late || producer.next.is_none(), "a producer is given up too early");
                false
            }
            Step::Wrote => {
                assert!(producer.is_closing && producer.in_flight.is_empty(), "closed too early");
                false
            }
            other => panic!("a producer has ended for no reason: {other:?}"),
        };
        if !is_told && !producer.is_closed {
            self.producers_to_close.insert(id);
        }
    }

    pub(super) fn check_receipt_times(&self) {
        for producer in self.producers.values().filter(|it| !it.is_over) {
            let first = producer.in_flight.front();
            assert!(first.is_none_or(|it| self.now < it.since + RECEIPT_MAX), "no receipt in time");
        }
    }
}
