"""Steps about more than one topic, and finding them."""

import json
import re

from pulsar.schema import JsonSchema
from producing import Order
from stage import EARLIEST, text


def partitioned(stage):
    topic = stage.topic("t")
    stage.admin_topic("PUT", topic, "/partitions", "3")
    stage.line("partitions", len(stage.client.get_topic_partitions(topic)))
    consumer = stage.consumer(topic)
    producer = stage.producer(topic)
    for number in range(12):
        producer.send(f"k{number % 4}.{number}".encode(), partition_key=f"k{number % 4}")
    # Only the order within a key means something; the sort keeps it.
    stage.line(sorted(stage.take(consumer, 12), key=lambda value: value[:2]))
    stage.quiet(consumer)


def several_topics(stage):
    topics = [stage.topic("a"), stage.topic("b")]
    consumer = stage.consumer(topics)
    stage.send(topics[0], "a1", "a2")
    stage.send(topics[1], "b1")
    stage.line(sorted(stage.take(consumer, 3)))
    stage.quiet(consumer)


def pattern(stage):
    stage.send(stage.topic("yes-1"), "one")
    stage.send(stage.topic("yes-2"), "two")
    stage.send(stage.topic("no"), "none")
    # This client was not seen to look for topics again, whatever `pattern_auto_discovery_period` says.
    consumer = stage.consumer(re.compile(stage.topic("yes-") + ".*"))
    stage.line(sorted(stage.take(consumer, 2)))
    stage.quiet(consumer)


def over_http(stage):
    topic = stage.topic("t")
    stage.admin_topic("PUT", topic, "/partitions", "2")
    client = stage.connect(stage.admin_url)
    producer = client.create_producer(topic, schema=JsonSchema(Order))
    consumer = client.subscribe(topic, "sub", schema=JsonSchema(Order), initial_position=EARLIEST)
    producer.send(Order(item="tea"))
    message = stage.receive(consumer)
    consumer.acknowledge(message)
    stage.line(message.value().item)
    stage.line("partitions", len(client.get_topic_partitions(topic)))
    found = client.subscribe(re.compile(topic + ".*"), "pattern", initial_position=EARLIEST)
    stage.line("by pattern", json.loads(text(stage.receive(found))))
    client.close()


def refused_names(stage):
    for topic in ["persistent://nobody/default/t", "persistent://public/nothing/t"]:
        stage.refused(topic, lambda topic=topic: stage.producer(topic))


STEPS = [partitioned, several_topics, pattern, over_http, refused_names]
