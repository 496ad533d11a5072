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
];
