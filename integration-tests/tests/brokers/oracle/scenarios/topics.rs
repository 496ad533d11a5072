//! Topics as such.

use crate::oracle::commands::{EARLIEST, plain, producer, reader, subscribe};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{
    CommandGetOrCreateSchema, CommandGetSchema, CommandGetTopicsOfNamespace, CommandLookupTopic,
    CommandPartitionedTopicMetadata, CommandProducer, CommandSubscribe, KeyValue, Schema,
    SchemaType, SubType, TopicsMode,
};

pub(super) async fn lookup(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topics = [
        ("a topic that is not there", stage.topic("t").await?),
        ("a bad name", "persistent://public/default".to_owned()),
        ("an unknown namespace", "persistent://public/nowhere/t".to_owned()),
        ("an unknown tenant", "persistent://nobody/default/t".to_owned()),
        ("a short name", format!("oracle-{}-short", stage.run())),
    ];
    for (request, (what, topic)) in (1..).zip(topics) {
        stage.note(what);
        let command =
            CommandLookupTopic { topic: topic.clone(), request_id: request, ..Default::default() };
        stage.ask(at, command, 1).await?;
        stage.ask(at, producer(&topic, request), 1).await?;
        stage.ask(at, subscribe(&topic, request, SubType::Shared), 1).await?;
    }
    Ok(())
}

pub(super) async fn partitions(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let (whole, absent) = (stage.topic("whole").await?, stage.topic("absent").await?);
    stage.admin_topic("PUT", &whole, "/partitions", "3").await?;
    let topics = [
        whole.clone(),
        format!("{whole}-partition-1"),
        format!("{whole}-partition-7"),
        absent,
        "persistent://public/nowhere/t".to_owned(),
        "persistent://x".to_owned(),
    ];
    let mut request_id = 0;
    for topic in topics {
        for metadata_auto_creation_enabled in [Some(false), None] {
            request_id += 1;
            let shown = topic.rsplit('-').next().unwrap_or_default();
            stage.note(format!("{shown}, creation {metadata_auto_creation_enabled:?}"));
            let topic = topic.clone();
            let command = CommandPartitionedTopicMetadata {
                topic,
                request_id,
                metadata_auto_creation_enabled,
                ..Default::default()
            };
            stage.ask(at, command, 1).await?;
        }
    }
    stage.note("a producer of the whole topic");
    stage.ask(at, producer(&whole, 1), 1).await?;
    stage.note("a consumer of the whole topic");
    stage.ask(at, subscribe(&whole, 1, SubType::Shared), 1).await?;
    stage.note("a producer of a partition that is not there");
    stage.ask(at, producer(&format!("{whole}-partition-7"), 2), 1).await
}

fn schema(name: &str, kind: SchemaType, data: &'static str) -> Schema {
    Schema {
        name: name.to_owned(),
        schema_data: data.into(),
        r#type: kind as i32,
        properties: Vec::new(),
    }
}

pub(super) async fn schemas(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    let json = |field: &'static str| schema("s", SchemaType::Json, field);
    let first = r#"{"type":"record","name":"A","fields":[{"name":"a","type":["null","string"],"default":null}]}"#;
    let second = r#"{"type":"record","name":"A","fields":[{"name":"a","type":["null","string"],"default":null},{"name":"b","type":["null","string"],"default":null}]}"#;
    let get = |request_id, schema_version: Option<&'static [u8]>| CommandGetSchema {
        request_id,
        topic: topic.clone(),
        schema_version: schema_version.map(Into::into),
    };
    stage.note("of a topic that is not there");
    stage.ask(at, get(1, None), 1).await?;
    let command =
        CommandGetOrCreateSchema { request_id: 1, topic: topic.clone(), schema: json(first) };
    stage.ask(at, command, 1).await?;
    stage.admin_topic("PUT", &topic, "", "").await?;
    stage.note("none");
    stage.ask(at, get(1, None), 1).await?;
    for (request_id, data) in [(2, first), (3, first), (4, second)] {
        stage.note(format!("create {} bytes", data.len()));
        let (topic, schema) = (topic.clone(), json(data));
        stage.ask(at, CommandGetOrCreateSchema { request_id, topic, schema }, 1).await?;
    }
    stage.note("the latest, the first, one that is not there");
    stage.ask(at, get(5, None), 1).await?;
    stage.ask(at, get(6, Some(&[0; 8])), 1).await?;
    stage.ask(at, get(7, Some(&[0, 0, 0, 0, 0, 0, 0, 9])), 1).await?;
    stage.note("producers with the first, the second, none");
    for (id, data) in [(10, Some(first)), (11, Some(second)), (12, None)] {
        let mut command = producer(&topic, id);
        command.schema = data.map(json);
        stage.ask(at, command, 1).await?;
    }
    stage.note("a consumer with the second");
    let command =
        CommandSubscribe { schema: Some(json(second)), ..subscribe(&topic, 20, SubType::Shared) };
    stage.ask(at, command, 1).await?;
    stage.note("a schema after a producer without one");
    let plain_topic = stage.topic("plain").await?;
    stage.ask(at, producer(&plain_topic, 30), 1).await?;
    let mut command = producer(&plain_topic, 31);
    command.schema = Some(json(first));
    stage.ask(at, command, 1).await
}

pub(super) async fn incompatible_schemas(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    let record = |field: &str| {
        let data = format!(
            r#"{{"type":"record","name":"A","fields":[{{"name":"{field}","type":"int"}}]}}"#
        );
        Schema { schema_data: data.into(), ..schema("s", SchemaType::Json, "") }
    };
    let with = |id, schema| CommandProducer { schema: Some(schema), ..producer(&topic, id) };
    stage.ask(at, with(1, record("a")), 1).await?;
    stage.note("a producer, a consumer and a request with another field, and another kind");
    stage.ask(at, with(2, record("b")), 1).await?;
    let command =
        CommandSubscribe { schema: Some(record("b")), ..subscribe(&topic, 3, SubType::Shared) };
    stage.ask(at, command, 1).await?;
    let (request_id, topic_name) = (4, topic.clone());
    let command = CommandGetOrCreateSchema { request_id, topic: topic_name, schema: record("b") };
    stage.ask(at, command, 1).await?;
    stage.ask(at, with(5, schema("s", SchemaType::String, "")), 1).await?;
    stage.note("a schema that is none");
    stage.ask(at, with(6, schema("s", SchemaType::Json, "{")), 1).await?;
    let fresh = stage.topic("fresh").await?;
    let command =
        CommandProducer { schema: Some(schema("s", SchemaType::Json, "{")), ..producer(&fresh, 7) };
    stage.ask(at, command, 1).await
}

pub(super) async fn topics_of_namespace(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let namespace = format!("public/oracle-{}", stage.run());
    stage.admin("PUT", &format!("namespaces/{namespace}"), "").await?;
    let get =
        |request_id, mode: Option<TopicsMode>, pattern: Option<&str>| CommandGetTopicsOfNamespace {
            request_id,
            namespace: namespace.clone(),
            mode: mode.map(|mode| mode as i32),
            topics_pattern: pattern.map(str::to_owned),
            ..Default::default()
        };
    stage.note("empty");
    stage.ask(at, get(1, None, None), 1).await?;
    for path in ["a", "b"] {
        stage.admin("PUT", &format!("persistent/{namespace}/{path}"), "").await?;
    }
    stage.admin("PUT", &format!("persistent/{namespace}/p/partitions"), "2").await?;
    stage.note("two topics and one with two partitions");
    stage.ask(at, get(2, None, None), 1).await?;
    stage.ask(at, get(3, Some(TopicsMode::Persistent), None), 1).await?;
    stage.ask(at, get(4, Some(TopicsMode::All), None), 1).await?;
    stage.ask(at, get(5, Some(TopicsMode::NonPersistent), None), 1).await?;
    stage.note("with a pattern, which a broker may leave to the client");
    let pattern = format!("persistent://{namespace}/[ab]");
    stage.ask(at, get(6, None, Some(&pattern)), 1).await?;
    stage.note("what is known already, by its hash");
    for (request_id, pattern) in [(8, None), (9, Some(pattern.as_str()))] {
        for topics_hash in [stage.hash(1), stage.hash(2)] {
            let command = get(request_id, None, pattern);
            let topics_hash = Some(topics_hash);
            stage.ask(at, CommandGetTopicsOfNamespace { topics_hash, ..command }, 1).await?;
        }
    }
    stage.note("a namespace that is not there");
    let mut command = get(7, None, None);
    command.namespace = "public/nowhere".to_owned();
    stage.ask(at, command, 1).await
}

pub(super) async fn unload(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    stage.ask(at, producer(&topic, 1), 1).await?;
    stage.ask(at, subscribe(&topic, 2, SubType::Shared), 1).await?;
    stage.ask(at, reader(&topic, 3, EARLIEST), 1).await?;
    stage.note("unload");
    stage.admin_topic("PUT", &topic, "/unload", "").await?;
    stage.answers_sorted(at, 3).await?;
    stage.note("a message to the producer that is gone");
    let (send, payload) = plain(1, 0);
    stage.send_message(at, send, &payload).await;
    stage.answers(at, 0).await?;
    stage.note("again");
    stage.ask(at, producer(&topic, 1), 1).await?;
    stage.ask(at, subscribe(&topic, 2, SubType::Shared), 1).await
}

pub(super) async fn deletion(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    stage.ask(at, producer(&topic, 1), 1).await?;
    stage.ask(at, subscribe(&topic, 2, SubType::Shared), 1).await?;
    stage.note("delete, by force");
    stage.admin_topic("DELETE", &topic, "?force=true", "").await?;
    stage.answers_sorted(at, 2).await?;
    stage.note("a consumer that must not create the topic");
    let command = CommandSubscribe {
        force_topic_creation: Some(false),
        ..subscribe(&topic, 3, SubType::Shared)
    };
    stage.ask(at, command, 1).await
}

/// The metadata that clients send about themselves, and grants of operators for topics.
pub(super) async fn notes(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let whole = stage.topic("whole").await?;
    stage.admin_topic("PUT", &whole, "/partitions", "\"3\"").await?;
    let partitions = stage.admin_topic("GET", &whole, "/partitions", "").await?;
    stage.note(format!("partitions as a JSON string: {}", partitions["partitions"]));
    let topic = stage.topic("t").await?;
    let metadata = vec![KeyValue::new("zone", "a"), KeyValue::new("host", "b")];
    let command = CommandProducer { metadata: metadata.clone(), ..producer(&topic, 1) };
    stage.ask(at, command, 1).await?;
    let command = CommandSubscribe { metadata, ..subscribe(&topic, 2, SubType::Shared) };
    stage.ask(at, command, 1).await?;
    let stats = stage.admin_topic("GET", &topic, "/stats", "").await?;
    let publisher = &stats["publishers"][0]["metadata"];
    let consumer = &stats["subscriptions"]["sub"]["consumers"][0]["metadata"];
    for (what, shown) in [("producer", publisher), ("consumer", consumer)] {
        stage.note(format!("{what}: zone {} host {}", shown["zone"], shown["host"]));
    }
    stage.admin_topic("POST", &topic, "/permissions/role", r#"["produce"]"#).await?;
    let permissions = stage.admin_topic("GET", &topic, "/permissions", "").await?;
    stage.note(format!("permissions {}", permissions["role"]));
    stage.admin_topic("DELETE", &topic, "/permissions/role", "").await?;
    let (send, payload) = plain(1, 0);
    stage.send_message(at, send, &payload).await;
    stage.answers(at, 1).await?;
    for (tail, what) in [("/messageid/1", "of all"), ("/messageid/9999999999999", "of none")] {
        let found = stage.admin_topic("GET", &topic, tail, "").await?;
        stage.note(format!("the first message {what}: entry {}", found["entryId"]));
    }
    Ok(())
}

pub(super) async fn non_persistent(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?.replace("persistent://", "non-persistent://");
    let command = CommandPartitionedTopicMetadata {
        topic: topic.clone(),
        request_id: 1,
        ..Default::default()
    };
    stage.ask(at, command, 1).await?;
    let command = CommandLookupTopic { topic: topic.clone(), request_id: 2, ..Default::default() };
    stage.ask(at, command, 1).await?;
    stage.ask(at, producer(&topic, 3), 1).await?;
    stage.ask(at, subscribe(&topic, 4, SubType::Shared), 1).await
}
