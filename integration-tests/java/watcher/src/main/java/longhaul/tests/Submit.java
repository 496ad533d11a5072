package longhaul.tests;

import io.streamnative.pulsar.recipes.task.TaskMetadata;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** A Java program that sends messages: all defaults, batching included, unless an option says otherwise. */
final class Submit {
    private Submit() {}

    static void run(PulsarClient client, Arguments arguments) throws Exception {
        switch (arguments.get("--schema", "string")) {
            case "string" -> send(client, arguments, Schema.STRING);
            case "bytes" -> send(client, arguments, Schema.BYTES);
            case "metadata" -> send(client, arguments, Schema.JSON(TaskMetadata.class));
            default -> throw new IllegalArgumentException("--schema takes string, bytes or metadata");
        }
    }

    private static <T> void send(PulsarClient client, Arguments arguments, Schema<T> schema) throws Exception {
        ProducerBuilder<T> builder = client.newProducer(schema).topic(arguments.topic).blockIfQueueFull(true);
        if (arguments.has("--no-batch")) {
            builder.enableBatching(false);
        }
        if (arguments.has("--chunk")) {
            builder.enableChunking(true).chunkMaxMessageSize(1 << 20);
        }
        try (Producer<T> producer = builder.create()) {
            List<CompletableFuture<MessageId>> pending = new ArrayList<>();
            for (String payload : payloads(arguments)) {
                TypedMessageBuilder<T> message = message(producer, arguments, schema, payload);
                if (arguments.has("--async")) {
                    pending.add(message.sendAsync());
                } else {
                    System.out.println(message.send());
                }
            }
            producer.flush();
            for (CompletableFuture<MessageId> receipt : pending) {
                System.out.println(receipt.join());
            }
        }
    }

    private static <T> TypedMessageBuilder<T> message(
            Producer<T> producer, Arguments arguments, Schema<T> schema, String payload) {
        TypedMessageBuilder<T> message = producer.newMessage().properties(arguments.properties());
        if (arguments.has("--key")) {
            message.key(arguments.get("--key", ""));
        }
        boolean tombstone = arguments.has("--tombstone");
        return message.value(tombstone ? null : schema.decode(payload.getBytes(StandardCharsets.UTF_8)));
    }

    /** The lines of stdin, or as many generated payloads as {@code --count} says. */
    private static List<String> payloads(Arguments arguments) throws IOException {
        List<String> payloads = new ArrayList<>();
        if (arguments.has("--count")) {
            int count = Integer.parseInt(arguments.get("--count", "0"));
            for (int i = 0; i < count; i++) {
                payloads.add("task " + i);
            }
            return payloads;
        }
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
            payloads.add(line);
        }
        return payloads;
    }
}
