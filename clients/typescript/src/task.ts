/**
 * A task that a worker has leased, and the keep-alives of its lease.
 *
 * The processor gets a `Task`. It returns the result, or throws an error, which fails the attempt; `Fatal`, `RetryAfter` and `GiveBack` have other effects.
 * The methods of a task throw a `Halt` when the processor must stop, and `task.signal` is aborted with it. If you catch a `Halt`, throw it again.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { GatewayError, Invalid, LeaseRefused, LonghaulError, NotFound } from "./errors.ts";
import { type Gateways, json } from "./http.ts";
import type { Lease, Report, Reported } from "./types.ts";

/** The shortest time between two reports with news, in ms. */
const NEWS_EVERY = 1_000;
/** The longest time between two keep-alives, in ms: their answers tell that the task was cancelled. */
const KEEP_ALIVE_EVERY = 5_000;
const CHECKPOINT_BYTES = 64 * 1024;
const LOG_LINES = 100;

/** Throw it to fail the task for good: no further attempt follows. */
export class Fatal extends Error {}

/** Throw it to fail the attempt. The next attempt begins after `seconds`, whatever the queue's backoff is. */
export class RetryAfter extends Error {
  readonly seconds: number;

  constructor(seconds: number, reason: string) {
    super(reason);
    this.seconds = seconds;
  }
}

/** Throw it to give the task back, which costs no attempt. No worker gets the task before `after` seconds. */
export class GiveBack extends Error {
  readonly after: number | undefined;

  constructor(after?: number) {
    super("given back");
    this.after = after;
  }
}

/** The processor must stop. */
export class Halt extends Error {}

/** The worker has lost the task: the gateway has refused a report, or no keep-alive has succeeded within the lease time. */
export class LeaseLost extends Halt {}

/** Somebody has cancelled the task. It ends as cancelled, whatever is reported, and a report ends it sooner. */
export class Cancelled extends Halt {}

/** The worker ends. It gives the task back, which costs no attempt and keeps the checkpoint. */
export class Draining extends Halt {}

type News = Pick<Report, "progress" | "checkpoint_base64" | "log">;
type End = Omit<Report, "lease" | "status" | keyof News>;

/** A task for a processor, with methods for reports during the work. */
export class Task {
  readonly id: string;
  readonly queue: string;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Grows with each lease of the task. With the id, it is a fencing token for what the processor writes elsewhere. */
  readonly epoch: number;
  readonly type: string | undefined;
  readonly properties: Readonly<Record<string, string>>;
  readonly payload: Buffer;
  /** The checkpoint of an earlier attempt. */
  readonly lastCheckpoint: Buffer | undefined;
  readonly #gateways: Gateways;
  readonly #path: string;
  readonly #lease: string;
  readonly #warn: (line: string) => void;
  readonly #halt = new AbortController();
  readonly #over = new AbortController();
  /** Aborted when there is news, and then replaced. */
  #fresh = new AbortController();
  /** Why the gateway has refused a report. */
  #lost: string | undefined;
  /** When the last report was sent that succeeded, and for how many ms the lease lasts from then on. */
  #heard = performance.now();
  #left: number;
  /** Looks at the clock when the lease is over. */
  #alarm: NodeJS.Timeout | undefined;
  /** The news for the next keep-alive. */
  #news: News = {};
  readonly #keeper: Promise<void>;

  /** For the worker. `now` is the time of the gateway's clock, which measures the lease, because ours may differ. */
  constructor(gateways: Gateways, queue: string, lease: Lease, now: number, warn: (line: string) => void) {
    this.queue = queue;
    this.id = lease.task;
    this.attempt = lease.attempt;
    this.maxAttempts = lease.max_attempts;
    this.epoch = lease.epoch;
    this.type = lease.type ?? undefined;
    this.properties = lease.properties;
    this.payload = typeof lease.payload === "string" ? Buffer.from(lease.payload) : Buffer.from(lease.payload_base64 ?? "", "base64");
    this.lastCheckpoint = typeof lease.checkpoint_base64 === "string" ? Buffer.from(lease.checkpoint_base64, "base64") : undefined;
    this.#gateways = gateways;
    this.#path = `/v1/queues/${encodeURIComponent(queue)}/leases:report`;
    this.#lease = lease.lease;
    this.#warn = warn;
    this.#left = Math.max(lease.expires_at - now, 100);
    this.#keeper = this.#keepAlive();
  }

  /** The payload as text. */
  text(): string {
    return this.payload.toString();
  }

  /** The payload, parsed as JSON. */
  json(): unknown {
    return JSON.parse(this.text());
  }

  /** Aborted when the processor must stop. Its reason is the `Halt`. */
  get signal(): AbortSignal {
    this.#look();
    return this.#halt.signal;
  }

  /** Throws a `Halt` if the processor must stop. */
  check(): void {
    this.signal.throwIfAborted();
  }

  /** Waits. Throws a `Halt` as soon as the processor must stop. */
  async sleep(seconds: number): Promise<void> {
    this.check();
    await wait(seconds * 1000, this.signal);
    this.check();
  }

  /** Reports the progress of the task, in units of its own, within about a second. Newer progress replaces it. Throws a `Halt` like `check`. */
  progress(done: number, total?: number, message?: string): void {
    this.check();
    this.#news.progress = { done, ...(total !== undefined && { total }), ...(message !== undefined && { message }) };
    this.#fresh.abort();
  }

  /** Stores up to 64 KiB for the next attempt, as its `lastCheckpoint`, within about a second. Throws a `Halt` like `check`. */
  checkpoint(data: Uint8Array | string): void {
    this.check();
    const kept = Buffer.from(data as string);
    if (kept.length > CHECKPOINT_BYTES) {
      throw new RangeError(`a checkpoint has ${CHECKPOINT_BYTES} bytes at most, and this one ${kept.length}`);
    }
    this.#news.checkpoint_base64 = kept.toString("base64");
    this.#fresh.abort();
  }

  /** Reports a line for people who watch the task. Of more than 100 lines in a second, the last are sent. */
  log(line: string): void {
    this.#news.log = [...(this.#news.log ?? []), line].slice(-LOG_LINES);
    this.#fresh.abort();
  }

  /** For the worker: tells the processor to stop. */
  stop(halt: Halt): void {
    this.#halt.abort(halt);
  }

  /** For the worker: why the gateway has refused a report, if it has. */
  get lost(): string | undefined {
    return this.#lost;
  }

  /** Reads the clock, since a processor that holds the event loop also holds up the keep-alives and the alarm. */
  #look(): void {
    const silent = performance.now() - this.#heard;
    if (silent > this.#left) {
      const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
      this.stop(new LeaseLost(`no keep-alive succeeded for ${seconds(silent)}, and the lease lasts ${seconds(this.#left)}`));
    }
  }

  /** Records that the gateway has refused a report, and returns what the log says about it. */
  #lose({ code }: GatewayError): string {
    const { reason } = this.signal as { reason: unknown };
    this.#lost = reason instanceof LeaseLost ? `${code}: ${reason.message}` : code;
    this.stop(new LeaseLost(this.#lost));
    return this.#lost;
  }

  #setAlarm(): void {
    clearTimeout(this.#alarm);
    if (!this.#halt.signal.aborted && !this.#over.signal.aborted) {
      const look = (): void => {
        this.#look();
        // A timer counts from when its turn of the event loop began, so it may come too early.
        this.#setAlarm();
      };
      this.#alarm = setTimeout(look, this.#heard + this.#left - performance.now() + 1).unref();
    }
  }

  /** Between keep-alives, in ms: three per lease at least, so that one answer may be late or missing. */
  get #pause(): number {
    return Math.min(this.#left / 3, KEEP_ALIVE_EVERY);
  }

  /** Sends news when there is any, and otherwise keep-alives. */
  async #keepAlive(): Promise<void> {
    const over = this.#over.signal;
    this.#setAlarm();
    over.addEventListener("abort", () => clearTimeout(this.#alarm));
    while (!over.aborted && this.#lost === undefined) {
      const pause = Math.min(NEWS_EVERY, this.#pause);
      await wait(this.#pause - pause, AbortSignal.any([over, this.#fresh.signal]));
      this.#fresh = new AbortController();
      if (!over.aborted) {
        await this.#sendNews(this.#takeNews()).catch((error: unknown) => this.#warn(`keep-alive of ${this.id}: ${error}`));
        await wait(pause, over);
      }
    }
  }

  #takeNews(): News {
    const news = this.#news;
    this.#news = {};
    return news;
  }

  /** Keeps news that were not sent for the next report, unless there are newer ones. */
  #putBack(news: News): void {
    const log = [...(news.log ?? []), ...(this.#news.log ?? [])].slice(-LOG_LINES);
    this.#news = { ...news, ...this.#news, ...(log.length > 0 && { log }) };
  }

  async #sendNews(news: News): Promise<void> {
    const sent = performance.now();
    const timeout = Math.max(Math.min(10_000, this.#left / 3), 500);
    try {
      const reported = await this.#report({ status: "IN_PROGRESS", ...news }, timeout, this.#pause / 2);
      this.#heard = sent;
      if (typeof reported.expires_at === "number") {
        this.#left = Math.max(reported.expires_at - reported.now, 100);
      }
      this.#setAlarm();
      if (reported.cancelled) {
        this.stop(new Cancelled("cancelled"));
      }
      if (reported.checkpoint_stored === false && news.checkpoint_base64 !== undefined) {
        this.#putBack({ checkpoint_base64: news.checkpoint_base64 });
      }
    } catch (error) {
      if (error instanceof LeaseRefused || error instanceof NotFound) {
        this.#lose(error);
      } else if (error instanceof Invalid && Object.keys(news).length > 0) {
        // The gateway would refuse the news again: the lease is kept alive without them.
        this.#warn(`news of ${this.id} are refused: ${error.message}`);
        await this.#sendNews({});
      } else {
        this.#putBack(news);
        this.#fresh.abort();
        throw error;
      }
    }
  }

  async #report(report: Report, timeout: number, patience: number): Promise<Reported> {
    // The gateway knows the lease's own report again.
    return json(await this.#gateways.request("POST", this.#path, { body: { lease: this.#lease, ...report }, timeout, patience }));
  }

  /**
   * For the worker: reports the end of the task. Repeats the report for `patience` ms until its outcome is known. Returns why the report does not count, if so.
   */
  async end(status: "SUCCEEDED" | "FAILED" | "RELEASED", patience: number, more: End = {}): Promise<string | undefined> {
    if (this.#over.signal.aborted) {
      return "already reported";
    }
    this.#over.abort();
    await this.#keeper;
    if (this.#lost !== undefined) {
      return this.#lost;
    }
    const news = this.#takeNews();
    if (status === "SUCCEEDED") {
      // No attempt follows that could continue from it.
      delete news.checkpoint_base64;
    }
    const limit = Math.max(patience, this.#left);
    try {
      await this.#report({ status, ...news, ...more }, 10_000, limit);
      return undefined;
    } catch (error) {
      if (error instanceof LeaseRefused || error instanceof NotFound) {
        return this.#lose(error);
      }
      if (error instanceof Invalid && status !== "RELEASED") {
        // Such as a result that is too large: another attempt would end in the same way, so the task fails for good.
        await this.#report({ status: "FAILED", fatal: true, reason: error.message }, 10_000, limit).catch((second: unknown) => {
          this.#warn(`the end of ${this.id} was not told: ${second}`);
        });
      }
      if (error instanceof LonghaulError) {
        return error instanceof GatewayError ? error.code : error.message;
      }
      throw error;
    }
  }

  /** For the worker: ends the keep-alives. */
  forget(): void {
    this.#over.abort();
  }
}

/** Waits for `time` ms, or until the signal is aborted. */
export async function wait(time: number, signal: AbortSignal): Promise<void> {
  await sleep(Math.max(time, 0), undefined, { signal }).catch(() => {});
}
