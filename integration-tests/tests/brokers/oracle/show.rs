//! Frames as text that is the same for all brokers that behave alike: ids by order of appearance,
//! no times, no texts for people, no names that a broker makes up.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what no script expects is shown by its number"
)]

use anyhow::Result;
use longhaul_wire::batch::Singles;
use longhaul_wire::compression;
use longhaul_wire::frame::Frame;
use longhaul_wire::messages::{
    Command, CommandConnected, CommandMessage, CommandProducerSuccess, MessageIdData, Schema,
    ServerError,
};
use longhaul_wire::payload::Payload;

const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The ids and hashes seen so far.
pub(crate) struct Names {
    ids: Vec<(u64, u64)>,
    hashes: Vec<String>,
    run: String,
}

impl Names {
    pub(crate) fn new(run: &str) -> Self {
        Self { ids: Vec::new(), hashes: Vec::new(), run: run.to_owned() }
    }

    pub(crate) fn id(&self, number: usize) -> MessageIdData {
        let (ledger_id, entry_id) = self.ids[number];
        MessageIdData { ledger_id, entry_id, ..MessageIdData::default() }
    }

    /// The hash that the trace calls `h<number>`.
    pub(crate) fn known_hash(&self, number: usize) -> String {
        self.hashes[number].clone()
    }

    /// The name of a list of topics in the trace.
    fn hash(&mut self, hash: &str) -> String {
        let known = self.hashes.iter().position(|known| known == hash);
        let number = known.unwrap_or_else(|| {
            self.hashes.push(hash.to_owned());
            self.hashes.len() - 1
        });
        format!("h{number}")
    }

    /// Names of topics in order, with the name of the run replaced.
    fn topics(&self, topics: &[String]) -> String {
        let mut topics: Vec<_> =
            topics.iter().map(|topic| topic.replace(&self.run, "RUN")).collect();
        topics.sort();
        format!("{topics:?}")
    }

    pub(crate) fn frame(&mut self, frame: &Frame) -> Result<String> {
        Ok(match &frame.command {
            Command::Message(message) => self.message(message, frame.payload.as_ref())?,
            command => self.command(command),
        })
    }

    fn command(&mut self, command: &Command) -> String {
        match command {
            Command::Connected(it) => connected(it),
            Command::ProducerSuccess(it) => self.producer_success(it),
            Command::SendReceipt(it) => {
                let id = it.message_id.as_ref().map(|id| self.place(id)).unwrap_or_default();
                format!(
                    "SendReceipt producer={} sequence={} {id}",
                    it.producer_id,
                    signed(it.sequence_id)
                )
            }
            Command::SendError(it) => {
                let sequence = signed(it.sequence_id);
                format!(
                    "SendError producer={} sequence={sequence} {}",
                    it.producer_id,
                    error(it.error)
                )
            }
            Command::Success(it) => format!("Success request={}", request(it.request_id)),
            Command::Error(it) => {
                format!("Error request={} {}", request(it.request_id), error(it.error))
            }
            Command::CloseProducer(it) => {
                format!("CloseProducer {} request={}", it.producer_id, request(it.request_id))
            }
            Command::CloseConsumer(it) => {
                format!("CloseConsumer {} request={}", it.consumer_id, request(it.request_id))
            }
            Command::AckResponse(it) => {
                let error =
                    it.error.map(|number| format!(" {}", error(number))).unwrap_or_default();
                let id = it.request_id.map_or_else(|| "none".to_owned(), request);
                format!("AckResponse consumer={} request={id}{error}", it.consumer_id)
            }
            Command::ActiveConsumerChange(it) => {
                format!(
                    "ActiveConsumerChange consumer={} active={:?}",
                    it.consumer_id, it.is_active
                )
            }
            Command::ReachedEndOfTopic(it) => format!("ReachedEndOfTopic {}", it.consumer_id),
            Command::Pong(_) => "Pong".to_owned(),
            other => self.looked_up(other),
        }
    }

    fn looked_up(&mut self, command: &Command) -> String {
        match command {
            Command::PartitionedMetadataResponse(it) => format!(
                "PartitionedMetadataResponse request={} response={:?} partitions={:?}{}",
                it.request_id,
                it.response,
                it.partitions,
                maybe(it.error)
            ),
            Command::LookupResponse(it) => format!(
                "LookupResponse request={} response={:?} url={} proxy={}{}",
                it.request_id,
                it.response,
                it.broker_service_url.is_some(),
                it.proxy_through_service_url.unwrap_or_default(),
                maybe(it.error)
            ),
            Command::GetLastMessageIdResponse(it) => {
                let last = self.place(&it.last_message_id);
                let mark = it.consumer_mark_delete_position.as_ref();
                let mark = mark.map_or_else(|| "absent".to_owned(), |id| self.place(id));
                format!(
                    "GetLastMessageIdResponse request={} last={last} mark={mark}",
                    it.request_id
                )
            }
            Command::GetSchemaResponse(it) => format!(
                "GetSchemaResponse request={} {} version={}{}",
                it.request_id,
                it.schema.as_ref().map(schema).unwrap_or_default(),
                version(it.schema_version.as_deref()),
                maybe(it.error_code)
            ),
            Command::GetOrCreateSchemaResponse(it) => format!(
                "GetOrCreateSchemaResponse request={} version={}{}",
                it.request_id,
                version(it.schema_version.as_deref()),
                maybe(it.error_code)
            ),
            Command::ConsumerStatsResponse(it) => format!(
                "ConsumerStatsResponse request={} type={:?} permits={:?} unacked={:?} backlog={:?}{}",
                it.request_id,
                it.r#type,
                it.available_permits,
                it.unacked_messages,
                it.msg_backlog,
                maybe(it.error_code)
            ),
            other => self.listed(other),
        }
    }

    fn listed(&mut self, command: &Command) -> String {
        match command {
            Command::GetTopicsOfNamespaceResponse(it) => {
                let hash = self.hash(it.topics_hash.as_deref().unwrap_or("absent"));
                format!(
                    "GetTopicsOfNamespaceResponse request={} {} {hash} filtered={:?} changed={:?}",
                    it.request_id,
                    self.topics(&it.topics),
                    it.filtered,
                    it.changed
                )
            }
            Command::WatchTopicListSuccess(it) => {
                let hash = self.hash(&it.topics_hash);
                format!(
                    "WatchTopicListSuccess request={} watcher={} {} {hash}",
                    it.request_id,
                    it.watcher_id,
                    self.topics(&it.topic)
                )
            }
            Command::WatchTopicUpdate(it) => {
                let hash = self.hash(&it.topics_hash);
                format!(
                    "WatchTopicUpdate watcher={} new={} deleted={} {hash}",
                    it.watcher_id,
                    self.topics(&it.new_topics),
                    self.topics(&it.deleted_topics)
                )
            }
            other => format!("command {}", other.number()),
        }
    }

    fn producer_success(&self, it: &CommandProducerSuccess) -> String {
        let name = if it.producer_name.contains("given") {
            it.producer_name.replace(&self.run, "RUN")
        } else {
            "made-up".to_owned()
        };
        format!(
            "ProducerSuccess request={} name={name} last={} schema={} epoch={:?} ready={}",
            it.request_id,
            it.last_sequence_id.unwrap_or(-1),
            version(it.schema_version.as_deref()),
            it.topic_epoch,
            it.producer_ready.unwrap_or(true)
        )
    }

    /// Ids that have no entry are named by their meaning.
    fn place(&mut self, id: &MessageIdData) -> String {
        let name = match (id.ledger_id, id.entry_id) {
            (u64::MAX, u64::MAX) => "none".to_owned(),
            (_, u64::MAX) => "before-first".to_owned(),
            place => {
                let known = self.ids.iter().position(|known| *known == place);
                let number = known.unwrap_or_else(|| {
                    self.ids.push(place);
                    self.ids.len() - 1
                });
                format!("m{number}")
            }
        };
        let part = |label: &str, number: Option<i32>| {
            number.filter(|number| *number >= 0).map(|number| format!("{label}{number}"))
        };
        let batch = part("/", id.batch_index).unwrap_or_default();
        format!("{name}{batch}{}", part(" partition=", id.partition).unwrap_or_default())
    }

    fn message(&mut self, it: &CommandMessage, payload: Option<&Payload>) -> Result<String> {
        let id = self.place(&it.message_id);
        let count = it.redelivery_count.unwrap_or_default();
        let mut line = format!("Message consumer={} {id} count={count}", it.consumer_id);
        if !it.ack_set.is_empty() {
            line += &format!(" acks={:?}", it.ack_set);
        }
        if let Some(payload) = payload {
            line += &body(payload)?;
        }
        Ok(line)
    }
}

fn connected(it: &CommandConnected) -> String {
    let version = it.protocol_version;
    format!("Connected protocol={version:?} max={:?}", it.max_message_size)
}

fn body(payload: &Payload) -> Result<String> {
    payload.verify()?;
    let metadata = payload.metadata()?;
    let size = metadata.uncompressed_size.unwrap_or_default();
    let body = compression::unpack(
        compression::kind(metadata.compression)?,
        &payload.body(),
        size,
        BODY_BYTES_MAX,
    )?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(count) = metadata.num_messages_in_batch else {
        let key = metadata.partition_key.map(|key| format!("{key}=")).unwrap_or_default();
        let null = if metadata.null_value == Some(true) { "null" } else { "" };
        return Ok(format!(" {key}`{}`{null}", text(&body)));
    };
    let mut line = " [".to_owned();
    for single in Singles::new(body, usize::try_from(count)?) {
        let single = single?;
        let metadata = single.metadata;
        let key = metadata.partition_key.map(|key| format!("{key}=")).unwrap_or_default();
        let null = if metadata.null_value == Some(true) { "null" } else { "" };
        let out = if metadata.compacted_out == Some(true) { "out" } else { "" };
        line += &format!(" {key}`{}`{null}{out}", text(&single.body));
    }
    Ok(line + " ]")
}

fn schema(schema: &Schema) -> String {
    format!("type={} data=`{}`", schema.r#type, String::from_utf8_lossy(&schema.schema_data))
}

fn version(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "absent".to_owned(),
        Some([]) => "empty".to_owned(),
        Some(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn request(id: u64) -> String {
    if id == u64::MAX { "-1".to_owned() } else { id.to_string() }
}

fn signed(id: u64) -> String {
    request(id)
}

fn maybe(number: Option<i32>) -> String {
    number.map(|number| format!(" {}", error(number))).unwrap_or_default()
}

fn error(number: i32) -> String {
    ServerError::try_from(number).map_or_else(|_| format!("error {number}"), |it| format!("{it:?}"))
}
