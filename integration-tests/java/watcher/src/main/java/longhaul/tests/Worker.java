package longhaul.tests;

import io.streamnative.pulsar.recipes.task.TaskMetadata;
import io.streamnative.pulsar.recipes.task.TaskState;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/**
 * A worker that behaves as those of the Java reference were seen to: it decides by a table view of the metadata topic, runs one task at
 * a time, and tries a failed task again at once. It evicts nothing. Payloads are the scripts of the Rust tests.
 */
final class Worker implements AutoCloseable {
    private final PulsarClient client;
    private final TableView<TaskMetadata> view;
    private final Producer<TaskMetadata> producer;
    private final Consumer<byte[]> consumer;
    private final ExecutorService executor = Executors.newSingleThreadExecutor();
    private final int attemptsMax;
    private final long keepAliveMs;

    private Worker(Arguments arguments) throws PulsarClientException {
        attemptsMax = Integer.parseInt(arguments.get("--attempts", "3"));
        keepAliveMs = Long.parseLong(arguments.get("--keep-alive-ms", "300000"));
        String metadata = arguments.get("--metadata", arguments.topic + "-state");
        // A client of its own: one has a single thread for listeners, and a task keeps that busy.
        client = PulsarClient.builder().serviceUrl(arguments.serviceUrl).build();
        Schema<TaskMetadata> schema = Schema.JSON(TaskMetadata.class);
        view = client.newTableView(schema).topic(metadata).create();
        producer = client.newProducer(schema).topic(metadata).enableBatching(false).create();
        consumer =
                client.newConsumer(Schema.BYTES)
                        .topic(arguments.topic)
                        .subscriptionName(arguments.get("--subscription", "longhaul"))
                        .subscriptionType(SubscriptionType.Shared)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .receiverQueueSize(0)
                        .messageListener(this::handle)
                        .subscribe();
    }

    /** Works until stdin is closed. */
    static void work(Arguments arguments) throws Exception {
        List<Worker> workers = new ArrayList<>();
        for (int i = Integer.parseInt(arguments.get("--workers", "1")); i > 0; i--) {
            workers.add(new Worker(arguments));
        }
        System.out.println("{\"ready\":true}");
        while (System.in.read() >= 0) {
            // Whatever is written to us means nothing; only the end does.
        }
        for (Worker worker : workers) {
            worker.close();
        }
    }

    @Override
    public void close() throws PulsarClientException {
        executor.shutdownNow();
        client.close();
    }

    private void handle(Consumer<byte[]> from, Message<byte[]> message) {
        try {
            if (process(message)) {
                from.acknowledge(message);
            }
        } catch (Exception unexpected) {
            System.err.println("not acknowledged: " + unexpected);
            from.negativeAcknowledge(message);
        }
    }

    /** Whether the task is over, so that its message is acknowledged. */
    private boolean process(Message<byte[]> message) throws Exception {
        String id = message.getMessageId().toString();
        TaskMetadata known = view.get(id);
        if (known == null) {
            TaskMetadata fresh = new TaskMetadata();
            fresh.messageId = id;
            fresh.created = System.currentTimeMillis();
            fresh.task = message.getValue();
            return run(message, fresh);
        }
        switch (known.state) {
            case COMPLETED:
                return true;
            case PROCESSING:
                if (System.currentTimeMillis() - known.lastUpdated <= 2 * keepAliveMs) {
                    // Somebody runs it, it seems: neither acknowledged nor given back.
                    return false;
                }
                if (known.attempts < attemptsMax) {
                    return run(message, known);
                }
                show(known, TaskState.FAILED, null, "All attempts to process task failed.");
                return true;
            case FAILED:
                return known.attempts >= attemptsMax || run(message, known);
            default:
                throw new IllegalStateException("Unexpected state: " + known.state);
        }
    }

    private boolean run(Message<byte[]> message, TaskMetadata task) throws Exception {
        String budget = message.getProperty("MAX_TASK_DURATION");
        long budgetMs = budget == null ? Long.MAX_VALUE : Duration.parse(budget).toMillis();
        while (true) {
            task.attempts++;
            show(task, TaskState.PROCESSING, null, null);
            String failure = attempt(task, message.getValue(), budgetMs);
            if (failure == null) {
                return true;
            }
            show(task, TaskState.FAILED, null, failure);
            if (task.attempts >= attemptsMax) {
                return true;
            }
        }
    }

    /** Runs one attempt with its keep-alives; returns why it failed, or nothing. */
    private String attempt(TaskMetadata task, byte[] payload, long budgetMs) throws Exception {
        int attempt = task.attempts;
        long started = System.nanoTime();
        Future<byte[]> running = executor.submit(() -> obey(new String(payload, StandardCharsets.UTF_8), attempt));
        while (true) {
            try {
                byte[] result = running.get(keepAliveMs, TimeUnit.MILLISECONDS);
                show(task, TaskState.COMPLETED, result, null);
                return null;
            } catch (TimeoutException stillRunning) {
                if (TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started) >= budgetMs) {
                    running.cancel(true);
                    return "Process was cancelled: null";
                }
                show(task, TaskState.PROCESSING, null, null);
            } catch (CancellationException cancelled) {
                return "Process was cancelled: null";
            } catch (ExecutionException failed) {
                return "Processing error: " + failed.getCause().getMessage();
            }
        }
    }

    private void show(TaskMetadata task, TaskState state, byte[] result, String failure) throws PulsarClientException {
        task.state = state;
        task.result = result;
        task.failureReason = failure;
        task.lastUpdated = System.currentTimeMillis();
        producer.newMessage().key(task.messageId).value(task).send();
    }

    /** Runs the part of the script that is for this attempt; the last part is for all that follow. */
    private static byte[] obey(String script, int attempt) throws Exception {
        String[] runs = script.split("\\|");
        for (String command : runs[Math.min(attempt, runs.length - 1)].split(",")) {
            String[] parts = command.strip().split(" ", 2);
            String rest = parts.length > 1 ? parts[1] : "";
            switch (parts[0]) {
                case "sleep":
                    Thread.sleep(Long.parseLong(rest));
                    break;
                case "ok":
                    return rest.getBytes(StandardCharsets.UTF_8);
                case "fail":
                    throw new IllegalStateException(rest);
                default:
                    throw new IllegalArgumentException("unknown command " + parts[0]);
            }
        }
        return new byte[0];
    }
}
