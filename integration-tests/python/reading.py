"""Steps about readers, and going back."""

import time

import pulsar
from pulsar.schema import StringSchema
from stage import PATIENCE_MILLISECONDS, text


def everything(reader):
    values = []
    while reader.has_message_available():
        values.append(text(reader.read_next(PATIENCE_MILLISECONDS)))
    return values


def reader(stage):
    topic = stage.topic("t")
    stage.line("empty", everything(stage.client.create_reader(topic, pulsar.MessageId.earliest)))
    ids = stage.send(topic, "a", "b")
    time.sleep(0.02)
    middle = int(time.time() * 1000)
    time.sleep(0.02)
    ids += stage.send(topic, "c", "d")
    reader = stage.client.create_reader(topic, pulsar.MessageId.earliest)
    stage.line("earliest", everything(reader))
    reader.seek(ids[1])
    stage.line("by id", everything(reader))
    reader.seek(middle)
    stage.line("by time", everything(reader))
    reader.seek(pulsar.MessageId.latest)
    stage.line("latest", everything(reader))
    reader.seek(pulsar.MessageId.earliest)
    stage.line("earliest", everything(reader))
    stage.line("started behind an id", everything(stage.client.create_reader(topic, ids[2])))
    inclusive = stage.client.create_reader(topic, ids[2], start_message_id_inclusive=True)
    stage.line("started at an id", everything(inclusive))
    latest = stage.client.create_reader(topic, pulsar.MessageId.latest)
    stage.line("latest", everything(latest))
    stage.send(topic, "e")
    stage.until("e", latest.has_message_available)
    stage.line("latest", everything(latest))


def reader_of_batches(stage):
    topic = stage.topic("t")
    ids = stage.send_batch(topic, "a", "b", "c", "d")
    stage.line("behind the second", everything(stage.client.create_reader(topic, ids[1])))
    stage.line("behind the last", everything(stage.client.create_reader(topic, ids[3])))


def consumer_seeks(stage):
    topic = stage.topic("t")
    consumer = stage.consumer(topic)
    ids = stage.send(topic, "a", "b", "c")
    stage.take(consumer, 3)
    consumer.seek(ids[1])
    stage.line("by id", stage.take(consumer, 1))
    consumer.seek(pulsar.MessageId.earliest)
    stage.line("earliest", stage.take(consumer, 3))
    consumer.seek(pulsar.MessageId.latest)
    stage.send(topic, "d")
    stage.line("latest", stage.take(consumer, 1))
    stage.quiet(consumer)


def keyed(stage, topic):
    """The last one is a tombstone by its compression: without it, a broker might not take it for one."""
    producer = stage.producer(topic, compression_type=pulsar.CompressionType.LZ4)
    for key, value in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("c", "")]:
        producer.send(value.encode(), partition_key=key)


def compacted(stage):
    topic = stage.topic("t")
    keyed(stage, topic)
    stage.compact(topic)
    reader = stage.client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    stage.line("compacted", everything(reader))
    stage.line("raw", everything(stage.client.create_reader(topic, pulsar.MessageId.earliest)))
    stage.send(topic, "later")
    stage.line("compacted", text(reader.read_next(PATIENCE_MILLISECONDS)))
    stage.line("more:", reader.has_message_available())


def table_view(stage):
    topic = stage.topic("t")
    stage.producer(topic, schema=StringSchema())
    keyed(stage, topic)
    stage.compact(topic)
    view = stage.client.create_table_view(topic, schema=StringSchema())
    contents = {}
    view.for_each(contents.__setitem__)
    stage.line(sorted(contents.items()))
    stage.producer(topic, schema=StringSchema()).send("1", partition_key="d")
    stage.until("d", lambda: view.get("d") is not None)
    stage.line(view.get("d"), len(view))


STEPS = [reader, reader_of_batches, consumer_seeks, compacted, table_view]
