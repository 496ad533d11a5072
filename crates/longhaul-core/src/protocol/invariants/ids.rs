//! The numbers of the invariants.

/// Any compaction of a ledger folds to what the ledger folds to.
pub const COMPACTION: &str = "C-01";
/// No write-once key is used by two publishes.
pub const KEYS: &str = "C-02";
/// An epoch of a task has one owner, over all incarnations, ever.
pub const OWNER: &str = "C-03";
/// A processor starts only inside its own accepted claim, once per epoch, at most `max_attempts`
/// times; an attempt number starts again only after it was released.
pub const START: &str = "C-04";
/// A terminal state is absorbing: no follower sees another one, and nothing starts after it.
pub const TERMINAL: &str = "C-05";
/// An ack follows an accepted terminal, and every fresh bootstrap shows that terminal, or a seal of
/// the task.
pub const ACK: &str = "C-06";
/// Followers at equal positions are equal.
pub const FOLLOWERS: &str = "C-07";
/// From every state all tasks can still become terminal and acknowledged.
pub const PROGRESS: &str = "C-08";
/// An accepted own claim that nothing runs is released.
pub const ORPHAN: &str = "C-09";
/// The metadata topic shows an outcome only if the ledger does, and does so before the ack.
pub const VIEW: &str = "C-10";
/// A cancel that was read before the own claim keeps it from starting.
pub const CANCEL: &str = "C-11";
/// Only one of the messages with the same idempotency key is run, and every answer names it.
pub const BINDING: &str = "C-12";
/// Reading the ledger again from its start changes nothing.
pub const REREAD: &str = "C-13";
/// With a broker that keeps both copies of a resent entry the violation of C-01 is found.
pub const RESEND: &str = "C-14";
/// No attempt starts after a seal of the task was stored.
pub const SEALED: &str = "C-15";
/// Without a delivery a worker claims only a RUNNING or RETRY task whose payload was read. It
/// closes a NEW task only if the task was cancelled and its message was read, or to make room for
/// an overwriter.
pub const ADOPTION: &str = "C-16";
/// The tasks of a frozen owner are taken over in time, and those of an owner that can be heard are
/// not.
pub const TAKEOVER: &str = "C-17";
/// A seal names only tasks that are over, dead letter, view and ack included; and none of their
/// keys is tombstoned before it was read.
pub const SEAL: &str = "C-18";
/// With `isolation = lease` no two bodies of a task run at once.
pub const OVERLAP: &str = "C-19";
/// An ack by a worker without the delivery, a second one, and one of a sealed task have no effect.
pub const FOREIGN_ACK: &str = "C-20";
/// A dead letter is stored before the end of its task is shown and acknowledged. Exactly the tasks
/// that failed for good, or that expired where the queue says so, have one, unless the queue has no
/// dead letters.
pub const DEAD_LETTER: &str = "C-21";
/// An outcome is published only for an epoch that the ledger shows as its owner's and running, and
/// only by the worker that has started it; but an attempt that was not started may be given back,
/// or cancelled on request.
pub const OUTCOME: &str = "C-22";
/// No task is claimed before its time: a failed task not before its next attempt is due, and a
/// worker that neither holds it nor ran it last claims it at least 2 heartbeat intervals later.
pub const DUE: &str = "C-23";
/// A task starts only after every task that it waits for is over in the ledger.
pub const AFTER: &str = "C-24";
/// An operator's action on a task ends the epoch that the operator has seen, or has no effect.
pub const OPERATOR: &str = "C-25";
/// At a gate, no more tickets are granted and not given back than its limit allows, for every
/// reader of the register and every start of the read.
pub const LIMIT: &str = "C-26";
/// At most one end of a lease counts, and its holder gets a confirmation of its own end only if
/// that is the one.
pub const LEASE_END: &str = "C-27";
/// A lease ends by a report of its holder, or because nothing of it was read for its time, in a
/// view known to be complete. It goes on if its holder was told so: then that is in the log.
pub const LEASE_SILENCE: &str = "C-28";
/// On a queue with an order a task begins only when the tasks of its order key that were submitted
/// before it are over, except for those that are not due yet.
pub const ORDER: &str = "C-29";
