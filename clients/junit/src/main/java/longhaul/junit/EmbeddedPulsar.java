package longhaul.junit;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Starts one {@link EmbeddedBroker} for the test class, and stops it after the last test.
 *
 * <p>Constructors, lifecycle methods and test methods get it as a parameter. Nested classes share
 * it, unless they have an annotation of their own.
 */
@Documented
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
@ExtendWith(EmbeddedPulsarExtension.class)
public @interface EmbeddedPulsar {
    /** Further flags of {@code longhaul broker run}; its {@code --help} explains them. */
    String[] arguments() default {};

    /**
     * The program. By default it is the one that the environment variable {@code LONGHAUL_PROGRAM}
     * names, or {@code longhaul} on the path.
     */
    String program() default "";

    /** Seconds that the start may take. */
    int startTimeout() default 30;
}
