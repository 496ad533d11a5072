//! The places where the embedded broker intentionally answers otherwise than Pulsar.

/// One intended difference.
pub(crate) struct Difference {
    /// Name of the script.
    pub(crate) script: &'static str,
    /// The lines of Pulsar.
    pub(crate) theirs: &'static str,
    /// The lines of the embedded broker in their place.
    pub(crate) ours: &'static str,
    /// The reason.
    #[expect(dead_code, reason = "for who reads the table")]
    pub(crate) why: &'static str,
}

/// All intended differences.
pub(crate) const WANTED: &[Difference] = &[
    Difference {
        script: "lookup",
        theirs: "c0 LookupResponse request=1 response=Some(1) url=true proxy=true",
        ours: "c0 LookupResponse request=1 response=Some(1) url=true proxy=false",
        why: "a standalone makes each client open a second connection to the same address, which nobody needs",
    },
    Difference {
        script: "lookup",
        theirs: "c0 LookupResponse request=5 response=Some(1) url=true proxy=true",
        ours: "c0 LookupResponse request=5 response=Some(1) url=true proxy=false",
        why: "as above",
    },
    Difference {
        script: "lookup",
        theirs:
            "c0 LookupResponse request=2 response=Some(2) url=false proxy=false InvalidTopicName
c0 Error request=2 InvalidTopicName
c0 Error request=2 InvalidTopicName",
        ours: "c0 LookupResponse request=2 response=Some(2) url=false proxy=false NotAllowedError
c0 Error request=2 NotAllowedError
c0 Error request=2 NotAllowedError",
        why: "the C++ client tries again for 30 s after InvalidTopicName, and ends with a timeout instead of the reason",
    },
    Difference {
        script: "partitions",
        theirs: "c0 PartitionedMetadataResponse request=11 response=Some(1) partitions=None InvalidTopicName",
        ours: "c0 PartitionedMetadataResponse request=11 response=Some(1) partitions=None NotAllowedError",
        why: "as above",
    },
    Difference {
        script: "partitions",
        theirs: "c0 PartitionedMetadataResponse request=12 response=Some(1) partitions=None InvalidTopicName",
        ours: "c0 PartitionedMetadataResponse request=12 response=Some(1) partitions=None NotAllowedError",
        why: "as above",
    },
    Difference {
        script: "batch_indexes",
        theirs: r#"c1 AckResponse consumer=1 request=10
c1 Message consumer=1 m0 count=1 [ `a` `b` `c` ]
# one of three, by its index alone"#,
        ours: r#"c1 AckResponse consumer=1 request=10
c1 Message consumer=1 m0 count=1 acks=[5] [ `a` `b` `c` ]
# one of three, by its index alone"#,
        why: "acknowledged messages of a batch are remembered, as Pulsar does when told to",
    },
    Difference {
        script: "before_connect",
        theirs: r#"# producer
c1 closed
# subscribe
c2 closed
# send
c3 closed"#,
        ours: r#"# producer
c1 Error request=-1 NotAllowedError
c1 closed
# subscribe
c2 Error request=-1 NotAllowedError
c2 closed
# send
c3 Error request=-1 NotAllowedError
c3 closed"#,
        why: "whoever speaks before CONNECT is told why the connection ends",
    },
    Difference {
        script: "cumulative",
        theirs: r#"# of a shared subscription
c1 AckResponse consumer=3 request=23"#,
        ours: r#"# of a shared subscription
c1 AckResponse consumer=3 request=23 NotAllowedError"#,
        why: "what cannot be done is said: nothing was acknowledged",
    },
    Difference {
        script: "key_shared_modes",
        theirs: r#"# cumulative
c0 AckResponse consumer=1 request=9"#,
        ours: r#"# cumulative
c0 AckResponse consumer=1 request=9 NotAllowedError"#,
        why: "as above",
    },
    Difference {
        script: "exclusive",
        theirs: r#"# names
c1 Error request=10 ProducerBusy
c1 Success request=11"#,
        ours: r#"# names
c1 Error request=10 NotAllowedError
c1 Success request=11"#,
        why: "Pulsar's answer has a code that means something else",
    },
    Difference {
        script: "garbage",
        theirs: r#"# a frame that is too large
c0 closed
# a frame without a command
c1 closed
# a command that is longer than its frame
c2 closed
# a command that is no message
c3 closed
# an unknown command
c4 closed
# a frame of nothing
c5 closed"#,
        ours: r#"# a frame that is too large
c0 Error request=-1 NotAllowedError
c0 closed
# a frame without a command
c1 Error request=-1 UnknownError
c1 closed
# a command that is longer than its frame
c2 Error request=-1 UnknownError
c2 closed
# a command that is no message
c3 Error request=-1 UnknownError
c3 closed
# an unknown command
c4 Error request=-1 UnknownError
c4 closed
# a frame of nothing
c5 Error request=-1 UnknownError
c5 closed"#,
        why: "whoever sends garbage is told why the connection ends",
    },
    Difference {
        script: "lookup",
        theirs: r#"c0 LookupResponse request=3 response=Some(2) url=false proxy=false TopicNotFound
c0 Error request=3 ServiceNotReady
c0 Error request=3 ServiceNotReady
# an unknown tenant
c0 LookupResponse request=4 response=Some(2) url=false proxy=false TopicNotFound
c0 Error request=4 ServiceNotReady
c0 Error request=4 ServiceNotReady
# a short name"#,
        ours: r#"c0 LookupResponse request=3 response=Some(2) url=false proxy=false TopicNotFound
c0 Error request=3 TopicNotFound
c0 Error request=3 TopicNotFound
# an unknown tenant
c0 LookupResponse request=4 response=Some(2) url=false proxy=false TopicNotFound
c0 Error request=4 TopicNotFound
c0 Error request=4 TopicNotFound
# a short name"#,
        why: "what is missing does not come by waiting, which ServiceNotReady makes clients do",
    },
    Difference {
        script: "permits",
        theirs: r#"# no permits
c1 closed"#,
        ours: r#"# no permits"#,
        why: "no permits at all do no harm",
    },
    Difference {
        script: "receipts_of_acks",
        theirs: r#"# of a consumer that is not there
# what is left"#,
        ours: r#"# of a consumer that is not there
c1 AckResponse consumer=77 request=15 ConsumerNotFound
# what is left"#,
        why: "a client that waits for an answer gets one",
    },
    Difference {
        script: "stats",
        theirs: r#"# stats of a consumer that is not there
c1 closed"#,
        ours: r#"# stats of a consumer that is not there
c1 ConsumerStatsResponse request=9 type=None permits=None unacked=None backlog=None ConsumerNotFound"#,
        why: "an answer instead of the end of the connection",
    },
    Difference {
        script: "access_modes",
        theirs: r#"# fencing
c1 ProducerSuccess request=4 name=made-up last=-1 schema=empty epoch=Some(1) ready=true
# a message of the fenced one
c0 closed
# the fenced one comes back with its epoch
c2 Error request=5 ProducerFenced
# shared, then exclusive, then fencing
c2 ProducerSuccess request=6 name=made-up last=-1 schema=empty epoch=None ready=true
c1 Error request=7 ProducerFenced
c1 ProducerSuccess request=8 name=made-up last=-1 schema=empty epoch=Some(0) ready=true"#,
        ours: r#"# fencing
c1 ProducerSuccess request=4 name=made-up last=-1 schema=empty epoch=Some(1) ready=true
c0 CloseProducer 1 request=-1
# a message of the fenced one
# the fenced one comes back with its epoch
c2 Error request=5 ProducerFenced
# shared, then exclusive, then fencing
c2 ProducerSuccess request=6 name=made-up last=-1 schema=empty epoch=None ready=true
c1 Error request=7 ProducerFenced
c1 ProducerSuccess request=8 name=made-up last=-1 schema=empty epoch=Some(0) ready=true
c2 CloseProducer 6 request=-1"#,
        why: "a fenced producer is told so; Pulsar ends the connection, and with it everybody else who uses it, at its next message",
    },
    Difference {
        script: "failover",
        theirs: r#"# a smaller priority
c1 Success request=3
c1 ActiveConsumerChange consumer=3 active=Some(true)
c1 ActiveConsumerChange consumer=2 active=Some(false)"#,
        ours: r#"# a smaller priority
c1 Success request=3
c1 ActiveConsumerChange consumer=2 active=Some(false)
c1 ActiveConsumerChange consumer=3 active=Some(true)"#,
        why: "whoever is no longer active hears it before another one is",
    },
    Difference {
        script: "handshake",
        theirs: r#"# connect twice
c5 closed"#,
        ours: r#"# connect twice
c5 Error request=-1 NotAllowedError
c5 closed"#,
        why: "whoever connects twice is told why the connection ends",
    },
    Difference {
        script: "incompatible_schemas",
        theirs: r#"c0 Error request=2 IncompatibleSchema
c0 Error request=3 IncompatibleSchema
c0 GetOrCreateSchemaResponse request=4 version=absent IncompatibleSchema"#,
        ours: r#"c0 ProducerSuccess request=2 name=made-up last=-1 schema=0000000000000001 epoch=None ready=true
c0 Success request=3
c0 GetOrCreateSchemaResponse request=4 version=0000000000000001"#,
        why: "versions are kept and given back, not judged",
    },
    Difference {
        script: "incompatible_schemas",
        theirs: r#"c0 Error request=6 IncompatibleSchema
c0 Error request=7 IncompatibleSchema"#,
        ours: r#"c0 ProducerSuccess request=6 name=made-up last=-1 schema=0000000000000002 epoch=None ready=true
c0 ProducerSuccess request=7 name=made-up last=-1 schema=0000000000000000 epoch=None ready=true"#,
        why: "versions are kept and given back, not judged",
    },
    Difference {
        script: "names",
        theirs: r#"# a message to a producer that is not there
c0 closed"#,
        ours: r#"# a message to a producer that is not there
c0 Pong
c0 SendError producer=78 sequence=0 UnknownError"#,
        why: "the sender is told which message was refused, and the others on its connection go on",
    },
    Difference {
        script: "partitions",
        theirs: r#"# a producer of the whole topic
c0 ProducerSuccess request=1 name=made-up last=-1 schema=empty epoch=None ready=true"#,
        ours: r#"# a producer of the whole topic
c0 Error request=1 NotAllowedError"#,
        why: "no client does it, and what is sent there would reach no consumer of the partitions",
    },
    Difference {
        script: "partitions",
        theirs: r#"# a consumer of the whole topic
c0 Success request=1"#,
        ours: r#"# a consumer of the whole topic
c0 Error request=1 NotAllowedError"#,
        why: "as above",
    },
    Difference {
        script: "non_persistent",
        theirs: r#"c0 PartitionedMetadataResponse request=1 response=Some(0) partitions=Some(0)
c0 LookupResponse request=2 response=Some(1) url=true proxy=true
c0 ProducerSuccess request=3 name=made-up last=-1 schema=empty epoch=None ready=true
c0 Success request=4"#,
        ours: r#"c0 PartitionedMetadataResponse request=1 response=Some(1) partitions=None NotAllowedError
c0 LookupResponse request=2 response=Some(2) url=false proxy=false NotAllowedError
c0 Error request=3 NotAllowedError
c0 Error request=4 NotAllowedError"#,
        why: "this broker keeps everything; NotAllowedError is what no client tries again",
    },
    Difference {
        script: "terminated",
        theirs: r#"c1 Success request=4
# state "Terminated""#,
        ours: r#"c1 Success request=4
c1 ReachedEndOfTopic 4
# state "Terminated""#,
        why: "a consumer that comes late learns as well that nothing more comes",
    },
];
