package io.streamnative.pulsar.recipes.task;

/**
 * An entry of a metadata topic as the Java reference declares it: the record's name, the fields' names, types and order decide
 * the registered schema and the JSON. Fields beyond these are ignored by the decoder, as in the reference.
 */
public class TaskMetadata {
    public String messageId;
    public TaskState state;
    public long created;
    public long lastUpdated;
    public int attempts;
    public byte[] task;
    public byte[] result;
    public String failureReason;
}
