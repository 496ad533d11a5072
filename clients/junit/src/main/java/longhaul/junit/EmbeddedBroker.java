package longhaul.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * A running {@code longhaul broker run}, for clients of Apache Pulsar: a process of its own, on
 * free ports, with a folder of its own.
 *
 * <p>{@link #close} stops the process and deletes the folder. The end of this JVM does so too, even
 * if the JVM is killed. Settings of longhaul in the environment and in its file have no effect.
 */
public final class EmbeddedBroker implements AutoCloseable {
    private static final Duration START_TIMEOUT = Duration.ofSeconds(30);
    private static final long STOP_SECONDS = 10;
    private static final int LINES_SHOWN = 20;

    /**
     * Runs the program in the process of the shell. A second process waits until the JVM closes the
     * pipe to it without a line: then it stops the program, and 2 s later deletes the folder.
     */
    private static final String SCRIPT = """
            exec 3<&0 </dev/null
            {
                read -r _ || { kill "$$" && { sleep 2; kill -9 "$$"; rm -rf "$0"; }; }
            } <&3 3<&- >/dev/null 2>&1 &
            exec "$@" 3<&-
            """;

    /** The exit codes of a shell that cannot run the program. The program has neither. */
    private static final List<Integer> NOT_FOUND = List.of(126, 127);

    private final Path folder;
    private final Process process;
    private final String serviceUrl;
    private final String adminUrl;

    /**
     * Starts a broker with the default program, within 30 s.
     *
     * @param arguments further flags of {@code longhaul broker run}
     * @return the broker, which is ready
     * @throws IllegalStateException if it cannot be started; the message says why
     */
    public static EmbeddedBroker start(String... arguments) {
        return start(null, START_TIMEOUT, arguments);
    }

    /**
     * Starts a broker.
     *
     * @param program the program. If it is null or empty, it is the one that the environment
     *     variable {@code LONGHAUL_PROGRAM} names, or {@code longhaul} on the path
     * @param startTimeout the time that the start may take
     * @param arguments further flags of {@code longhaul broker run}
     * @return the broker, which is ready
     * @throws IllegalStateException if it cannot be started; the message says why
     */
    public static EmbeddedBroker start(String program, Duration startTimeout, String... arguments) {
        Stream<String> names = Stream.of(program, System.getenv("LONGHAUL_PROGRAM"), "longhaul");
        String name = names.filter(it -> it != null && !it.isEmpty()).findFirst().orElseThrow();
        try {
            return new EmbeddedBroker(name, startTimeout, List.of(arguments));
        } catch (IOException error) {
            throw new UncheckedIOException("the embedded broker cannot be started", error);
        }
    }

    private EmbeddedBroker(String program, Duration startTimeout, List<String> arguments)
            throws IOException {
        folder = Files.createTempDirectory("longhaul-test-");
        List<String> words = new ArrayList<>(List.of(program, "broker", "run", "-o", "jsonl"));
        words.addAll(List.of("--broker", "127.0.0.1:0", "--admin", "127.0.0.1:0"));
        words.addAll(List.of("--data", folder.resolve("data").toString()));
        words.addAll(arguments);
        process = spawn(words);
        try {
            String addresses = firstLine(startTimeout, "`" + String.join(" ", words) + "`");
            serviceUrl = field(addresses, "broker");
            adminUrl = field(addresses, "admin");
        } catch (IOException | RuntimeException error) {
            close();
            throw error;
        }
    }

    /** Returns the URL for clients of Apache Pulsar. */
    public String serviceUrl() {
        return serviceUrl;
    }

    /** Returns the URL of the admin API. */
    public String adminUrl() {
        return adminUrl;
    }

    /** Returns what the broker has logged. */
    public String log() {
        try {
            return new String(Files.readAllBytes(logFile()), StandardCharsets.UTF_8);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Stops the broker and deletes its data. A second call has no effect. */
    @Override
    public void close() {
        // The line ends the process that waits for the end of the JVM.
        try (OutputStream pipe = process.getOutputStream()) {
            pipe.write('\n');
        } catch (IOException ended) {
            // The broker has ended by itself, and that process with it.
        }
        process.destroy();
        if (!endsInTime()) {
            process.destroyForcibly();
            endsInTime();
        }
        try {
            delete(folder);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The folder with everything that this broker writes. */
    Path folder() {
        return folder;
    }

    /** The process of the broker. */
    long pid() {
        return process.pid();
    }

    private Path logFile() {
        return folder.resolve("log");
    }

    private Process spawn(List<String> words) throws IOException {
        List<String> command = new ArrayList<>(List.of("sh", "-c", SCRIPT, folder.toString()));
        command.addAll(words);
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeIf(name -> name.startsWith("LONGHAUL_"));
        // A missing file of settings counts as empty.
        builder.environment().put("LONGHAUL_CONFIG", folder.resolve("config.toml").toString());
        try {
            return builder.redirectError(logFile().toFile()).start();
        } catch (IOException error) {
            delete(folder);
            throw error;
        }
    }

    /** Waits for the line with the addresses. */
    private String firstLine(Duration limit, String command) throws IOException {
        BufferedReader output = process.inputReader();
        long began = System.nanoTime();
        try {
            while (!output.ready()) {
                if (process.waitFor(1, TimeUnit.MILLISECONDS) && !output.ready()) {
                    throw failed(ending(command, process.exitValue()));
                }
                if (System.nanoTime() - began > limit.toNanos()) {
                    double seconds = limit.toMillis() / 1000.0;
                    throw failed(command + " was not ready within " + seconds + " s");
                }
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw failed("this thread was interrupted before " + command + " was ready");
        }
        return output.readLine();
    }

    private static String ending(String command, int code) {
        if (NOT_FOUND.contains(code)) {
            return command + " cannot be run: install longhaul, or name it in LONGHAUL_PROGRAM";
        }
        return command + " has ended with exit code " + code + " before it was ready";
    }

    private IllegalStateException failed(String what) {
        List<String> lines = log().lines().toList();
        List<String> last = lines.subList(Math.max(0, lines.size() - LINES_SHOWN), lines.size());
        return new IllegalStateException(what + "; its error output:\n" + String.join("\n", last));
    }

    private static String field(String addresses, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"([^\"]+)\"").matcher(addresses);
        if (!found.find()) {
            String what = "longhaul has printed no address `" + name + "`: " + addresses;
            throw new IllegalStateException(what);
        }
        return found.group(1);
    }

    /** Also waits in a thread that was interrupted, such as that of a test with a time limit. */
    private boolean endsInTime() {
        boolean interrupted = Thread.interrupted();
        try {
            return process.waitFor(STOP_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException now) {
            interrupted = true;
            return false;
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (Stream<Path> paths = Files.walk(folder)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
