package longhaul.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;

/** Steps about more than one topic, and finding them. */
final class Topics {
  private Topics() {}

  static void add(Map<String, Step> steps) {
    steps.put("partitioned", Topics::partitioned);
    steps.put("several topics", Topics::several);
    steps.put("pattern", Topics::pattern);
    steps.put("watched pattern", Topics::watched);
    steps.put("terminated", Topics::terminated);
    steps.put("over http", Topics::http);
    steps.put("refused names", Topics::refused);
  }

  private static void partitioned(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.adminTopic("PUT", topic, "/partitions", "3");
    stage.line("partitions " + stage.client.getPartitionsForTopic(topic).get().size());
    try (Consumer<String> consumer = stage.consumer(topic).subscribe();
        Producer<String> producer = stage.producer(topic)) {
      for (int number = 0; number < 12; number++) {
        producer.newMessage().key("k" + number % 4).value("k" + number % 4 + "." + number).send();
      }
      List<String> seen = new ArrayList<>(Stage.take(consumer, 12));
      // Only the order within a key means something; the sort keeps it.
      seen.sort((left, right) -> left.substring(0, 2).compareTo(right.substring(0, 2)));
      stage.line(seen.toString());
      stage.quiet(consumer);
      stage.line("last ids " + consumer.getLastMessageIds().size());
    }
  }

  private static void several(Stage stage) throws Exception {
    List<String> topics = List.of(stage.topic("a"), stage.topic("b"));
    try (Consumer<String> consumer =
        stage
            .client
            .newConsumer(Schema.STRING)
            .topics(topics)
            .subscriptionName("sub")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .subscribe()) {
      stage.send(topics.get(0), "a1", "a2");
      stage.send(topics.get(1), "b1");
      stage.line(new TreeSet<>(Stage.take(consumer, 3)).toString());
      stage.quiet(consumer);
    }
  }

  private static void pattern(Stage stage) throws Exception {
    stage.send(stage.topic("yes-1"), "one");
    stage.send(stage.topic("no"), "none");
    try (Consumer<String> consumer =
        stage
            .client
            .newConsumer(Schema.STRING)
            .topicsPattern(Pattern.compile(stage.topic("yes-") + ".*"))
            .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
            .subscriptionName("sub")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .subscribe()) {
      stage.line(Stage.take(consumer, 1).toString());
      stage.send(stage.topic("yes-2"), "two");
      stage.line("found later " + Stage.take(consumer, 1));
      stage.quiet(consumer);
    }
  }

  /** Nobody asks again for an hour: the broker tells of the new topic. Pulsar watches patterns of at most 50 characters. */
  private static void watched(Stage stage) throws Exception {
    String topics = "persistent://public/default/w" + stage.run + "-";
    stage.send(topics + "1", "one");
    try (Consumer<String> consumer =
        stage
            .client
            .newConsumer(Schema.STRING)
            .topicsPattern(Pattern.compile(topics + ".*"))
            .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS)
            .subscriptionName("sub")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
            .subscribe()) {
      stage.line(Stage.take(consumer, 1).toString());
      stage.send(stage.topic("no"), "none");
      stage.send(topics + "2", "two");
      stage.line("told of " + Stage.take(consumer, 1));
      stage.quiet(consumer);
    }
  }

  private static void terminated(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Producer<String> producer = stage.producer(topic);
        Consumer<String> consumer = stage.consumer(topic).subscribe()) {
      producer.send("last");
      stage.adminTopic("POST", topic, "/terminate", "");
      stage.line("end before the ack " + consumer.hasReachedEndOfTopic());
      stage.line(Stage.take(consumer, 1).toString());
      Stage.until("the end", consumer::hasReachedEndOfTopic);
      try {
        producer.send("more");
        stage.line("sent");
      } catch (Exception cause) {
        stage.line(cause.getClass().getSimpleName());
      }
      try (Producer<String> late = stage.producer(topic)) {
        stage.line("accepted");
      } catch (Exception cause) {
        stage.line(cause.getClass().getSimpleName());
      }
    }
  }

  private static void http(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.adminTopic("PUT", topic, "/partitions", "2");
    try (PulsarClient client = PulsarClient.builder().serviceUrl(stage.adminUrl).build();
        Producer<Producing.Order> producer =
            client.newProducer(Schema.JSON(Producing.Order.class)).topic(topic).create();
        Consumer<GenericRecord> consumer =
            client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("sub").subscribe()) {
      Producing.Order order = new Producing.Order();
      order.item = "tea";
      producer.send(order);
      Message<GenericRecord> message = Stage.receive(consumer);
      consumer.acknowledge(message);
      stage.line("" + message.getValue().getField("item"));
      stage.line("partitions " + client.getPartitionsForTopic(topic).get().size());
      try (Consumer<byte[]> found =
          client
              .newConsumer()
              .topicsPattern(Pattern.compile(topic + ".*"))
              .subscriptionName("pattern")
              .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
              .subscribe()) {
        stage.line("by pattern " + new String(Stage.receive(found).getData()));
      }
    }
  }

  private static void refused(Stage stage) throws Exception {
    for (String topic : List.of("persistent://nobody/default/t", "persistent://public/nothing/t")) {
      try (Producer<String> producer = stage.producer(topic)) {
        stage.line("accepted");
      } catch (Exception cause) {
        stage.line(cause.getClass().getSimpleName());
      }
    }
  }
}
