"""What the gateway takes and answers, as its OpenAPI document says. Made by `cargo xtask client-types`: do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

# An instant: in ms since the epoch, or a text such as `2026-11-22T09:30:00Z`. It is written as the first.
Instant = int

# A duration: a text such as `30s`, `1h 30m`, `7d` or `PT1H30M`, or a number of seconds. A day has 24 hours. It is written in the form `PT1H30M`.
Length = str

# What happens at a slot while a task of an earlier one is not over.
Overlap = Literal["skip", "buffer_one", "cancel_other", "allow_all"]

# Which tasks go first.
Priority = Literal["high", "normal", "low"]

# In which order the tasks of a queue are run.
QueueOrder = Literal["key"]

# How a task stands that is leased.
ReportStatus = Literal["IN_PROGRESS", "SUCCEEDED", "FAILED", "RELEASED"]


class _Action(TypedDict):
    # `delete`, `force-fail`, `force-release`, `supersede`, `cancel` or `kill`; of its dead letter `replay`, `purge` or `expire`; of a worker `drain`.
    action: str
    at: int
    operator: str
    reason: str


class Action(_Action, total=False):
    """What somebody has done to a task, or to a worker."""

    # The task that came of a replay.
    replay: str | None
    # Absent where it was done to a worker.
    task: str | None
    # The worker that was drained.
    worker: str | None


class ActionList(TypedDict):
    """Who has acted upon tasks and workers, the oldest action first."""

    actions: list[Action]
    # Now, by the gateway's clock.
    now: int


class _Counts(TypedDict):
    # By status; a status without tasks is left out.
    by_status: dict[str, int]
    # How many want a worker now: what an autoscaler goes by.
    demand: int
    # Now, by the gateway's clock.
    now: int
    # All together.
    total: int


class Counts(_Counts, total=False):
    """How many tasks there are."""

    # The task that has been ready for the longest time.
    oldest_ready: OldestReady | None


class CreatedQueue(TypedDict):
    """A queue that was made, or was there."""

    name: str
    # Now, by the gateway's clock.
    now: int
    # What was done; empty if everything was right already.
    steps: list[str]


class _DeadLetter(TypedDict):
    at: int
    attempts: int
    payload_bytes: int
    properties: dict[str, str]
    queue: str
    reason: str
    task: str


class DeadLetter(_DeadLetter, total=False):
    """A task that failed for good."""

    detail: str | None
    # The payload is hidden from whoever asks.
    hidden: bool
    key: str | None
    # The payload; left out of lists.
    payload_base64: str | None
    replay_of: str | None
    tags: list[str]
    type: str | None


class _DeadLetterList(TypedDict):
    dead_letters: list[DeadLetter]
    # Now, by the gateway's clock.
    now: int


class DeadLetterList(_DeadLetterList, total=False):
    """Some of the dead letters that were asked for."""

    # What the next page comes after (`after`); absent when there is none.
    next: str | None


class DeadLetterSettings(TypedDict, total=False):
    """What becomes of tasks that failed for good."""

    # Whether a dead letter is kept; yes if it is not said.
    enabled: bool | None
    # Whether a task that expired gets one; no if it is not said.
    expired: bool | None
    # How many are kept: the oldest ones go first.
    max_size: int | None
    # How long they are kept.
    retention: Length | None


class DeadSelection(TypedDict, total=False):
    """Which dead letters, and why something is done with them."""

    # All of the queue, where nothing else says which: a request that says nothing is refused.
    all: bool
    # Letters whose reason contains this text.
    failed_with: str | None
    key: str | None
    # Why it is done; up to 1,000 bytes.
    reason: str
    # Letters with all of these tags.
    tag: list[str]
    # Ids of tasks; if there are any, what follows is not looked at. Up to 100.
    tasks: list[str]
    type: str | None


class Firing(TypedDict):
    """A slot that was settled."""

    slot: Instant
    # The task that came of it, or was in its way.
    task: str


class ForceReason(TypedDict, total=False):
    """Why, and in which epoch of the task."""

    # The epoch that was seen; in another one nothing is done (`stale_epoch`). Without it: whichever it is in.
    epoch: int | None
    # Up to 1,000 bytes.
    reason: str


class History(TypedDict):
    """What happened to a task, as far as its entries are still there."""

    entries: list[HistoryEntry]
    # Whether its first entries are still there.
    is_whole: bool
    # Now, by the gateway's clock.
    now: int
    # When nothing was heard of who held it, although heartbeats were due.
    silences: list[HolderSilence]
    task: str


class _HistoryEntry(TypedDict):
    # When it was published, by the clock of its publisher.
    at: int
    # `claimed`, `leased`, `renewed`, `closed`, `completed`, `failed`, `ended`, `released`, `parked`, `offered`, `checkpoint`, `cancel_requested`,
    # `sealed`, `shown` or `evicted`.
    event: str


class HistoryEntry(_HistoryEntry, total=False):
    """One entry about a task."""

    attempt: int | None
    bytes: int | None
    epoch: int | None
    # Why it changes nothing: `not_next`, `attempt_not_above`, `task_ended`, `replaced`, `not_running`, `sealed`, `late` or `unknown`.
    ignored: str | None
    # The silence after which the lease may be ended.
    lease_time: Length | None
    # What the worker calls itself that has leased the attempt.
    leased_to: str | None
    # When the next attempt is due.
    next_attempt_at: int | None
    # Who did it from outside.
    operator: str | None
    # `failed`, `cancelled` or `expired`.
    outcome: str | None
    reason: str | None
    state: str | None
    waits_for: list[str]
    worker: WorkerIdentity | None


class _HolderSilence(TypedDict):
    # The epoch of the holder.
    epoch: int
    # How often something was due: the heartbeat interval, or the lease time.
    every: Length
    # How many heartbeats are missing; of a lease, how many times its lease time has passed.
    missed: int
    # When anything was heard of it last.
    since: int


class HolderSilence(_HolderSilence, total=False):
    """A time in which nothing was heard of who held the task, although heartbeats were due."""

    # When it was heard of again, or held the task no longer; absent while the silence lasts.
    until: int | None
    worker: WorkerIdentity | None


class KeepAlive(TypedDict, total=False):
    """That the holder of a lease is alive, and what it has to say."""

    # What the next attempt is to find: up to 64 KiB.
    checkpoint_base64: str | None
    # The silence after which the lease ends from now on; as before, if it is not said.
    lease_time: Length | None
    # Lines for whoever watches.
    log: list[str]
    progress: LeaseProgress | None


class _Lease(TypedDict):
    # From 1.
    attempt: int
    # Grows with each lease of the task.
    epoch: int
    # When that will be, by the gateway's clock.
    expires_at: Instant
    # Names the lease in reports. Whoever has it may report: it is a secret of its holder.
    lease: str
    # The silence after which the lease ends.
    lease_time: Length
    max_attempts: int
    properties: dict[str, str]
    task: str


class Lease(_Lease, total=False):
    """A task that is leased."""

    # How long the attempt may take in all, whatever is heard of it.
    budget: Length | None
    # What the attempt before has left for this one.
    checkpoint_base64: str | None
    # The payload, where it is text.
    payload: str | None
    # The payload, where it is not.
    payload_base64: str | None
    type: str | None


class LeaseHolder(TypedDict):
    """Who works on a task."""

    attempt: int
    epoch: int
    expires_at: Instant
    lease_time: Length
    # Now, by the gateway's clock.
    now: int
    task: str
    worker: str


class _LeaseProgress(TypedDict):
    done: int


class LeaseProgress(_LeaseProgress, total=False):
    """How far the work has come, in units of your own."""

    message: str
    total: int


class _LeaseRequest(TypedDict):
    # What the worker is called: 1 to 256 bytes. It is shown, and need not be unique.
    worker: str


class LeaseRequest(_LeaseRequest, total=False):
    """Who asks for tasks, and for how many."""

    # So many at most, 1 to 100; one, if it is not said.
    count: int | None
    # The silence after which these leases end, 100 ms to 7 days; 30 s, if it is not said.
    lease_time: Length | None
    # Tasks of these types only, 1 to 16 of them, each of 1 to 128 bytes; of any type, and also those that have none, if it is not said.
    types: list[str] | None
    # Waits so long for the first one, up to 30 s; not at all, if it is not said.
    wait: Length | None


class Leases(TypedDict):
    """What was leased."""

    leases: list[Lease]
    # Now, by the gateway's clock.
    now: int


class Limit(TypedDict, total=False):
    """How many tasks run at once, and how many begin in a time."""

    max_in_flight: int | None
    rate: Rate | None


class NewQueue(TypedDict, total=False):
    """How a queue is to be made. What it does not say is left as it is."""

    # How long a finished task stays in the ledger; an hour if it is not said.
    ledger_retention: Length | None
    # With topics for tasks of high and of low priority.
    levels: bool
    # Partitions of its topics; a new queue has none if it is not said. They can be raised.
    partitions: int | None


class NewSchedule(TypedDict):
    """A new schedule."""

    schedule: Schedule
    task: NewTask


class NewTask(TypedDict, total=False):
    """A task. It has its payload in one of `payload`, `payload_base64` and `payload_json`."""

    # Ids of tasks of this queue that must be over first.
    after: list[str]
    # Of all tasks with this key that are not over one is run.
    dedupe_key: str | None
    # It does not start before so long from now.
    delay: Length | None
    # No attempt begins after this instant.
    expires_at: Instant | None
    # Of all tasks with this key one is run, and each submit with it answers with that one. Also by the header `Idempotency-Key`.
    idempotency_key: str | None
    # What you call it. Up to 256 bytes.
    key: str | None
    # The limits of this key in the settings of the queue apply.
    limit_key: str | None
    # 1 to 1,000.
    max_attempts: int | None
    # The longest that an attempt may take.
    max_duration: Length | None
    # The longest that the task may take, over all attempts.
    max_total_duration: Length | None
    # An attempt that reports nothing for so long has failed.
    no_progress_timeout: Length | None
    # On a queue with an order: of all tasks with this key one is run at a time, in the order in which they were submitted.
    order_key: str | None
    # With a dedupe key: the task takes the place of the one that holds it.
    overwrite: bool
    # The payload, as text.
    payload: str | None
    # The payload, in base64.
    payload_base64: str | None
    # The payload, as JSON of any kind.
    payload_json: Any
    # `high`, `normal` or `low`.
    priority: Priority
    # Properties of your own, which the worker gets.
    properties: dict[str, str]
    retry: Retry | None
    # It does not start before this instant; one that has passed means now.
    scheduled_at: Instant | None
    # With a key: another payload under the same key is an error (`key_conflict`).
    strict: bool
    # Words to find it by: up to 16 of up to 64 bytes.
    tags: list[str]
    # What kind of task it is: workers may ask for some types only. Up to 128 bytes.
    type: str | None


class NewTasks(TypedDict):
    """Tasks that are submitted together."""

    # Up to 1,000; they are stored in this order as a rule. An entry that cannot be read is told in its place, and the others are submitted.
    tasks: list[NewTask]


class OldestReady(TypedDict):
    """The task that has been ready for the longest time."""

    id: str
    # Since when, in ms since the epoch.
    since: int


class Outcome(TypedDict, total=False):
    """What became of an entry: its id, or why there is none."""

    error: Problem | None
    id: str | None


class _Problem(TypedDict):
    # What kind of problem it is, for machines: it does not change.
    code: str
    # What happened, and what to do.
    detail: str
    # The same as the status of the answer.
    status: int
    # The status in words.
    title: str


class Problem(_Problem, total=False):
    """An error, as it is answered."""

    # The epoch that the task is in, where another one was named.
    current_epoch: int | None
    # The version that stands, where another one was expected.
    current_version: int | None
    # After how many seconds to try again.
    retry_after: int | None
    # The task that is meant.
    task: str | None


class _Progress(TypedDict):
    done: int
    # Zero when unknown.
    total: int


class Progress(_Progress, total=False):
    """How far a task has come, in units of its own."""

    message: str


class Purge(TypedDict, total=False):
    """Which tasks are to be deleted, and why."""

    # All of the queue, where nothing else says which: a request that says nothing is refused.
    all: bool
    # Up to 1,000 bytes.
    reason: str
    # Statuses: tasks with any of them.
    status: list[str]
    # Tags: tasks with all of them.
    tag: list[str]
    type: str | None


class Purged(TypedDict):
    """What became of a purge."""

    deleted: int
    # Tasks that ended meanwhile, or could not be deleted.
    failed: int
    # Now, by the gateway's clock.
    now: int


class _PurgedLetters(TypedDict):
    # Now, by the gateway's clock.
    now: int
    purged: int


class PurgedLetters(_PurgedLetters, total=False):
    """What became of a purge."""

    # Of the tasks that were named, those that have no dead letter: it was purged or replayed, or never was.
    not_found: list[str]


class QueueBody(TypedDict):
    """A queue."""

    # It has tasks of high and of low priority as well.
    levels: bool
    name: str
    # Now, by the gateway's clock.
    now: int
    settings: QueueSettings
    # Counts the changes of its settings.
    version: int


class QueueList(TypedDict):
    """The queues of the gateway's namespace that the caller may use, by name."""

    # Now, by the gateway's clock.
    now: int
    queues: list[str]


class QueueSettings(TypedDict, total=False):
    """Limits that hold over all workers of a queue, and what applies to tasks that do not say it."""

    dead_letters: DeadLetterSettings | None
    # No attempt of a task begins later than so long after it was submitted.
    expires_after: Length | None
    # For the tasks of these limit keys.
    keys: dict[str, Limit]
    max_attempts: int | None
    # So many run at once.
    max_in_flight: int | None
    no_progress_timeout: Length | None
    # In which order its tasks are run; in none if it is not said.
    order: QueueOrder | None
    # No task begins while this is so.
    paused: bool
    # For the tasks of each limit key that has no limit of its own.
    per_key: Limit | None
    # So many begin in a time.
    rate: Rate | None
    retry: Retry | None


class QueueUpdate(TypedDict):
    """Other settings for a queue."""

    # The version that was seen; if another one stands nothing is changed (`version_conflict`).
    expected_version: int
    # All of them: what is missing is not set any more.
    settings: QueueSettings


class QueueVersion(TypedDict):
    """The version of the settings that stands."""

    # Now, by the gateway's clock.
    now: int
    version: int


class _QueueWorker(TypedDict):
    # How many heartbeats were due since the last one, by the gateway's clock; one that is late by less than half an interval is not counted. Others
    # take over what it runs when it is silent for two intervals, so at the latest when this is 2.
    missed_heartbeats: int
    owner: str
    partition: int
    # The tasks that it runs.
    running: list[str]


class QueueWorker(_QueueWorker, total=False):
    """A worker on one partition of a queue."""

    # By its own clock.
    last_heartbeat_at: int | None
    worker: WorkerIdentity | None


class Rate(TypedDict):
    """A token bucket: each task that begins takes a token."""

    # How long an empty bucket takes to fill.
    per: Length
    tokens: int


class Reason(TypedDict, total=False):
    """Why something is done."""

    # Up to 1,000 bytes; it is logged, and shown where the task shows why it ended.
    reason: str


class _Replay(TypedDict):
    # `RESTARTED`, `NOT_FOUND`, `NOT_DEAD`, `DEDUPE_CONFLICT` or `NO_PAYLOAD`.
    outcome: str
    task: str


class Replay(_Replay, total=False):
    """What became of a replay."""

    # The task that runs it once more, or the one that has the dedupe key.
    other: str | None


class ReplayList(TypedDict):
    """What became of each replay."""

    # Now, by the gateway's clock.
    now: int
    outcomes: list[Replay]


class _Report(TypedDict):
    status: ReportStatus


class Report(_Report, total=False):
    """What is reported of a lease."""

    # Of a task that is given back: when it may be tried again.
    after: Length | None
    # What the next attempt is to find: up to 64 KiB.
    checkpoint_base64: str | None
    # Of a failure: the task is not tried again.
    fatal: bool
    # The lease, unless the path names it.
    lease: str | None
    # The silence after which the lease ends from now on.
    lease_time: Length | None
    # Lines for whoever watches.
    log: list[str]
    progress: LeaseProgress | None
    # Of a failure: why.
    reason: str | None
    # Of a success: the result, as text. It may have a megabyte.
    result: str | None
    # Of a success: the result, in base64.
    result_base64: str | None
    # Of a success: the result, as JSON of any kind.
    result_json: Any
    # Of a failure: when it is tried again, instead of by the backoff.
    retry_after: Length | None


class _ReportOutcome(TypedDict):
    # `RESULT_OK`: it counts. `NOT_FOUND`: there is no such task. `NOT_IN_PROGRESS`: the lease has expired, or the task is over. `STALE_ATTEMPT`:
    # somebody else has the task. `REJECTED`: the report cannot be used. `UNKNOWN`: it may count or not; report it again.
    outcome: str


class ReportOutcome(_ReportOutcome, total=False):
    """What became of a report."""

    error: Problem | None
    lease: Reported | None


class ReportOutcomes(TypedDict):
    """What became of the reports of a batch, in their order."""

    # Now, by the gateway's clock.
    now: int
    outcomes: list[ReportOutcome]


class _Reported(TypedDict):
    # Somebody has asked for the end of the task: stop, and report anything.
    cancelled: bool
    # Now, by the gateway's clock.
    now: int


class Reported(_Reported, total=False):
    """How a lease stands after a report."""

    # Whether the checkpoint of this report is stored, where it brought one; if not, send it again with the next one.
    checkpoint_stored: bool | None
    # When that will be, by the gateway's clock.
    expires_at: Instant | None
    # The silence after which it ends; absent when it is over.
    lease_time: Length | None


class Reports(TypedDict):
    """Reports on several leases."""

    # Up to 100, one for each lease: several for one lease may count in any order. One that cannot be read is told in its place, and the others count.
    reports: list[Report]


class Restarted(TypedDict):
    """A task that runs another one once more."""

    # The new task.
    id: str
    # Now, by the gateway's clock.
    now: int


class Retry(TypedDict, total=False):
    """How long a task waits between its attempts: a random time below a ceiling that doubles from `base` to `max`; or the intervals, which make one
    attempt more than there are intervals."""

    base: Length | None
    intervals: list[Length]
    max: Length | None


class Schedule(TypedDict, total=False):
    """When a schedule fires: by `cron`, `every` or `at`."""

    # One instant.
    at: Instant | None
    # Slots that passed while nobody fired them are made up for if they are not older.
    catch_up_window: Length | None
    # A cron expression of 5 to 7 fields.
    cron: str | None
    # An interval.
    every: Length | None
    # How far the slots of an interval lie behind the epoch's.
    offset: Length | None
    # What happens at a slot while a task of an earlier one is not over.
    overlap: Overlap
    # It fires only by hand.
    paused: bool
    # The time zone of the expression, such as `Europe/Berlin`.
    time_zone: str | None


class _ScheduleBody(TypedDict):
    name: str
    # Its next slots, up to ten.
    next: list[Instant]
    # Now, by the gateway's clock.
    now: int
    schedule: Schedule
    version: int


class ScheduleBody(_ScheduleBody, total=False):
    """A schedule, and how it stands."""

    # The slot that was settled last.
    last: Firing | None


class ScheduleList(TypedDict):
    """The schedules of a queue, by name."""

    # Now, by the gateway's clock.
    now: int
    schedules: list[ScheduleBody]


class _ScheduleUpdate(TypedDict):
    # The version that was seen; if another one stands nothing is changed (`version_conflict`).
    expected_version: int


class ScheduleUpdate(_ScheduleUpdate, total=False):
    """Other times, or another task, for a schedule."""

    # `schedule` or `task`, not both.
    schedule: Schedule | None
    task: NewTask | None


class ScheduleVersion(TypedDict):
    """The version of a schedule that stands."""

    # Now, by the gateway's clock.
    now: int
    version: int


class Series(TypedDict):
    """How a queue fared, by steps of equal length, the oldest first. The last one is the current one, which is not over yet. Tasks count as long as
    they are shown."""

    # Now, by the gateway's clock.
    now: int
    step_ms: int
    steps: list[SeriesStep]


class _SeriesStep(TypedDict):
    # When it began, in ms since the epoch.
    at: int
    completed: int
    # Failed for good, cancelled or expired.
    not_completed: int
    submitted: int


class SeriesStep(_SeriesStep, total=False):
    """What happened in the time of a step."""

    # From submission to end, of half of those that completed at most.
    latency_p50_ms: int | None
    # The same for 95 of 100.
    latency_p95_ms: int | None


class Submitted(TypedDict):
    """A task that was submitted."""

    # Its id in the queue; under a key that another task has, the id of that one.
    id: str
    # Now, by the gateway's clock.
    now: int


class SubmittedTasks(TypedDict):
    """What became of the tasks of a batch, in their order."""

    # Now, by the gateway's clock.
    now: int
    outcomes: list[Outcome]


class _Task(TypedDict):
    # Attempts so far, the running one included.
    attempts: int
    # Somebody asked for its end.
    cancel_requested: bool
    # Its id in the queue.
    id: str
    # Now, by the gateway's clock.
    now: int
    # The queue.
    queue: str
    # `scheduled`, `ready`, `waiting`, `claimed`, `running`, `retrying`, `completed`, `failed`, `cancelled`, `expired` or `ended`.
    status: str


class Task(_Task, total=False):
    """A task. Times are in ms since the epoch."""

    # When its state changed last.
    changed_at: int | None
    # The codec that its payload and its result are encoded by, as far as a worker has said so.
    codec: str | None
    # When it was submitted.
    created_at: int | None
    # Before when it does not start: its scheduled time, or that of its next attempt.
    due_at: int | None
    # The task that holds the key of this one, which never ran.
    duplicate_of: str | None
    # How often it has changed hands: what force-fail and force-release name.
    epoch: int | None
    # Its payload and its result are hidden from whoever asks.
    hidden: bool
    # What its submitter calls it.
    key: str | None
    # What the attempt has logged last.
    log: list[str]
    progress: Progress | None
    # Why the last attempt failed, or the task ended; in a list its first 200 characters.
    reason: str | None
    # How many bytes its result has: GET …/result.
    result_bytes: int | None
    # The task that has taken the place of this one.
    superseded_by: str | None
    tags: list[str]
    type: str | None
    # The tasks that it waits for.
    waits_for: list[str]
    # Something that whoever looks should know.
    warning: str | None
    # Who runs it, or ran it last.
    worker: WorkerIdentity | None


class _TaskList(TypedDict):
    # Now, by the gateway's clock.
    now: int
    tasks: list[Task]


class TaskList(_TaskList, total=False):
    """Some of the tasks that were asked for."""

    # What the next page comes after (`after`); absent when there is none.
    next: str | None


class ToldToDrain(TypedDict):
    """Who was told to drain."""

    # Now, by the gateway's clock.
    now: int
    worker: WorkerIdentity


class WorkerIdentity(TypedDict, total=False):
    """A worker, as it calls itself."""

    # It grants leases, as a gateway does.
    grants_leases: bool
    host: str
    # Drawn anew at each start, whatever its name is.
    instance: str
    label: str
    name: str
    process: int | None
    version: str


class WorkerList(TypedDict):
    """The workers of a queue."""

    # Now, by the gateway's clock.
    now: int
    workers: list[QueueWorker]
