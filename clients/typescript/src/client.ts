/** A client of one or several gateways. It submits tasks and operates queues, workers, dead letters and schedules. */

import { isAnyArrayBuffer } from "node:util/types";
import { randomUUID } from "node:crypto";
import { fromAnswer, type GatewayError, NotFound, TaskFailed, WaitTimeout } from "./errors.ts";
import { watch, type TaskEvent } from "./events.ts";
import { type Answer, type Asking, Gateways, json, type Token } from "./http.ts";
import type * as types from "./types.ts";
import type { NewTask, Priority, Schedule, Task } from "./types.ts";

/** A duration: seconds, or a text such as `1h 30m`. */
export type Length = number | string;

/** An instant: ms since the epoch, or a date. */
export type Instant = number | Date;

/** Text and bytes are sent as they are, anything else as JSON. */
export type Payload = unknown;

/** The time that a gateway waits in one request, in ms. */
const POLL = 20_000;
/** The length up to which a text is sent as it is. */
const SHORT = 64 * 1024;
/** The time limit of a request about many tasks, in ms. */
const BULK = 300_000;

/** The options of a task to submit. {@link NewTask} describes each of them under its name in JSON. */
export interface Submission {
  type?: string;
  key?: string;
  tags?: string[];
  properties?: Record<string, string>;
  priority?: Priority;
  delay?: Length;
  scheduledAt?: Instant;
  expiresAt?: Instant;
  /** A task without this key and without a `dedupeKey` gets a random key with each submit, so that the client can repeat a submit whose answer got lost. */
  idempotencyKey?: string;
  /** A submit with this key whose answer got lost throws `OutcomeUnknown`: the key is free when its task is over, so a repeat might create a second one. */
  dedupeKey?: string;
  overwrite?: boolean;
  strict?: boolean;
  orderKey?: string;
  limitKey?: string;
  after?: string[];
  /** Idempotency or dedupe keys of tasks that must be over first. */
  afterKeys?: string[];
  /** What happens if one of those tasks has no result: by default, this task fails. */
  afterFailed?: "fail" | "skip" | "run";
  maxAttempts?: number;
  maxDuration?: Length;
  maxTotalDuration?: Length;
  noProgressTimeout?: Length;
  retry?: { base?: Length; max?: Length } | { intervals: Length[] };
}

export interface ClientOptions {
  /** URLs of gateways. The default is the environment variable `LONGHAUL_GATEWAY`, with URLs separated by commas, or else `http://127.0.0.1:7070`. */
  gateways?: string | string[];
  /**
   * A token, or a function that is called for each request. If it throws or returns no usable token, the request is repeated. The default is the environment
   * variable `LONGHAUL_TOKEN`.
   */
  token?: Token;
  /** Replaces the global `fetch`, such as for a client certificate or other trusted authorities (Node also reads `NODE_EXTRA_CA_CERTS`). */
  fetch?: typeof fetch;
  /** For how many seconds the client repeats a request while no gateway serves it; 30 by default, `Infinity`: no limit. */
  patience?: number;
  /** With `false`, tasks get no random idempotency key, and a submit with an unknown outcome throws `OutcomeUnknown`. */
  addKeys?: boolean;
}

export interface OfLevel {
  /** Only tasks of this priority. By default, the whole queue or the level `normal`, depending on the method. */
  level?: Priority;
}

/** Selects tasks or dead letters. */
export interface Filter extends OfLevel {
  /** A task must have all of these tags. */
  tags?: string[];
  type?: string;
  key?: string;
  /** How many one request fetches: 100 by default, 1,000 at most. */
  page?: number;
}

/** Query parameters; those that are undefined are omitted. */
type Query = Record<string, string | number | undefined>;

interface Ask extends Omit<Asking, "halt"> {
  query?: Query;
}

/** Converts a duration to the form that the gateway reads. */
export function length(value: Length): string;
export function length(value: Length | undefined): string | undefined;
export function length(value: Length | undefined): string | undefined {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError(`${value} is no number of seconds`);
  }
  return typeof value === "number" ? `${Math.round(value * 1000)}ms` : value;
}

function instant(value: Instant | undefined): number | undefined {
  const time = value instanceof Date ? value.getTime() : value;
  // JSON would have null: no time at all.
  if (typeof time === "number" && !Number.isFinite(time)) {
    throw new RangeError("the time is no valid date");
  }
  return time;
}

/** The bytes of a buffer or of a view of one; nothing if the value is neither. */
export function bytes(value: unknown): Buffer | undefined {
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
  return isAnyArrayBuffer(value) ? Buffer.from(value) : undefined;
}

/** A text as a field of a request, or in base64 if JSON makes it much longer: a control character takes 6 bytes, and a body has a limit. */
export function textField<Name extends "payload" | "result">(name: Name, text: string): Partial<Record<Name | `${Name}_base64`, string>> {
  const isShort = text.length <= SHORT || JSON.stringify(text).length <= 2 * text.length;
  const data = isShort ? undefined : Buffer.from(text);
  // Only JSON has a form for half of a surrogate pair. The gateway decides about it.
  const field = data?.toString() === text ? { [`${name}_base64`]: data.toString("base64") } : { [name]: text };
  return field as Partial<Record<Name | `${Name}_base64`, string>>;
}

/** A client of one or several gateways of one cluster. */
export class Client {
  readonly gateways: Gateways;
  readonly #patience: number;
  readonly #addKeys: boolean;

  constructor(options: ClientOptions = {}) {
    const { gateways = process.env["LONGHAUL_GATEWAY"] || "http://127.0.0.1:7070", patience = 30 } = options;
    if (!(patience >= 0)) {
      throw new RangeError(`a patience of ${patience} s is negative or no number`);
    }
    const urls = typeof gateways === "string" ? gateways.split(",") : gateways;
    const token = options.token || process.env["LONGHAUL_TOKEN"]?.trim() || undefined;
    this.gateways = new Gateways(urls, token, options.fetch ?? fetch);
    this.#patience = patience * 1000;
    this.#addKeys = options.addKeys ?? true;
  }

  // Tasks.

  /** Submits a task, and returns its id when it is stored. */
  async submit(queue: string, payload: Payload, submission: Submission = {}): Promise<string> {
    const body = this.#newTask(payload, submission);
    const answer = await this.#ask("POST", at(queue, "tasks"), { body, repeatable: body.idempotency_key !== undefined, expects: ["id"] });
    return json<types.Submitted>(answer).id;
  }

  /**
   * Submits up to 1,000 tasks, and returns for each its id, or the error. A task that has no form in JSON, such as one with a BigInt, throws an error with its
   * index, and then none is submitted.
   */
  async submitBatch(queue: string, tasks: { payload: Payload; submission?: Submission }[]): Promise<(string | GatewayError)[]> {
    const body = { tasks: tasks.map((task, index) => this.#inBatch(index, task)) };
    const repeatable = body.tasks.every((task) => task.idempotency_key !== undefined);
    const answer = await this.#ask("POST", at(queue, "tasks:batch"), { body, repeatable, expects: ["outcomes"] });
    return json<types.SubmittedTasks>(answer).outcomes.map(({ id, error }) =>
      error ? fromAnswer(error.status, JSON.stringify(error), "application/problem+json", null) : (id ?? ""),
    );
  }

  /** Returns the state of a task. */
  async get(queue: string, task: string): Promise<Task> {
    return json(await this.#ask("GET", at(queue, "tasks", task), { expects: ["id", "status"] }));
  }

  /** Returns the history of a task, entry by entry. */
  history(queue: string, task: string): Promise<types.History> {
    return this.#get(at(queue, "tasks", task, "history"));
  }

  /** Explains why a task does not run, in one sentence and in details. */
  why(queue: string, task: string): Promise<types.Why> {
    return this.#get(at(queue, "tasks", task, "why"));
  }

  /** Returns the worker that has leased a task. Throws `NotFound` if none has. */
  lease(queue: string, task: string): Promise<types.LeaseHolder> {
    return this.#get(at(queue, "tasks", task, "lease"));
  }

  /** Returns the payload of a task, as it was submitted. */
  async payload(queue: string, task: string): Promise<Uint8Array> {
    return (await this.#ask("GET", at(queue, "tasks", task, "payload"), { expects: null })).body;
  }

  /**
   * Waits up to `timeout` seconds for the end of a task, however it ends, and returns the task. Also waits for an unknown id.
   *
   * @throws WaitTimeout if the task is not over in time
   */
  async wait(queue: string, task: string, timeout: number): Promise<Task> {
    if (Number.isNaN(timeout)) {
      throw new RangeError("NaN is no number of seconds");
    }
    const giveUp = performance.now() + timeout * 1000;
    for (;;) {
      const left = giveUp - performance.now();
      if (left <= 0) {
        throw new WaitTimeout(`task ${task} is not over after ${timeout} s`);
      }
      const wait = Math.min(left, POLL);
      const query = { timeout: `${Math.ceil(wait)}ms` };
      const patience = Math.min(this.#patience, left);
      const expected = { expects: ["id", "status"], mayBeEmpty: true };
      const answer = await this.#ask("GET", at(queue, "tasks", task, "wait"), { query, timeout: wait + 15_000, patience, ...expected });
      if (answer.status === 200) {
        return json(answer);
      }
    }
  }

  /**
   * Waits up to `timeout` seconds for the end of a task, and returns its result.
   *
   * @throws TaskFailed if the task has none
   * @throws WaitTimeout if the task is not over in time
   */
  async result(queue: string, task: string, timeout: number): Promise<Uint8Array> {
    const ended = await this.wait(queue, task, timeout);
    if (ended.status !== "completed") {
      throw new TaskFailed(ended);
    }
    try {
      return (await this.#ask("GET", at(queue, "tasks", task, "result"), { expects: null })).body;
    } catch (error) {
      throw error instanceof NotFound ? new TaskFailed(ended) : error;
    }
  }

  /** Requests the end of a task. A running task ends when its worker has learned of it, any other at once. */
  async cancel(queue: string, task: string, reason = ""): Promise<void> {
    await this.#ask("POST", at(queue, "tasks", `${task}:cancel`), { body: { reason }, repeatable: true });
  }

  /** Requests the end of a task without waiting for its processor. */
  async kill(queue: string, task: string, reason = ""): Promise<void> {
    await this.#ask("POST", at(queue, "tasks", `${task}:kill`), { body: { reason }, repeatable: true });
  }

  /** Closes a task as cancelled, whatever its status. Throws `Conflict` if it is over. */
  async delete(queue: string, task: string, reason = ""): Promise<void> {
    await this.#ask("DELETE", at(queue, "tasks", task), { query: { reason } });
  }

  /** Restarts a task that failed for good, as a new task, and returns the id of the new task. */
  async retry(queue: string, task: string, reason = ""): Promise<string> {
    return json<types.Restarted>(await this.#ask("POST", at(queue, "tasks", `${task}:retry`), { body: { reason } })).id;
  }

  /**
   * Closes a task as failed for good.
   *
   * With `epoch`, it throws `Conflict` if the task is in another epoch.
   */
  async forceFail(queue: string, task: string, reason = "", epoch?: number): Promise<void> {
    await this.#ask("POST", at(queue, "tasks", `${task}:force-fail`), { body: { reason, epoch }, repeatable: true });
  }

  /**
   * Takes a running task from its worker. Another attempt follows.
   *
   * With `epoch`, it throws `Conflict` if the task is in another epoch.
   */
  async forceRelease(queue: string, task: string, reason = "", epoch?: number): Promise<void> {
    await this.#ask("POST", at(queue, "tasks", `${task}:force-release`), { body: { reason, epoch } });
  }

  /** Starts a waiting task after `delay` seconds, up to 100 years; 0 starts it now. It costs no attempt. Throws `Conflict` if it runs or waits for others. */
  async reschedule(queue: string, task: string, delay: number, reason = ""): Promise<void> {
    await this.#ask("POST", at(queue, "tasks", `${task}:reschedule`), { body: { reason, delay: length(delay) }, repeatable: true });
  }

  // Queues.

  /** Returns the names of the queues that the token may use. */
  async queues(): Promise<string[]> {
    return (await this.#get<types.QueueList>("/v1/queues")).queues;
  }

  /** Returns the settings of a queue and their version. */
  queue(queue: string): Promise<types.QueueBody> {
    return this.#get(at(queue));
  }

  /** Creates a queue, or corrects its topics. Omitted settings stay as they are. */
  async createQueue(queue: string, settings: Partial<types.NewQueue> = {}): Promise<types.CreatedQueue> {
    return json(await this.#ask("PUT", at(queue), { body: settings }));
  }

  /**
   * Replaces the settings of a queue, and returns their new version.
   *
   * Throws `Conflict` if `expectedVersion` is not the current version.
   */
  changeQueue(queue: string, settings: Partial<types.QueueSettings>, expectedVersion: number, reason = ""): Promise<number> {
    return this.#version("PATCH", at(queue), { settings, expected_version: expectedVersion, reason });
  }

  /** Pauses a queue: no task begins until it is resumed. Running tasks continue. Returns the new version of the settings. */
  pauseQueue(queue: string, reason = ""): Promise<number> {
    return this.#version("POST", `${at(queue)}:pause`, { reason }, true);
  }

  /** Resumes a queue, and returns the new version of the settings. */
  resumeQueue(queue: string, reason = ""): Promise<number> {
    return this.#version("POST", `${at(queue)}:resume`, { reason }, true);
  }

  /** Deletes a queue with all its tasks and their history. */
  async deleteQueue(queue: string, reason = ""): Promise<void> {
    await this.#ask("DELETE", at(queue), { query: { reason } });
  }

  /** Returns the numbers of tasks by status, and how many have ever ended. */
  counts(queue: string, { level }: OfLevel = {}): Promise<types.Counts> {
    return this.#get(at(queue, "counts"), { level });
  }

  /**
   * Returns how many tasks were submitted and ended in each step, and how long they took.
   *
   * By default, a step is a minute, and the answer has the last 60 steps; 1,440 at most.
   */
  series(queue: string, { step, steps, level }: OfLevel & { step?: Length; steps?: number } = {}): Promise<types.Series> {
    return this.#get(at(queue, "series"), { step: length(step), steps, level });
  }

  /**
   * Returns the operators' actions on the queue, its tasks, workers and schedules, with their reasons, the oldest first.
   *
   * The list has the newest `limit` actions: 100 by default, 10,000 at most.
   */
  async actions(queue: string, { limit, level }: OfLevel & { limit?: number } = {}): Promise<types.Action[]> {
    return (await this.#get<types.ActionList>(at(queue, "actions"), { limit, level })).actions;
  }

  /**
   * Deletes unfinished tasks of one level; `all: true` selects all of them.
   *
   * After `timeout` seconds, the purge stops and throws `OutcomeUnknown`. The default of 300 s is also
   * the longest that Node's own `fetch` waits.
   */
  purge(queue: string, selection: Partial<types.Purge>, options: OfLevel & { timeout?: number } = {}): Promise<types.Purged> {
    return this.#bulk(`${at(queue)}:purge`, selection, options);
  }

  // Workers.

  /** Returns the workers of a queue, and the tasks that they run. */
  async workers(queue: string, { level }: OfLevel = {}): Promise<types.QueueWorker[]> {
    return (await this.#get<types.WorkerList>(at(queue, "workers"), { level })).workers;
  }

  /**
   * Drains a worker: it takes nothing new, finishes its tasks, and ends.
   *
   * `worker` is a name from `workers`, an owner id or an instance.
   *
   * Throws `Conflict` for a gateway and for a worker that leases without an `instance`. Throws
   * `NotFound` for a worker that is not listed: an idle worker of this package is listed within 10 s.
   */
  async drainWorker(queue: string, worker: string, reason = ""): Promise<types.ToldToDrain> {
    return json(await this.#ask("POST", at(queue, "workers", `${worker}:drain`), { body: { reason }, repeatable: true }));
  }

  // Dead letters.

  /** Returns the dead letter of a task, with its payload. */
  deadLetter(queue: string, task: string): Promise<types.DeadLetter> {
    return this.#get(at(queue, "dead", task));
  }

  /**
   * Restarts tasks that failed for good, each as a new task.
   *
   * Select up to 100 by `tasks`, or others by their fields, or all by `all: true`. A request replays at most
   * 100,000; then the answer has `stopped`. Throws `OutcomeUnknown` after `timeout` seconds (300 by default).
   */
  replay(queue: string, selection: Partial<types.DeadSelection>, options: OfLevel & { timeout?: number } = {}): Promise<types.ReplayList> {
    return this.#bulk(at(queue, "dead:replay"), selection, options);
  }

  /** Marks dead letters as handled. Select them as for `replay`, which has the same `timeout`. */
  purgeDeadLetters(queue: string, selection: Partial<types.DeadSelection>, options: OfLevel & { timeout?: number } = {}): Promise<types.PurgedLetters> {
    return this.#bulk(at(queue, "dead:purge"), selection, options);
  }

  // Schedules.

  /** Returns the schedules of a queue, by name. */
  async schedules(queue: string): Promise<types.ScheduleBody[]> {
    return (await this.#get<types.ScheduleList>(at(queue, "schedules"))).schedules;
  }

  /** Returns a schedule with its version, its last firing and its next slots. */
  schedule(queue: string, name: string): Promise<types.ScheduleBody> {
    return this.#get(at(queue, "schedules", name));
  }

  /**
   * Creates a schedule that submits tasks with this payload and these options, and returns its version.
   *
   * Throws `Conflict` if a schedule of this name exists.
   */
  createSchedule(
    queue: string,
    name: string,
    schedule: Partial<Schedule>,
    payload: Payload,
    submission: Submission = {},
    reason = "",
  ): Promise<number> {
    return this.#version("POST", at(queue, "schedules", name), { schedule, task: newTask(payload, submission), reason });
  }

  /**
   * Changes either the times or the task of a schedule, and returns its new version.
   *
   * Throws `Conflict` if `expectedVersion` is not the current version.
   */
  changeSchedule(
    queue: string,
    name: string,
    expectedVersion: number,
    change: { schedule: Partial<Schedule> } | { payload: Payload; submission?: Submission },
    reason = "",
  ): Promise<number> {
    const changed = "schedule" in change ? change : { task: newTask(change.payload, change.submission ?? {}) };
    return this.#version("PATCH", at(queue, "schedules", name), { expected_version: expectedVersion, ...changed, reason });
  }

  /** Pauses a schedule: it fires only by `triggerSchedule`. Returns its new version. */
  pauseSchedule(queue: string, name: string, reason = ""): Promise<number> {
    return this.#version("POST", at(queue, "schedules", `${name}:pause`), { reason }, true);
  }

  /** Resumes a schedule without the missed slots, and returns its new version. */
  resumeSchedule(queue: string, name: string, reason = ""): Promise<number> {
    return this.#version("POST", at(queue, "schedules", `${name}:resume`), { reason }, true);
  }

  /** Fires a schedule now, and returns its new version. */
  triggerSchedule(queue: string, name: string, reason = ""): Promise<number> {
    return this.#version("POST", at(queue, "schedules", `${name}:trigger`), { reason });
  }

  /** Deletes a schedule. Tasks that it has submitted continue. */
  async deleteSchedule(queue: string, name: string, reason = ""): Promise<void> {
    await this.#ask("DELETE", at(queue, "schedules", name), { query: { reason } });
  }

  // Iterators.

  /**
   * Iterates over the matching tasks in the order of their submission, and fetches them page by page.
   *
   * `text` has words; a task must have each of them in its id, key, type, tags or reason.
   * With `why`, each task that does not run has the reason, and a page has 100 tasks at most.
   */
  list(
    queue: string,
    filter: Filter & { status?: string[]; text?: string; createdFrom?: Instant; createdTo?: Instant; order?: "oldest" | "newest"; why?: boolean } = {},
  ): AsyncGenerator<Task, void, undefined> {
    const { status, text, createdFrom, createdTo, order, why } = filter;
    return this.#pages<types.TaskList, Task>(at(queue, "tasks"), ({ tasks }) => tasks, filter, {
      status: status?.join(","),
      text,
      created_from: instant(createdFrom),
      created_to: instant(createdTo),
      order,
      why: why ? "true" : undefined,
    });
  }

  /**
   * Iterates over the matching dead letters, and fetches them page by page.
   *
   * They have no payloads. `reason` is a part of their reason.
   */
  deadLetters(queue: string, filter: Filter & { reason?: string } = {}): AsyncGenerator<types.DeadLetter, void, undefined> {
    const { reason } = filter;
    return this.#pages<types.DeadLetterList, types.DeadLetter>(at(queue, "dead"), (page) => page.dead_letters, filter, { reason });
  }

  /**
   * Streams the events of a queue until `signal` is aborted. After a lost connection, the stream continues where it was, at any gateway.
   *
   * The stream begins with the next change; with `fromEarliest`, with the last event of each task that is still shown; with `lastEventId`, after that event.
   * With `task`, it has the state of that task, its changes, and its end, which ends the stream. Throws the last error when no gateway has served the stream
   * for the client's `patience`.
   */
  watch(
    queue: string,
    options: OfLevel & { task?: string; fromEarliest?: boolean; lastEventId?: string; signal?: AbortSignal } = {},
  ): AsyncGenerator<TaskEvent, void, undefined> {
    const path = withQuery(at(queue, "events"), { task: options.task, from: options.fromEarliest ? "earliest" : undefined, level: options.level });
    return watch(this.gateways, { path, lastEventId: options.lastEventId, patience: this.#patience, signal: options.signal });
  }

  async *#pages<Page extends { next?: string | null }, Item>(
    path: string,
    items: (page: Page) => Item[],
    { tags, type, key, level, page: limit = 100 }: Filter,
    query: Query,
  ): AsyncGenerator<Item, void, undefined> {
    let after: string | undefined;
    do {
      const page = await this.#get<Page>(path, { tag: tags?.join(","), type, key, level, limit, ...query, after });
      yield* items(page);
      after = page.next ?? undefined;
    } while (after);
  }

  #newTask(payload: Payload, submission: Submission = {}): NewTask {
    const { idempotencyKey, dedupeKey } = submission;
    // The gateway takes one kind of key.
    const isWithout = this.#addKeys && idempotencyKey === undefined && dedupeKey === undefined;
    return newTask(payload, isWithout ? { ...submission, idempotencyKey: randomUUID() } : submission);
  }

  #inBatch(index: number, { payload, submission }: { payload: Payload; submission?: Submission }): NewTask {
    try {
      return this.#newTask(payload, submission);
    } catch (error) {
      const kind = error instanceof RangeError ? RangeError : TypeError;
      throw new kind(`task ${index} of the batch cannot be sent: ${error}`, { cause: error });
    }
  }

  async #get<T>(path: string, query: Query = {}): Promise<T> {
    return json(await this.#ask("GET", path, { query }));
  }

  async #bulk<T>(path: string, body: object, { level, timeout }: OfLevel & { timeout?: number }): Promise<T> {
    return json(await this.#ask("POST", path, { body, query: { level }, timeout: timeout === undefined ? BULK : timeout * 1000 }));
  }

  /** Changes a queue's settings or a schedule, and returns the new version. */
  async #version(method: string, path: string, body: object, repeatable = false): Promise<number> {
    return json<{ version: number }>(await this.#ask(method, path, { body, repeatable })).version;
  }

  /** Sends a request. By default it is repeatable if its method is GET, PUT or DELETE. */
  #ask(method: string, path: string, { query = {}, ...asking }: Ask = {}): Promise<Answer> {
    const repeatable = ["GET", "PUT", "DELETE"].includes(method);
    return this.gateways.request(method, withQuery(path, query), { patience: this.#patience, repeatable, ...asking });
  }
}

function at(queue: string, ...parts: string[]): string {
  return ["/v1/queues", ...[queue, ...parts].map((part) => encodeURIComponent(part).replaceAll("%3A", ":"))].join("/");
}

function withQuery(path: string, query: Query): string {
  const said = Object.entries(query).flatMap(([name, value]) => (value === undefined || value === "" ? [] : [[name, String(value)]]));
  return said.length > 0 ? `${path}?${new URLSearchParams(said)}` : path;
}

function newTask(payload: Payload, submission: Submission): NewTask {
  const { retry, maxAttempts } = submission;
  if (maxAttempts !== undefined && !Number.isFinite(maxAttempts)) {
    // JSON would have null: the limit of the queue.
    throw new RangeError(`${maxAttempts} is no number of attempts`);
  }
  const task: { [Name in keyof NewTask]: NewTask[Name] | undefined } = {
    ...content(payload),
    type: submission.type,
    key: submission.key,
    tags: submission.tags,
    properties: submission.properties,
    priority: submission.priority,
    delay: length(submission.delay),
    scheduled_at: instant(submission.scheduledAt),
    expires_at: instant(submission.expiresAt),
    idempotency_key: submission.idempotencyKey,
    dedupe_key: submission.dedupeKey,
    overwrite: submission.overwrite,
    strict: submission.strict,
    order_key: submission.orderKey,
    limit_key: submission.limitKey,
    after: submission.after,
    after_keys: submission.afterKeys,
    after_failed: submission.afterFailed,
    max_attempts: maxAttempts,
    max_duration: length(submission.maxDuration),
    max_total_duration: length(submission.maxTotalDuration),
    no_progress_timeout: length(submission.noProgressTimeout),
    retry: retry && Object.fromEntries(Object.entries(retry).map(([name, value]) => [name, Array.isArray(value) ? value.map((each) => length(each)) : length(value)])),
  };
  // Undefined fields are omitted in JSON.
  return task as NewTask;
}

function content(payload: Payload): Pick<NewTask, "payload" | "payload_base64" | "payload_json"> {
  if (typeof payload === "string") {
    return textField("payload", payload);
  }
  const kept = bytes(payload);
  if (kept !== undefined) {
    return { payload_base64: kept.toString("base64") };
  }
  if (payload !== undefined && JSON.stringify(payload) === undefined) {
    throw new TypeError(`a ${typeof payload} has no form in JSON`);
  }
  return { payload_json: payload ?? null };
}
