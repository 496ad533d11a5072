/** A leased task whose lease is kept alive. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Answer, Gateway, Lease, Report } from "./gateway.ts";

/** News of a task are sent when they come, but no more often than this, in ms. */
const NEWS_EVERY = 1_000;

/** The task is not ours any more: nobody wants to hear of it from us. */
export class Lost extends Error {}

/** Somebody has asked for the end of the task. It ends as cancelled, whatever we report, and sooner if we do. */
export class Cancelled extends Error {}

export class Task {
  readonly id: string;
  readonly attempt: number;
  readonly payload: Buffer;
  readonly checkpoint: Buffer | undefined;
  /** Aborted when there is no use in going on; its reason says why. */
  readonly signal: AbortSignal;
  readonly #gateway: Gateway;
  readonly #lease: string;
  readonly #lost = new AbortController();
  readonly #over = new AbortController();
  /** Aborted when there is something to tell; replaced by another one then. */
  #fresh = new AbortController();
  readonly #keeper: Promise<void>;
  /** Time until the lease ends, in ms. */
  #left: number;
  /** What the next keep-alive says. */
  #news: Omit<Report, "status"> = {};

  /** `now` is the gateway's clock: ours may differ. */
  constructor(gateway: Gateway, lease: Lease, now: number, stop: AbortSignal) {
    this.#gateway = gateway;
    this.#lease = lease.lease;
    this.id = lease.task;
    this.attempt = lease.attempt;
    this.payload = lease.payload === undefined ? Buffer.from(lease.payload_base64 ?? "", "base64") : Buffer.from(lease.payload);
    this.checkpoint = lease.checkpoint_base64 === undefined ? undefined : Buffer.from(lease.checkpoint_base64, "base64");
    this.signal = AbortSignal.any([this.#lost.signal, stop]);
    this.#left = lease.expires_at - now;
    this.#keeper = this.#keepAlive();
  }

  /** Tells how far the task has come, and keeps a checkpoint for the next attempt. Both are sent within a second or so, the newest alone. */
  progress(done: number, total: number, message: string, checkpoint?: string): void {
    this.signal.throwIfAborted();
    this.#news = { progress: { done, total, message } };
    if (checkpoint !== undefined) {
      this.#news.checkpoint_base64 = Buffer.from(checkpoint).toString("base64");
    }
    this.#fresh.abort();
  }

  async #keepAlive(): Promise<void> {
    const over = this.#over.signal;
    while (!over.aborted) {
      // When there is news, and otherwise three times per lease, so that one answer may be late or missing.
      const pause = Math.min(NEWS_EVERY, this.#left / 3);
      await this.#wait(this.#left / 3 - pause, AbortSignal.any([over, this.#fresh.signal]));
      if (!over.aborted) {
        this.#fresh = new AbortController();
        await this.#tellNews();
        await this.#wait(pause, over);
      }
    }
  }

  /** Waits for so many ms, or until the signal comes. */
  async #wait(time: number, signal: AbortSignal): Promise<void> {
    await sleep(time, undefined, { signal }).catch(() => {});
  }

  async #tellNews(): Promise<void> {
    const news = this.#news;
    this.#news = {};
    const [status, answer] = await this.#gateway.report(this.#lease, { status: "IN_PROGRESS", ...news });
    if (status === 200) {
      this.#left = (answer.expires_at ?? 0) - (answer.now ?? 0);
      if (answer.cancelled) {
        this.#lost.abort(new Cancelled("cancelled"));
      }
    } else if (status === 404 || status === 409) {
      this.#lost.abort(new Lost(answer.code));
    } else {
      this.#news = { ...news, ...this.#news };
      this.#fresh.abort();
    }
  }

  /** Ends the keep-alives. */
  async stop(): Promise<void> {
    this.#over.abort();
    await this.#keeper;
  }

  /** Reports the end, and asks again where it is not known whether it counts: the gateway knows the lease's own report again. */
  async end(report: Report): Promise<[number, Answer]> {
    await this.stop();
    if (report.status !== "SUCCEEDED") {
      // The next attempt goes on from the last checkpoint.
      report = { ...this.#news, ...report };
    }
    const giveUp = performance.now() + this.#left;
    for (;;) {
      const [status, answer] = await this.#gateway.report(this.#lease, report);
      if (![0, 429, 503].includes(status) || performance.now() > giveUp) {
        return [status, answer];
      }
      await sleep(500);
    }
  }
}
