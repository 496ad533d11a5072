package io.streamnative.pulsar.recipes.task;

/**
 * The five states that may stand on a metadata topic. Name and place are part of the Avro schema that every Java client of the
 * topic registers, so they are those of the Java reference.
 */
public enum TaskState {
    NEW,
    PROCESSING,
    FAILED,
    COMPLETED,
    UNKNOWN
}
