package longhaul.tests;

import io.streamnative.pulsar.recipes.task.TaskMetadata;
import io.streamnative.pulsar.recipes.task.TaskState;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/**
 * The client of the reference's example, call by call. The topics are arguments here, the classes have fields in place of Lombok's
 * getters, the loop ends with the result, and the property is named without the reference's library.
 */
final class Example {
    private Example() {}

    /** What is to be greeted. */
    public static class Task {
        public String name;

        public Task() {}

        Task(String name) {
            this.name = name;
        }
    }

    /** The greeting. */
    public static class Result {
        public String greeting;
    }

    static void run(PulsarClient client, Arguments arguments) throws Exception {
        Producer<Task> taskProducer = client.newProducer(Schema.JSON(Task.class))
                .topic(arguments.topic)
                .enableBatching(false)
                .create();
        Consumer<TaskMetadata> metadataConsumer = client.newConsumer(Schema.JSON(TaskMetadata.class))
                .topic(arguments.get("--metadata", arguments.topic + "-metadata"))
                .subscriptionName("results-subscription")
                .subscribe();
        MessageId messageId = taskProducer
                .newMessage()
                .property("MAX_TASK_DURATION", "PT1H")
                .value(new Task("Dave"))
                .send();
        Schema<Result> schema = Schema.JSON(Result.class);
        while (true) {
            Message<TaskMetadata> message = metadataConsumer.receive();
            TaskMetadata taskMetadata = message.getValue();
            if (taskMetadata.messageId.equals(messageId.toString()) && taskMetadata.state == TaskState.COMPLETED) {
                Result result = schema.decode(taskMetadata.result);
                System.out.println(result.greeting);
                return;
            }
        }
    }
}
