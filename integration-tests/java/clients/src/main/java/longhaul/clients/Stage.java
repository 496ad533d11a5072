package longhaul.clients;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What a step plays with: clients, names of its own, the admin interface, and the lines that it prints. */
final class Stage {
  /** How long anything that must come may take. */
  static final int PATIENCE_SECONDS = 20;

  /** How long nothing must come before it is believed that nothing more comes. */
  static final int QUIET_MILLISECONDS = 400;

  private static final HttpClient HTTP = HttpClient.newHttpClient();

  final PulsarClient client;
  final String serviceUrl;
  final String adminUrl;
  final String run;
  private final String name;
  private final List<String> lines = new ArrayList<>();

  Stage(PulsarClient client, String[] arguments, String name) {
    this.client = client;
    this.serviceUrl = arguments[0];
    this.adminUrl = arguments[1].replaceAll("/$", "");
    this.run = arguments[2];
    this.name = name;
  }

  List<String> play(Step step) {
    lines.add("# " + name);
    try {
      step.play(this);
    } catch (Throwable cause) {
      lines.add(("! " + cause).replace(run, "RUN").lines().findFirst().orElse("!").strip());
    }
    return lines;
  }

  void line(String line) {
    lines.add(line);
  }

  String topic(String topic) {
    return "persistent://public/default/clients-" + run + "-java-" + name.replace(' ', '-') + "-" + topic;
  }

  /** A producer of one message per entry. */
  Producer<String> producer(String topic) throws Exception {
    return client.newProducer(Schema.STRING).topic(topic).enableBatching(false).create();
  }

  /** Subscribes from the first message on. */
  ConsumerBuilder<String> consumer(String topic) {
    return client
        .newConsumer(Schema.STRING)
        .topic(topic)
        .subscriptionName("sub")
        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
  }

  void send(String topic, String... values) throws Exception {
    try (Producer<String> producer = producer(topic)) {
      for (String value : values) {
        producer.send(value);
      }
    }
  }

  static <T> Message<T> receive(Consumer<T> consumer) throws Exception {
    Message<T> message = consumer.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
    if (message == null) {
      throw new IllegalStateException("no message came");
    }
    return message;
  }

  /** Receives so many, acknowledges them, and returns their values. */
  static <T> List<T> take(Consumer<T> consumer, int count) throws Exception {
    List<T> values = new ArrayList<>();
    for (int taken = 0; taken < count; taken++) {
      Message<T> message = receive(consumer);
      values.add(message.getValue());
      consumer.acknowledge(message);
    }
    return values;
  }

  /** Says what comes although nothing must. */
  void quiet(Consumer<String> consumer) throws Exception {
    Message<String> message = consumer.receive(QUIET_MILLISECONDS, TimeUnit.MILLISECONDS);
    line(message == null ? "nothing more" : "more: " + message.getValue());
  }

  static void until(String what, BooleanSupplier done) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (!done.getAsBoolean()) {
      if (System.nanoTime() > end) {
        throw new IllegalStateException(what + ": not in time");
      }
      Thread.sleep(20);
    }
  }

  /** A call that must succeed; the path follows {@code /admin/v2/}. */
  String admin(String method, String path, String body) throws Exception {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(adminUrl + "/admin/v2/" + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .header("Content-Type", "application/json")
            .build();
    HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
    if (answer.statusCode() >= 300) {
      throw new IllegalStateException(method + " " + path + ": " + answer.statusCode());
    }
    return answer.body();
  }

  /** A call about a topic. */
  String adminTopic(String method, String topic, String tail, String body) throws Exception {
    return admin(method, topic.replace("://", "/") + tail, body);
  }

  void compact(String topic) throws Exception {
    adminTopic("PUT", topic, "/compaction", "");
    until(
        "compaction",
        () -> {
          try {
            return adminTopic("GET", topic, "/compaction", "").contains("SUCCESS");
          } catch (Exception cause) {
            throw new IllegalStateException(cause);
          }
        });
  }
}
