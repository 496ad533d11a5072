//! The scenarios, by name, with the wide bounds of the command line. `tests/pure/model.rs` narrows
//! those that take too long for a test run.

use super::bounds::{Bounds, UnknownField, set_fields};
use super::tamper::Fault;

/// A named choice of bounds.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its bounds.
    pub bounds: Bounds,
    /// Its description.
    pub about: &'static str,
}

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
pub const SCENARIOS: &[Scenario] = &[
    named("once", Bounds { timely: false, ..BASE }, "only holders claim; pauses of any length"),
    named("once-timely", BASE, "only holders claim"),
    named("once-big", Bounds { crash: 2, spurious: 2, redeliver: 2, ..BASE }, "larger budgets"),
    named("once-3w", Bounds { workers: 3, fail: false, ..BASE }, "three workers"),
    named("once-2t", Bounds { tasks: 2, crash: 0, fail: false, ..BASE }, "two tasks"),
    named("once-giveup", Bounds { giveup: 1, ..BASE }, "publishes of unknown fate"),
    named("once-cancel", Bounds { cancel: 1, ..BASE }, "a cancel request"),
    named("once-cancel2", Bounds { cancel: 2, compact: 2, ..BASE }, "two cancel requests"),
    named(
        "session",
        Bounds { session: 1, ..ADOPT },
        "a consumer session ends, and the worker knows",
    ),
    named("drain", Bounds { drain: 1, crash: 0, ..ADOPT }, "a worker drains and leaves"),
    named(
        "expire",
        Bounds { expires: true, drain: 1, crash: 0, redeliver: 0, ..ADOPT },
        "tasks expire, fail and are given back by a drain",
    ),
    named("expire-crash", Bounds { expires: true, ..ADOPT }, "tasks expire, and a worker dies"),
    named("drain-crash", Bounds { drain: 1, ..ADOPT }, "the same and a crash"),
    named(
        "drain-cancel",
        Bounds { drain: 1, crash: 0, cancel: 1, ..ADOPT },
        "the same and a cancel request",
    ),
    named(
        "batch",
        Bounds { tasks: 2, batch: true, attempts: 1, spurious: 0, crash: 0, fail: false, ..ADOPT },
        "two tasks in one batch",
    ),
    named(
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
    named("adopt", ADOPT, "anybody claims"),
    named("adopt-untimely", Bounds { timely: false, ..ADOPT }, "the same, pauses of any length"),
    named(
        "adopt-3w",
        Bounds { workers: 3, crash: 0, compact: 0, redeliver: 0, fail: false, ..ADOPT },
        "three workers",
    ),
    named(
        "adopt-cancel",
        Bounds { cancel: 1, crash: 0, spurious: 0, fail: false, ..ADOPT },
        "a cancel request",
    ),
    named(
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
    named("unasked", UNASKED, "nothing is delivered, and tasks are cancelled"),
    named("adopt-giveup", Bounds { giveup: 1, crash: 0, ..ADOPT }, "publishes of unknown fate"),
    named(
        "adopt-2t",
        Bounds { tasks: 2, attempts: 1, fail: false, compact: 0, ..FREEZE },
        "two tasks, a freeze",
    ),
    named(
        "freeze-noadopt",
        Bounds { adopt: false, thaw: 0, brokerto: false, ..FREEZE },
        "an owner freezes for ever, the broker does not look, nobody adopts",
    ),
    named("freeze-adopt", Bounds { thaw: 0, brokerto: false, ..FREEZE }, "the same with adoption"),
    named("freeze-thaw", FREEZE, "a worker freezes, the broker notices, it goes on"),
    named("freeze-thaw-crash", Bounds { crash: 1, ..FREEZE }, "the same and a crash"),
    named(
        "freeze-thaw-big",
        Bounds { redeliver: 1, spurious: 1, ..FREEZE },
        "the same, redelivered and taken over",
    ),
    named(
        "freeze-thaw-3w",
        Bounds { workers: 3, compact: 0, fail: false, ..FREEZE },
        "three workers",
    ),
    named(
        "freeze-cancel",
        Bounds { cancel: 1, fail: false, ..FREEZE },
        "a freeze and a cancel request",
    ),
    named(
        "fetch-first",
        Bounds { fetch: true, redeliver: 1, ..FREEZE },
        "payloads take time, messages are trimmed",
    ),
    named(
        "lease-off",
        Bounds { lease: 1, spurious: 1, ..FREEZE },
        "overlap of bodies when owners go on",
    ),
    named(
        "lease-on",
        Bounds { lease: 2, spurious: 1, ..FREEZE },
        "overlap of bodies when owners end theirs in time",
    ),
    named("base", KEYS, "claims with a base, and their task's older keys go"),
    named("base-3", Bounds { attempts: 3, crash: 0, ..KEYS }, "the same, three attempts"),
    named(
        "base-single",
        Bounds { single: true, crash: 0, ..KEYS },
        "the same, tombstones in any order that the rules allow",
    ),
    named(
        "base-freeze",
        Bounds { freeze: 1, thaw: 1, crash: 0, redeliver: 0, ..KEYS },
        "the same and a freeze",
    ),
    named(
        "base-giveup",
        Bounds { giveup: 1, crash: 0, redeliver: 0, ..KEYS },
        "the same and publishes of unknown fate, also of tombstones",
    ),
    named("base-cancel", Bounds { cancel: 1, crash: 0, ..KEYS }, "the same and a cancel request"),
    named("base-drain", Bounds { drain: 1, crash: 0, ..KEYS }, "the same and a drain"),
    named("base-keep", Bounds { fences: 1, crash: 0, ..KEYS }, "the same and a self-fence"),
    named(
        "base-seal",
        Bounds { seal: true, marked: true, forgets: 1, crash: 0, redeliver: 0, ..KEYS },
        "the same and seals",
    ),
    named("seal", SEAL, "seals; acks forgotten, redelivery, two sealers"),
    named(
        "seal-single",
        Bounds { single: true, ..SEAL },
        "the same, tombstones in any order that the rules allow",
    ),
    named(
        "seal-crash",
        Bounds { crash: 1, redeliver: 0, ..SEAL },
        "the same and a crash, also of the sealer",
    ),
    named("seal-live", Bounds { spurious: 1, ..SEAL }, "seals and a takeover from a live owner"),
    named("seal-freeze", Bounds { freeze: 1, thaw: 1, redeliver: 0, ..SEAL }, "seals and a freeze"),
    named(
        "seal-giveup",
        Bounds { giveup: 1, redeliver: 0, ..SEAL },
        "seals and publishes of unknown fate, also of seals and tombstones",
    ),
    named(
        "seal-cancel",
        Bounds { cancel: 1, redeliver: 0, ..SEAL },
        "seals and a cancel request, also a late one",
    ),
    named("seal-drain", Bounds { drain: 1, redeliver: 0, ..SEAL }, "seals and a drain"),
    named("seal-queue", Bounds { queue: true, ..SEAL }, "seals, and deliveries that wait unseen"),
    named(
        "seal-3w",
        Bounds { workers: 3, redeliver: 0, attempts: 1, ..SEAL },
        "seals, three workers",
    ),
    named("seal-merge", Bounds { merges: 1, ..SEAL }, "merging of two seals of one task"),
    named(
        "seal-merge-live",
        Bounds { merges: 2, spurious: 1, redeliver: 0, ..SEAL },
        "merging twice, takeover from a live owner",
    ),
    named(
        "seal-merge-crash",
        Bounds { merges: 1, crash: 1, redeliver: 0, ..SEAL },
        "merging and a crash",
    ),
    named("seal-2t", SEAL_2T, "seals, two tasks, any ranges"),
    named("seal-2t-hang", Bounds { hang: true, ..SEAL_2T }, "the same, the first task never ends"),
    named(
        "seal-2t-merge",
        Bounds { merges: 1, workers: 1, crash: 1, ..SEAL_2T },
        "two tasks, merging",
    ),
    named("seal-batch", Bounds { batch: true, ..SEAL_2T }, "one batch of two tasks"),
    named(
        "seal-dlq",
        Bounds { fail: true, attempts: 1, redeliver: 0, receipts: 2, ..SEAL },
        "seals and dead letters",
    ),
    named(
        "seal-dlq-crash",
        Bounds { fail: true, attempts: 1, redeliver: 0, crash: 1, receipts: 2, ..SEAL },
        "the same and a crash: dead letters from what a bootstrap shows",
    ),
    named(
        "seal-keep",
        Bounds { fences: 1, redeliver: 0, ..SEAL },
        "seals and a self-fence that keeps running attempts",
    ),
    named(
        "seal-keep-freeze",
        Bounds { fences: 1, freeze: 1, thaw: 1, redeliver: 0, ..SEAL },
        "the same and a freeze",
    ),
    named("park", PARK, "a task waits until another one is over"),
    named("park-fail", Bounds { fail: true, attempts: 2, ..PARK }, "the same and failed attempts"),
    named("park-crash", Bounds { crash: 1, ..PARK }, "the same and a crash"),
    named("park-live", Bounds { spurious: 1, ..PARK }, "the same and a takeover from a live owner"),
    named("park-giveup", Bounds { giveup: 1, ..PARK }, "the same and publishes of unknown fate"),
    named("park-cancel", Bounds { cancel: 1, ..PARK }, "the same and a cancel request"),
    named("park-keep", Bounds { fences: 1, ..PARK }, "the same and a self-fence"),
    named(
        "park-base",
        Bounds { keys: 1, compact: 2, spurious: 1, ..PARK },
        "the same and claims with a base",
    ),
    named("park-seal", Bounds { seal: true, ..PARK }, "the same and seals"),
    named(
        "park-seal-crash",
        Bounds { seal: true, crash: 1, ..PARK },
        "the same, seals and a crash",
    ),
    named("offer", Bounds { offers: 2, redeliver: 1, ..OFFER }, "holders offer tasks to anybody"),
    named("offer-crash", Bounds { crash: 1, ..OFFER }, "the same and a crash"),
    named(
        "offer-fail",
        Bounds { fail: true, spurious: 1, ..OFFER },
        "the same, failed attempts and a takeover from a live owner",
    ),
    named("offer-giveup", Bounds { giveup: 1, ..OFFER }, "the same and publishes of unknown fate"),
    named("offer-cancel", Bounds { cancel: 1, ..OFFER }, "the same and a cancel request"),
    named("offer-keep", Bounds { fences: 1, ..OFFER }, "the same and a self-fence"),
    named("offer-seal", Bounds { offers: 1, ..SEAL }, "offers, seals and forgotten acks"),
    named("offer-park", Bounds { offers: 1, ..PARK }, "offers of tasks that wait for others"),
    named("md", MARKED, "acks are forgotten"),
    named("md-crash", Bounds { crash: 1, redeliver: 0, ..MARKED }, "the same and a crash"),
    named(
        "md-freeze",
        Bounds { freeze: 1, thaw: 1, redeliver: 0, ..MARKED },
        "the same and a freeze",
    ),
    named(
        "md-2t",
        Bounds { tasks: 2, attempts: 1, redeliver: 0, compact: 0, ..MARKED },
        "two tasks, acks with a gap",
    ),
    named(
        "md-batch",
        Bounds { tasks: 2, batch: true, attempts: 1, redeliver: 0, compact: 0, ..MARKED },
        "two tasks in one batch",
    ),
    named("keep", KEEP, "a self-fence keeps running attempts"),
    named("keep-fail", Bounds { fail: true, spurious: 0, ..KEEP }, "the same and failed attempts"),
    named(
        "keep-twice",
        Bounds { fences: 2, spurious: 0, compact: 0, attempts: 1, ..KEEP },
        "fenced twice",
    ),
    named(
        "keep-cancel",
        Bounds { cancel: 1, spurious: 0, ..KEEP },
        "a self-fence and a cancel request",
    ),
    named(
        "keep-drain",
        Bounds { drain: 1, spurious: 0, attempts: 1, ..KEEP },
        "a self-fence and a drain",
    ),
    named("keep-crash", Bounds { crash: 1, ..KEEP }, "a self-fence and a crash"),
    named("keep-freeze", Bounds { freeze: 1, thaw: 1, ..KEEP }, "a self-fence and a freeze"),
    named(
        "keep-giveup",
        Bounds { giveup: 1, attempts: 1, spurious: 0, compact: 0, ..KEEP },
        "a self-fence and publishes of unknown fate",
    ),
    named(
        "keep-2t",
        Bounds { tasks: 2, attempts: 1, compact: 0, spurious: 0, hang: true, ..KEEP },
        "two tasks, one never ends",
    ),
    named("dlq", LETTER, "dead letter, view, ack, by whoever acknowledges"),
    named("dlq-crash", Bounds { crash: 1, redeliver: 0, ..LETTER }, "the same and a crash"),
    named(
        "dlq-freeze",
        Bounds { freeze: 1, thaw: 1, redeliver: 0, ..LETTER },
        "the same and a freeze",
    ),
    named(
        "dlq-trim",
        Bounds { fetch: true, freeze: 1, thaw: 0, redeliver: 0, ..LETTER },
        "the same, and the payload may be gone",
    ),
    named(
        "dlq-expired",
        Bounds { expires: true, letters: true, ..LETTER },
        "an expired task gets a dead letter, too",
    ),
    named("operate", OPERATE, "an operator deletes, fails or releases a task"),
    named(
        "operate-untimely",
        Bounds { timely: false, ..OPERATE },
        "the same, also before a live owner has read its claim",
    ),
    named("operate-twice", Bounds { operate: 2, crash: 0, ..OPERATE }, "two operators do"),
    named(
        "operate-letter",
        Bounds { operate: 1, redeliver: 0, ..LETTER },
        "an operator, and dead letters",
    ),
    named(
        "operate-seal",
        Bounds { operate: 1, redeliver: 0, attempts: 1, ..SEAL },
        "an operator, and seals",
    ),
    named(
        "operate-keep",
        Bounds { operate: 1, spurious: 0, ..KEEP },
        "an operator, and a self-fence",
    ),
    named(
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
    named("order", ORDER, "two tasks of one key, in order"),
    named("everything", ALL, "all that can go wrong, for random walks"),
    named("everything-batch", Bounds { batch: true, ..ALL }, "the same with a batch"),
    named(
        "amended",
        Bounds { fences: 1, freeze: 1, thaw: 1, seal: true, merges: 1, ..LETTER },
        "everything together",
    ),
];

const fn named(name: &'static str, bounds: Bounds, about: &'static str) -> Scenario {
    Scenario { name, bounds, about }
}

/// Finds a scenario by `name` or `name:field=value,…`.
///
/// # Errors
/// If there is no such scenario or field.
pub fn find(text: &str) -> Result<Scenario, UnknownField> {
    let (name, fields) = text.split_once(':').unwrap_or((text, ""));
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
    let scenario = scenario.ok_or_else(|| UnknownField(name.to_owned()))?;
    Ok(Scenario { bounds: set_fields(scenario.bounds, fields)?, ..*scenario })
}
