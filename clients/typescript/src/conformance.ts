/**
 * The worker that the conformance suite tests: the payload of a task tells what to do.
 *
 *     cargo run -p conformance -- node dist/conformance.js
 *
 * docs/leases.md of the project describes the steps.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "./client.ts";
import { Fatal, GiveBack, RetryAfter, type Task } from "./task.ts";
import { Worker } from "./worker.ts";

/** A step of the script. */
type Step = Partial<{
  succeed: string;
  succeed_base64: string;
  succeed_with: "checkpoint" | "payload";
  succeed_bytes: number;
  fail: string;
  fail_bytes: number;
  fatal: boolean;
  retry_after: number;
  give_back: number;
  progress: [number | "nan" | "inf", number, string];
  checkpoint: string;
  log: string;
  log_bytes: number;
  sleep: number;
  block: number;
}>;

async function work(task: Task): Promise<unknown> {
  for (const step of script(task)) {
    if (step.succeed !== undefined) return step.succeed;
    if (step.succeed_base64 !== undefined) return Buffer.from(step.succeed_base64, "base64");
    if (step.succeed_bytes !== undefined) return "x".repeat(step.succeed_bytes);
    if (step.succeed_with === "payload") return task.payload;
    if (step.succeed_with === "checkpoint") {
      if (task.lastCheckpoint !== undefined) return task.lastCheckpoint;
    } else if (step.fail !== undefined) {
      if (step.fatal) throw new Fatal(step.fail);
      throw step.retry_after === undefined ? new Error(step.fail) : new RetryAfter(step.retry_after, step.fail);
    } else if (step.give_back !== undefined) throw new GiveBack(step.give_back);
    else if (step.fail_bytes !== undefined) throw new Error("x".repeat(step.fail_bytes));
    else if (step.log_bytes !== undefined) task.log("x".repeat(step.log_bytes));
    else if (step.progress !== undefined) task.progress(number(step.progress[0]), step.progress[1], step.progress[2]);
    else if (step.checkpoint !== undefined) task.checkpoint(step.checkpoint);
    else if (step.log !== undefined) task.log(step.log);
    else if (step.sleep !== undefined) await task.sleep(step.sleep);
    else if (step.block !== undefined) await sleep(step.block * 1000);
    else throw new Fatal(`the script has an unknown step: ${JSON.stringify(step)}`);
  }
  return undefined;
}

/** The steps for this attempt. */
function script(task: Task): Step[] {
  try {
    const { attempts } = task.json() as { attempts: Step[][] };
    const steps = attempts[Math.min(task.attempt, attempts.length) - 1];
    if (Array.isArray(steps)) {
      return steps;
    }
  } catch {
    // The check below reports the error.
  }
  throw new Fatal("the payload is no script");
}

/** A number, or one of those that JSON does not have. */
function number(text: number | string): number {
  return text === "inf" ? Infinity : Number(text);
}

function said(name: string): string {
  const value = process.env[name];
  if (value === undefined) {
    throw new Error(`${name} is not set: the conformance suite sets it`);
  }
  return value;
}

const options = {
  name: said("LONGHAUL_WORKER"),
  concurrency: Number(said("LONGHAUL_CONCURRENCY")),
  leaseTime: Number(said("LONGHAUL_LEASE_TIME")),
  drain: number(said("LONGHAUL_DRAIN")),
  log: (line: string) => console.error(new Date().toISOString(), line),
};
const workers = said("LONGHAUL_QUEUE").split(",").map((queue) => new Worker(new Client(), queue, work, options));
await Promise.all(workers.map((worker) => worker.run()));
// A processor that was given up may still run.
process.exit(0);
