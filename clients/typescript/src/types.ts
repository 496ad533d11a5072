/** What the gateway takes and answers, as its OpenAPI document says. Made by `cargo xtask client-types`: do not edit. */

/** What somebody has done to a task, or to a worker. */
export interface Action {
  /** `delete`, `force-fail`, `force-release`, `supersede`, `cancel` or `kill`; of its dead letter `replay`, `purge` or `expire`; of a worker `drain`. */
  action: string;
  at: number;
  operator: string;
  reason: string;
  /** The task that came of a replay. */
  replay?: string | null;
  /** Absent where it was done to a worker. */
  task?: string | null;
  /** The worker that was drained. */
  worker?: string | null;
}

/** Who has acted upon tasks and workers, the oldest action first. */
export interface ActionList {
  actions: Action[];
  /** Now, by the gateway's clock. */
  now: number;
}

/** How many tasks there are. */
export interface Counts {
  /** By status; a status without tasks is left out. */
  by_status: Record<string, number>;
  /** How many want a worker now: what an autoscaler goes by. */
  demand: number;
  /** Now, by the gateway's clock. */
  now: number;
  /** All together. */
  total: number;
  /** The task that has been ready for the longest time. */
  oldest_ready?: OldestReady | null;
}

/** A queue that was made, or was there. */
export interface CreatedQueue {
  name: string;
  /** Now, by the gateway's clock. */
  now: number;
  /** What was done; empty if everything was right already. */
  steps: string[];
}

/** A task that failed for good. */
export interface DeadLetter {
  at: number;
  attempts: number;
  payload_bytes: number;
  properties: Record<string, string>;
  queue: string;
  reason: string;
  task: string;
  detail?: string | null;
  /** The payload is hidden from whoever asks. */
  hidden?: boolean;
  key?: string | null;
  /** The payload; left out of lists. */
  payload_base64?: string | null;
  replay_of?: string | null;
  tags?: string[];
  type?: string | null;
}

/** Some of the dead letters that were asked for. */
export interface DeadLetterList {
  dead_letters: DeadLetter[];
  /** Now, by the gateway's clock. */
  now: number;
  /** What the next page comes after (`after`); absent when there is none. */
  next?: string | null;
}

/** What becomes of tasks that failed for good. */
export interface DeadLetterSettings {
  /** Whether a dead letter is kept; yes if it is not said. */
  enabled?: boolean | null;
  /** Whether a task that expired gets one; no if it is not said. */
  expired?: boolean | null;
  /** How many are kept: the oldest ones go first. */
  max_size?: number | null;
  /** How long they are kept. */
  retention?: Length | null;
}

/** Which dead letters, and why something is done with them. */
export interface DeadSelection {
  /** All of the queue, where nothing else says which: a request that says nothing is refused. */
  all?: boolean;
  /** Letters whose reason contains this text. */
  failed_with?: string | null;
  key?: string | null;
  /** Why it is done; up to 1,000 bytes. */
  reason?: string;
  /** Letters with all of these tags. */
  tag?: string[];
  /** Ids of tasks; if there are any, what follows is not looked at. Up to 100. */
  tasks?: string[];
  type?: string | null;
}

/** A slot that was settled. */
export interface Firing {
  slot: Instant;
  /** The task that came of it, or was in its way. */
  task: string;
}

/** Why, and in which epoch of the task. */
export interface ForceReason {
  /** The epoch that was seen; in another one nothing is done (`stale_epoch`). Without it: whichever it is in. */
  epoch?: number | null;
  /** Up to 1,000 bytes. */
  reason?: string;
}

/** What happened to a task, as far as its entries are still there. */
export interface History {
  entries: HistoryEntry[];
  /** Whether its first entries are still there. */
  is_whole: boolean;
  /** Now, by the gateway's clock. */
  now: number;
  /** When nothing was heard of who held it, although heartbeats were due. */
  silences: HolderSilence[];
  task: string;
}

/** One entry about a task. */
export interface HistoryEntry {
  /** When it was published, by the clock of its publisher. */
  at: number;
  /**
   * `claimed`, `leased`, `renewed`, `closed`, `completed`, `failed`, `ended`, `released`, `parked`, `offered`, `checkpoint`, `cancel_requested`,
   * `sealed`, `shown` or `evicted`.
   */
  event: string;
  attempt?: number | null;
  bytes?: number | null;
  epoch?: number | null;
  /** Why it changes nothing: `not_next`, `attempt_not_above`, `task_ended`, `replaced`, `not_running`, `sealed`, `late` or `unknown`. */
  ignored?: string | null;
  /** The silence after which the lease may be ended. */
  lease_time?: Length | null;
  /** What the worker calls itself that has leased the attempt. */
  leased_to?: string | null;
  /** When the next attempt is due. */
  next_attempt_at?: number | null;
  /** Who did it from outside. */
  operator?: string | null;
  /** `failed`, `cancelled` or `expired`. */
  outcome?: string | null;
  reason?: string | null;
  state?: string | null;
  waits_for?: string[];
  worker?: WorkerIdentity | null;
}

/** A time in which nothing was heard of who held the task, although heartbeats were due. */
export interface HolderSilence {
  /** The epoch of the holder. */
  epoch: number;
  /** How often something was due: the heartbeat interval, or the lease time. */
  every: Length;
  /** How many heartbeats are missing; of a lease, how many times its lease time has passed. */
  missed: number;
  /** When anything was heard of it last. */
  since: number;
  /** When it was heard of again, or held the task no longer; absent while the silence lasts. */
  until?: number | null;
  worker?: WorkerIdentity | null;
}

/** An instant: in ms since the epoch, or a text such as `2026-11-22T09:30:00Z`. It is written as the first. */
export type Instant = number;

/** That the holder of a lease is alive, and what it has to say. */
export interface KeepAlive {
  /** What the next attempt is to find: up to 64 KiB. */
  checkpoint_base64?: string | null;
  /** The silence after which the lease ends from now on; as before, if it is not said. */
  lease_time?: Length | null;
  /** Lines for whoever watches. */
  log?: string[];
  progress?: LeaseProgress | null;
}

/** A task that is leased. */
export interface Lease {
  /** From 1. */
  attempt: number;
  /** Grows with each lease of the task. */
  epoch: number;
  /** When that will be, by the gateway's clock. */
  expires_at: Instant;
  /** Names the lease in reports. Whoever has it may report: it is a secret of its holder. */
  lease: string;
  /** The silence after which the lease ends. */
  lease_time: Length;
  max_attempts: number;
  properties: Record<string, string>;
  task: string;
  /** How long the attempt may take in all, whatever is heard of it. */
  budget?: Length | null;
  /** What the attempt before has left for this one. */
  checkpoint_base64?: string | null;
  /** The payload, where it is text. */
  payload?: string | null;
  /** The payload, where it is not. */
  payload_base64?: string | null;
  type?: string | null;
}

/** Who works on a task. */
export interface LeaseHolder {
  attempt: number;
  epoch: number;
  expires_at: Instant;
  lease_time: Length;
  /** Now, by the gateway's clock. */
  now: number;
  task: string;
  worker: string;
}

/** How far the work has come, in units of your own. */
export interface LeaseProgress {
  done: number;
  message?: string;
  total?: number;
}

/** Who asks for tasks, and for how many. */
export interface LeaseRequest {
  /** What the worker is called: 1 to 256 bytes. It is shown, and need not be unique. */
  worker: string;
  /** So many at most, 1 to 100; one, if it is not said. */
  count?: number | null;
  /** The silence after which these leases end, 100 ms to 7 days; 30 s, if it is not said. */
  lease_time?: Length | null;
  /** Tasks of these types only, 1 to 16 of them, each of 1 to 128 bytes; of any type, and also those that have none, if it is not said. */
  types?: string[] | null;
  /** Waits so long for the first one, up to 30 s; not at all, if it is not said. */
  wait?: Length | null;
}

/** What was leased. */
export interface Leases {
  leases: Lease[];
  /** Now, by the gateway's clock. */
  now: number;
}

/** A duration: a text such as `30s`, `1h 30m`, `7d` or `PT1H30M`, or a number of seconds. A day has 24 hours. It is written in the form `PT1H30M`. */
export type Length = string;

/** How many tasks run at once, and how many begin in a time. */
export interface Limit {
  max_in_flight?: number | null;
  rate?: Rate | null;
}

/** How a queue is to be made. What it does not say is left as it is. */
export interface NewQueue {
  /** How long a finished task stays in the ledger; an hour if it is not said. */
  ledger_retention?: Length | null;
  /** With topics for tasks of high and of low priority. */
  levels?: boolean;
  /** Partitions of its topics; a new queue has none if it is not said. They can be raised. */
  partitions?: number | null;
}

/** A new schedule. */
export interface NewSchedule {
  schedule: Schedule;
  task: NewTask;
}

/** A task. It has its payload in one of `payload`, `payload_base64` and `payload_json`. */
export interface NewTask {
  /** Ids of tasks of this queue that must be over first. */
  after?: string[];
  /** Of all tasks with this key that are not over one is run. */
  dedupe_key?: string | null;
  /** It does not start before so long from now. */
  delay?: Length | null;
  /** No attempt begins after this instant. */
  expires_at?: Instant | null;
  /** Of all tasks with this key one is run, and each submit with it answers with that one. Also by the header `Idempotency-Key`. */
  idempotency_key?: string | null;
  /** What you call it. Up to 256 bytes. */
  key?: string | null;
  /** The limits of this key in the settings of the queue apply. */
  limit_key?: string | null;
  /** 1 to 1,000. */
  max_attempts?: number | null;
  /** The longest that an attempt may take. */
  max_duration?: Length | null;
  /** The longest that the task may take, over all attempts. */
  max_total_duration?: Length | null;
  /** An attempt that reports nothing for so long has failed. */
  no_progress_timeout?: Length | null;
  /** On a queue with an order: of all tasks with this key one is run at a time, in the order in which they were submitted. */
  order_key?: string | null;
  /** With a dedupe key: the task takes the place of the one that holds it. */
  overwrite?: boolean;
  /** The payload, as text. */
  payload?: string | null;
  /** The payload, in base64. */
  payload_base64?: string | null;
  /** The payload, as JSON of any kind. */
  payload_json?: unknown;
  /** `high`, `normal` or `low`. */
  priority?: Priority;
  /** Properties of your own, which the worker gets. */
  properties?: Record<string, string>;
  retry?: Retry | null;
  /** It does not start before this instant; one that has passed means now. */
  scheduled_at?: Instant | null;
  /** With a key: another payload under the same key is an error (`key_conflict`). */
  strict?: boolean;
  /** Words to find it by: up to 16 of up to 64 bytes. */
  tags?: string[];
  /** What kind of task it is: workers may ask for some types only. Up to 128 bytes. */
  type?: string | null;
}

/** Tasks that are submitted together. */
export interface NewTasks {
  /** Up to 1,000; they are stored in this order as a rule. An entry that cannot be read is told in its place, and the others are submitted. */
  tasks: NewTask[];
}

/** The task that has been ready for the longest time. */
export interface OldestReady {
  id: string;
  /** Since when, in ms since the epoch. */
  since: number;
}

/** What became of an entry: its id, or why there is none. */
export interface Outcome {
  error?: Problem | null;
  id?: string | null;
}

/** What happens at a slot while a task of an earlier one is not over. */
export type Overlap = "skip" | "buffer_one" | "cancel_other" | "allow_all";

/** Which tasks go first. */
export type Priority = "high" | "normal" | "low";

/** An error, as it is answered. */
export interface Problem {
  /** What kind of problem it is, for machines: it does not change. */
  code: string;
  /** What happened, and what to do. */
  detail: string;
  /** The same as the status of the answer. */
  status: number;
  /** The status in words. */
  title: string;
  /** The epoch that the task is in, where another one was named. */
  current_epoch?: number | null;
  /** The version that stands, where another one was expected. */
  current_version?: number | null;
  /** After how many seconds to try again. */
  retry_after?: number | null;
  /** The task that is meant. */
  task?: string | null;
}

/** How far a task has come, in units of its own. */
export interface Progress {
  done: number;
  /** Zero when unknown. */
  total: number;
  message?: string;
}

/** Which tasks are to be deleted, and why. */
export interface Purge {
  /** All of the queue, where nothing else says which: a request that says nothing is refused. */
  all?: boolean;
  /** Up to 1,000 bytes. */
  reason?: string;
  /** Statuses: tasks with any of them. */
  status?: string[];
  /** Tags: tasks with all of them. */
  tag?: string[];
  type?: string | null;
}

/** What became of a purge. */
export interface Purged {
  deleted: number;
  /** Tasks that ended meanwhile, or could not be deleted. */
  failed: number;
  /** Now, by the gateway's clock. */
  now: number;
}

/** What became of a purge. */
export interface PurgedLetters {
  /** Now, by the gateway's clock. */
  now: number;
  purged: number;
  /** Of the tasks that were named, those that have no dead letter: it was purged or replayed, or never was. */
  not_found?: string[];
}

/** A queue. */
export interface QueueBody {
  /** It has tasks of high and of low priority as well. */
  levels: boolean;
  name: string;
  /** Now, by the gateway's clock. */
  now: number;
  settings: QueueSettings;
  /** Counts the changes of its settings. */
  version: number;
}

/** The queues of the gateway's namespace that the caller may use, by name. */
export interface QueueList {
  /** Now, by the gateway's clock. */
  now: number;
  queues: string[];
}

/** In which order the tasks of a queue are run. */
export type QueueOrder = "key";

/** Limits that hold over all workers of a queue, and what applies to tasks that do not say it. */
export interface QueueSettings {
  dead_letters?: DeadLetterSettings | null;
  /** No attempt of a task begins later than so long after it was submitted. */
  expires_after?: Length | null;
  /** For the tasks of these limit keys. */
  keys?: Record<string, Limit>;
  max_attempts?: number | null;
  /** So many run at once. */
  max_in_flight?: number | null;
  no_progress_timeout?: Length | null;
  /** In which order its tasks are run; in none if it is not said. */
  order?: QueueOrder | null;
  /** No task begins while this is so. */
  paused?: boolean;
  /** For the tasks of each limit key that has no limit of its own. */
  per_key?: Limit | null;
  /** So many begin in a time. */
  rate?: Rate | null;
  retry?: Retry | null;
}

/** Other settings for a queue. */
export interface QueueUpdate {
  /** The version that was seen; if another one stands nothing is changed (`version_conflict`). */
  expected_version: number;
  /** All of them: what is missing is not set any more. */
  settings: QueueSettings;
}

/** The version of the settings that stands. */
export interface QueueVersion {
  /** Now, by the gateway's clock. */
  now: number;
  version: number;
}

/** A worker on one partition of a queue. */
export interface QueueWorker {
  /**
   * How many heartbeats were due since the last one, by the gateway's clock; one that is late by less than half an interval is not counted. Others
   * take over what it runs when it is silent for two intervals, so at the latest when this is 2.
   */
  missed_heartbeats: number;
  owner: string;
  partition: number;
  /** The tasks that it runs. */
  running: string[];
  /** By its own clock. */
  last_heartbeat_at?: number | null;
  worker?: WorkerIdentity | null;
}

/** A token bucket: each task that begins takes a token. */
export interface Rate {
  /** How long an empty bucket takes to fill. */
  per: Length;
  tokens: number;
}

/** Why something is done. */
export interface Reason {
  /** Up to 1,000 bytes; it is logged, and shown where the task shows why it ended. */
  reason?: string;
}

/** What became of a replay. */
export interface Replay {
  /** `RESTARTED`, `NOT_FOUND`, `NOT_DEAD`, `DEDUPE_CONFLICT` or `NO_PAYLOAD`. */
  outcome: string;
  task: string;
  /** The task that runs it once more, or the one that has the dedupe key. */
  other?: string | null;
}

/** What became of each replay. */
export interface ReplayList {
  /** Now, by the gateway's clock. */
  now: number;
  outcomes: Replay[];
}

/** What is reported of a lease. */
export interface Report {
  status: ReportStatus;
  /** Of a task that is given back: when it may be tried again. */
  after?: Length | null;
  /** What the next attempt is to find: up to 64 KiB. */
  checkpoint_base64?: string | null;
  /** Of a failure: the task is not tried again. */
  fatal?: boolean;
  /** The lease, unless the path names it. */
  lease?: string | null;
  /** The silence after which the lease ends from now on. */
  lease_time?: Length | null;
  /** Lines for whoever watches. */
  log?: string[];
  progress?: LeaseProgress | null;
  /** Of a failure: why. */
  reason?: string | null;
  /** Of a success: the result, as text. It may have a megabyte. */
  result?: string | null;
  /** Of a success: the result, in base64. */
  result_base64?: string | null;
  /** Of a success: the result, as JSON of any kind. */
  result_json?: unknown;
  /** Of a failure: when it is tried again, instead of by the backoff. */
  retry_after?: Length | null;
}

/** What became of a report. */
export interface ReportOutcome {
  /**
   * `RESULT_OK`: it counts. `NOT_FOUND`: there is no such task. `NOT_IN_PROGRESS`: the lease has expired, or the task is over. `STALE_ATTEMPT`:
   * somebody else has the task. `REJECTED`: the report cannot be used. `UNKNOWN`: it may count or not; report it again.
   */
  outcome: string;
  error?: Problem | null;
  lease?: Reported | null;
}

/** What became of the reports of a batch, in their order. */
export interface ReportOutcomes {
  /** Now, by the gateway's clock. */
  now: number;
  outcomes: ReportOutcome[];
}

/** How a task stands that is leased. */
export type ReportStatus = "IN_PROGRESS" | "SUCCEEDED" | "FAILED" | "RELEASED";

/** How a lease stands after a report. */
export interface Reported {
  /** Somebody has asked for the end of the task: stop, and report anything. */
  cancelled: boolean;
  /** Now, by the gateway's clock. */
  now: number;
  /** Whether the checkpoint of this report is stored, where it brought one; if not, send it again with the next one. */
  checkpoint_stored?: boolean | null;
  /** When that will be, by the gateway's clock. */
  expires_at?: Instant | null;
  /** The silence after which it ends; absent when it is over. */
  lease_time?: Length | null;
}

/** Reports on several leases. */
export interface Reports {
  /** Up to 100, one for each lease: several for one lease may count in any order. One that cannot be read is told in its place, and the others count. */
  reports: Report[];
}

/** A task that runs another one once more. */
export interface Restarted {
  /** The new task. */
  id: string;
  /** Now, by the gateway's clock. */
  now: number;
}

/**
 * How long a task waits between its attempts: a random time below a ceiling that doubles from `base` to `max`; or the intervals, which make one
 * attempt more than there are intervals.
 */
export interface Retry {
  base?: Length | null;
  intervals?: Length[];
  max?: Length | null;
}

/** When a schedule fires: by `cron`, `every` or `at`. */
export interface Schedule {
  /** One instant. */
  at?: Instant | null;
  /** Slots that passed while nobody fired them are made up for if they are not older. */
  catch_up_window?: Length | null;
  /** A cron expression of 5 to 7 fields. */
  cron?: string | null;
  /** An interval. */
  every?: Length | null;
  /** How far the slots of an interval lie behind the epoch's. */
  offset?: Length | null;
  /** What happens at a slot while a task of an earlier one is not over. */
  overlap?: Overlap;
  /** It fires only by hand. */
  paused?: boolean;
  /** The time zone of the expression, such as `Europe/Berlin`. */
  time_zone?: string | null;
}

/** A schedule, and how it stands. */
export interface ScheduleBody {
  name: string;
  /** Its next slots, up to ten. */
  next: Instant[];
  /** Now, by the gateway's clock. */
  now: number;
  schedule: Schedule;
  version: number;
  /** The slot that was settled last. */
  last?: Firing | null;
}

/** The schedules of a queue, by name. */
export interface ScheduleList {
  /** Now, by the gateway's clock. */
  now: number;
  schedules: ScheduleBody[];
}

/** Other times, or another task, for a schedule. */
export interface ScheduleUpdate {
  /** The version that was seen; if another one stands nothing is changed (`version_conflict`). */
  expected_version: number;
  /** `schedule` or `task`, not both. */
  schedule?: Schedule | null;
  task?: NewTask | null;
}

/** The version of a schedule that stands. */
export interface ScheduleVersion {
  /** Now, by the gateway's clock. */
  now: number;
  version: number;
}

/**
 * How a queue fared, by steps of equal length, the oldest first. The last one is the current one, which is not over yet. Tasks count as long as
 * they are shown.
 */
export interface Series {
  /** Now, by the gateway's clock. */
  now: number;
  step_ms: number;
  steps: SeriesStep[];
}

/** What happened in the time of a step. */
export interface SeriesStep {
  /** When it began, in ms since the epoch. */
  at: number;
  completed: number;
  /** Failed for good, cancelled or expired. */
  not_completed: number;
  submitted: number;
  /** From submission to end, of half of those that completed at most. */
  latency_p50_ms?: number | null;
  /** The same for 95 of 100. */
  latency_p95_ms?: number | null;
}

/** A task that was submitted. */
export interface Submitted {
  /** Its id in the queue; under a key that another task has, the id of that one. */
  id: string;
  /** Now, by the gateway's clock. */
  now: number;
}

/** What became of the tasks of a batch, in their order. */
export interface SubmittedTasks {
  /** Now, by the gateway's clock. */
  now: number;
  outcomes: Outcome[];
}

/** A task. Times are in ms since the epoch. */
export interface Task {
  /** Attempts so far, the running one included. */
  attempts: number;
  /** Somebody asked for its end. */
  cancel_requested: boolean;
  /** Its id in the queue. */
  id: string;
  /** Now, by the gateway's clock. */
  now: number;
  /** The queue. */
  queue: string;
  /** `scheduled`, `ready`, `waiting`, `claimed`, `running`, `retrying`, `completed`, `failed`, `cancelled`, `expired` or `ended`. */
  status: string;
  /** When its state changed last. */
  changed_at?: number | null;
  /** The codec that its payload and its result are encoded by, as far as a worker has said so. */
  codec?: string | null;
  /** When it was submitted. */
  created_at?: number | null;
  /** Before when it does not start: its scheduled time, or that of its next attempt. */
  due_at?: number | null;
  /** The task that holds the key of this one, which never ran. */
  duplicate_of?: string | null;
  /** How often it has changed hands: what force-fail and force-release name. */
  epoch?: number | null;
  /** Its payload and its result are hidden from whoever asks. */
  hidden?: boolean;
  /** What its submitter calls it. */
  key?: string | null;
  /** What the attempt has logged last. */
  log?: string[];
  progress?: Progress | null;
  /** Why the last attempt failed, or the task ended; in a list its first 200 characters. */
  reason?: string | null;
  /** How many bytes its result has: GET …/result. */
  result_bytes?: number | null;
  /** The task that has taken the place of this one. */
  superseded_by?: string | null;
  tags?: string[];
  type?: string | null;
  /** The tasks that it waits for. */
  waits_for?: string[];
  /** Something that whoever looks should know. */
  warning?: string | null;
  /** Who runs it, or ran it last. */
  worker?: WorkerIdentity | null;
}

/** Some of the tasks that were asked for. */
export interface TaskList {
  /** Now, by the gateway's clock. */
  now: number;
  tasks: Task[];
  /** What the next page comes after (`after`); absent when there is none. */
  next?: string | null;
}

/** Who was told to drain. */
export interface ToldToDrain {
  /** Now, by the gateway's clock. */
  now: number;
  worker: WorkerIdentity;
}

/** A worker, as it calls itself. */
export interface WorkerIdentity {
  /** It grants leases, as a gateway does. */
  grants_leases?: boolean;
  host?: string;
  /** Drawn anew at each start, whatever its name is. */
  instance?: string;
  label?: string;
  name?: string;
  process?: number | null;
  version?: string;
}

/** The workers of a queue. */
export interface WorkerList {
  /** Now, by the gateway's clock. */
  now: number;
  workers: QueueWorker[];
}
