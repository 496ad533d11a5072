/**
 * A task that a worker has leased, and the keep-alives of its lease.
 *
 * The processor gets a `Task`. It returns the result, or throws an error, which fails the attempt; `Fatal`, `RetryAfter` and `GiveBack` have other effects.
 * The methods of a task throw a `Halt` when the processor must stop, and `task.signal` is aborted with it. If you catch a `Halt`, throw it again.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { bytes } from "./client.ts";
import { GatewayError, Invalid, isOver, LonghaulError } from "./errors.ts";
import { type Asking, type Gateways, json, TIMER_MAX } from "./http.ts";
import type { Lease, Report, Reported } from "./types.ts";

/** The shortest time between two reports with news, in ms. */
const NEWS_EVERY = 1_000;
/** The longest time between two keep-alives, in ms: their answers tell that the task was cancelled. */
const KEEP_ALIVE_EVERY = 5_000;
const CHECKPOINT_BYTES = 64 * 1024;
const LOG_LINES = 100;
const LINE_BYTES = 256;
export const REASON_BYTES = 16 * 1024;
/** Of a progress message. A report has 5 MiB at most. */
const MESSAGE_BYTES = 64 * 1024;

/** Throw it to fail the task for good: no further attempt follows. */
export class Fatal extends Error {}

/** Throw it to fail the attempt. The next attempt begins after `seconds`, whatever the queue's backoff is. */
export class RetryAfter extends Error {
  readonly seconds: number;

  constructor(seconds: number, reason: string) {
    super(reason);
    this.seconds = pause(seconds);
  }
}

/** Throw it to give the task back, which costs no attempt. No worker gets the task before `after` seconds. */
export class GiveBack extends Error {
  readonly after: number | undefined;

  constructor(after?: number) {
    super("given back");
    this.after = after === undefined ? undefined : pause(after);
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
  #heard: number;
  #left: number;
  /** Looks at the clock when the lease is over. */
  #alarm: NodeJS.Timeout | undefined;
  /** The pauses that gateways asked for after keep-alives of this task. */
  readonly #pauses = new Map<string, number>();
  readonly #warned = new Set<string>();
  /** The news for the next keep-alive. */
  #news: News = {};
  readonly #keeper: Promise<void>;

  /** For the worker. `left` is what the lease had left at `since`, by `performance.now`. */
  constructor(gateways: Gateways, queue: string, lease: Lease, left: number, since: number, warn: (line: string) => void) {
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
    this.#left = left;
    this.#heard = since;
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
    if (Number.isNaN(seconds)) {
      throw new RangeError("NaN is no number of seconds");
    }
    await wait(seconds * 1000, this.signal);
    this.check();
  }

  /**
   * Reports the progress of the task, in units of its own, within about a second. Newer progress replaces it. Throws a `Halt` like `check`. Numbers are rounded,
   * and a negative one is 0. Whatever is no number is left out, with a warning.
   */
  progress(done: number, total?: number, message?: string): void {
    this.check();
    const [known, all] = [whole(done), whole(total)];
    if (known === undefined || (all === undefined && total !== undefined)) {
      this.#warnOnce("progress", `${mend(done, 50)} of ${mend(total, 50)} is no progress`);
    }
    if (known !== undefined) {
      this.#news.progress = { done: known, total: all ?? 0, message: mend(message ?? "", MESSAGE_BYTES) };
      this.#fresh.abort();
    }
  }

  /** Stores up to 64 KiB for the next attempt, as its `lastCheckpoint`, within about a second. Throws a `Halt` like `check`. */
  checkpoint(data: ArrayBufferView | ArrayBufferLike | string): void {
    this.check();
    const kept = typeof data === "string" ? Buffer.from(data) : bytes(data);
    if (kept === undefined) {
      throw new TypeError("a checkpoint is bytes or text");
    }
    if (kept.length > CHECKPOINT_BYTES) {
      throw new RangeError(`a checkpoint has ${CHECKPOINT_BYTES} bytes at most, and this one ${kept.length}`);
    }
    this.#news.checkpoint_base64 = kept.toString("base64");
    this.#fresh.abort();
  }

  /** Reports a line for people who watch the task, cut at 256 bytes. Of more than 100 lines in a second, the last are sent. */
  log(line: string): void {
    const mended = mend(line, LINE_BYTES);
    if (mended !== line) {
      this.#warnOnce("log", `a log line is sent as ${mended}`);
    }
    this.#news.log = [...(this.#news.log ?? []), mended].slice(-LOG_LINES);
    this.#fresh.abort();
  }

  /** Warns once per task and kind. */
  #warnOnce(kind: string, line: string): void {
    if (!this.#warned.has(kind)) {
      this.#warned.add(kind);
      this.#warn(`${kind} of ${this.id}: ${line}`);
    }
  }

  /** For the worker: tells the processor to stop. */
  stop(halt: Halt): void {
    this.#halt.abort(halt);
  }

  /** For the worker: why the gateway has refused a report, if it has. */
  get lost(): string | undefined {
    return this.#lost;
  }

  /** For the worker: whether the end of the task is being reported. */
  get isEnding(): boolean {
    return this.#over.signal.aborted;
  }

  /** For the worker: whether a keep-alive or the end of the task is due, and not yet answered. */
  get isBehind(): boolean {
    return this.#lost === undefined && (this.isEnding || performance.now() - this.#heard > this.#pause);
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
      this.#alarm = setTimeout(look, Math.min(this.#heard + this.#left - performance.now() + 1, TIMER_MAX)).unref();
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
        await this.#sendNews(this.#takeNews()).catch((error: unknown) => {
          if (!over.aborted) this.#warn(`keep-alive of ${this.id}: ${error}`);
        });
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
    for (const part of everLess(news)) {
      try {
        // The end of the task waits for no pause of a keep-alive.
        const limits = { timeout, patience: this.#pause / 2, pauses: this.#pauses, halt: this.#over.signal };
        const reported = await this.#report({ status: "IN_PROGRESS", ...part }, limits);
        this.#heard = sent;
        if (typeof reported.expires_at === "number") {
          this.#left = Math.max(reported.expires_at - reported.now, 100);
        }
        this.#setAlarm();
        if (reported.cancelled) {
          this.stop(new Cancelled("cancelled"));
        }
        if (reported.checkpoint_stored === false && part.checkpoint_base64 !== undefined) {
          this.#putBack({ checkpoint_base64: part.checkpoint_base64 });
        }
        return;
      } catch (error) {
        if (isOver(error)) {
          this.#lose(error);
          return;
        }
        if (!(error instanceof Invalid) || Object.keys(part).length === 0) {
          this.#putBack(part);
          this.#fresh.abort();
          throw error;
        }
        // The gateway would refuse these news again, but the lease must go on.
        this.#warnOnce("news", error.message);
      }
    }
  }

  async #report(report: Report, limits: Asking): Promise<Reported> {
    // The gateway knows the lease's own report again.
    const asking = { body: { lease: this.#lease, ...report }, expects: ["cancelled", "now"], retryAfterMax: this.#left / 3, ...limits };
    const reported = json<Reported>(await this.#gateways.request("POST", this.#path, asking));
    for (const warning of reported.warnings ?? []) {
      this.#warn(`news of ${this.id}: ${warning}`);
    }
    return reported;
  }

  /**
   * For the worker: reports the end of the task. Repeats the report for `patience` ms until its outcome is known. Returns why the report does not count, if so.
   */
  async end(status: "SUCCEEDED" | "FAILED" | "RELEASED", patience: number, more: End = {}): Promise<string | undefined> {
    if (this.isEnding) {
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
    const reports: Report[] = everLess(news).map((part) => ({ status, ...part, ...more }));
    let refused: string | undefined;
    for (const report of reports) {
      try {
        await this.#report(report, { timeout: 10_000, patience: Math.max(patience, this.#left), pauses: new Map() });
        return refused;
      } catch (error) {
        if (isOver(error)) {
          return this.#lose(error);
        }
        if (!(error instanceof Invalid)) {
          return error instanceof GatewayError ? error.code : error instanceof LonghaulError ? error.message : String(error);
        }
        this.#warn(`the end of ${this.id} is refused: ${error.message}`);
        if (report === reports.at(-1)) {
          if (status === "RELEASED" || refused !== undefined) {
            return refused ?? error.code;
          }
          // Such as a result that is too large: another attempt would end alike.
          refused = error.code;
          reports.push({ status: "FAILED", fatal: true, reason: mend(error.message, REASON_BYTES) });
        }
      }
    }
    return refused;
  }

  /** For the worker: ends the keep-alives. */
  forget(): void {
    this.#over.abort();
  }
}

/** What to send of the news, each part after the one before it was refused: all, the checkpoint alone, nothing. */
function everLess(news: News): News[] {
  const parts = [news];
  if (news.checkpoint_base64 !== undefined && Object.keys(news).length > 1) {
    parts.push({ checkpoint_base64: news.checkpoint_base64 });
  }
  return Object.keys(news).length > 0 ? [...parts, {}] : parts;
}

/** Waits for `time` ms, or until the signal is aborted. */
export async function wait(time: number, signal: AbortSignal): Promise<void> {
  const end = performance.now() + time;
  let left = time;
  do {
    await sleep(Math.min(Math.max(left, 0), TIMER_MAX), undefined, { signal }).catch(() => {});
    left = end - performance.now();
  } while (left > 0 && !signal.aborted);
}

/** The value as text that a report can carry: half of a surrogate pair is replaced, and the end is cut. */
export function mend(value: unknown, limit: number): string {
  let text: string;
  try {
    text = String(value);
  } catch {
    text = "a value without text";
  }
  // A `Buffer` replaces half of a pair, and the decoder leaves out half of a character.
  const kept = Buffer.from(text.slice(0, limit)).subarray(0, limit);
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(kept, { stream: true });
}

/** A number of a progress; nothing if it is none. */
function whole(value: unknown): number | undefined {
  const number = typeof value === "bigint" ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? Math.max(Math.round(number), 0) : undefined;
}

/** A pause in seconds, which is 0 if it is below. Throws if it is no number. */
function pause(seconds: number): number {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) {
    throw new RangeError(`${seconds} is no pause in seconds`);
  }
  return Math.max(seconds, 0);
}
