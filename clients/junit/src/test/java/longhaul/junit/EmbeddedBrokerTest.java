package longhaul.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import org.apache.pulsar.client.api.PulsarClient;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** The broker without the annotation. */
@Timeout(120)
class EmbeddedBrokerTest {
    private static final Duration LIMIT = Duration.ofSeconds(30);

    @Test
    void messagesPassThroughItAndTheAdminApiShowsTheirTopic() throws Exception {
        try (EmbeddedBroker broker = EmbeddedBroker.start();
                PulsarClient client = Messages.client(broker)) {
            Messages.send(client, "orders", "4711");
            assertEquals("4711", Messages.first(client, "orders", 10_000));
            assertEquals("[\"persistent://public/default/orders\"]", Messages.topics(broker));
            assertTrue(broker.log().contains("ready"), broker.log());
        }
    }

    @Test
    void twoBrokersDoNotSeeEachOther() throws Exception {
        try (EmbeddedBroker one = EmbeddedBroker.start();
                EmbeddedBroker other = EmbeddedBroker.start();
                PulsarClient ofOne = Messages.client(one);
                PulsarClient ofOther = Messages.client(other)) {
            Messages.send(ofOne, "orders", "4711");
            assertNull(Messages.first(ofOther, "orders", 200));
            assertEquals("4711", Messages.first(ofOne, "orders", 10_000));
        }
    }

    @Test
    void processAndFolderAreGoneWhenItIsClosed() {
        EmbeddedBroker broker = EmbeddedBroker.start();
        assertTrue(Files.exists(broker.folder().resolve("data")));
        assertTrue(isAlive(broker.pid()));
        broker.close();
        assertFalse(isAlive(broker.pid()));
        assertFalse(Files.exists(broker.folder()));
        broker.close();
    }

    @Test
    void aThreadThatWasInterruptedClosesItToo() {
        EmbeddedBroker broker = EmbeddedBroker.start();
        Thread.currentThread().interrupt();
        broker.close();
        assertTrue(Thread.interrupted());
        assertFalse(Files.exists(broker.folder()));
    }

    @Test
    void processAndFolderAreGoneWhenTheJvmIsKilled() throws Exception {
        String java = ProcessHandle.current().info().command().orElseThrow();
        String path = System.getProperty("java.class.path");
        Process jvm = new ProcessBuilder(java, "-cp", path, Killed.class.getName())
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        BufferedReader output = jvm.inputReader();
        ProcessHandle broker = ProcessHandle.of(Long.parseLong(output.readLine())).orElseThrow();
        Path folder = Path.of(output.readLine());
        assertTrue(Files.exists(folder.resolve("data")));
        jvm.destroyForcibly();
        broker.onExit().get();
        while (Files.exists(folder)) {
            Thread.sleep(10);
        }
    }

    /** Starts a broker and waits. */
    static final class Killed {
        public static void main(String[] args) throws Exception {
            EmbeddedBroker broker = EmbeddedBroker.start();
            System.out.println(broker.pid());
            System.out.println(broker.folder());
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    @Test
    void aMissingProgramIsNamedWithTheRemedy() {
        String why = refusal("/no/such/longhaul", LIMIT);
        assertTrue(why.startsWith("`/no/such/longhaul broker run "), why);
        assertTrue(why.contains("install longhaul, or name it in LONGHAUL_PROGRAM"), why);
    }

    @Test
    void aProgramThatEndsAtOnceIsShownWithItsErrorOutput() {
        String why = refusal(null, LIMIT, "--broker-message-bytes-max", "many");
        assertTrue(why.contains("has ended with exit code 2 before it was ready"), why);
        assertTrue(why.contains("broker-message-bytes-max"), why);
        assertTrue(why.lines().count() > 1, why);
    }

    @Test
    void aProgramThatIsNotReadyInTimeIsStopped(@TempDir Path folder) throws Exception {
        Path program = folder.resolve("slow");
        Path pid = folder.resolve("pid");
        String script = "#!/bin/sh\necho $$ >" + pid + "\necho not yet >&2\nexec sleep 60\n";
        Files.writeString(program, script);
        Files.setPosixFilePermissions(program, PosixFilePermissions.fromString("rwx------"));
        String why = refusal(program.toString(), Duration.ofSeconds(3));
        assertTrue(why.contains("was not ready within 3.0 s; its error output:\nnot yet"), why);
        assertFalse(isAlive(Long.parseLong(Files.readString(pid).strip())));
    }

    private static String refusal(String program, Duration limit, String... arguments) {
        Executable start = () -> EmbeddedBroker.start(program, limit, arguments);
        return assertThrows(IllegalStateException.class, start).getMessage();
    }

    private static boolean isAlive(long pid) {
        return ProcessHandle.of(pid).map(ProcessHandle::isAlive).orElse(false);
    }
}
