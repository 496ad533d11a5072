/** A client of one or several gateways: submits tasks, looks at them, waits for them, and ends them. */

import { randomUUID } from "node:crypto";
import { fromAnswer, type GatewayError, NotFound, TaskFailed, WaitTimeout } from "./errors.ts";
import { watch, type TaskEvent } from "./events.ts";
import { type Answer, Gateways, json, type Token } from "./http.ts";
import type { History, NewTask, Priority, Submitted, SubmittedTasks, Task, TaskList, Why } from "./types.ts";

/** A length of time: seconds, or a text such as `1h 30m`. */
export type Length = number | string;

/** An instant: ms since the epoch, or a date. */
export type Instant = number | Date;

/** Text and bytes are sent as they are, anything else as JSON. */
export type Payload = unknown;

/** The longest that a gateway waits in one request, in ms. */
const POLL = 20_000;

/** What a gateway knows of a task that is submitted, in the words of JavaScript: {@link NewTask} says what each is. */
export interface Submission {
  type?: string;
  key?: string;
  tags?: string[];
  properties?: Record<string, string>;
  priority?: Priority;
  delay?: Length;
  scheduledAt?: Instant;
  expiresAt?: Instant;
  /** A task without this key and without a `dedupeKey` gets a random one with each submit, so that a submit whose answer got lost is repeated. */
  idempotencyKey?: string;
  /** It is free again when its task is over, so a submit whose answer got lost might make a second task: that throws `OutcomeUnknown`. */
  dedupeKey?: string;
  overwrite?: boolean;
  strict?: boolean;
  orderKey?: string;
  limitKey?: string;
  after?: string[];
  maxAttempts?: number;
  maxDuration?: Length;
  maxTotalDuration?: Length;
  noProgressTimeout?: Length;
  retry?: { base?: Length; max?: Length } | { intervals: Length[] };
}

export interface ClientOptions {
  /** URLs of gateways. Without it the variable `LONGHAUL_GATEWAY` is read, with commas between them, and without that it is `http://127.0.0.1:7070`. */
  gateways?: string | string[];
  /** A token, or a function that is called for each request. Without it the variable `LONGHAUL_TOKEN` is read. */
  token?: Token;
  /** In place of the global one: with a certificate to show, or authorities of its own (Node also reads `NODE_EXTRA_CA_CERTS`). */
  fetch?: typeof fetch;
  /** For how many seconds a request is tried again while no gateway serves it; 30 if it is not said. */
  patience?: number;
  /** With `false` no task gets an idempotency key of its own: a submit with an unknown outcome throws `OutcomeUnknown` then. */
  addKeys?: boolean;
}

/** A length of time as the gateway takes it. */
export function length(value: Length): string {
  return typeof value === "string" ? value : `${Math.round(value * 1000)}ms`;
}

function instant(value: Instant): number {
  return typeof value === "number" ? value : value.getTime();
}

/** One or several gateways of one cluster. */
export class Client {
  readonly gateways: Gateways;
  readonly #patience: number;
  readonly #addKeys: boolean;

  constructor(options: ClientOptions = {}) {
    const { gateways = process.env["LONGHAUL_GATEWAY"] || "http://127.0.0.1:7070", patience = 30 } = options;
    const urls = typeof gateways === "string" ? gateways.split(",") : gateways;
    this.gateways = new Gateways(urls, options.token ?? process.env["LONGHAUL_TOKEN"], options.fetch ?? fetch);
    this.#patience = patience * 1000;
    this.#addKeys = options.addKeys ?? true;
  }

  /** Submits a task, and returns its id; it is stored then. */
  async submit(queue: string, payload: Payload, submission: Submission = {}): Promise<string> {
    const body = this.#newTask(payload, submission);
    const repeatable = body.idempotency_key !== undefined;
    const answer = await this.gateways.request("POST", at(queue, "tasks"), { body, patience: this.#patience, repeatable });
    return json<Submitted>(answer).id;
  }

  /** Submits up to 1,000 tasks; for each its id, or why there is none. */
  async submitBatch(queue: string, tasks: { payload: Payload; submission?: Submission }[]): Promise<(string | GatewayError)[]> {
    const body = { tasks: tasks.map(({ payload, submission }) => this.#newTask(payload, submission)) };
    const repeatable = body.tasks.every((task) => task.idempotency_key !== undefined);
    const answer = await this.gateways.request("POST", at(queue, "tasks:batch"), { body, patience: this.#patience, repeatable });
    return json<SubmittedTasks>(answer).outcomes.map(({ id, error }) =>
      error ? fromAnswer(error.status, JSON.stringify(error), null) : (id ?? ""),
    );
  }

  /** How a task stands. */
  async get(queue: string, task: string): Promise<Task> {
    return json(await this.#get(at(queue, "tasks", task)));
  }

  /** What has happened to a task, entry by entry. */
  async history(queue: string, task: string): Promise<History> {
    return json(await this.#get(at(queue, "tasks", task, "history")));
  }

  /** Why a task does not run, in one sentence and in its parts. */
  async why(queue: string, task: string): Promise<Why> {
    return json(await this.#get(at(queue, "tasks", task, "why")));
  }

  /** The payload of a task, as it was submitted. */
  async payload(queue: string, task: string): Promise<Uint8Array> {
    return (await this.#get(at(queue, "tasks", task, "payload"))).body;
  }

  /** The tasks that fit, in the order of their submission, fetched page by page as they are read. */
  async *list(
    queue: string,
    filter: { status?: string[]; tags?: string[]; type?: string; key?: string; createdFrom?: Instant; createdTo?: Instant; level?: Priority; page?: number } = {},
  ): AsyncGenerator<Task, void, undefined> {
    const query = new URLSearchParams({ limit: String(filter.page ?? 100) });
    const asked = {
      status: filter.status?.join(","),
      tag: filter.tags?.join(","),
      type: filter.type,
      key: filter.key,
      level: filter.level,
      created_from: filter.createdFrom && String(instant(filter.createdFrom)),
      created_to: filter.createdTo && String(instant(filter.createdTo)),
    };
    for (const [name, value] of Object.entries(asked)) {
      if (value) query.set(name, String(value));
    }
    for (;;) {
      const page: TaskList = json(await this.#get(`${at(queue, "tasks")}?${query}`));
      yield* page.tasks;
      if (!page.next) {
        return;
      }
      query.set("after", page.next);
    }
  }

  /**
   * Waits for the end of a task, however it ends, for so many seconds. An id that nobody knows yet is waited for, too.
   *
   * @throws WaitTimeout when it is not over in time
   */
  async wait(queue: string, task: string, timeout: number): Promise<Task> {
    const giveUp = performance.now() + timeout * 1000;
    for (;;) {
      const left = giveUp - performance.now();
      if (left <= 0) {
        throw new WaitTimeout(`task ${task} is not over after ${timeout} s`);
      }
      const wait = Math.min(left, POLL);
      const path = `${at(queue, "tasks", task, "wait")}?timeout=${Math.ceil(wait)}ms`;
      const answer = await this.gateways.request("GET", path, { timeout: wait + 15_000, patience: Math.min(this.#patience, left) });
      if (answer.status === 200) {
        return json(answer);
      }
    }
  }

  /**
   * Waits for the end of a task, for so many seconds, and returns its result.
   *
   * @throws TaskFailed when it has none
   * @throws WaitTimeout when it is not over in time
   */
  async result(queue: string, task: string, timeout: number): Promise<Uint8Array> {
    const ended = await this.wait(queue, task, timeout);
    if (ended.status !== "completed") {
      throw new TaskFailed(ended);
    }
    try {
      return (await this.#get(at(queue, "tasks", task, "result"))).body;
    } catch (error) {
      throw error instanceof NotFound ? new TaskFailed(ended) : error;
    }
  }

  /** Asks for the end of a task. It ends when its worker has heard of it, or at once if it does not run. */
  async cancel(queue: string, task: string, reason = ""): Promise<void> {
    await this.gateways.request("POST", `${at(queue, "tasks", task)}:cancel`, { body: { reason }, patience: this.#patience });
  }

  /**
   * Events of a queue, as they come, until the signal. After a cut it goes on where it was, at any gateway.
   *
   * Begins with what happens from now on; with the last event of each task that is still shown (`fromEarliest`); or behind an event that was seen.
   */
  watch(
    queue: string,
    options: { fromEarliest?: boolean; lastEventId?: string; level?: Priority; signal?: AbortSignal } = {},
  ): AsyncGenerator<TaskEvent, void, undefined> {
    const query = new URLSearchParams();
    if (options.fromEarliest) query.set("from", "earliest");
    if (options.level) query.set("level", options.level);
    const path = `${at(queue, "events")}?${query}`;
    return watch(this.gateways, { path, lastEventId: options.lastEventId, patience: this.#patience, signal: options.signal });
  }

  #newTask(payload: Payload, submission: Submission = {}): NewTask {
    const { idempotencyKey, dedupeKey } = submission;
    // The gateway takes one kind of key.
    const isWithout = this.#addKeys && idempotencyKey === undefined && dedupeKey === undefined;
    return newTask(payload, isWithout ? { ...submission, idempotencyKey: randomUUID() } : submission);
  }

  #get(path: string): Promise<Answer> {
    return this.gateways.request("GET", path, { patience: this.#patience });
  }
}

function at(queue: string, ...parts: string[]): string {
  return ["/v1/queues", ...[queue, ...parts].map((part) => encodeURIComponent(part).replaceAll("%3A", ":"))].join("/");
}

function newTask(payload: Payload, submission: Submission): NewTask {
  const { delay, scheduledAt, expiresAt, maxDuration, maxTotalDuration, noProgressTimeout, retry } = submission;
  const task: { [Name in keyof NewTask]: NewTask[Name] | undefined } = {
    ...content(payload),
    type: submission.type,
    key: submission.key,
    tags: submission.tags,
    properties: submission.properties,
    priority: submission.priority,
    delay: delay === undefined ? undefined : length(delay),
    scheduled_at: scheduledAt === undefined ? undefined : instant(scheduledAt),
    expires_at: expiresAt === undefined ? undefined : instant(expiresAt),
    idempotency_key: submission.idempotencyKey,
    dedupe_key: submission.dedupeKey,
    overwrite: submission.overwrite,
    strict: submission.strict,
    order_key: submission.orderKey,
    limit_key: submission.limitKey,
    after: submission.after,
    max_attempts: submission.maxAttempts,
    max_duration: maxDuration === undefined ? undefined : length(maxDuration),
    max_total_duration: maxTotalDuration === undefined ? undefined : length(maxTotalDuration),
    no_progress_timeout: noProgressTimeout === undefined ? undefined : length(noProgressTimeout),
    retry: retry && Object.fromEntries(Object.entries(retry).map(([name, value]) => [name, Array.isArray(value) ? value.map(length) : length(value)])),
  };
  // What is undefined has no form in JSON, and is left out when it is sent.
  return task as NewTask;
}

function content(payload: Payload): Pick<NewTask, "payload" | "payload_base64" | "payload_json"> {
  if (typeof payload === "string") {
    return { payload };
  }
  return payload instanceof Uint8Array ? { payload_base64: Buffer.from(payload).toString("base64") } : { payload_json: payload ?? null };
}
