//! Schemas from the admin interface and from clients.

use super::*;
use crate::admin::values::{NewSchema, StoredSchema};
use crate::machine::tests::support::refusal;
use bytes::Bytes;
use longhaul_wire::messages::{
    CommandCloseProducer, CommandGetOrCreateSchema, CommandGetSchema, CommandSubscribe, KeyValue,
};
use prost::Message as _;

fn properties() -> BTreeMap<String, String> {
    [("owner".to_owned(), "me".to_owned())].into()
}

fn create(name: &str, kind: &str, data: &str) -> Ask<u64> {
    let (kind, data) = (kind.to_owned(), data.to_owned());
    topic(name, move |machine, name| {
        machine.add_schema(name, NewSchema { kind, data, properties: properties() })
    })
}

fn get(name: &str, version: Option<u64>) -> Ask<StoredSchema> {
    topic(name, move |machine, name| machine.schema(name, version))
}

fn stored(version: u64, data: &str) -> StoredSchema {
    StoredSchema {
        version,
        kind: "JSON".to_owned(),
        timestamp: START,
        data: data.to_owned(),
        properties: properties(),
    }
}

/// A rig with the versions `a` and `b` of a schema.
fn rig() -> Rig {
    let mut rig = Rig::new();
    assert_eq!(rig.answer(create("t", "JSON", "a")), Ok(0), "before there is a topic");
    assert_eq!(rig.answer(create("t", "JSON", "b")), Ok(1));
    rig
}

#[test]
fn a_schema_has_versions() {
    let mut rig = rig();
    assert_eq!(rig.answer(create("t", "JSON", "a")), Ok(0), "an equal one is found again");
    for (asked, found) in
        [(None, stored(1, "b")), (Some(0), stored(0, "a")), (Some(1), stored(1, "b"))]
    {
        assert_eq!(rig.answer(get("t", asked)), Ok(found), "{asked:?}");
    }
    rig.refuses(get("t", Some(2)), 404, "has no such schema");
    let all = Ok(vec![stored(0, "a"), stored(1, "b")]);
    assert_eq!(rig.answer(topic("t", |machine, name| Ok(machine.schemas(name)))), all);
    assert_eq!(rig.machine.state.schemas(&full("t"))[1].schema.name, full("t"));
}

#[test]
fn schemas_are_deleted_together() {
    let mut rig = rig();
    assert_eq!(rig.answer(topic("t", BrokerMachine::remove_schemas)), Ok(1), "the last of them");
    rig.refuses(topic("t", BrokerMachine::remove_schemas), 404, "has no such schema");
    rig.refuses(get("t", None), 404, "has no such schema");
    assert_eq!(rig.answer(topic("t", |machine, name| Ok(machine.schemas(name)))), Ok(Vec::new()));
    assert_eq!(rig.answer(create("t", "AVRO", "a")), Ok(0), "another type, now");
}

#[test]
fn what_is_no_schema_of_the_topic_is_refused() {
    let mut rig = rig();
    rig.refuses(
        create("t", "AVRO", "a"),
        409,
        "has a schema of type JSON, this one is of type AVRO",
    );
    rig.refuses(create("other", "XML", "a"), 400, "unknown type of schema: XML");
    let elsewhere = "persistent://nobody/default/t";
    rig.refuses(create(elsewhere, "JSON", "a"), 404, "namespace nobody/default does not exist");
}

#[test]
fn a_schema_goes_with_its_topic_and_stays_with_its_partitions() {
    let mut rig = rig();
    rig.create("t");
    assert_eq!(rig.answer(create("parts-partition-1", "JSON", "a")), Ok(0));
    assert_eq!(rig.answer(get("parts-partition-0", None)), Ok(stored(0, "a")));
    rig.create("parts-partition-1");
    for name in ["t", "parts-partition-1"] {
        assert_eq!(
            rig.answer(topic(name, |machine, name| machine.remove_topic(name, false))),
            DONE
        );
    }
    rig.refuses(get("t", None), 404, "has no such schema");
    assert_eq!(rig.answer(get("parts", None)), Ok(stored(0, "a")));
}

/// A schema of booleans was named `BOOL`, which Pulsar's tools do not know, and their `BOOLEAN` was
/// refused.
#[test]
fn types_are_called_as_in_pulsars_json() {
    let known = [
        "NONE",
        "STRING",
        "JSON",
        "PROTOBUF",
        "AVRO",
        "BOOLEAN",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FLOAT",
        "DOUBLE",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "KEY_VALUE",
        "INSTANT",
        "LOCAL_DATE",
        "LOCAL_TIME",
        "LOCAL_DATE_TIME",
        "PROTOBUF_NATIVE",
        "AUTO_CONSUME",
    ];
    for (number, name) in (0..).zip(known) {
        assert_eq!(super::super::super::schemas::kind_name(number), name);
        assert_eq!(kind_by_name(name), (number < 21).then_some(number));
    }
    assert_eq!(super::super::super::schemas::kind_name(77), "unknown (77)");
    assert_eq!(kind_by_name("BYTES"), None);
}

fn client_asks(rig: &mut Rig, name: &str, version: Option<&[u8]>) -> Result<(Schema, Bytes), i32> {
    let schema_version = version.map(Bytes::copy_from_slice);
    let command = CommandGetSchema { request_id: 3, topic: full(name), schema_version };
    match rig.ask(1, command).pop() {
        Some(MachineEffect::Send(1, Command::GetSchemaResponse(response)))
            if response.request_id == 3 =>
        {
            assert_eq!(response.error_code.is_some(), response.error_message.is_some());
            match response.error_code {
                Some(code) => Err(code),
                None => Ok((response.schema.unwrap(), response.schema_version.unwrap())),
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_is_told_the_schema_that_it_asks_for() {
    let mut rig = rig();
    let kept = |data: &'static str, version: u64| {
        let schema = Schema {
            name: full("t"),
            schema_data: data.into(),
            r#type: SchemaType::Json.into(),
            properties: vec![KeyValue::new("owner", "me")],
        };
        Ok((schema, Bytes::copy_from_slice(&version.to_be_bytes())))
    };
    assert_eq!(client_asks(&mut rig, "t", None), kept("b", 1), "the latest");
    assert_eq!(client_asks(&mut rig, "t", Some(&[])), kept("b", 1), "the same");
    assert_eq!(client_asks(&mut rig, "t", Some(&0_u64.to_be_bytes())), kept("a", 0));
    assert_eq!(client_asks(&mut rig, "t", Some(&1_u64.to_be_bytes())), kept("b", 1));
    assert_eq!(client_asks(&mut rig, "t-partition-4", None), kept("b", 1), "partitions share it");
    let missing = Err(ServerError::TopicNotFound.into());
    assert_eq!(client_asks(&mut rig, "t", Some(&2_u64.to_be_bytes())), missing);
    assert_eq!(client_asks(&mut rig, "t", Some(b"odd")), missing, "it is no version");
    assert_eq!(client_asks(&mut rig, "other", None), missing);
}

fn client_stores(rig: &mut Rig, name: &str, kind: SchemaType) -> Result<Bytes, i32> {
    let schema = Schema { r#type: kind.into(), schema_data: "a".into(), ..Schema::default() };
    let command = CommandGetOrCreateSchema { request_id: 3, topic: full(name), schema };
    match rig.ask(1, command).pop() {
        Some(MachineEffect::Send(1, Command::GetOrCreateSchemaResponse(response)))
            if response.request_id == 3 =>
        {
            assert_eq!(response.error_code.is_some(), response.error_message.is_some());
            response.error_code.map_or_else(|| Ok(response.schema_version.unwrap()), Err)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_stores_a_schema_of_a_topic_that_exists() {
    let mut rig = Rig::new();
    rig.create("plain");
    rig.create_partitioned("parts", 1);
    let first = Ok(Bytes::copy_from_slice(&[0; 8]));
    assert_eq!(client_stores(&mut rig, "plain", SchemaType::Json), first);
    assert_eq!(client_stores(&mut rig, "parts", SchemaType::Json), first);
    assert_eq!(client_stores(&mut rig, "parts-partition-0", SchemaType::Json), first);
    let incompatible = Err(ServerError::IncompatibleSchema.into());
    assert_eq!(client_stores(&mut rig, "plain", SchemaType::Avro), incompatible);
    let missing = Err(ServerError::TopicNotFound.into());
    assert_eq!(client_stores(&mut rig, "none", SchemaType::Json), missing);
    assert!(rig.machine.state.schemas(&full("none")).is_empty());
}

/// Schemas of a megabyte took the room that acknowledgements need on a full disk. And each kept the
/// whole buffer of the connection that it had come in.
#[test]
fn a_full_disk_takes_no_new_schema_and_a_stored_one_is_a_copy() {
    let mut rig = Rig::new();
    for topic in ["old", "new"] {
        rig.create(topic);
    }
    let stored = client_stores(&mut rig, "old", SchemaType::Json);
    rig.machine.log.is_stuck = true;
    assert_eq!(client_stores(&mut rig, "old", SchemaType::Json), stored, "it is there already");
    let full = Err(ServerError::ProducerBlockedQuotaExceededError.into());
    assert_eq!(client_stores(&mut rig, "new", SchemaType::Json), full);
    rig.machine.log.is_stuck = false;
    let frame = Bytes::from(vec![b'1'; 1000]);
    let schema_data = frame.slice(10..20);
    let schema = Schema { r#type: SchemaType::Json.into(), schema_data, ..Schema::default() };
    let command = CommandGetOrCreateSchema { request_id: 3, topic: super::full("new"), schema };
    rig.ask(1, command);
    assert_eq!(rig.machine.state.schemas(&super::full("new"))[0].schema.schema_data, "1111111111");
    assert!(frame.is_unique(), "nothing else holds what the connection read");
}

/// Raw bytes have no schema, and neither has a consumer that takes the topic's schema.
/// Versions were only counted: 1,000 of 5 MB each on each topic were in memory, and in every
/// checkpoint.
#[test]
fn the_versions_of_a_schema_have_a_number_and_bytes() {
    let rig = Rig::new();
    let name = TopicName::parse(TOPIC).unwrap();
    let versions = |count: usize, bytes: usize| {
        let schema_data = vec![b'1'; bytes].into();
        let schema = Schema { schema_data, ..Schema::default() };
        vec![crate::state::SchemaVersion { schema, added_at: 0 }; count]
    };
    let refusal = |versions: &[_], bytes| rig.machine.check_schemas(&name, versions, bytes).err();
    assert_eq!(refusal(&versions(999, 100), 100), None);
    assert!(refusal(&versions(1000, 0), 0).unwrap().text.contains("the limits are 1000 and"));
    let many = versions(7, 1024 * 1024);
    let all: usize = many.iter().map(|version| version.schema.encoded_len()).sum();
    let left = 8 * 1024 * 1024 - all;
    assert_eq!(refusal(&many, left), None);
    assert!(refusal(&many, left + 1).unwrap().text.contains("delete the schema"));
}

#[test]
fn a_producer_without_a_schema_stores_none() {
    let mut rig = Rig::new();
    for (id, kind) in [(1, SchemaType::None), (2, SchemaType::AutoConsume)] {
        let schema = Some(Schema { r#type: kind.into(), ..Schema::default() });
        let command = CommandProducer { schema, ..producer(id, id, AccessMode::Shared) };
        match rig.ask(1, command).pop() {
            Some(MachineEffect::Send(_, Command::ProducerSuccess(success))) => {
                assert_eq!(success.schema_version.unwrap_or_default(), Bytes::new(), "{kind:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(rig.machine.state.schemas(TOPIC).is_empty());
}

/// A role without permissions on a topic does not learn its schema, and a role that may only read
/// it cannot set one.
#[test]
fn schemas_need_a_permission() {
    use crate::auth::tests::{token, with_secret};
    use crate::policies::AuthAction;
    let tokens = ["reader", "nobody"].map(|name| Some(token(&format!(r#"{{"sub":"{name}"}}"#))));
    let mut rig = Rig::guarded(Some(Arc::new(with_secret())), tokens);
    rig.create("t");
    assert_eq!(rig.answer(create("t", "JSON", "a")), Ok(0));
    let call = on_namespace(move |machine, name| {
        machine
            .set_namespace_grants(name, |grants| grants.grant("reader", vec![AuthAction::Consume]))
    });
    assert_eq!(rig.answer(namespace("public/default", call)), DONE);
    assert!(client_asks(&mut rig, "t", None).is_ok());
    let refused = ServerError::AuthorizationError.into();
    assert_eq!(client_stores(&mut rig, "t", SchemaType::Json), Err(refused));
    let command =
        CommandGetSchema { request_id: 3, topic: full("t"), ..CommandGetSchema::default() };
    match rig.ask(2, command).pop() {
        Some(MachineEffect::Send(2, Command::GetSchemaResponse(response))) => {
            assert_eq!((response.error_code, response.schema), (Some(refused), None));
        }
        other => panic!("{other:?}"),
    }
}

/// A role that may only consume subscribed with a schema of strings to a topic in use, which had no
/// schema: from then on, producers of JSON could not connect.
#[test]
fn a_consumer_sets_a_schema_only_on_an_unused_and_empty_topic() {
    let with = |topic: &str, id, kind: i32, data: &'static str| CommandSubscribe {
        topic: full(topic),
        schema: Some(Schema { r#type: kind, schema_data: data.into(), ..Schema::default() }),
        ..consumer(id)
    };
    let refused = Some(ServerError::IncompatibleSchema.into());
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 2);
    let open = |topic: &str, id| CommandProducer {
        topic: full(topic),
        ..producer(id, 7, AccessMode::Shared)
    };
    rig.ask(1, open("used", 1));
    rig.ask(1, open("parts-partition-1", 2));
    for topic in ["used", "parts-partition-0"] {
        assert_eq!(refusal(&rig.ask(2, with(topic, 1, 1, ""))), refused, "{topic} has a producer");
    }
    rig.publish(1, 1, b"message");
    let close = CommandCloseProducer {
        producer_id: 1,
        request_id: 8,
        assigned_broker_service_url: None,
        assigned_broker_service_url_tls: None,
    };
    rig.ask(1, close);
    assert_eq!(refusal(&rig.ask(2, with("used", 1, 1, ""))), refused, "it has a message");
    assert!(rig.machine.state.schemas(&full("used")).is_empty());
    assert_eq!(refusal(&rig.ask(2, with("new", 2, 2, "a"))), None);
    assert_eq!(refusal(&rig.ask(2, with("new", 3, 1, ""))), refused, "it is of another type");
    let named = |mut command: CommandSubscribe| {
        command.subscription = "other".to_owned();
        command
    };
    assert_eq!(refusal(&rig.ask(2, named(with("new", 4, 2, "b")))), None);
    assert_eq!(rig.machine.state.schemas(&full("new")).len(), 1, "no version is added");
}

/// The policy was answered with 204 and had no effect.
#[test]
fn where_schemas_are_enforced_a_producer_without_one_is_refused() {
    let mut rig = Rig::new();
    rig.create("t");
    let enforced = |enforced: bool| {
        topic("t", move |machine, name| {
            machine.set_policy(name, |policies| policies.enforces_schemas = Some(enforced))
        })
    };
    let with = |id, schema: Option<Schema>| CommandProducer {
        topic: full("t"),
        schema,
        ..producer(id, 7, AccessMode::Shared)
    };
    let string = Schema { r#type: 1, ..Schema::default() };
    let refused = |rig: &mut Rig, command: CommandProducer| refusal(&rig.ask(1, command));
    assert_eq!(rig.answer(enforced(true)), DONE);
    assert_eq!(refused(&mut rig, with(1, None)), None, "the topic has none either");
    assert_eq!(refused(&mut rig, with(2, Some(string.clone()))), None);
    let expected = Some(ServerError::IncompatibleSchema.into());
    assert_eq!(refused(&mut rig, with(3, None)), expected);
    assert_eq!(refused(&mut rig, with(4, Some(string))), None);
    assert_eq!(rig.answer(enforced(false)), DONE);
    assert_eq!(refused(&mut rig, with(5, None)), None);
}
