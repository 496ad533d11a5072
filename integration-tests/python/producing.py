"""Steps about what is sent."""

import json
import time

import pulsar
from pulsar.schema import Integer, JsonSchema, Record, String, StringSchema
from stage import text


def plain(stage):
    topic = stage.topic("t")
    consumer = stage.consumer(topic)
    producer = stage.producer(topic)
    ids = [
        producer.send(b"a", partition_key="k", properties={"p": "1"}, event_timestamp=7),
        producer.send(b"b", ordering_key="o"),
        producer.send(b"c"),
    ]
    stage.line("ids grow:", ids == sorted(ids))
    for id in ids:
        message = stage.receive(consumer)
        consumer.acknowledge(message)
        stage.line(
            text(message),
            f"key={message.partition_key()} ordering={message.ordering_key()} properties={message.properties()}",
            f"event={message.event_timestamp()} same id: {message.message_id() == id}",
        )
    stage.quiet(consumer)


def batched(stage):
    topic = stage.topic("t")
    consumer = stage.consumer(topic)
    ids = stage.send_batch(topic, *(f"v{number}" for number in range(10)))
    for id in ids:
        message = stage.receive(consumer)
        consumer.acknowledge(message)
        stage.line(text(message), f"index={id.batch_index()} same id: {message.message_id() == id}")
    stage.line("entries:", len({id.entry_id() for id in ids}))
    stage.quiet(consumer)


def compressed(stage):
    topic = stage.topic("t")
    long = "compress me " * 1000
    consumer = stage.consumer(topic)
    for kind in ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]:
        compression = getattr(pulsar.CompressionType, kind)
        producer = stage.producer(topic, compression_type=compression)
        producer.send(long.encode())
        producer.close()
        stage.send_batch(topic, long + "0", long + "1", compression_type=compression)
        stage.line(kind, stage.take(consumer, 3) == [long, long + "0", long + "1"])


def chunked(stage):
    """The size of chunks cannot be set: it is that of the largest message of the broker."""
    topic = stage.topic("t")
    large = "0123456789" * 250_000
    consumer = stage.consumer(topic)
    producer = stage.producer(topic, chunking_enabled=True)
    producer.send(large.encode())
    producer.send(b"small")
    values = stage.take(consumer, 2)
    stage.line("large:", values[0] == large, "then", values[1])
    stage.quiet(consumer)


def delayed(stage):
    topic = stage.topic("t")
    consumer = stage.consumer(topic, consumer_type=pulsar.ConsumerType.Shared)
    producer = stage.producer(topic)
    # Pulsar may be early by a second, its tick. On a busy machine two sends take seconds.
    due = int(time.time() * 1000) + 5000
    producer.send(b"late", deliver_at=due)
    producer.send(b"now")
    stage.line(stage.take(consumer, 1))
    stage.line(stage.take(consumer, 1), "early:", time.time() * 1000 < due - 1000)


class Order(Record):
    """What is sent with a JSON schema."""

    item = String()
    count = Integer()


def schemas(stage):
    topic = stage.topic("t")
    producer = stage.producer(topic, schema=JsonSchema(Order))
    producer.send(Order(item="tea", count=3))
    consumer = stage.consumer(topic, schema=JsonSchema(Order))
    message = stage.receive(consumer)
    consumer.acknowledge(message)
    stage.line(message.value().item, message.value().count)
    answer = stage.admin("GET", f"schemas/{topic.replace('persistent://', '')}/schema")
    stage.line(answer["version"], answer["type"], json.loads(answer["data"]))
    plain = stage.topic("text")
    stage.producer(plain, schema=StringSchema()).send("a")
    stage.line(stage.receive(stage.consumer(plain, schema=StringSchema())).value())


def access_modes(stage):
    """Pulsar ends the connection of a fenced producer that sends, so this one is not shared with other steps.

    It is not closed: a client that has a fenced producer refuses that now and then."""
    topic = stage.topic("t")
    modes = pulsar.ProducerAccessMode
    client = stage.connect(stage.service_url)
    first = client.create_producer(topic, access_mode=modes.Exclusive)
    stage.refused("a second exclusive one", lambda: client.create_producer(topic, access_mode=modes.Exclusive))
    second = client.create_producer(topic, access_mode=modes.ExclusiveWithFencing)
    stage.line("second sends:", second.send(b"b") is not None)
    stage.refused("the fenced one sends", lambda: first.send(b"a"))


def deduplicated(stage):
    topic = stage.topic("t")
    stage.admin_topic("PUT", topic)
    stage.admin_topic("POST", topic, "/deduplicationEnabled", "true")
    stage.until(
        "deduplication", lambda: "pulsar.dedup" in stage.admin_topic("GET", topic, "/internalStats")["cursors"]
    )
    consumer = stage.consumer(topic)
    producer = stage.producer(topic, producer_name="named")
    stage.line("starts after", producer.last_sequence_id())
    producer.send(b"a", sequence_id=1)
    producer.send(b"again", sequence_id=1)
    producer.send(b"b", sequence_id=5)
    producer.close()
    producer = stage.producer(topic, producer_name="named")
    stage.line("goes on after", producer.last_sequence_id())
    producer.send(b"old", sequence_id=4)
    producer.send(b"c", sequence_id=6)
    stage.line(stage.take(consumer, 3))
    stage.quiet(consumer)


STEPS = [plain, batched, compressed, chunked, delayed, schemas, access_modes, deduplicated]
