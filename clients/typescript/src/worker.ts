/** A worker: leases tasks, runs several at once, and gives back unfinished tasks when it ends. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import { bytes, type Client, length, textField } from "./client.ts";
import { GatewayError } from "./errors.ts";
import { json } from "./http.ts";
import { Cancelled, Draining, Fatal, GiveBack, Halt, mend, REASON_BYTES, RetryAfter, Task, wait } from "./task.ts";
import type { Leases, Report, ReportOutcomes } from "./types.ts";

/** The most tasks that a gateway leases to one request. */
const COUNT = 100;
const PAUSE = 500;
const PAUSE_MAX = 10_000;
/** The least and the greatest value of each option. A gateway refuses other lease times and polls. */
const LIMITS = [
  ["concurrency", 1, Infinity],
  ["leaseTime", 0.1, 7 * 86_400],
  ["drain", 0, Infinity],
  ["poll", 0, 30],
  ["reportPatience", 0, Infinity],
] as const;
/** The outcome of a confirmation that must be repeated. */
const UNKNOWN = "UNKNOWN";
/** How long a processor may take to end after a `Draining`, in ms. After that, its task is given back although it runs. */
const GRACE = 5_000;
/** A processor that takes longer than this before its first `await` holds up reports, in ms. */
const HOLD = 100;
/** How long the next processor then waits for these reports, in ms. */
const REPORTS = 5_000;

/** Works on a task and returns the result: text and bytes as they are, `undefined` for none, anything else as JSON. */
export type Processor = (task: Task) => unknown;

export interface WorkerOptions {
  /** The most tasks that run at once; 4 by default. */
  concurrency?: number;
  /** The name of the worker for display; by default host and process id. */
  name?: string;
  /**
   * Seconds of silence after which other workers may get the tasks; 30 by default, from 0.1 to 604,800. The worker sends three keep-alives in that time, at
   * least one every 5 s.
   */
  leaseTime?: number;
  /** Leases only tasks of these types. */
  types?: string[];
  /**
   * How many seconds running tasks may take to end when the worker ends; 10 by default, `Infinity`: as long as they take. After that, the worker gives them
   * back with their checkpoints. The reports of tasks that have ended may take up to `reportPatience`.
   */
  drain?: number;
  /**
   * For how many seconds a request waits for a task; 5 by default, 30 at most. A worker that ends may wait for this request, because cancelling it could lose
   * a task.
   */
  poll?: number;
  /** For how many seconds the worker repeats the report of a task's end while no gateway takes it; 60 by default. */
  reportPatience?: number;
  /** Gets a line for the outcome of each task, and the reason and the stack of each failed attempt. */
  log?: (line: string) => void;
}

/** Runs the tasks of a queue by calling the processor with each. An error fails the attempt, with its text as the reason. */
export class Worker {
  readonly #client: Client;
  readonly #queue: string;
  readonly #processor: Processor;
  readonly #options: Required<Omit<WorkerOptions, "types">>;
  readonly #asked: object;
  readonly #stopping = new AbortController();
  readonly #running = new Map<Task, Promise<void>>();
  /** The workers of this process that work or drain. */
  static readonly #working = new Map<Worker, Promise<void>>();
  /** Settles when the next processor of this process may begin. */
  static #turn: Promise<unknown> = Promise.resolve();

  constructor(client: Client, queue: string, processor: Processor, options: WorkerOptions = {}) {
    this.#client = client;
    this.#queue = queue;
    this.#processor = processor;
    this.#options = {
      concurrency: options.concurrency ?? 4,
      name: options.name ?? `${hostname()}-${process.pid}`,
      leaseTime: options.leaseTime ?? 30,
      drain: options.drain ?? 10,
      poll: options.poll ?? 5,
      reportPatience: options.reportPatience ?? 60,
      log: (line) => {
        try {
          options.log?.(line);
        } catch {
          // The log must not decide about a task.
        }
      },
    };
    const { name, leaseTime, poll } = this.#options;
    for (const [field, least, most] of LIMITS) {
      const value = this.#options[field];
      if (!(value >= least && value <= most)) {
        throw new RangeError(`${field} is ${value}: set ${least} to ${most}`);
      }
    }
    if (!Number.isInteger(this.#options.concurrency) && this.#options.concurrency < Infinity) {
      throw new RangeError(`concurrency is ${this.#options.concurrency}: set an integer`);
    }
    const instance = randomBytes(8).toString("hex");
    this.#asked = { worker: name, instance, confirms: true, wait: length(poll), lease_time: length(leaseTime), ...(options.types && { types: options.types }) };
  }

  /**
   * Works until SIGTERM or Ctrl-C, until `stop`, or until somebody drains it (`longhaul worker drain`). Returns when the last task is over or given back. A
   * signal drains all workers of this process, and then this waits for all of them. If a processor still runs when its task was given back, the process ends
   * 5 s later. A second signal ends the process.
   */
  async run(): Promise<void> {
    const stop = (): void => {
      process.off("SIGTERM", stop).off("SIGINT", stop);
      told = [...Worker.#working.keys()];
      for (const worker of told) {
        worker.stop();
      }
    };
    let told: Worker[] = [];
    process.on("SIGTERM", stop).on("SIGINT", stop);
    try {
      await this.work();
      if (told.length > 0) {
        await Promise.allSettled(Worker.#working.values());
        if (told.some((worker) => worker.#running.size > 0)) {
          // Nothing ends a promise, and it may keep the process alive for ever. This leaves time for what the program does after `run`.
          setTimeout(() => process.exit(), GRACE).unref();
        }
      }
    } finally {
      process.off("SIGTERM", stop).off("SIGINT", stop);
    }
  }

  /** Tells the worker to end as described for `run`. You may call it more than once. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Works like `run`, but leaves signals to the program, or to a worker in `run`. */
  async work(): Promise<void> {
    const ended = this.#work();
    Worker.#working.set(this, ended);
    await ended.finally(() => Worker.#working.delete(this));
  }

  async #work(): Promise<void> {
    this.#options.log("ready");
    let pause = PAUSE;
    while (!this.#stopping.signal.aborted) {
      const free = this.#options.concurrency - this.#running.size;
      if (free <= 0) {
        await this.#until(Promise.race(this.#running.values()), this.#stopping.signal);
        continue;
      }
      try {
        await this.#lease(Math.min(free, COUNT));
        pause = PAUSE;
      } catch (error) {
        if (error instanceof GatewayError && error.code === "worker_drained") {
          this.#options.log("told to drain");
          this.stop();
          break;
        }
        // Also after an answer that is not a gateway's: a gateway may answer again.
        this.#options.log(`no lease: ${error}`);
        await wait(pause * (0.5 + Math.random() / 2), this.#stopping.signal);
        pause = Math.min(pause * 2, PAUSE_MAX);
      }
    }
    await this.#drain();
  }

  async #lease(count: number): Promise<void> {
    const { poll, log } = this.#options;
    const path = `/v1/queues/${encodeURIComponent(this.#queue)}/leases`;
    // Leases that are not confirmed are given back, so the request is repeatable.
    const answer = await this.#client.gateways.request("POST", path, {
      body: { ...this.#asked, count },
      timeout: (poll + 10) * 1000,
      patience: 5_000,
      halt: this.#stopping.signal,
      expects: ["leases", "now"],
      mayBeEmpty: true,
    });
    if (answer.status === 204) {
      return;
    }
    const since = performance.now();
    const { leases, now } = json<Leases>(answer);
    const left = leases.map((lease) => Math.max(lease.expires_at - now, 100));
    const outcomes = await this.#confirm(`${path}:confirm`, leases.map(({ lease }) => lease), Math.min(...left));
    for (const [index, lease] of leases.entries()) {
      if (outcomes[index] !== "RESULT_OK") {
        log(`lost ${lease.task} before it began: ${outcomes[index]}`);
        continue;
      }
      const task = new Task(this.#client.gateways, this.#queue, lease, left[index] ?? 100, since, log);
      const ended = this.#begin(task)
        .catch((error: unknown) => log(`task ${task.id}: ${shown(error)}`))
        .finally(() => {
          task.forget();
          this.#running.delete(task);
        });
      this.#running.set(task, ended);
    }
  }

  /**
   * Runs a task. Processors begin one after the other, because they share the event loop. After one that held it, the keep-alives and ends that are due go
   * first.
   */
  #begin(task: Task): Promise<void> {
    const begun = Worker.#turn.then(() => ({ since: performance.now(), ended: this.#process(task) }));
    Worker.#turn = begun.then(async ({ since }) => {
      await setImmediate();
      const free = performance.now();
      const isBehind = (worker: Worker): boolean => [...worker.#running.keys()].some((each) => each.isBehind);
      while (free - since > HOLD && performance.now() - free < REPORTS && [...Worker.#working.keys()].some(isBehind)) {
        await sleep(10);
      }
    });
    return begun.then(({ ended }) => ended);
  }

  /**
   * Tells the gateway that the leases have come, and returns the outcome of each. Repeats this until all are known, while the leases last. A worker that ends
   * gives back what is not known. So that counts as confirmed, and does not begin.
   */
  async #confirm(path: string, leases: string[], lasting: number): Promise<string[]> {
    const halt = this.#stopping.signal;
    const giveUp = performance.now() + lasting;
    let outcomes = leases.map(() => UNKNOWN);
    let pause = 0;
    while (outcomes.includes(UNKNOWN) && performance.now() < giveUp && !halt.aborted) {
      await wait(pause, halt);
      pause = Math.min(pause * 2, 1_000) || 200;
      const limits = { timeout: 10_000, patience: giveUp - performance.now(), halt, pauses: new Map<string, number>(), retryAfterMax: lasting / 3 };
      try {
        const answer = await this.#client.gateways.request("POST", path, { body: { leases }, expects: ["outcomes"], ...limits });
        const told = json<ReportOutcomes>(answer).outcomes;
        outcomes = leases.map((_, index) => told[index]?.outcome ?? UNKNOWN);
      } catch (error) {
        this.#options.log(`leases are not confirmed: ${error}`);
        break;
      }
    }
    return outcomes.map((outcome) => (halt.aborted && outcome === UNKNOWN ? "RESULT_OK" : outcome));
  }

  async #drain(): Promise<void> {
    const { drain, reportPatience, log } = this.#options;
    const all = (): Promise<unknown> => Promise.all(this.#running.values());
    await within(drain * 1000, all());
    for (const task of this.#running.keys()) {
      task.stop(new Draining("the worker is to end"));
    }
    await within(GRACE, all());
    const abandon = async ([task, ended]: [Task, Promise<void>]): Promise<void> => {
      if (task.isEnding) {
        // Without its report, the result would be lost.
        await ended;
      } else if ((await task.end("RELEASED", reportPatience * 1000)) === undefined) {
        log(`released ${task.id} though it still runs`);
      }
    };
    await Promise.all([...this.#running].map(abandon));
    log("drained");
  }

  /** Waits for a promise, or until the signal is aborted. */
  async #until(something: Promise<unknown>, signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    const stopped = new Promise<void>((resolve) => {
      if (either.aborted) resolve();
      either.addEventListener("abort", () => resolve(), { once: true });
    });
    await Promise.race([something, stopped]).finally(() => over.abort());
  }

  async #process(task: Task): Promise<void> {
    const { log, reportPatience } = this.#options;
    log(`leased ${task.id} attempt ${task.attempt}`);
    let status: "SUCCEEDED" | "FAILED" | "RELEASED" = "FAILED";
    let more: Partial<Report> = {};
    let told: string | undefined;
    try {
      // A worker that drains begins nothing.
      if (this.#stopping.signal.aborted) {
        throw new Draining("the worker is to end");
      }
      task.check();
      const value = await this.#processor(task);
      try {
        more = result(value);
        status = "SUCCEEDED";
      } catch (error) {
        // Another attempt would end alike.
        throw new Fatal(`the result cannot be sent: ${mend(error, 1000)}`, { cause: error });
      }
    } catch (error) {
      // If the processor was told to stop, that is the reason, whatever it threw.
      const why: unknown = task.signal.aborted ? task.signal.reason : error;
      if (why !== error && !(error instanceof Halt || error instanceof Cancelled)) {
        log(`attempt ${task.attempt} of ${task.id} failed when it was told to stop: ${shown(error)}`);
      }
      if (why instanceof Cancelled) {
        more = { reason: why.message };
        told = "cancelled";
      } else if (why instanceof Halt || why instanceof GiveBack) {
        status = "RELEASED";
        more = why instanceof GiveBack && why.after !== undefined ? { after: length(why.after) } : {};
      } else {
        more = failure(why);
        log(`attempt ${task.attempt} of ${task.id} failed: ${shown(why)}`);
      }
    }
    const why = await task.end(status, reportPatience * 1000, more);
    if (task.lost !== undefined && told === undefined) {
      log(`lost ${task.id}: ${task.lost}`);
    } else if (why !== undefined && told === undefined) {
      log(`not ${status.toLowerCase()} ${task.id}: ${why}`);
    } else {
      log(`${told ?? status.toLowerCase()} ${task.id}`);
    }
  }
}

function result(value: unknown): Partial<Report> {
  if (value === undefined) {
    return {};
  }
  if (typeof value === "string") {
    if (Buffer.from(value).toString() !== value) {
      throw new TypeError("it has half of a surrogate pair, which no gateway takes");
    }
    return textField("result", value);
  }
  const kept = bytes(value);
  if (kept !== undefined) {
    return { result_base64: kept.toString("base64") };
  }
  if (JSON.stringify(value) === undefined) {
    throw new TypeError(`a ${typeof value} has no form in JSON`);
  }
  return { result_json: value };
}

function failure(error: unknown): Partial<Report> {
  const reason = mend(error instanceof Error ? error.message : error, REASON_BYTES);
  if (error instanceof Fatal) {
    return { reason, fatal: true };
  }
  return error instanceof RetryAfter ? { reason, retry_after: length(error.seconds) } : { reason };
}

/** Waits for a promise, for this many ms at most. */
async function within(time: number, something: Promise<unknown>): Promise<void> {
  const over = new AbortController();
  await Promise.race([something, wait(time, over.signal)]).finally(() => over.abort());
}

/** An error with its stack, whatever it is. */
function shown(error: unknown): string {
  try {
    return inspect(error);
  } catch {
    return mend(error, REASON_BYTES);
  }
}
