package longhaul.tests;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.streamnative.pulsar.recipes.task.TaskMetadata;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/** What a Java program sees of a metadata topic. */
final class Metadata {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Metadata() {}

    /** Prints every entry from the earliest on, one line of JSON each, until stdin is closed. */
    static void watch(PulsarClient client, Arguments arguments) throws Exception {
        // A non-durable subscription leaves nothing behind on the broker that could hold data back from trimming.
        Consumer<TaskMetadata> consumer =
                client.newConsumer(Schema.JSON(TaskMetadata.class))
                        .topic(arguments.topic)
                        .subscriptionName("watcher-" + UUID.randomUUID())
                        .subscriptionType(SubscriptionType.Exclusive)
                        .subscriptionMode(SubscriptionMode.NonDurable)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .readCompacted(arguments.has("--compacted"))
                        .subscribe();
        print(Map.of("ready", true));
        Thread main = Thread.currentThread();
        Thread stdin = new Thread(() -> awaitEndOfInput(main));
        stdin.setDaemon(true);
        stdin.start();
        try {
            while (true) {
                Message<TaskMetadata> message = consumer.receive();
                print(describe(message));
                consumer.acknowledge(message);
            }
        } catch (PulsarClientException cause) {
            if (!main.isInterrupted() && !(cause.getCause() instanceof InterruptedException)) {
                throw cause;
            }
        }
        Thread.interrupted(); // Closing the client waits, which an interrupted thread may not.
    }

    /** Prints what a table view holds once it has read to the end. */
    static void tableView(PulsarClient client, Arguments arguments) throws Exception {
        try (TableView<TaskMetadata> view =
                client.newTableView(Schema.JSON(TaskMetadata.class)).topic(arguments.topic).create()) {
            for (Map.Entry<String, TaskMetadata> entry : view.entrySet()) {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("key", entry.getKey());
                addFields(line, entry.getValue());
                print(line);
            }
        }
    }

    private static void awaitEndOfInput(Thread reader) {
        try {
            while (System.in.read() >= 0) {
                // Whatever is written to us means nothing; only the end does.
            }
        } catch (IOException ended) {
            // A broken pipe is an end as well.
        }
        reader.interrupt();
    }

    private static Map<String, Object> describe(Message<TaskMetadata> message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("key", message.getKey());
        line.put("id", message.getMessageId().toString());
        line.put("publishTime", message.getPublishTime());
        line.put("properties", message.getProperties());
        try {
            addFields(line, message.getValue());
        } catch (RuntimeException undecodable) {
            // A program that reads the topic would fail here, so the test has to see it.
            line.put("error", undecodable.toString());
        }
        return line;
    }

    private static void addFields(Map<String, Object> line, TaskMetadata value) {
        line.put("null", value == null);
        if (value == null) {
            return;
        }
        line.put("messageId", value.messageId);
        line.put("state", value.state);
        line.put("created", value.created);
        line.put("lastUpdated", value.lastUpdated);
        line.put("attempts", value.attempts);
        line.put("task", value.task); // Byte arrays become base64 in JSON.
        line.put("result", value.result);
        line.put("failureReason", value.failureReason);
    }

    private static void print(Map<String, ?> line) throws JsonProcessingException {
        System.out.println(JSON.writeValueAsString(line));
    }
}
