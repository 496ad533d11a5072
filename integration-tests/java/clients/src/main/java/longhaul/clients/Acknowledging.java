package longhaul.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;

/** Steps about what is acknowledged, and how. Each closes the consumer and looks at what the next one gets. */
final class Acknowledging {
  private Acknowledging() {}

  static void add(Map<String, Step> steps) {
    steps.put("cumulative", Acknowledging::cumulative);
    steps.put("receipts of acks", Acknowledging::receipts);
    steps.put("batch indexes", Acknowledging::batchIndexes);
    steps.put("parts of batches", Acknowledging::partsOfBatches);
    steps.put("ack timeout", Acknowledging::timeout);
  }

  private static void cumulative(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.send(topic, "a", "b", "c", "d");
    try (Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      Stage.receive(consumer);
      Stage.receive(consumer);
      Message<String> third = Stage.receive(consumer);
      consumer.acknowledgeCumulative(third);
    }
    rest(stage, topic);
  }

  private static void receipts(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.send(topic, "a", "b", "c", "d");
    try (Consumer<String> consumer =
        stage
            .consumer(topic)
            .isAckReceiptEnabled(true)
            .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
            .subscriptionType(SubscriptionType.Shared)
            .subscribe()) {
      List<Message<String>> messages = new ArrayList<>();
      for (int turn = 0; turn < 4; turn++) {
        messages.add(Stage.receive(consumer));
      }
      consumer.acknowledge(messages.get(1));
      consumer.acknowledge(List.of(messages.get(0).getMessageId(), messages.get(2).getMessageId()));
      stage.line("receipts came");
    }
    rest(stage, topic);
  }

  private static void batch(Stage stage, String topic) throws Exception {
    try (Producer<String> producer = Producing.batching(stage, topic).create()) {
      for (String value : List.of("a", "b", "c", "d")) {
        producer.sendAsync(value);
      }
      producer.flush();
    }
  }

  private static void batchIndexes(Stage stage) throws Exception {
    String topic = stage.topic("t");
    batch(stage, topic);
    try (Consumer<String> consumer =
        stage
            .consumer(topic)
            .subscriptionType(SubscriptionType.Shared)
            .enableBatchIndexAcknowledgment(true)
            .isAckReceiptEnabled(true)
            .subscribe()) {
      List<Message<String>> messages = new ArrayList<>();
      for (int turn = 0; turn < 4; turn++) {
        messages.add(Stage.receive(consumer));
      }
      consumer.acknowledge(messages.get(1));
      consumer.acknowledge(messages.get(3));
    }
    rest(stage, topic);
  }

  /** Without such a setting the client keeps an entry back until all of it is acknowledged. */
  private static void partsOfBatches(Stage stage) throws Exception {
    String topic = stage.topic("t");
    batch(stage, topic);
    try (Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      stage.line("taken " + Stage.take(consumer, 3));
    }
    rest(stage, topic);
    rest(stage, topic);
  }

  private static void timeout(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.send(topic, "a");
    try (Consumer<String> consumer =
        stage
            .consumer(topic)
            .subscriptionType(SubscriptionType.Shared)
            .ackTimeout(1, TimeUnit.SECONDS)
            .ackTimeoutTickTime(200, TimeUnit.MILLISECONDS)
            .subscribe()) {
      stage.line("count " + Stage.receive(consumer).getRedeliveryCount());
      Message<String> again = Stage.receive(consumer);
      stage.line("count " + again.getRedeliveryCount());
      consumer.acknowledge(again);
    }
    rest(stage, topic);
  }

  /**
   * Takes what is left, and acknowledges all of it. A last message tells when that is all: silence tells nothing on a
   * busy machine.
   */
  private static void rest(Stage stage, String topic) throws Exception {
    try (Consumer<String> consumer = stage.consumer(topic).subscriptionType(SubscriptionType.Shared).subscribe()) {
      String last = "last " + System.nanoTime();
      stage.send(topic, last);
      List<String> left = new ArrayList<>();
      String value;
      while (!(value = Stage.take(consumer, 1).get(0)).equals(last)) {
        left.add(value);
      }
      stage.line("left " + left);
    }
  }
}
