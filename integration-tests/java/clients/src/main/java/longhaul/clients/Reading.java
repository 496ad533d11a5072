package longhaul.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TableView;

/** Steps about readers, and going back. */
final class Reading {
  private Reading() {}

  static void add(Map<String, Step> steps) {
    steps.put("reader", Reading::reader);
    steps.put("reader of batches", Reading::readerOfBatches);
    steps.put("consumer seeks", Reading::consumerSeeks);
    steps.put("compacted", Reading::compacted);
    steps.put("table view", Reading::tableView);
  }

  private static List<String> all(Reader<String> reader) throws Exception {
    List<String> values = new ArrayList<>();
    while (more(reader)) {
      Message<String> message = reader.readNext(Stage.PATIENCE_SECONDS, TimeUnit.SECONDS);
      values.add(message == null ? "(nothing came)" : message.getValue());
    }
    return values;
  }

  /** Just behind a seek Pulsar 4.0.7 sometimes fails to find the last message, and is asked again. */
  private static boolean more(Reader<String> reader) throws Exception {
    for (int left = 20; ; left--) {
      try {
        return reader.hasMessageAvailable();
      } catch (PulsarClientException.BrokerMetadataException cause) {
        if (left == 0) {
          throw cause;
        }
        Thread.sleep(100);
      }
    }
  }

  private static Reader<String> read(Stage stage, String topic, MessageId start) throws Exception {
    return stage.client.newReader(Schema.STRING).topic(topic).startMessageId(start).create();
  }

  private static void reader(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Reader<String> reader = read(stage, topic, MessageId.earliest)) {
      stage.line("empty " + all(reader));
    }
    List<MessageId> ids = new ArrayList<>();
    long middle;
    try (Producer<String> producer = stage.producer(topic)) {
      ids.add(producer.send("a"));
      ids.add(producer.send("b"));
      Thread.sleep(20);
      middle = System.currentTimeMillis();
      Thread.sleep(20);
      ids.add(producer.send("c"));
      ids.add(producer.send("d"));
    }
    try (Reader<String> reader = read(stage, topic, MessageId.earliest)) {
      stage.line("earliest " + all(reader));
      reader.seek(ids.get(1));
      stage.line("behind an id " + all(reader));
      reader.seek(middle);
      stage.line("from a time " + all(reader));
      reader.seek(MessageId.latest);
      stage.line("latest " + all(reader));
      reader.seek(MessageId.earliest);
      stage.line("earliest " + all(reader));
    }
    try (Reader<String> reader = read(stage, topic, ids.get(2))) {
      stage.line("started behind an id " + all(reader));
    }
    try (Reader<String> reader =
        stage.client.newReader(Schema.STRING).topic(topic).startMessageId(ids.get(2)).startMessageIdInclusive().create()) {
      stage.line("started at an id " + all(reader));
    }
    try (Reader<String> reader = read(stage, topic, MessageId.latest)) {
      stage.line("latest " + all(reader));
      stage.send(topic, "e");
      Stage.until("e", () -> {
        try {
          return reader.hasMessageAvailable();
        } catch (Exception cause) {
          throw new IllegalStateException(cause);
        }
      });
      stage.line("latest " + all(reader));
    }
  }

  private static void readerOfBatches(Stage stage) throws Exception {
    String topic = stage.topic("t");
    List<MessageId> ids = new ArrayList<>();
    try (Producer<String> producer = Producing.batching(stage, topic).create()) {
      var receipts = List.of("a", "b", "c", "d").stream().map(producer::sendAsync).toList();
      producer.flush();
      for (var receipt : receipts) {
        ids.add(receipt.get());
      }
    }
    try (Reader<String> reader = read(stage, topic, ids.get(1))) {
      stage.line("behind the second " + all(reader));
      reader.seek(ids.get(2));
      stage.line("behind the third " + all(reader));
    }
    try (Reader<String> reader = read(stage, topic, ids.get(3))) {
      stage.line("behind the last " + all(reader));
    }
  }

  private static void consumerSeeks(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      stage.send(topic, "a", "b", "c");
      MessageId second = null;
      for (int turn = 0; turn < 3; turn++) {
        Message<String> message = Stage.receive(consumer);
        consumer.acknowledge(message);
        second = turn == 1 ? message.getMessageId() : second;
      }
      consumer.seek(second);
      stage.line("behind an id " + Stage.take(consumer, 1));
      stage.quiet(consumer);
      consumer.seek(MessageId.earliest);
      stage.line("earliest " + Stage.take(consumer, 3));
      consumer.seek(MessageId.latest);
      stage.send(topic, "d");
      stage.line("latest " + Stage.take(consumer, 1));
      stage.line("last " + consumer.getLastMessageIds().size());
      stage.quiet(consumer);
    }
  }

  private static void keyed(Stage stage, String topic) throws Exception {
    try (Producer<String> producer = stage.producer(topic)) {
      for (String pair : List.of("a=1", "b=1", "a=2", "c=1", "b=2")) {
        producer.newMessage().key(pair.substring(0, 1)).value(pair.substring(2)).send();
      }
      producer.newMessage().key("c").value(null).send();
    }
  }

  private static void compacted(Stage stage) throws Exception {
    String topic = stage.topic("t");
    keyed(stage, topic);
    stage.compact(topic);
    var builder = stage.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest);
    try (Reader<String> reader = builder.clone().readCompacted(true).create();
        Reader<String> raw = builder.clone().create()) {
      stage.line("compacted " + all(reader));
      stage.line("raw " + all(raw));
      stage.send(topic, "later");
      stage.line("compacted " + reader.readNext(Stage.PATIENCE_SECONDS, TimeUnit.SECONDS).getValue());
      stage.line("more: " + reader.hasMessageAvailable());
    }
  }

  private static void tableView(Stage stage) throws Exception {
    String topic = stage.topic("t");
    keyed(stage, topic);
    stage.compact(topic);
    try (TableView<String> view =
        stage.client.newTableViewBuilder(Schema.STRING).topic(topic).create()) {
      stage.line(contents(view));
      try (Producer<String> producer = stage.producer(topic)) {
        producer.newMessage().key("d").value("1").send();
        producer.newMessage().key("a").value(null).send();
      }
      view.refresh();
      stage.line(contents(view));
    }
  }

  private static String contents(TableView<String> view) {
    Map<String, String> contents = new TreeMap<>();
    view.forEach(contents::put);
    return contents.toString();
  }
}
