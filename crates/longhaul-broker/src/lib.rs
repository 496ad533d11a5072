//! A durable broker for one machine that speaks the Apache Pulsar binary protocol: any Pulsar client of any language talks to it.

mod log;
