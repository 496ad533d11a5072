package longhaul.clients;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Steps about consumers that share by keys. Which consumer has which key is the broker's affair: they print what is so whoever has
 * them. The value of a message is its key, a dot, and its number within the key.
 */
final class KeyShared {
  private static final int KEYS = 20;

  private KeyShared() {}

  static void add(Map<String, Step> steps) {
    steps.put("key shared order", KeyShared::order);
    steps.put("key shared batches", KeyShared::batches);
    steps.put("key shared ranges", KeyShared::ranges);
    steps.put("key shared draining", KeyShared::draining);
    steps.put("key shared disorder", KeyShared::disorder);
    steps.put("key shared acked by another", KeyShared::ackedByAnother);
    steps.put("key shared nacked", KeyShared::nacked);
    steps.put("key shared ack timeout", KeyShared::ackTimeout);
    steps.put("key shared slow", KeyShared::slow);
    steps.put("key shared without keys", KeyShared::withoutKeys);
    steps.put("key shared statistics", KeyShared::statistics);
  }

  private static ConsumerBuilder<String> consumer(Stage stage, String topic, String name) {
    return stage.consumer(topic).subscriptionType(SubscriptionType.Key_Shared).consumerName(name);
  }

  /** So many messages of each key, in turn. */
  private static void send(Producer<String> producer, int from, int to) throws Exception {
    for (int number = from; number < to; number++) {
      for (int key = 0; key < KEYS; key++) {
        producer.newMessage().key("k" + key).value("k" + key + "." + number).sendAsync();
      }
    }
    producer.flush();
  }

  private static List<Message<String>> receiveAll(Consumer<String> consumer) throws Exception {
    List<Message<String>> all = new ArrayList<>();
    Message<String> message;
    while ((message = consumer.receive(2 * Stage.QUIET_MILLISECONDS, TimeUnit.MILLISECONDS)) != null) {
      all.add(message);
    }
    return all;
  }

  private static Set<String> keys(List<Message<String>> messages) {
    Set<String> keys = new TreeSet<>();
    messages.forEach(message -> keys.add(message.getKey()));
    return keys;
  }

  /** What is seen of each key. */
  private static final class Seen {
    private final Map<String, Integer> next = new TreeMap<>();
    private final Set<String> values = new HashSet<>();
    private int again;
    private int disordered;

    /** The next message of a key, or one that was seen before. */
    void see(Message<String> message) {
      if (!values.add(message.getValue())) {
        again++;
        return;
      }
      int number = Integer.parseInt(message.getValue().substring(message.getValue().indexOf('.') + 1));
      if (number != next.getOrDefault(message.getKey(), 0)) {
        disordered++;
      }
      next.put(message.getKey(), number + 1);
    }

    String verdict() {
      return values.size() + " messages of " + next.size() + " keys, out of order: " + disordered;
    }
  }

  /** Consumers come and go while messages come, and each key stays in order. */
  private static void order(Stage stage) throws Exception {
    String topic = stage.topic("t");
    Seen seen = new Seen();
    Map<String, Consumer<String>> consumers = new LinkedHashMap<>();
    try (Producer<String> producer = stage.producer(topic)) {
      int sent = 0;
      for (String change : List.of("+a", "+b", "+c", "-a", "+d", "-c", "-b", "+e")) {
        String name = change.substring(1);
        if (change.startsWith("+")) {
          consumers.put(name, consumer(stage, topic, name).receiverQueueSize(5).subscribe());
        } else {
          consumers.remove(name).close();
        }
        send(producer, sent, ++sent);
        int taken = 0;
        while (taken < KEYS / 2) {
          for (Consumer<String> consumer : consumers.values()) {
            Message<String> message = consumer.receive(20, TimeUnit.MILLISECONDS);
            if (message != null) {
              seen.see(message);
              consumer.acknowledge(message);
              taken++;
            }
          }
        }
      }
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Stage.PATIENCE_SECONDS);
      while (seen.values.size() < sent * KEYS && System.nanoTime() < end) {
        for (Consumer<String> consumer : consumers.values()) {
          Message<String> message = consumer.receive(20, TimeUnit.MILLISECONDS);
          if (message != null) {
            seen.see(message);
            consumer.acknowledge(message);
          }
        }
      }
      stage.line(seen.verdict());
    } finally {
      for (Consumer<String> consumer : consumers.values()) {
        consumer.close();
      }
    }
  }

  private static void batches(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> a = consumer(stage, topic, "a").subscribe();
        Consumer<String> b = consumer(stage, topic, "b").subscribe();
        Producer<String> producer =
            stage
                .client
                .newProducer(Schema.STRING)
                .topic(topic)
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .batchingMaxPublishDelay(5, TimeUnit.SECONDS)
                .create()) {
      send(producer, 0, 10);
      List<Message<String>> toA = receiveAll(a);
      List<Message<String>> toB = receiveAll(b);
      Set<String> both = keys(toA);
      both.retainAll(keys(toB));
      stage.line("keys of both: " + both + ", each has some: " + (!toA.isEmpty() && !toB.isEmpty()));
      Seen seen = new Seen();
      toA.forEach(seen::see);
      toB.forEach(seen::see);
      stage.line(seen.verdict());
    }
  }

  private static void ranges(Stage stage) throws Exception {
    String topic = stage.topic("t");
    var low = KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 32767));
    var high = KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535));
    try (Consumer<String> a = consumer(stage, topic, "a").keySharedPolicy(low).subscribe()) {
      var others =
          List.of(
              KeySharedPolicy.stickyHashRange().ranges(Range.of(32767, 40000)),
              KeySharedPolicy.autoSplitHashRange(),
              KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535)).setAllowOutOfOrderDelivery(true));
      for (KeySharedPolicy other : others) {
        try (Consumer<String> b = consumer(stage, topic, "b").keySharedPolicy(other).subscribe()) {
          stage.line("accepted " + others.indexOf(other));
        } catch (PulsarClientException cause) {
          stage.line(others.indexOf(other) + " " + cause.getClass().getSimpleName());
        }
      }
      try (Producer<String> producer = stage.producer(topic);
          Consumer<String> b = consumer(stage, topic, "b").keySharedPolicy(high).subscribe()) {
        send(producer, 0, 1);
        stage.line("low " + keys(receiveAll(a)));
        stage.line("high " + keys(receiveAll(b)));
      }
    }
  }

  /** What a consumer gets that comes when another one holds a message of each key, and what more it gets when those are gone. */
  private interface Letting {
    void go(Consumer<String> first, Consumer<String> second, List<Message<String>> held) throws Exception;
  }

  private static void held(Stage stage, KeySharedPolicy policy, Letting letting) throws Exception {
    String topic = stage.topic("t");
    try (Producer<String> producer = stage.producer(topic);
        Consumer<String> first =
            consumer(stage, topic, "first").keySharedPolicy(policy).acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe()) {
      send(producer, 0, 1);
      List<Message<String>> held = receiveAll(first);
      stage.line("held " + held.size());
      try (Consumer<String> second =
          consumer(stage, topic, "second").keySharedPolicy(policy).acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe()) {
        send(producer, 1, 2);
        List<Message<String>> toFirst = receiveAll(first);
        List<Message<String>> toSecond = receiveAll(second);
        stage.line("the first goes on: " + !toFirst.isEmpty() + ", the second gets some: " + !toSecond.isEmpty());
        letting.go(first, second, held);
        // A busy machine is silent for a while, too.
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        do {
          toSecond.addAll(receiveAll(second));
          toFirst.addAll(receiveAll(first));
        } while (toFirst.size() + toSecond.size() < held.size() && System.nanoTime() < giveUp);
        Set<String> together = keys(toFirst);
        Predicate<String> isOfBoth = together::contains;
        stage.line("keys of both: " + keys(toSecond).stream().anyMatch(isOfBoth) + ", the second has some: " + !toSecond.isEmpty());
        together.addAll(keys(toSecond));
        stage.line("second messages of " + together.size() + " keys");
      }
    }
  }

  private static void draining(Stage stage) throws Exception {
    held(
        stage,
        KeySharedPolicy.autoSplitHashRange(),
        (first, second, held) -> {
          for (Message<String> message : held) {
            first.acknowledge(message);
          }
        });
  }

  private static void disorder(Stage stage) throws Exception {
    var policy = KeySharedPolicy.autoSplitHashRange().setAllowOutOfOrderDelivery(true);
    held(stage, policy, (first, second, held) -> {});
  }

  /** The second consumer acknowledges by their ids what only the first one got. */
  private static void ackedByAnother(Stage stage) throws Exception {
    held(
        stage,
        KeySharedPolicy.autoSplitHashRange(),
        (first, second, held) -> {
          for (Message<String> message : held) {
            // Without what the first one's consumer keeps about it.
            second.acknowledge(MessageId.fromByteArray(message.getMessageId().toByteArray()));
          }
        });
  }

  private static void nacked(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Producer<String> producer = stage.producer(topic);
        Consumer<String> consumer =
            consumer(stage, topic, "a").negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).receiverQueueSize(1).subscribe()) {
      for (int number = 0; number < 3; number++) {
        producer.newMessage().key("k").value("k." + number).send();
      }
      Message<String> first = Stage.receive(consumer);
      stage.line(first.getValue() + " count " + first.getRedeliveryCount());
      consumer.negativeAcknowledge(first);
      Set<String> seen = new TreeSet<>();
      while (seen.size() < 3) {
        Message<String> message = Stage.receive(consumer);
        seen.add(message.getValue() + " count " + message.getRedeliveryCount());
        consumer.acknowledge(message);
      }
      stage.line(seen.toString());
      stage.quiet(consumer);
    }
  }

  private static void ackTimeout(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Producer<String> producer = stage.producer(topic);
        Consumer<String> consumer = consumer(stage, topic, "a").ackTimeout(1, TimeUnit.SECONDS).subscribe()) {
      producer.newMessage().key("k").value("k.0").send();
      for (int count = 0; count < 2; count++) {
        Message<String> message = Stage.receive(consumer);
        stage.line(message.getValue() + " count " + message.getRedeliveryCount());
        if (count == 1) {
          consumer.acknowledge(message);
        }
      }
      stage.quiet(consumer);
    }
  }

  /** A consumer takes nothing; the other one gets all of its keys. */
  private static void slow(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Producer<String> producer = stage.producer(topic);
        Consumer<String> slow = consumer(stage, topic, "slow").receiverQueueSize(1).subscribe();
        Consumer<String> quick = consumer(stage, topic, "quick").subscribe()) {
      send(producer, 0, 20);
      List<Message<String>> toQuick = receiveAll(quick);
      Set<String> keys = keys(toQuick);
      stage.line("all of its keys: " + (toQuick.size() == 20 * keys.size()) + ", some: " + !keys.isEmpty());
      Seen seen = new Seen();
      toQuick.forEach(seen::see);
      int left = 20 * KEYS - toQuick.size();
      for (int taken = 0; taken < left; taken++) {
        Message<String> message = Stage.receive(slow);
        seen.see(message);
        slow.acknowledge(message);
      }
      stage.line(seen.verdict());
    }
  }

  private static void withoutKeys(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> a = consumer(stage, topic, "a").subscribe();
        Consumer<String> b = consumer(stage, topic, "b").subscribe();
        Producer<String> producer = stage.producer(topic)) {
      for (int number = 0; number < 40; number++) {
        producer.send("v" + number);
      }
      int toA = receiveAll(a).size();
      int toB = receiveAll(b).size();
      stage.line("each has some: " + (toA > 0 && toB > 0) + ", together " + (toA + toB));
    }
  }

  private static void statistics(Stage stage) throws Exception {
    String topic = stage.topic("t");
    try (Consumer<String> a = consumer(stage, topic, "a").subscribe()) {
      String stats = stage.adminTopic("GET", topic, "/stats", "");
      for (String part : List.of("\"type\":\"Key_Shared\"", "\"keySharedMode\":\"AUTO_SPLIT\"", "\"allowOutOfOrderDelivery\":false", "\"keyHashRangeArrays\":[[", "\"drainingHashesCount\":0")) {
        stage.line(part + " " + stats.replace(" ", "").contains(part));
      }
    }
  }
}
