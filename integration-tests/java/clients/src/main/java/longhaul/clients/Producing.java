package longhaul.clients;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.SchemaInfo;

/** Steps about what is sent. */
final class Producing {
  private Producing() {}

  static void add(Map<String, Step> steps) {
    steps.put("plain", Producing::plain);
    steps.put("batched", Producing::batched);
    steps.put("compressed", Producing::compressed);
    steps.put("chunked", Producing::chunked);
    steps.put("delayed", Producing::delayed);
    steps.put("schemas", Producing::schemas);
    steps.put("null values", Producing::nulls);
    steps.put("access modes", Producing::accessModes);
    steps.put("deduplicated", Producing::deduplicated);
  }

  private static void plain(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> consumer = stage.consumer(topic).subscribe();
        Producer<String> producer = stage.producer(topic)) {
      MessageId first = producer.newMessage().value("a").key("k").property("p", "1").eventTime(7).send();
      MessageId second = producer.newMessage().value("b").orderingKey(new byte[] {1, 2}).send();
      MessageId third = producer.newMessage().value("c").keyBytes(new byte[] {0, (byte) 255}).send();
      stage.line("ids grow: " + (first.compareTo(second) < 0 && second.compareTo(third) < 0));
      for (MessageId id : List.of(first, second, third)) {
        Message<String> message = Stage.receive(consumer);
        consumer.acknowledge(message);
        stage.line(
            "%s key=%s binary=%s ordering=%s properties=%s event=%d sequence=%d same id: %s"
                .formatted(
                    message.getValue(),
                    message.getKey(),
                    message.hasBase64EncodedKey(),
                    message.hasOrderingKey(),
                    message.getProperties(),
                    message.getEventTime(),
                    message.getSequenceId(),
                    message.getMessageId().equals(id)));
      }
      stage.quiet(consumer);
    }
  }

  private static void batched(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> consumer = stage.consumer(topic).subscribe();
        Producer<String> producer = batching(stage, topic).create()) {
      List<CompletableFuture<MessageId>> receipts = new ArrayList<>();
      for (int number = 0; number < 10; number++) {
        receipts.add(producer.newMessage().value("v" + number).key("k" + number % 2).sendAsync());
      }
      producer.flush();
      Set<Long> entries = new HashSet<>();
      for (CompletableFuture<MessageId> receipt : receipts) {
        MessageIdAdv id = (MessageIdAdv) receipt.get();
        entries.add(id.getEntryId());
        Message<String> message = Stage.receive(consumer);
        consumer.acknowledge(message);
        stage.line(
            "%s key=%s index=%d of %d same id: %s"
                .formatted(
                    message.getValue(),
                    message.getKey(),
                    id.getBatchIndex(),
                    id.getBatchSize(),
                    message.getMessageId().equals(id)));
      }
      stage.line("entries: " + entries.size());
      stage.quiet(consumer);
    }
  }

  /** Batches end when they are flushed, not when time has passed. */
  static ProducerBuilder<String> batching(Stage stage, String topic) {
    return stage
        .client
        .newProducer(Schema.STRING)
        .topic(topic)
        .batchingMaxPublishDelay(10, TimeUnit.SECONDS)
        .batchingMaxMessages(100);
  }

  private static void compressed(Stage stage) throws Exception {
    String topic = stage.topic("t");
    String text = "compress me ".repeat(1000);
    try (Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      for (CompressionType kind : CompressionType.values()) {
        try (Producer<String> producer = batching(stage, topic).compressionType(kind).create()) {
          producer.send(text);
          List<CompletableFuture<MessageId>> receipts = new ArrayList<>();
          for (int number = 0; number < 3; number++) {
            receipts.add(producer.sendAsync(text + number));
          }
          producer.flush();
          CompletableFuture.allOf(receipts.toArray(CompletableFuture[]::new)).get();
        }
        List<String> values = Stage.take(consumer, 4);
        stage.line(kind + " " + values.equals(List.of(text, text + 0, text + 1, text + 2)));
      }
    }
  }

  private static void chunked(Stage stage) throws Exception {
    String topic = stage.topic("t");
    String large = "0123456789".repeat(250_000);
    try (Consumer<String> consumer = stage.consumer(topic).subscribe();
        Producer<String> producer =
            stage
                .client
                .newProducer(Schema.STRING)
                .topic(topic)
                .enableBatching(false)
                .enableChunking(true)
                .chunkMaxMessageSize(1 << 20)
                .create()) {
      producer.send(large);
      producer.send("small");
      List<String> values = Stage.take(consumer, 2);
      stage.line("large: " + values.get(0).equals(large) + ", then " + values.get(1));
      stage.quiet(consumer);
    }
    try (Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      stage.quiet(consumer);
    }
  }

  private static void delayed(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> consumer =
            stage.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<String> producer = stage.producer(topic)) {
      // Pulsar may be early by a second, its tick. On a busy machine two sends take seconds.
      long due = System.currentTimeMillis() + 5000;
      producer.newMessage().value("late").deliverAt(due).send();
      producer.newMessage().value("now").send();
      stage.line(Stage.take(consumer, 1).toString());
      stage.line(Stage.take(consumer, 1) + " early: " + (System.currentTimeMillis() < due - 1000));
    }
  }

  /** What is sent with a JSON schema. */
  public static final class Order {
    public String item;
    public int count;
  }

  private static void schemas(Stage stage) throws Exception {
    String topic = stage.topic("t");
    Order order = new Order();
    order.item = "tea";
    order.count = 3;
    try (Producer<Order> producer =
        stage.client.newProducer(Schema.JSON(Order.class)).topic(topic).create()) {
      producer.send(order);
    }
    var builder = stage.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic);
    try (Consumer<GenericRecord> consumer = builder.subscriptionName("auto")
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
        .subscribe()) {
      Message<GenericRecord> message = Stage.receive(consumer);
      consumer.acknowledge(message);
      GenericRecord value = message.getValue();
      stage.line("%s %s".formatted(value.getField("item"), value.getField("count")));
      stage.line("version " + java.util.HexFormat.of().formatHex(message.getSchemaVersion()));
      SchemaInfo schema = message.getReaderSchema().orElseThrow().getSchemaInfo();
      stage.line(schema.getType() + " " + schema.getSchemaDefinition());
    }
    try (Producer<byte[]> producer =
        stage.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create()) {
      producer.send("{\"item\":\"milk\",\"count\":1}".getBytes());
    }
    try (Consumer<Order> consumer = stage.client.newConsumer(Schema.JSON(Order.class)).topic(topic)
        .subscriptionName("typed")
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
        .subscribe()) {
      stage.line(Stage.take(consumer, 2).stream().map(value -> value.item + value.count).toList().toString());
    }
    String plain = stage.topic("text");
    stage.send(plain, "a");
    stage.line(stage.admin("GET", "schemas/" + plain.replace("persistent://", "") + "/schema", "")
        .replaceAll("\"timestamp\":\\d+", "\"timestamp\":T"));
  }

  private static void nulls(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> consumer = stage.consumer(topic).subscribe();
        Producer<String> producer = stage.producer(topic)) {
      producer.newMessage().key("a").value("x").send();
      producer.newMessage().key("a").value(null).send();
      producer.newMessage().key("a").value("").send();
      stage.line(Stage.take(consumer, 3).stream().map(value -> "[" + value + "]").toList().toString());
    }
  }

  private static void accessModes(Stage stage) throws Exception {
    String topic = stage.topic("t");
    // Pulsar ends the connection of a fenced producer that sends, so this one is not shared with other steps.
    try (PulsarClient client = PulsarClient.builder().serviceUrl(stage.serviceUrl).build()) {
      var exclusive = client.newProducer(Schema.STRING).topic(topic).accessMode(ProducerAccessMode.Exclusive);
      Producer<String> first = exclusive.create();
      refused(stage, "a second exclusive one", () -> exclusive.clone().create());
      refused(stage, "a shared one", () -> stage.producer(topic));
      var waiting = exclusive.clone().accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
      Thread.sleep(Stage.QUIET_MILLISECONDS);
      stage.line("waits: " + !waiting.isDone());
      first.close();
      Producer<String> second = waiting.get(Stage.PATIENCE_SECONDS, TimeUnit.SECONDS);
      stage.line("second sends: " + (second.send("b") != null));
      var fencing = exclusive.clone().accessMode(ProducerAccessMode.ExclusiveWithFencing);
      Producer<String> third = fencing.create();
      stage.line("third sends: " + (third.send("c") != null));
      refused(stage, "the fenced one sends", () -> second.send("a"));
    }
  }

  private interface Attempt {
    Object make() throws Exception;
  }

  private static void refused(Stage stage, String what, Attempt attempt) {
    try {
      attempt.make();
      stage.line(what + ": accepted");
    } catch (Exception cause) {
      stage.line(what + ": " + cause.getClass().getSimpleName());
    }
  }

  private static void deduplicated(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.adminTopic("PUT", topic, "", "");
    stage.adminTopic("POST", topic, "/deduplicationEnabled", "true");
    Stage.until("deduplication", () -> {
      try {
        return stage.adminTopic("GET", topic, "/internalStats", "").contains("pulsar.dedup");
      } catch (Exception cause) {
        throw new IllegalStateException(cause);
      }
    });
    var builder = stage.client.newProducer(Schema.STRING).topic(topic).producerName("named").enableBatching(false);
    try (Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      try (Producer<String> producer = builder.clone().create()) {
        stage.line("starts after " + producer.getLastSequenceId());
        producer.newMessage().value("a").sequenceId(1).send();
        producer.newMessage().value("again").sequenceId(1).send();
        producer.newMessage().value("b").sequenceId(5).send();
      }
      try (Producer<String> producer = builder.clone().create()) {
        stage.line("goes on after " + producer.getLastSequenceId());
        producer.newMessage().value("old").sequenceId(4).send();
        producer.newMessage().value("c").sequenceId(6).send();
      }
      stage.line(Stage.take(consumer, 3).toString());
      stage.quiet(consumer);
    }
  }
}
