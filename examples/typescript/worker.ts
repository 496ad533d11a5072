/**
 * A worker in TypeScript, upon the package in `clients/typescript`: it copies books, page by page, and goes on where the last attempt was.
 *
 *     (cd ../../clients/typescript && npm install && npm run build)
 *     npm install && npm run build && node built/worker.js QUEUE [--url http://127.0.0.1:7070] [--name NAME] [--lease-time SECONDS]
 *
 * A token of the gateway is taken from LONGHAUL_TOKEN. Replace `work` by what your tasks are.
 */

import { parseArgs } from "node:util";
import { Client, Fatal, type Task, Worker } from "longhaul";

/** Copies the pages of a book. Returns the result; an error is a failed attempt. */
async function work(task: Task): Promise<string> {
  const order = task.json() as { pages: number; seconds_per_page?: number; stuck_at?: number; broken?: string };
  if (order.broken !== undefined) {
    throw new Fatal(order.broken);
  }
  for (let page = Number(task.lastCheckpoint ?? 0) + 1; page <= order.pages; page += 1) {
    if (page === order.stuck_at && task.attempt === 1) {
      throw new Error(`page ${page} is stuck`);
    }
    // Both throw when there is no use in going on.
    await task.sleep(order.seconds_per_page ?? 0.1);
    task.checkpoint(String(page));
    task.progress(page, order.pages, "copying");
  }
  return `${order.pages} pages`;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { url: { type: "string" }, name: { type: "string" }, "lease-time": { type: "string", default: "30" } },
});
const [queue] = positionals;
if (queue === undefined) {
  throw new Error("name the queue: worker QUEUE [OPTIONS]");
}
await new Worker(new Client(values.url === undefined ? {} : { gateways: values.url }), queue, work, {
  ...(values.name !== undefined && { name: values.name }),
  concurrency: 1,
  leaseTime: Number(values["lease-time"]),
  drain: 0,
  // What becomes of each task.
  log: (line) => console.log(line),
}).run();
