package longhaul.tests;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Command line of the form {@code <verb> <serviceUrl> <topic> [--switch] [--option value]…}. */
final class Arguments {
    private static final Set<String> SWITCHES = Set.of("--async", "--no-batch", "--chunk", "--tombstone", "--compacted");

    final String verb;
    final String serviceUrl;
    final String topic;
    private final Map<String, List<String>> options = new LinkedHashMap<>();

    Arguments(String[] args) {
        Deque<String> rest = new ArrayDeque<>(List.of(args));
        verb = next(rest, "a verb");
        serviceUrl = next(rest, "a service URL");
        topic = next(rest, "a topic");
        while (!rest.isEmpty()) {
            String name = rest.pop();
            String value = SWITCHES.contains(name) ? "" : next(rest, "a value for " + name);
            options.computeIfAbsent(name, key -> new ArrayList<>()).add(value);
        }
    }

    boolean has(String name) {
        return options.containsKey(name);
    }

    String get(String name, String otherwise) {
        return options.getOrDefault(name, List.of(otherwise)).get(0);
    }

    /** Values of {@code --property K=V}, which may be given several times. */
    Map<String, String> properties() {
        Map<String, String> properties = new LinkedHashMap<>();
        for (String pair : options.getOrDefault("--property", List.of())) {
            String[] parts = pair.split("=", 2);
            if (parts.length != 2) {
                throw new IllegalArgumentException("--property takes K=V, not " + pair);
            }
            properties.put(parts[0], parts[1]);
        }
        return properties;
    }

    private static String next(Deque<String> rest, String what) {
        if (rest.isEmpty()) {
            throw new IllegalArgumentException("missing " + what);
        }
        return rest.pop();
    }
}
