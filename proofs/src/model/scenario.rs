//! The scenarios, by name, with the wide bounds of the command line. `tests/pure/model.rs` narrows
//! those that take too long for a test run.

use super::bounds::{Bounds, UnknownField, set_fields};
use super::tamper::Fault;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A named choice of bounds: name, bounds, subject.
pub type Scenario<B> = (&'static str, B, &'static str);

/// Default maximum of visited states.
const CAP: usize = 25_000_000;

/// Two workers, one task, one of each usual fault, and no adoption.
const BASE: Bounds = Bounds {
    workers: 2,
    tasks: 1,
    attempts: 2,
    fail: true,
    adopt: false,
    timely: true,
    batch: false,
    hang: false,
    park: false,
    unasked: false,
    ordered: false,
    crash: 1,
    compact: 1,
    redeliver: 1,
    session: 0,
    spurious: 1,
    giveup: 0,
    cancel: 0,
    operate: 0,
    letters: false,
    offers: 0,
    freeze: 0,
    thaw: 0,
    brokerto: true,
    expires: false,
    drain: 0,
    fences: 0,
    seal: false,
    keys: 0,
    single: false,
    merges: 0,
    after: u8::MAX,
    marked: false,
    forgets: 0,
    fetch: false,
    queue: false,
    receipts: 0,
    lease: 0,
    fault: Fault::None,
    cap: CAP,
};

const ADOPT: Bounds = Bounds { adopt: true, ..BASE };
const FREEZE: Bounds = Bounds { freeze: 1, thaw: 1, crash: 0, redeliver: 0, spurious: 0, ..ADOPT };
const MARKED: Bounds =
    Bounds { marked: true, forgets: 1, crash: 0, spurious: 0, fail: false, receipts: 1, ..ADOPT };
/// These hold without any rule about ledger retention, mark-delete positions or ages: acks are
/// forgotten, deliveries repeated.
const SEAL: Bounds = Bounds { seal: true, compact: 2, receipts: 0, ..MARKED };
/// Two tasks, any ranges.
const SEAL_2T: Bounds = Bounds { tasks: 2, attempts: 1, redeliver: 0, compact: 1, ..SEAL };
const KEEP: Bounds = Bounds { fences: 1, crash: 0, redeliver: 0, fail: false, ..ADOPT };
const LETTER: Bounds = Bounds { attempts: 1, fail: true, receipts: 2, ..MARKED };

/// Operators act on tasks.
const OPERATE: Bounds = Bounds { operate: 1, redeliver: 0, ..ADOPT };

/// No tasks are requested: they end only by a cancel request.
const UNASKED: Bounds =
    Bounds { unasked: true, cancel: 1, crash: 0, redeliver: 0, spurious: 0, fail: false, ..ADOPT };

/// Tasks are offered.
const OFFER: Bounds =
    Bounds { offers: 1, redeliver: 0, fail: false, crash: 0, spurious: 0, ..ADOPT };

/// Every claim but the first has a base, and older keys are removed.
const KEYS: Bounds = Bounds { keys: 1, compact: 2, ..ADOPT };

/// The second of two tasks waits for the first.
const PARK: Bounds = Bounds {
    tasks: 2,
    park: true,
    attempts: 1,
    fail: false,
    crash: 0,
    redeliver: 0,
    spurious: 0,
    ..ADOPT
};

/// Two tasks of one key, on a queue with an order.
const ORDER: Bounds =
    Bounds { tasks: 2, ordered: true, attempts: 1, fail: false, compact: 0, redeliver: 0, ..ADOPT };

const ALL: Bounds = Bounds {
    tasks: 2,
    seal: true,
    keys: 2,
    merges: 2,
    fetch: true,
    queue: true,
    crash: 2,
    compact: 3,
    redeliver: 2,
    session: 1,
    spurious: 2,
    giveup: 2,
    cancel: 1,
    freeze: 1,
    thaw: 1,
    drain: 1,
    fences: 2,
    attempts: 2,
    workers: 3,
    ..LETTER
};

/// All scenarios.
pub const SCENARIOS: &[Scenario<Bounds>] = &[
    ("once", Bounds { timely: false, ..BASE }, "only holders claim; pauses of any length"),
    ("once-timely", BASE, "only holders claim"),
    ("once-big", Bounds { crash: 2, spurious: 2, redeliver: 2, ..BASE }, "larger budgets"),
    ("once-3w", Bounds { workers: 3, fail: false, ..BASE }, "three workers"),
    ("once-2t", Bounds { tasks: 2, crash: 0, fail: false, ..BASE }, "two tasks"),
    ("once-giveup", Bounds { giveup: 1, ..BASE }, "publishes of unknown fate"),
    ("once-cancel", Bounds { cancel: 1, ..BASE }, "a cancel request"),
    ("once-cancel2", Bounds { cancel: 2, compact: 2, ..BASE }, "two cancel requests"),
    ("session", Bounds { session: 1, ..ADOPT }, "a consumer session ends, and the worker knows"),
    ("drain", Bounds { drain: 1, crash: 0, ..ADOPT }, "a worker drains and leaves"),
    (
        "expire",
        Bounds { expires: true, drain: 1, crash: 0, redeliver: 0, ..ADOPT },
        "tasks expire, fail and are given back by a drain",
    ),
    ("expire-crash", Bounds { expires: true, ..ADOPT }, "tasks expire, and a worker dies"),
    ("drain-crash", Bounds { drain: 1, ..ADOPT }, "the same and a crash"),
    (
        "drain-cancel",
        Bounds { drain: 1, crash: 0, cancel: 1, ..ADOPT },
        "the same and a cancel request",
    ),
    (
        "batch",
        Bounds { tasks: 2, batch: true, attempts: 1, spurious: 0, crash: 0, fail: false, ..ADOPT },
        "two tasks in one batch",
    ),
    (
        "batch-crash",
        Bounds {
            tasks: 2,
            batch: true,
            attempts: 1,
            spurious: 0,
            fail: false,
            redeliver: 0,
            ..ADOPT
        },
        "the same and a crash",
    ),
    ("adopt", ADOPT, "anybody claims"),
    ("adopt-untimely", Bounds { timely: false, ..ADOPT }, "the same, pauses of any length"),
    (
        "adopt-3w",
        Bounds { workers: 3, crash: 0, compact: 0, redeliver: 0, fail: false, ..ADOPT },
        "three workers",
    ),
    (
        "adopt-cancel",
        Bounds { cancel: 1, crash: 0, spurious: 0, fail: false, ..ADOPT },
        "a cancel request",
    ),
    (
        "cancel-batch",
        Bounds {
            tasks: 2,
            batch: true,
            attempts: 1,
            cancel: 1,
            crash: 0,
            spurious: 0,
            fail: false,
            redeliver: 0,
            ..ADOPT
        },
        "a cancel request of a task of a batch",
    ),
    ("unasked", UNASKED, "nothing is delivered, and tasks are cancelled"),
    ("adopt-giveup", Bounds { giveup: 1, crash: 0, ..ADOPT }, "publishes of unknown fate"),
    (
        "adopt-2t",
        Bounds { tasks: 2, attempts: 1, fail: false, compact: 0, ..FREEZE },
        "two tasks, a freeze",
    ),
    (
        "freeze-noadopt",
        Bounds { adopt: false, thaw: 0, brokerto: false, ..FREEZE },
        "an owner freezes for ever, the broker does not look, nobody adopts",
    ),
    ("freeze-adopt", Bounds { thaw: 0, brokerto: false, ..FREEZE }, "the same with adoption"),
    ("freeze-thaw", FREEZE, "a worker freezes, the broker notices, it goes on"),
    ("freeze-thaw-crash", Bounds { crash: 1, ..FREEZE }, "the same and a crash"),
    (
        "freeze-thaw-big",
        Bounds { redeliver: 1, spurious: 1, ..FREEZE },
        "the same, redelivered and taken over",
    ),
    ("freeze-thaw-3w", Bounds { workers: 3, compact: 0, fail: false, ..FREEZE }, "three workers"),
    ("freeze-cancel", Bounds { cancel: 1, fail: false, ..FREEZE }, "a freeze and a cancel request"),
    (
        "fetch-first",
        Bounds { fetch: true, redeliver: 1, ..FREEZE },
        "payloads take time, messages are trimmed",
    ),
    (
        "lease-off",
        Bounds { lease: 1, spurious: 1, ..FREEZE },
        "overlap of bodies when owners go on",
    ),
    (
        "lease-on",
        Bounds { lease: 2, spurious: 1, ..FREEZE },
        "overlap of bodies when owners end theirs in time",
    ),
    ("base", KEYS, "claims with a base, and their task's older keys go"),
    ("base-3", Bounds { attempts: 3, crash: 0, ..KEYS }, "the same, three attempts"),
    (
        "base-single",
        Bounds { single: true, crash: 0, ..KEYS },
        "the same, tombstones in any order that the rules allow",
    ),
    (
        "base-freeze",
        Bounds { freeze: 1, thaw: 1, crash: 0, redeliver: 0, ..KEYS },
        "the same and a freeze",
    ),
    (
        "base-giveup",
        Bounds { giveup: 1, crash: 0, redeliver: 0, ..KEYS },
        "the same and publishes of unknown fate, also of tombstones",
    ),
    ("base-cancel", Bounds { cancel: 1, crash: 0, ..KEYS }, "the same and a cancel request"),
    ("base-drain", Bounds { drain: 1, crash: 0, ..KEYS }, "the same and a drain"),
    ("base-keep", Bounds { fences: 1, crash: 0, ..KEYS }, "the same and a self-fence"),
    (
        "base-seal",
        Bounds { seal: true, marked: true, forgets: 1, crash: 0, redeliver: 0, ..KEYS },
        "the same and seals",
    ),
    ("seal", SEAL, "seals; acks forgotten, redelivery, two sealers"),
    (
        "seal-single",
        Bounds { single: true, ..SEAL },
        "the same, tombstones in any order that the rules allow",
    ),
    (
        "seal-crash",
        Bounds { crash: 1, redeliver: 0, ..SEAL },
        "the same and a crash, also of the sealer",
    ),
    ("seal-live", Bounds { spurious: 1, ..SEAL }, "seals and a takeover from a live owner"),
    ("seal-freeze", Bounds { freeze: 1, thaw: 1, redeliver: 0, ..SEAL }, "seals and a freeze"),
    (
        "seal-giveup",
        Bounds { giveup: 1, redeliver: 0, ..SEAL },
        "seals and publishes of unknown fate, also of seals and tombstones",
    ),
    (
        "seal-cancel",
        Bounds { cancel: 1, redeliver: 0, ..SEAL },
        "seals and a cancel request, also a late one",
    ),
    ("seal-drain", Bounds { drain: 1, redeliver: 0, ..SEAL }, "seals and a drain"),
    ("seal-queue", Bounds { queue: true, ..SEAL }, "seals, and deliveries that wait unseen"),
    ("seal-3w", Bounds { workers: 3, redeliver: 0, attempts: 1, ..SEAL }, "seals, three workers"),
    ("seal-merge", Bounds { merges: 1, ..SEAL }, "merging of two seals of one task"),
    (
        "seal-merge-live",
        Bounds { merges: 2, spurious: 1, redeliver: 0, ..SEAL },
        "merging twice, takeover from a live owner",
    ),
    (
        "seal-merge-crash",
        Bounds { merges: 1, crash: 1, redeliver: 0, ..SEAL },
        "merging and a crash",
    ),
    ("seal-2t", SEAL_2T, "seals, two tasks, any ranges"),
    ("seal-2t-hang", Bounds { hang: true, ..SEAL_2T }, "the same, the first task never ends"),
    ("seal-2t-merge", Bounds { merges: 1, workers: 1, crash: 1, ..SEAL_2T }, "two tasks, merging"),
    ("seal-batch", Bounds { batch: true, ..SEAL_2T }, "one batch of two tasks"),
    (
        "seal-dlq",
        Bounds { fail: true, attempts: 1, redeliver: 0, receipts: 2, ..SEAL },
        "seals and dead letters",
    ),
    (
        "seal-dlq-crash",
        Bounds { fail: true, attempts: 1, redeliver: 0, crash: 1, receipts: 2, ..SEAL },
        "the same and a crash: dead letters from what a bootstrap shows",
    ),
    (
        "seal-keep",
        Bounds { fences: 1, redeliver: 0, ..SEAL },
        "seals and a self-fence that keeps running attempts",
    ),
    (
        "seal-keep-freeze",
        Bounds { fences: 1, freeze: 1, thaw: 1, redeliver: 0, ..SEAL },
        "the same and a freeze",
    ),
    ("park", PARK, "a task waits until another one is over"),
    ("park-fail", Bounds { fail: true, attempts: 2, ..PARK }, "the same and failed attempts"),
    ("park-crash", Bounds { crash: 1, ..PARK }, "the same and a crash"),
    ("park-live", Bounds { spurious: 1, ..PARK }, "the same and a takeover from a live owner"),
    ("park-giveup", Bounds { giveup: 1, ..PARK }, "the same and publishes of unknown fate"),
    ("park-cancel", Bounds { cancel: 1, ..PARK }, "the same and a cancel request"),
    ("park-keep", Bounds { fences: 1, ..PARK }, "the same and a self-fence"),
    (
        "park-base",
        Bounds { keys: 1, compact: 2, spurious: 1, ..PARK },
        "the same and claims with a base",
    ),
    ("park-seal", Bounds { seal: true, ..PARK }, "the same and seals"),
    ("park-seal-crash", Bounds { seal: true, crash: 1, ..PARK }, "the same, seals and a crash"),
    ("offer", Bounds { offers: 2, redeliver: 1, ..OFFER }, "holders offer tasks to anybody"),
    ("offer-crash", Bounds { crash: 1, ..OFFER }, "the same and a crash"),
    (
        "offer-fail",
        Bounds { fail: true, spurious: 1, ..OFFER },
        "the same, failed attempts and a takeover from a live owner",
    ),
    ("offer-giveup", Bounds { giveup: 1, ..OFFER }, "the same and publishes of unknown fate"),
    ("offer-cancel", Bounds { cancel: 1, ..OFFER }, "the same and a cancel request"),
    ("offer-keep", Bounds { fences: 1, ..OFFER }, "the same and a self-fence"),
    ("offer-seal", Bounds { offers: 1, ..SEAL }, "offers, seals and forgotten acks"),
    ("offer-park", Bounds { offers: 1, ..PARK }, "offers of tasks that wait for others"),
    ("md", MARKED, "acks are forgotten"),
    ("md-crash", Bounds { crash: 1, redeliver: 0, ..MARKED }, "the same and a crash"),
    ("md-freeze", Bounds { freeze: 1, thaw: 1, redeliver: 0, ..MARKED }, "the same and a freeze"),
    (
        "md-2t",
        Bounds { tasks: 2, attempts: 1, redeliver: 0, compact: 0, ..MARKED },
        "two tasks, acks with a gap",
    ),
    (
        "md-batch",
        Bounds { tasks: 2, batch: true, attempts: 1, redeliver: 0, compact: 0, ..MARKED },
        "two tasks in one batch",
    ),
    ("keep", KEEP, "a self-fence keeps running attempts"),
    ("keep-fail", Bounds { fail: true, spurious: 0, ..KEEP }, "the same and failed attempts"),
    (
        "keep-twice",
        Bounds { fences: 2, spurious: 0, compact: 0, attempts: 1, ..KEEP },
        "fenced twice",
    ),
    ("keep-cancel", Bounds { cancel: 1, spurious: 0, ..KEEP }, "a self-fence and a cancel request"),
    (
        "keep-drain",
        Bounds { drain: 1, spurious: 0, attempts: 1, ..KEEP },
        "a self-fence and a drain",
    ),
    ("keep-crash", Bounds { crash: 1, ..KEEP }, "a self-fence and a crash"),
    ("keep-freeze", Bounds { freeze: 1, thaw: 1, ..KEEP }, "a self-fence and a freeze"),
    (
        "keep-giveup",
        Bounds { giveup: 1, attempts: 1, spurious: 0, compact: 0, ..KEEP },
        "a self-fence and publishes of unknown fate",
    ),
    (
        "keep-2t",
        Bounds { tasks: 2, attempts: 1, compact: 0, spurious: 0, hang: true, ..KEEP },
        "two tasks, one never ends",
    ),
    ("dlq", LETTER, "dead letter, view, ack, by whoever acknowledges"),
    ("dlq-crash", Bounds { crash: 1, redeliver: 0, ..LETTER }, "the same and a crash"),
    ("dlq-freeze", Bounds { freeze: 1, thaw: 1, redeliver: 0, ..LETTER }, "the same and a freeze"),
    (
        "dlq-trim",
        Bounds { fetch: true, freeze: 1, thaw: 0, redeliver: 0, ..LETTER },
        "the same, and the payload may be gone",
    ),
    (
        "dlq-expired",
        Bounds { expires: true, letters: true, ..LETTER },
        "an expired task gets a dead letter, too",
    ),
    ("operate", OPERATE, "an operator deletes, fails or releases a task"),
    (
        "operate-untimely",
        Bounds { timely: false, ..OPERATE },
        "the same, also before a live owner has read its claim",
    ),
    ("operate-twice", Bounds { operate: 2, crash: 0, ..OPERATE }, "two operators do"),
    (
        "operate-letter",
        Bounds { operate: 1, redeliver: 0, ..LETTER },
        "an operator, and dead letters",
    ),
    (
        "operate-seal",
        Bounds { operate: 1, redeliver: 0, attempts: 1, ..SEAL },
        "an operator, and seals",
    ),
    ("operate-keep", Bounds { operate: 1, spurious: 0, ..KEEP }, "an operator, and a self-fence"),
    (
        "operate-batch",
        Bounds {
            operate: 1,
            tasks: 2,
            batch: true,
            attempts: 1,
            redeliver: 0,
            compact: 0,
            ..ADOPT
        },
        "an operator, and a batch",
    ),
    ("order", ORDER, "two tasks of one key, in order"),
    ("everything", ALL, "all that can go wrong, for random walks"),
    ("everything-batch", Bounds { batch: true, ..ALL }, "the same with a batch"),
    (
        "amended",
        Bounds { fences: 1, freeze: 1, thaw: 1, seal: true, merges: 1, ..LETTER },
        "everything together",
    ),
];

/// Finds a scenario by `name` or `name:field=value,…`. Returns its bounds and its subject.
///
/// # Errors
/// If there is no such scenario or field.
pub fn find<B: Copy + Serialize + DeserializeOwned>(
    scenarios: &[Scenario<B>],
    text: &str,
) -> Result<(B, &'static str), UnknownField> {
    let (name, fields) = text.split_once(':').unwrap_or((text, ""));
    let scenario = scenarios.iter().find(|(known, ..)| *known == name);
    let (_, bounds, about) = *scenario.ok_or_else(|| UnknownField(name.to_owned()))?;
    Ok((set_fields(bounds, fields)?, about))
}
