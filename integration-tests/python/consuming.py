"""Steps about who gets what."""

import time

import pulsar
from stage import QUIET_MILLISECONDS, text

TYPES = pulsar.ConsumerType


def shared(stage):
    topic = stage.topic("t")
    consumers = [
        stage.consumer(topic, consumer_type=TYPES.Shared, consumer_name=name, receiver_queue_size=3)
        for name in ["one", "two"]
    ]
    stage.send(topic, *"01234567")
    # Which of them gets one that comes late depends on who was faster to take the earlier ones.
    seen = [value for consumer in consumers for value in stage.take(consumer, 1)]
    stage.line("both have some:", len(seen))

    def all_there():
        for consumer in consumers:
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                continue
            seen.append(text(message))
            consumer.acknowledge(message)
        return len(seen) >= 8

    stage.until("messages", all_there)
    stage.line("together", sorted(seen))
    for consumer in consumers:
        stage.quiet(consumer)


def exclusive(stage):
    topic = stage.topic("t")
    first = stage.consumer(topic)
    stage.refused("a second one", lambda: stage.consumer(topic))
    stage.refused("another type", lambda: stage.consumer(topic, consumer_type=TYPES.Shared))
    stage.send(topic, "a")
    stage.line(stage.take(first, 1))
    first.close()
    other = stage.consumer(topic, consumer_type=TYPES.Shared)
    stage.send(topic, "b")
    stage.line("as another type", stage.take(other, 1))


def failover(stage):
    topic = stage.topic("t")
    stage.admin_topic("PUT", topic, "/partitions", "1")
    first = stage.consumer(topic, consumer_type=TYPES.Failover, consumer_name="a")
    second = stage.consumer(topic, consumer_type=TYPES.Failover, consumer_name="b")
    stage.send(topic, *"0123")
    stage.line("active", stage.take(first, 2))
    stage.quiet(second)
    first.close()
    stage.line("next", stage.take(second, 2))
    stage.quiet(second)


def key_shared(stage):
    modes = pulsar.KeySharedMode
    policies = [
        pulsar.ConsumerKeySharedPolicy(key_shared_mode=modes.AutoSplit),
        pulsar.ConsumerKeySharedPolicy(key_shared_mode=modes.Sticky, sticky_ranges=[(0, 65535)]),
    ]
    for at, policy in enumerate(policies):
        topic = stage.topic(f"t{at}")
        try:
            consumer = stage.consumer(topic, consumer_type=TYPES.KeyShared, key_shared_policy=policy)
        except pulsar.PulsarException as cause:
            stage.line(type(cause).__name__)
            continue
        producer = stage.producer(topic)
        producer.send(b"a", partition_key="k")
        producer.send(b"b", partition_key="l")
        stage.line(stage.take(consumer, 2))


def nacked(stage):
    topic = stage.topic("t")
    stage.send(topic, "a", "b", "c")
    consumer = stage.consumer(topic, consumer_type=TYPES.Shared, negative_ack_redelivery_delay_ms=100)
    for _ in range(3):
        message = stage.receive(consumer)
        if text(message) == "b":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    for _ in range(2):
        message = stage.receive(consumer)
        stage.line(text(message), "count", message.redelivery_count())
        consumer.negative_acknowledge(message)
    consumer.acknowledge(stage.receive(consumer))
    stage.quiet(consumer)


def redelivered(stage):
    for kind in [TYPES.Exclusive, TYPES.Shared]:
        topic = stage.topic(kind.name)
        stage.send(topic, "a", "b", "c")
        consumer = stage.consumer(topic, consumer_type=kind)
        stage.take(consumer, 1)
        stage.receive(consumer)
        stage.receive(consumer)
        # The client keeps acknowledgements back for a while, and the request does not wait for them.
        time.sleep(QUIET_MILLISECONDS / 1000)
        consumer.redeliver_unacknowledged_messages()
        again = [stage.receive(consumer) for _ in range(2)]
        stage.line(kind.name, [f"{text(message)} count {message.redelivery_count()}" for message in again])
        stage.quiet(consumer)


def dead_letters(stage):
    topic = stage.topic("t")
    stage.send(topic, "good", "bad")
    dead = stage.consumer(f"{topic}-sub-DLQ", "dead")
    consumer = stage.consumer(
        topic,
        consumer_type=TYPES.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=2, initial_subscription_name="dead"),
    )
    for _ in range(4):
        message = stage.receive(consumer)
        stage.line(text(message), "count", message.redelivery_count())
        if text(message) == "bad":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    stage.line("dead", stage.take(dead, 1))
    stage.quiet(consumer)


def unsubscribed(stage):
    topic = stage.topic("t")
    consumer = stage.consumer(topic)
    stage.send(topic, "a", "b")
    stage.take(consumer, 2)
    stage.line(stage.admin_topic("GET", topic, "/subscriptions"))
    consumer.unsubscribe()
    stage.line(stage.admin_topic("GET", topic, "/subscriptions"))
    stage.send(topic, "c")
    later = stage.consumer(topic, initial_position=pulsar.InitialPosition.Latest)
    stage.send(topic, "d")
    stage.line(stage.take(later, 1))
    stage.quiet(later)


def unloaded(stage):
    topic = stage.topic("t")
    consumer = stage.consumer(topic)
    producer = stage.producer(topic)
    expected = [f"{at}.{number}" for at in range(3) for number in range(20)]
    for at in range(3):
        for value in expected[at * 20 : at * 20 + 20]:
            producer.send_async(value.encode(), lambda result, id: None)
        stage.admin_topic("PUT", topic, "/unload")
        producer.flush()
    # What was not yet acknowledged comes again, and a message whose receipt was lost is sent again.
    seen = {}
    while len(seen) < len(expected):
        message = stage.receive(consumer)
        seen.setdefault(text(message))
        consumer.acknowledge(message)
    stage.line("first sights in order:", list(seen) == expected, len(seen))


STEPS = [shared, exclusive, failover, key_shared, nacked, redelivered, dead_letters, unsubscribed, unloaded]
