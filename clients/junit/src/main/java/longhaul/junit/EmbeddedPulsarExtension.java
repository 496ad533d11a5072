package longhaul.junit;

import static org.junit.platform.commons.support.AnnotationSupport.findAnnotation;

import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** Keeps the broker of a test class in the store of that class; JUnit closes it with the store. */
final class EmbeddedPulsarExtension implements BeforeAllCallback, ParameterResolver {
    private static final Namespace NAMESPACE = Namespace.create(EmbeddedPulsarExtension.class);

    /** JUnit before 5.13 closes only a {@code CloseableResource}; later versions expect both. */
    private record Running(EmbeddedBroker broker) implements CloseableResource, AutoCloseable {
        @Override
        public void close() {
            broker.close();
        }
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        broker(context);
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == EmbeddedBroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return broker(context);
    }

    /**
     * Returns the broker of the innermost annotated class, and starts it if necessary: the
     * constructor of a class with one instance for all tests runs before {@link #beforeAll}.
     */
    private static EmbeddedBroker broker(ExtensionContext context) {
        Class<?> annotated = null;
        // The outermost context of the annotated class. Those of its tests have the same class.
        ExtensionContext owner = context;
        Optional<ExtensionContext> next = Optional.of(context);
        for (; next.isPresent(); next = next.get().getParent()) {
            Class<?> type = next.get().getTestClass().orElse(null);
            if (type == null) {
                continue;
            }
            if (annotated == null && findAnnotation(type, EmbeddedPulsar.class).isPresent()) {
                annotated = type;
            }
            if (type == annotated) {
                owner = next.get();
            }
        }
        EmbeddedPulsar settings = findAnnotation(annotated, EmbeddedPulsar.class).orElseThrow();
        // A store also finds the values of its parents, so the key is the class.
        return owner.getStore(NAMESPACE)
                .getOrComputeIfAbsent(annotated, key -> start(settings), Running.class)
                .broker();
    }

    private static Running start(EmbeddedPulsar settings) {
        Duration limit = Duration.ofSeconds(settings.startTimeout());
        return new Running(EmbeddedBroker.start(settings.program(), limit, settings.arguments()));
    }
}
