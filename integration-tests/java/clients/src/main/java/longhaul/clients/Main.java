package longhaul.clients;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Plays all steps against the broker of the arguments (service URL, admin URL, name of the run) and prints what each saw, after a
 * line {@code # step}. What differs from run to run, such as message ids and times, is not printed.
 */
public final class Main {
  /** Steps spend most of their time waiting. */
  private static final int AT_ONCE = 6;

  private Main() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Step> steps = new LinkedHashMap<>();
    Producing.add(steps);
    Consuming.add(steps);
    KeyShared.add(steps);
    Acknowledging.add(steps);
    Reading.add(steps);
    Topics.add(steps);
    ExecutorService workers = Executors.newFixedThreadPool(AT_ONCE);
    try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
      List<Future<List<String>>> seen = new ArrayList<>();
      steps.forEach(
          (name, step) -> {
            Stage stage = new Stage(client, arguments, name);
            seen.add(workers.submit(() -> stage.play(step)));
          });
      for (Future<List<String>> lines : seen) {
        lines.get().forEach(System.out::println);
      }
    } finally {
      workers.shutdownNow();
    }
  }
}
