package longhaul.tests;

import org.apache.pulsar.client.api.PulsarClient;

/** Entry point. Results go to stdout, one per line; the client's log goes to stderr. */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        // Only warnings: with the default level the client writes its whole configuration for each producer.
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Arguments arguments = new Arguments(args);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments.serviceUrl).build()) {
            switch (arguments.verb) {
                case "watch" -> Metadata.watch(client, arguments);
                case "tableview" -> Metadata.tableView(client, arguments);
                case "example" -> Example.run(client, arguments);
                case "submit" -> Submit.run(client, arguments);
                default -> throw new IllegalArgumentException("unknown verb " + arguments.verb);
            }
        }
    }
}
