package longhaul.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Steps about who gets what. */
final class Consuming {
  private Consuming() {}

  static void add(Map<String, Step> steps) {
    steps.put("shared", Consuming::shared);
    steps.put("exclusive", Consuming::exclusive);
    steps.put("failover", Consuming::failover);
    steps.put("key shared", Consuming::keyShared);
    steps.put("nacked", Consuming::nacked);
    steps.put("redelivered", Consuming::redelivered);
    steps.put("dead letters", Consuming::deadLetters);
    steps.put("unsubscribed", Consuming::unsubscribed);
    steps.put("unloaded", Consuming::unloaded);
  }

  private static void shared(Stage stage) throws Exception {
    String topic = stage.topic("t");
    var builder = stage.consumer(topic).subscriptionType(SubscriptionType.Shared).receiverQueueSize(3);
    try (Consumer<String> first = builder.clone().consumerName("one").subscribe();
        Consumer<String> second = builder.clone().consumerName("two").subscribe()) {
      stage.send(topic, "0", "1", "2", "3", "4", "5", "6", "7");
      // Which of them gets one that comes late depends on who was faster to take the earlier ones.
      List<String> ones = Stage.take(first, 1);
      List<String> twos = Stage.take(second, 1);
      stage.line("both have some: " + (ones.size() + twos.size()));
      TreeSet<String> all = new TreeSet<>(ones);
      all.addAll(twos);
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Stage.PATIENCE_SECONDS);
      while (all.size() < 8 && System.nanoTime() < end) {
        for (Consumer<String> consumer : List.of(first, second)) {
          Message<String> message = consumer.receive(20, TimeUnit.MILLISECONDS);
          if (message != null) {
            consumer.acknowledge(message);
            if (!all.add(message.getValue())) {
              stage.line("twice " + message.getValue());
            }
          }
        }
      }
      stage.line("together " + all);
      stage.quiet(first);
      stage.quiet(second);
    }
  }

  private static void exclusive(Stage stage) throws Exception {
    String topic = stage.topic("t");
    var builder = stage.consumer(topic).subscriptionType(SubscriptionType.Exclusive);
    try (Consumer<String> first = builder.clone().subscribe()) {
      for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
        try (Consumer<String> second = builder.clone().subscriptionType(type).subscribe()) {
          stage.line("accepted " + type);
        } catch (PulsarClientException cause) {
          stage.line(type + " " + cause.getClass().getSimpleName());
        }
      }
      stage.send(topic, "a");
      stage.line(Stage.take(first, 1).toString());
    }
    try (Consumer<String> other = builder.clone().subscriptionType(SubscriptionType.Shared).subscribe()) {
      stage.send(topic, "b");
      stage.line("as another type " + Stage.take(other, 1));
    }
  }

  private static void failover(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.adminTopic("PUT", topic, "/partitions", "1");
    var builder = stage.consumer(topic).subscriptionType(SubscriptionType.Failover);
    Consumer<String> first = builder.clone().consumerName("a").subscribe();
    try (Consumer<String> second = builder.clone().consumerName("b").subscribe()) {
      stage.send(topic, "0", "1", "2", "3");
      stage.line("active " + Stage.take(first, 2));
      stage.quiet(second);
      first.close();
      stage.line("next " + Stage.take(second, 2));
      stage.send(topic, "4");
      stage.line("next " + Stage.take(second, 1));
      stage.quiet(second);
    }
  }

  private static void keyShared(Stage stage) throws Exception {
    var policies = List.of(KeySharedPolicy.autoSplitHashRange(), KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 65535)));
    for (KeySharedPolicy policy : policies) {
      String topic = stage.topic("t" + policies.indexOf(policy));
      var builder = stage.consumer(topic).subscriptionType(SubscriptionType.Key_Shared).keySharedPolicy(policy);
      try (Consumer<String> consumer = builder.subscribe(); Producer<String> producer = stage.producer(topic)) {
        producer.newMessage().key("k").value("a").send();
        producer.newMessage().key("l").value("b").send();
        stage.line(Stage.take(consumer, 2).toString());
      } catch (PulsarClientException cause) {
        stage.line(cause.getClass().getSimpleName());
      }
    }
  }

  private static void nacked(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.send(topic, "a", "b", "c");
    try (Consumer<String> consumer =
        stage
            .consumer(topic)
            .subscriptionType(SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
            .subscribe()) {
      for (int turn = 0; turn < 3; turn++) {
        Message<String> message = Stage.receive(consumer);
        if (message.getValue().equals("b")) {
          consumer.negativeAcknowledge(message);
        } else {
          consumer.acknowledge(message);
        }
      }
      Message<String> again = Stage.receive(consumer);
      stage.line(again.getValue() + " count " + again.getRedeliveryCount());
      consumer.negativeAcknowledge(again);
      again = Stage.receive(consumer);
      stage.line(again.getValue() + " count " + again.getRedeliveryCount());
      consumer.acknowledge(again);
      stage.quiet(consumer);
    }
  }

  private static void redelivered(Stage stage) throws Exception {
    for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Shared)) {
      String topic = stage.topic(type.name());
      stage.send(topic, "a", "b", "c");
      try (Consumer<String> consumer = stage.consumer(topic).subscriptionType(type).subscribe()) {
        Stage.take(consumer, 1);
        Stage.receive(consumer);
        Stage.receive(consumer);
        // The client keeps acknowledgements back for a while, and the request does not wait for them.
        Thread.sleep(Stage.QUIET_MILLISECONDS);
        consumer.redeliverUnacknowledgedMessages();
        List<String> seen = new ArrayList<>();
        for (int turn = 0; turn < 2; turn++) {
          Message<String> message = Stage.receive(consumer);
          seen.add(message.getValue() + " count " + message.getRedeliveryCount());
          consumer.acknowledge(message);
        }
        stage.line(type + " " + seen);
        stage.quiet(consumer);
      }
    }
  }

  private static void deadLetters(Stage stage) throws Exception {
    String topic = stage.topic("t");
    stage.send(topic, "good", "bad");
    var policy = DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("dead").build();
    try (Consumer<String> consumer =
        stage
            .consumer(topic)
            .subscriptionType(SubscriptionType.Shared)
            .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS)
            .deadLetterPolicy(policy)
            .subscribe()) {
      for (int turn = 0; turn < 4; turn++) {
        Message<String> message = Stage.receive(consumer);
        stage.line(message.getValue() + " count " + message.getRedeliveryCount());
        if (message.getValue().equals("bad")) {
          consumer.negativeAcknowledge(message);
        } else {
          consumer.acknowledge(message);
        }
      }
      try (Consumer<String> dead =
          stage.consumer(topic + "-sub-DLQ").subscriptionName("dead").subscribe()) {
        Message<String> message = Stage.receive(dead);
        stage.line("dead " + message.getValue() + " of " + stage.topic("t").equals(message.getProperty("REAL_TOPIC")));
        dead.acknowledge(message);
      }
      stage.quiet(consumer);
    }
  }

  private static void unsubscribed(Stage stage) throws Exception {
    String topic = stage.topic("t");
    Consumer<String> consumer = stage.consumer(topic).subscribe();
    stage.send(topic, "a", "b");
    Stage.take(consumer, 2);
    stage.line(stage.adminTopic("GET", topic, "/subscriptions", ""));
    consumer.unsubscribe();
    consumer.close();
    stage.line(stage.adminTopic("GET", topic, "/subscriptions", ""));
    stage.send(topic, "c");
    try (Consumer<String> later =
        stage
            .consumer(topic)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Latest)
            .subscribe()) {
      stage.send(topic, "d");
      stage.line(Stage.take(later, 1).toString());
      stage.quiet(later);
    }
  }

  private static void unloaded(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> consumer = stage.consumer(topic).subscribe();
        Producer<String> producer = stage.producer(topic)) {
      List<String> seen = new ArrayList<>();
      for (int round = 0; round < 3; round++) {
        for (int number = 0; number < 20; number++) {
          producer.sendAsync(round + "." + number);
        }
        stage.adminTopic("PUT", topic, "/unload", "");
        producer.flush();
      }
      TreeSet<String> missing = new TreeSet<>();
      for (int round = 0; round < 3; round++) {
        for (int number = 0; number < 20; number++) {
          missing.add(round + "." + number);
        }
      }
      // What was not yet acknowledged comes again, and a message whose receipt was lost is sent again.
      while (!missing.isEmpty()) {
        Message<String> message = Stage.receive(consumer);
        if (missing.remove(message.getValue())) {
          seen.add(message.getValue());
        }
        consumer.acknowledge(message);
      }
      stage.line("first sights in order: " + inOrder(seen) + " " + seen.size());
    }
  }

  private static boolean inOrder(List<String> seen) {
    for (int round = 0; round < 3; round++) {
      for (int number = 0; number < 20; number++) {
        if (!seen.get(round * 20 + number).equals(round + "." + number)) {
          return false;
        }
      }
    }
    return true;
  }
}
