//! Admin calls with arbitrary paths and bodies.

use super::HostileRig;
use crate::admin::work_of;
use crate::machine::BrokerMachine;
use fastrand::Rng;

/// Just above the parser's limit.
const NESTED_MAX: usize = 130;

/// A call: its request, and the machine's work.
pub(crate) struct AnyCall<W> {
    pub(crate) shown: String,
    pub(crate) path: String,
    pub(crate) work: W,
}

/// Makes a call, and checks that it is answered.
pub(super) fn any_call(rig: &mut HostileRig, random: &mut Rng) {
    let Some(AnyCall { shown, work, .. }) = any(random) else { return };
    let ticket = rig.next_ticket;
    rig.next_ticket += 1;
    rig.replies.clear();
    rig.machine.call(ticket, work);
    rig.settle();
    assert!(rig.replies.contains(&ticket), "no answer to {shown}");
}

/// A random call; `None` if it never reaches the machine.
pub(crate) fn any(random: &mut Rng) -> Option<AnyCall<impl FnOnce(&mut BrokerMachine) + use<>>> {
    let method =
        *random.choice(["GET", "PUT", "PUT", "POST", "POST", "DELETE", "PATCH"].iter()).unwrap();
    let (path, query, body) = (any_path(random), any_query(random), any_body(random));
    let shown = format!("{method} {path}?{query} {}", String::from_utf8_lossy(&body));
    let work = work_of(method, &path, Some(&query), &body)?;
    Some(AnyCall { shown, path, work })
}

fn name(random: &mut Rng) -> String {
    match random.u8(0..8) {
        0 | 1 => "x".repeat(random.usize(0..600)),
        2 => (*random.choice(["", ".", "..", "%2e%2e", "a%00b", "%E2%80%AEx"].iter()).unwrap())
            .to_owned(),
        3 => "tasks-ledger".to_owned(),
        4 => format!("t{}-partition-{}", random.u8(0..2), random.u32(0..3)),
        _ => format!("t{}", random.u8(0..2)),
    }
}

fn any_path(random: &mut Rng) -> String {
    let namespaces = ["public/default", "public/default", "public/n", "n/n"];
    let namespace = *random.choice(namespaces.iter()).unwrap();
    let topic = format!("/admin/v2/persistent/{namespace}/{}", name(random));
    let below_topic = [
        "",
        "/partitions",
        "/partitions",
        "/partitions",
        "/partitions",
        "/createMissedPartitions",
        "/stats",
        "/internalStats",
        "/subscriptions",
        "/lastMessageId",
        "/unload",
        "/truncate",
        "/compaction",
        "/retention",
        "/dispatchRate",
        "/publishRate",
        "/backlogQuota",
        "/messageTTL",
        "/policies",
        "/subscription/s",
        "/subscription/s/skip_all",
        "/subscription/s/properties",
        "/subscription/s/resetcursor",
        "/subscription/s/expireMessages/1",
        "/subscription/s/position/1",
        "/all_subscription/expireMessages/1",
        "/ledger/0/entry/0",
        "/terminate",
        "/terminate/partitions",
        "/messageid/1",
        "/examinemessage",
        "/permissions/role",
    ];
    let below_namespace =
        ["", "/topics", "/permissions/role", "/retention", "/dispatchRate", "/autoTopicCreation"];
    match random.u8(0..9) {
        // With a partition suffix, the name has about the maximum length.
        8 => {
            let name = "y".repeat(random.usize(212..230));
            format!("/admin/v2/persistent/public/default/{name}/partitions")
        }
        0 => format!("/admin/v2/tenants/{}", name(random)),
        1 => format!(
            "/admin/v2/namespaces/{namespace}{}",
            random.choice(below_namespace.iter()).unwrap()
        ),
        2 => format!("/admin/v2/schemas/{namespace}/{}/schema", name(random)),
        3 => format!("/{}", name(random)),
        _ => format!("{topic}{}", random.choice(below_topic.iter()).unwrap()),
    }
}

fn any_query(random: &mut Rng) -> String {
    let known = ["force=true", "checkAllowAutoCreation=true", "applied=true", "messageTTL=5", "=&"];
    if random.bool() { String::new() } else { (*random.choice(known.iter()).unwrap()).to_owned() }
}

fn any_body(random: &mut Rng) -> Vec<u8> {
    let depth = random.usize(0..NESTED_MAX);
    let text = match random.u8(0..15) {
        0 => "[".repeat(depth) + &"]".repeat(depth),
        1 => format!(r#"{{"deep":{}1{}}}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth)),
        2 => r#"{"type":"STRING","schema":"","properties":{}}"#.to_owned(),
        3 => r#"{"retentionTimeInMinutes":1,"retentionSizeInMB":1}"#.to_owned(),
        4 => {
            r#"{"allowAutoTopicCreation":true,"topicType":"partitioned","defaultNumPartitions":2}"#
                .to_owned()
        }
        5 => (*random.choice([r#"["produce"]"#, r#"{"k":"v"}"#].iter()).unwrap()).to_owned(),
        6 => (*random
            .choice(["-1", "0", "1e400", "18446744073709551616", "null", "\"latest\""].iter())
            .unwrap())
        .to_owned(),
        7 => String::new(),
        8 => "{".to_owned(),
        _ => random.u8(1..5).to_string(),
    };
    text.into_bytes()
}
