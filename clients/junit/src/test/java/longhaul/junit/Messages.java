package longhaul.junit;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** The stock client and an HTTP client, against a broker. */
final class Messages {
    private Messages() {}

    /** A client. To close it takes 2 s. */
    static PulsarClient client(EmbeddedBroker broker) throws Exception {
        return PulsarClient.builder().serviceUrl(broker.serviceUrl()).build();
    }

    static void send(PulsarClient client, String topic, String text) throws Exception {
        try (Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create()) {
            producer.send(text);
        }
    }

    /** The first message of the topic, or null if none comes within the limit. */
    static String first(PulsarClient client, String topic, int limitMs) throws Exception {
        try (Consumer<String> consumer = client.newConsumer(Schema.STRING)
                .topic(topic)
                .subscriptionName("test")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            Message<String> message = consumer.receive(limitMs, TimeUnit.MILLISECONDS);
            if (message == null) {
                return null;
            }
            consumer.acknowledge(message);
            return message.getValue();
        }
    }

    /** The answer of the admin API with the names of all topics of {@code public/default}. */
    static String topics(EmbeddedBroker broker) throws Exception {
        URI address = URI.create(broker.adminUrl() + "/admin/v2/persistent/public/default");
        HttpRequest request = HttpRequest.newBuilder(address).build();
        return HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body();
    }
}
