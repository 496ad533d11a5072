"""Steps about what is acknowledged, and how. Each closes the consumer and looks at what the next one gets."""

import pulsar

SHARED = pulsar.ConsumerType.Shared


def cumulative(stage):
    topic = stage.topic("t")
    stage.send(topic, "a", "b", "c", "d")
    consumer = stage.consumer(topic)
    stage.receive(consumer)
    stage.receive(consumer)
    consumer.acknowledge_cumulative(stage.receive(consumer))
    consumer.close()
    stage.rest(topic)


def single(stage):
    topic = stage.topic("t")
    stage.send(topic, "a", "b", "c", "d")
    consumer = stage.consumer(topic, consumer_type=SHARED)
    messages = [stage.receive(consumer) for _ in range(4)]
    for at in [0, 2]:
        consumer.acknowledge(messages[at])
    consumer.close()
    stage.rest(topic)


def batch_indexes(stage):
    topic = stage.topic("t")
    stage.send_batch(topic, "a", "b", "c", "d")
    consumer = stage.consumer(topic, consumer_type=SHARED, batch_index_ack_enabled=True)
    messages = [stage.receive(consumer) for _ in range(4)]
    for at in [1, 3]:
        consumer.acknowledge(messages[at])
    consumer.close()
    stage.rest(topic)


def parts_of_batches(stage):
    """Without such a setting the client keeps an entry back until all of it is acknowledged."""
    topic = stage.topic("t")
    stage.send_batch(topic, "a", "b", "c", "d")
    consumer = stage.consumer(topic)
    stage.line("taken", stage.take(consumer, 3))
    consumer.close()
    stage.rest(topic)
    stage.rest(topic)


STEPS = [cumulative, single, batch_indexes, parts_of_batches]
