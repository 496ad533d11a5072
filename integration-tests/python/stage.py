"""What a step plays with: clients, names of its own, the admin interface, and the lines that it prints."""

import json
import time
import urllib.request

import pulsar

# How long anything that must come may take.
PATIENCE_MILLISECONDS = 20_000
# How long nothing must come before it is believed that nothing more comes.
QUIET_MILLISECONDS = 400
EARLIEST = pulsar.InitialPosition.Earliest


class Stage:
    """One for each step."""

    def __init__(self, client, service_url, admin_url, run, name):
        self.client = client
        self.service_url = service_url
        self.admin_url = admin_url.rstrip("/")
        self.run = run
        self.name = name
        self.lines = []

    @staticmethod
    def connect(url):
        return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))

    def play(self, step):
        """Returns what the step printed. Why it could not be played to its end is one of the lines; the others go on."""
        self.line(f"# {self.name}")
        try:
            step(self)
        except Exception as cause:  # Whatever it is, it is told.
            self.line(f"! {type(cause).__name__} {cause}".replace(self.run, "RUN").strip())
        return self.lines

    def line(self, *parts):
        self.lines.append(" ".join(str(part) for part in parts))

    def topic(self, topic):
        name = self.name.replace(" ", "-")
        return f"persistent://public/default/clients-{self.run}-python-{name}-{topic}"

    def producer(self, topic, **options):
        """A producer of one message per entry, unless the options say otherwise."""
        return self.client.create_producer(topic, **options)

    def consumer(self, topic, subscription="sub", **options):
        """Subscribes from the first message on."""
        options.setdefault("initial_position", EARLIEST)
        return self.client.subscribe(topic, subscription, **options)

    def send(self, topic, *values):
        producer = self.producer(topic)
        ids = [producer.send(value.encode()) for value in values]
        producer.close()
        return ids

    def send_batch(self, topic, *values, **options):
        """Sends all in one entry. Returns their ids."""
        producer = self.producer(
            topic, batching_enabled=True, batching_max_publish_delay_ms=10_000, batching_max_messages=100, **options
        )
        ids = {}
        for at, value in enumerate(values):
            producer.send_async(value.encode(), lambda result, id, at=at: ids.__setitem__(at, id))
        producer.flush()
        self.until("receipts", lambda: len(ids) == len(values))
        producer.close()
        return [ids[at] for at in range(len(values))]

    def receive(self, consumer):
        return consumer.receive(PATIENCE_MILLISECONDS)

    def take(self, consumer, count):
        """Receives so many, acknowledges them, and returns their values."""
        values = []
        for _ in range(count):
            message = self.receive(consumer)
            values.append(text(message))
            consumer.acknowledge(message)
        return values

    def quiet(self, consumer):
        """Says what comes although nothing must."""
        try:
            self.line("more:", text(consumer.receive(QUIET_MILLISECONDS)))
        except pulsar.Timeout:
            self.line("nothing more")

    def rest(self, topic):
        """Takes what is left, acknowledges all of it, and says what it was. A last message tells when that is all:
        silence tells nothing on a busy machine."""
        consumer = self.consumer(topic, consumer_type=pulsar.ConsumerType.Shared)
        last = f"last {time.monotonic_ns()}"
        self.send(topic, last)
        left = []
        while (value := self.take(consumer, 1)[0]) != last:
            left.append(value)
        consumer.close()
        self.line("left", left)

    def until(self, what, done):
        end = time.monotonic() + PATIENCE_MILLISECONDS / 1000
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not in time")
            time.sleep(0.02)

    def admin(self, method, path, body=""):
        """A call that must succeed; the path follows `/admin/v2/`."""
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/{path}",
            data=body.encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            body = answer.read().decode()
        return json.loads(body) if body else None

    def admin_topic(self, method, topic, tail="", body=""):
        """A call about a topic."""
        return self.admin(method, topic.replace("://", "/") + tail, body)

    def compact(self, topic):
        self.admin_topic("PUT", topic, "/compaction")
        self.until("compaction", lambda: self.admin_topic("GET", topic, "/compaction")["status"] == "SUCCESS")

    def refused(self, what, attempt):
        """Says how an attempt failed."""
        try:
            attempt()
            self.line(what, "accepted")
        except pulsar.PulsarException as cause:
            self.line(what, type(cause).__name__)


def text(message):
    return message.data().decode()
