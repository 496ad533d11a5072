package longhaul.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.nio.file.Files;
import org.apache.pulsar.client.api.PulsarClient;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.TestInstance.Lifecycle;
import org.junit.jupiter.api.Timeout;
import org.junit.platform.testkit.engine.EngineExecutionResults;
import org.junit.platform.testkit.engine.EngineTestKit;

/** The annotation: one broker for this class, wherever it is a parameter. */
@Timeout(120)
@EmbeddedPulsar(arguments = {"--broker-message-bytes-max", "1M"})
class EmbeddedPulsarTest {
    private static EmbeddedBroker ofClass;
    private final EmbeddedBroker broker;
    private EmbeddedBroker ofTest;

    EmbeddedPulsarTest(EmbeddedBroker broker) {
        this.broker = broker;
    }

    @BeforeAll
    static void start(EmbeddedBroker broker) {
        ofClass = broker;
    }

    @BeforeEach
    void each(EmbeddedBroker broker) {
        ofTest = broker;
    }

    @Test
    void messagesPassThroughIt() throws Exception {
        try (PulsarClient client = Messages.client(broker)) {
            Messages.send(client, "orders", "4711");
            assertEquals("4711", Messages.first(client, "orders", 10_000));
        }
    }

    @Test
    void eachParameterIsTheSameBroker(EmbeddedBroker broker) {
        assertSame(ofClass, broker);
        assertSame(ofClass, this.broker);
        assertSame(ofClass, ofTest);
    }

    @Nested
    class Within {
        @Test
        void aNestedClassSharesIt(EmbeddedBroker broker) {
            assertSame(ofClass, broker);
        }
    }

    @Nested
    @EmbeddedPulsar
    class Apart {
        @Test
        void aNestedClassWithTheAnnotationHasItsOwn(EmbeddedBroker broker) {
            assertSame(ofTest, broker);
            assertNotEquals(ofClass.serviceUrl(), broker.serviceUrl());
        }
    }

    /** The broker of the sample class that was run last. */
    private static EmbeddedBroker last;

    @EmbeddedPulsar
    static class Base {
        @Test
        void test(EmbeddedBroker broker) {
            last = broker;
            assertTrue(Files.exists(broker.folder()));
        }
    }

    static class Inheriting extends Base {}

    @EmbeddedPulsar
    @TestInstance(Lifecycle.PER_CLASS)
    static class OneInstance {
        private final EmbeddedBroker broker;

        OneInstance(EmbeddedBroker broker) {
            this.broker = broker;
        }

        @Test
        void first(EmbeddedBroker broker) {
            last = broker;
            assertSame(this.broker, broker);
        }
    }

    @EmbeddedPulsar(program = "/no/such/longhaul")
    static class Missing {
        @Test
        void test() {}
    }

    @Test
    void eachClassHasItsOwnWhichIsGoneAfterwards() {
        EmbeddedBroker before = null;
        for (Class<?> sample : new Class<?>[] {Base.class, Inheriting.class, OneInstance.class}) {
            run(sample).testEvents().assertStatistics(it -> it.succeeded(1));
            assertFalse(Files.exists(last.folder()), sample.getName());
            assertNotSame(before, last);
            before = last;
        }
        assertTrue(Files.exists(broker.folder()));
    }

    @Test
    void aClassWhoseBrokerDoesNotStartFails() {
        EngineExecutionResults results = run(Missing.class);
        results.testEvents().assertStatistics(it -> it.started(0));
        results.containerEvents().assertStatistics(it -> it.failed(1));
    }

    private static EngineExecutionResults run(Class<?> sample) {
        return EngineTestKit.engine("junit-jupiter").selectors(selectClass(sample)).execute();
    }
}
