/**
 * Workers and submitters for longhaul, over HTTP: long-running tasks on Apache Pulsar.
 *
 * `Client` submits tasks and operates queues, `Worker` runs tasks. `types` has the gateway's requests
 * and answers.
 */

export { Client, type ClientOptions, type Filter, type Instant, type Length, type OfLevel, type Payload, type Submission } from "./client.ts";
export * from "./errors.ts";
export type { TaskEvent } from "./events.ts";
export { Cancelled, Draining, Fatal, GiveBack, Halt, LeaseLost, RetryAfter, Task } from "./task.ts";
export type * as types from "./types.ts";
export { VERSION } from "./version.ts";
export { Worker, type Processor, type WorkerOptions } from "./worker.ts";
