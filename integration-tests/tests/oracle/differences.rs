//! Where the embedded broker is meant to answer otherwise than Pulsar.

/// One of them.
pub(crate) struct Difference {
    /// Name of the script.
    pub(crate) script: &'static str,
    /// Lines of Pulsar.
    pub(crate) theirs: &'static str,
    /// Lines of ours in their place.
    pub(crate) ours: &'static str,
    /// Why.
    #[expect(dead_code, reason = "for who reads the table")]
    pub(crate) why: &'static str,
}

/// All of them.
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
        script: "tombstones",
        theirs: "c1 Message consumer=30 m7 count=0 kept=`kept`
c1 Message consumer=30 m10 count=0 b=``null
c1 Message consumer=30 m12 count=0 d=``
c1 GetLastMessageIdResponse request=1 last=m12 mark=before-first",
        ours: "c1 Message consumer=30 m7 count=0 kept=`kept`
c1 GetLastMessageIdResponse request=1 last=m7 mark=before-first",
        why: "all spellings of a tombstone count; Pulsar 4.0.7 looks at the uncompressed size alone, which not all clients send",
    },
    Difference {
        script: "tombstones",
        theirs: "c1 Message consumer=40 m10 count=0 b=``null
c1 Message consumer=40 m12 count=0 d=``
c1 Message consumer=40 m15 count=0 kept=`new`",
        ours: "c1 Message consumer=40 m15 count=0 kept=`new`",
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
        theirs: r#"# ping
c0 Pong
# producer
c1 closed
# subscribe
c2 closed
# send
c3 closed"#,
        ours: r#"# ping
c0 Error request=-1 NotAllowedError
c0 closed
# producer
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
];

/// Scripts in which nobody has decided yet what is wanted: name, and what is open. Their differences are shown, and fail nothing;
/// a script without differences must not stand here.
pub(crate) const OPEN: &[(&str, &str)] = &[
    (
        "access_modes",
        "a fenced producer is told with CLOSE_PRODUCER, and its SEND with an error instead of the end of the connection",
    ),
    (
        "batches",
        "the raw log is trimmed as soon as it is compacted; Pulsar keeps the current ledger",
    ),
    (
        "failover",
        "order: ours delivers before it says who is active; Pulsar answers CLOSE_CONSUMER first",
    ),
    ("handshake", "clients without a version are refused; Pulsar takes them"),
    ("incompatible_schemas", "everything is stored, but for another kind of schema"),
    ("last_ids", "the mark-delete position of a cursor before the first entry, and of a reader"),
    (
        "moved_by_admin",
        "acknowledged entries are trimmed at once, so a cursor cannot go back to them",
    ),
    ("names", "a SEND of a producer that never was: Pulsar closes the connection"),
    ("partitions", "a partition beyond the count is taken for a topic that may be created"),
    ("reader_starts", "a start beyond the end leaves it to the initial position"),
    ("reconnects", "a name is taken over from a connection that lives"),
    ("redelivery", "whose turn it is when an entry comes again"),
    ("schemas", "a schema of a topic that is not there is stored"),
    (
        "seek_of_a_subscription",
        "acknowledged entries are trimmed at once, so a cursor cannot go back to them",
    ),
    ("shared_turns_of_new_messages", "consumers do not take strict turns"),
    ("tombstones", "as `batches`"),
    ("topics_of_namespace", "a namespace that is not there; patterns are left to the client"),
    (
        "unload",
        "a SEND on its way to a producer that the broker has closed is answered with an error: Pulsar ignores it",
    ),
];
