/** A worker: leases tasks, runs several at once, and gives back unfinished tasks when it ends. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { inspect } from "node:util";
import { type Client, length } from "./client.ts";
import { GatewayError } from "./errors.ts";
import { json } from "./http.ts";
import { Cancelled, Draining, Fatal, GiveBack, Halt, RetryAfter, Task, wait } from "./task.ts";
import type { Leases, Report } from "./types.ts";

/** The most tasks that a gateway leases to one request. */
const COUNT = 100;
const PAUSE = 500;
const PAUSE_MAX = 10_000;
/** How long a processor may take to end after a `Draining`, in ms. After that, its task is given back although it runs. */
const GRACE = 5_000;

/** Works on a task and returns the result: text and bytes as they are, `undefined` for none, anything else as JSON. */
export type Processor = (task: Task) => unknown;

export interface WorkerOptions {
  /** The most tasks that run at once; 4 by default. */
  concurrency?: number;
  /** The name of the worker for display; by default host and process id. */
  name?: string;
  /** Seconds of silence after which other workers may get the tasks; 30 by default. The worker sends three keep-alives in that time, at least one every 5 s. */
  leaseTime?: number;
  /** Leases only tasks of these types. */
  types?: string[];
  /** How many seconds running tasks may take to end when the worker ends; 10 by default. After that, the worker gives them back with their checkpoints. */
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
      log: options.log ?? (() => {}),
    };
    if (!(this.#options.concurrency >= 1)) {
      throw new RangeError("concurrency is 1 at least");
    }
    const { name, leaseTime, poll } = this.#options;
    const instance = randomBytes(8).toString("hex");
    this.#asked = { worker: name, instance, wait: length(poll), lease_time: length(leaseTime), ...(options.types && { types: options.types }) };
  }

  /**
   * Works until SIGTERM or Ctrl-C, until `stop`, or until somebody drains it (`longhaul worker drain`). Returns when the last task is over or given back. A
   * second signal ends the process.
   */
  async run(): Promise<void> {
    const stop = (): void => {
      process.off("SIGTERM", stop).off("SIGINT", stop);
      this.stop();
    };
    process.on("SIGTERM", stop).on("SIGINT", stop);
    try {
      await this.work();
    } finally {
      process.off("SIGTERM", stop).off("SIGINT", stop);
    }
  }

  /** Tells the worker to end as described for `run`. You may call it more than once. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Works like `run`, but leaves signals to the program. */
  async work(): Promise<void> {
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
    // A lease whose answer got lost expires by itself, so the request is repeatable.
    const answer = await this.#client.gateways.request("POST", `/v1/queues/${encodeURIComponent(this.#queue)}/leases`, {
      body: { ...this.#asked, count },
      timeout: (this.#options.poll + 10) * 1000,
      patience: 5_000,
      halt: this.#stopping.signal,
    });
    if (answer.status !== 200) {
      return;
    }
    const { leases, now } = json<Leases>(answer);
    for (const lease of leases) {
      const task = new Task(this.#client.gateways, this.#queue, lease, now, this.#options.log);
      const ended = this.#process(task)
        .catch((error: unknown) => this.#options.log(`task ${task.id}: ${error}`))
        .finally(() => {
          task.forget();
          this.#running.delete(task);
        });
      this.#running.set(task, ended);
    }
  }

  async #drain(): Promise<void> {
    const { drain, reportPatience, log } = this.#options;
    const all = (): Promise<unknown> => Promise.all(this.#running.values());
    await this.#until(all(), AbortSignal.timeout(Math.ceil(drain * 1000)));
    for (const task of this.#running.keys()) {
      task.stop(new Draining("the worker is to end"));
    }
    await this.#until(all(), AbortSignal.timeout(GRACE));
    const abandon = async (task: Task): Promise<void> => {
      if ((await task.end("RELEASED", reportPatience * 1000)) === undefined) {
        log(`released ${task.id} though it still runs`);
      }
    };
    await Promise.all([...this.#running.keys()].map(abandon));
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
      more = result(await this.#processor(task));
      status = "SUCCEEDED";
    } catch (error) {
      // If the processor was told to stop, that is the reason, whatever it threw.
      const why: unknown = task.signal.aborted ? task.signal.reason : error;
      if (why !== error && !(error instanceof Halt || error instanceof Cancelled)) {
        log(`attempt ${task.attempt} of ${task.id} failed when it was told to stop: ${inspect(error)}`);
      }
      if (why instanceof Cancelled) {
        more = { reason: why.message };
        told = "cancelled";
      } else if (why instanceof Halt || why instanceof GiveBack) {
        status = "RELEASED";
        more = why instanceof GiveBack && why.after !== undefined ? { after: length(why.after) } : {};
      } else {
        more = failure(why);
        log(`attempt ${task.attempt} of ${task.id} failed: ${inspect(why)}`);
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
    return { result: value };
  }
  if (value instanceof Uint8Array) {
    return { result_base64: Buffer.from(value).toString("base64") };
  }
  // Fails the attempt if the value has no form in JSON: no report could carry it.
  JSON.stringify(value);
  return { result_json: value };
}

function failure(error: unknown): Partial<Report> {
  const reason = error instanceof Error ? error.message : String(error);
  if (error instanceof Fatal) {
    return { reason, fatal: true };
  }
  return error instanceof RetryAfter ? { reason, retry_after: length(error.seconds) } : { reason };
}
