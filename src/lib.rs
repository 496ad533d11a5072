//! longhaul: long-running tasks on Apache Pulsar.
