/**
 * A worker in TypeScript, with nothing but what Node brings: it leases tasks from a gateway of longhaul, keeps each lease alive while it works on the task,
 * and reports how the task ended.
 *
 *     node worker.ts QUEUE [--url http://127.0.0.1:7070] [--name NAME] [--lease-time SECONDS]      (Node 22.18 or later)
 *     npm install && npm run build && node built/worker.js QUEUE …                                 (Node 20)
 *
 * A token of the gateway is taken from LONGHAUL_TOKEN. Replace `work` by what your tasks are.
 */

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Gateway, type Report } from "./gateway.ts";
import { Cancelled, Lost, Task } from "./task.ts";

/** The task has failed for good: another attempt would fail as well. */
class Fatal extends Error {}

/** This worker is to end: its task is given back, which costs it no attempt. */
class Stopped extends Error {}

/** Copies the pages of a book, and goes on where the last attempt was. Returns the result; an error is a failed attempt. */
async function work(task: Task): Promise<string> {
  const order = JSON.parse(task.payload.toString()) as {
    pages: number;
    seconds_per_page?: number;
    stuck_at?: number;
    broken?: string;
  };
  if (order.broken !== undefined) {
    throw new Fatal(order.broken);
  }
  for (let page = Number(task.checkpoint ?? 0) + 1; page <= order.pages; page += 1) {
    if (page === order.stuck_at && task.attempt === 1) {
      throw new Error(`page ${page} is stuck`);
    }
    await sleep((order.seconds_per_page ?? 0.1) * 1000);
    // Throws when there is no use in going on.
    task.progress(page, order.pages, "copying", String(page));
  }
  return `${order.pages} pages`;
}

/** Runs one task, and says how it ended. */
async function workOn(task: Task): Promise<void> {
  console.log(`leased ${task.id} attempt ${task.attempt}`);
  let report: Report;
  try {
    const result = await work(task);
    report = { status: "SUCCEEDED", result_base64: Buffer.from(result).toString("base64") };
  } catch (error) {
    if (error instanceof Lost) {
      await task.stop();
      console.log(`lost ${task.id}: ${error.message}`);
      return;
    }
    if (error instanceof Cancelled) {
      await task.end({ status: "FAILED", reason: error.message });
      console.log(`cancelled ${task.id}`);
      return;
    }
    report =
      error instanceof Stopped
        ? { status: "RELEASED" }
        : { status: "FAILED", reason: error instanceof Error ? error.message : String(error), fatal: error instanceof Fatal };
  }
  const [status, answer] = await task.end(report);
  const told = report.status.toLowerCase();
  console.log(`${status === 200 ? told : `not ${told}`} ${task.id} ${answer.code ?? ""}`.trimEnd());
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    url: { type: "string", default: "http://127.0.0.1:7070" },
    name: { type: "string", default: `${hostname()}-${process.pid}` },
    "lease-time": { type: "string", default: "30" },
  },
});
const queue = positionals[0];
if (queue === undefined) {
  throw new Error("name the queue: worker QUEUE [OPTIONS]");
}
const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => stop.abort(new Stopped()));
}
const gateway = new Gateway(values.url, queue);
console.log("ready");
while (!stop.signal.aborted) {
  const [status, answer] = await gateway.lease(values.name, Number(values["lease-time"]));
  if (status === 200) {
    for (const lease of answer.leases ?? []) {
      await workOn(new Task(gateway, lease, answer.now ?? 0, stop.signal));
    }
  } else if (status !== 204) {
    console.log(`no lease: ${answer.code}: ${answer.detail}`);
    await sleep(1000);
  }
}
