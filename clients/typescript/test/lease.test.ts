/** What a worker does when its lease runs out, against a gateway that judges by its own clock. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Fatal, LeaseLost, type Processor, RetryAfter, Worker } from "../src/index.ts";
import { judging, type Planted, problem } from "./stage.ts";

const LEASE = 1_000;

interface Leased {
  tasks: number;
  concurrency?: number;
  leaseTime?: number;
  cancelled?: boolean;
  /** The answer to each keep-alive in time, in place of the usual one. */
  keepAlive?: Planted;
  /** Gets the reports of ends. */
  ends?: Record<string, unknown>[];
  /** The answers to the first ends. */
  planted?: Planted[];
  /** The first answer to a confirmation, to a keep-alive and to an end. */
  first?: Planted;
  /** The answer to each report with progress. */
  progress?: Planted;
  /** The outcomes of each confirmation. `stop` ends the worker. */
  confirm?: (stop: () => void) => string[];
}

/**
 * Works on the tasks of a gateway until something was told of the last one, keep-alives that were taken not counted. Returns what was told, and logged. A
 * lease ends when its keep-alives are missing; a report after that is refused.
 */
async function work(t: TestContext, gateway: Leased, processor: Processor): Promise<{ told: string[]; log: string[] }> {
  const leaseTime = gateway.leaseTime ?? LEASE;
  const until = new Map<string, number>();
  const told: string[] = [];
  const log: string[] = [];
  const answered = new Set<unknown>();
  const stage = await judging((path, body) => {
    const now = performance.now();
    const times = { now, expires_at: now + leaseTime };
    const kind = (body as { status?: unknown }).status ?? path;
    if (gateway.first !== undefined && !path.endsWith("/leases") && !answered.has(kind)) {
      answered.add(kind);
      return gateway.first;
    }
    if (path.endsWith("/leases")) {
      if (until.size === gateway.tasks) {
        return [204, {}, undefined];
      }
      const { count } = body as { count: number };
      const leases = Array.from({ length: Math.min(count, gateway.tasks - until.size) }, () => {
        const task = `1:${until.size}:-1`;
        until.set(task, times.expires_at);
        return { lease: task, task, epoch: 1, attempt: 1, max_attempts: 3, properties: {}, payload: task, expires_at: times.expires_at };
      });
      return [200, {}, { leases, now }];
    }
    if (path.endsWith("/leases:confirm")) {
      const outcomes = gateway.confirm?.(() => worker.stop()) ?? (body as { leases: string[] }).leases.map(() => "RESULT_OK");
      return [200, {}, { outcomes: outcomes.map((outcome) => ({ outcome })), now }];
    }
    const { lease, status, progress } = body as { lease: string; status: string; progress?: unknown };
    if (status !== "IN_PROGRESS") {
      gateway.ends?.push(body as Record<string, unknown>);
      const planted = gateway.planted?.shift();
      if (planted !== undefined) {
        return planted;
      }
    }
    if (progress !== undefined && gateway.progress !== undefined) {
      return gateway.progress;
    }
    if (now > (until.get(lease) ?? 0)) {
      told.push(`${lease} ${status} refused`);
      return problem(409, "lease_expired");
    }
    if (status !== "IN_PROGRESS") {
      told.push(`${lease} ${status}`);
    } else if (gateway.keepAlive !== undefined) {
      return gateway.keepAlive;
    } else {
      until.set(lease, times.expires_at);
    }
    return [200, {}, { cancelled: gateway.cancelled ?? false, ...times }];
  });
  t.after(stage.close);
  const worker = new Worker(new Client({ gateways: stage.url }), "q", processor, {
    concurrency: gateway.concurrency ?? 1,
    poll: 0.1,
    leaseTime: leaseTime / 1000,
    drain: 0,
    log: (line) => log.push(line),
  });
  const ended = worker.work();
  while (!told.some((line) => line.startsWith(`1:${gateway.tasks - 1}:-1`))) {
    await sleep(20);
  }
  worker.stop();
  await ended;
  return { told, log };
}

/** Keeps everything else from running, as a bad regular expression does. */
function hold(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test("a processor that holds the event loop loses its task, and the worker goes on", { timeout: 30_000 }, async (t) => {
  const seen: unknown[] = [];
  const { told, log } = await work(t, { tasks: 3 }, (task) => {
    if (task.id !== "1:2:-1") {
      hold(1.5 * LEASE);
    }
    if (task.id === "1:0:-1") {
      seen.push(task.signal.aborted, task.signal.reason);
      task.check();
    }
    return "late";
  });
  // The gateway refuses a keep-alive or the end of a late task, whichever comes first.
  assert(told.every((line) => line.endsWith("refused") !== line.startsWith("1:2:-1")), told.join());
  assert(!told.includes("1:0:-1 SUCCEEDED refused"));
  assert(told.includes("1:2:-1 SUCCEEDED"));
  const sentence = "no keep-alive succeeded for 1\\.\\d s, and the lease lasts 1\\.0 s";
  assert.equal(seen[0], true);
  assert(seen[1] instanceof LeaseLost);
  assert.match(seen[1].message, new RegExp(sentence));
  for (const task of ["1:0:-1", "1:1:-1"]) {
    const lines = log.filter((line) => line.startsWith(`lost ${task}`));
    assert.equal(lines.length, 1, log.join("\n"));
    assert.match(lines[0] ?? "", new RegExp(`lease_expired: ${sentence}`));
  }
  assert(log.includes("succeeded 1:2:-1"));
});

// Four processors without an `await` ran back to back, and no keep-alive or end left in between. Each took less than a lease, and all four leases were lost.
test("a processor begins after the reports that an earlier one held up", { timeout: 30_000 }, async (t) => {
  const { told, log } = await work(t, { tasks: 4, concurrency: 4, leaseTime: 2_000 }, () => hold(1_200));
  assert.deepEqual(told, [0, 1, 2, 3].map((task) => `1:${task}:-1 SUCCEEDED`), log.join("\n"));
});

test("a processor is told when no keep-alive is answered", { timeout: 30_000 }, async (t) => {
  let toldAfter = Infinity;
  // The worker waits as long as the gateway says, and the processor is told meanwhile.
  const { log } = await work(t, { tasks: 1, keepAlive: problem(503, "draining", { "Retry-After": "4" }) }, async (task) => {
    const begun = performance.now();
    await task.sleep(10).finally(() => (toldAfter = performance.now() - begun));
  });
  assert(toldAfter < 3 * LEASE, String(toldAfter));
  assert.match(log.join("\n"), /lost 1:0:-1: lease_expired: no keep-alive succeeded for /);
});

// A keep-alive was told to wait for 20 s. The processor returned, and its end was sent after the pause, when the lease was over.
test("an end does not wait for the pause of a keep-alive", { timeout: 30_000 }, async (t) => {
  const ends: Record<string, unknown>[] = [];
  const begun = performance.now();
  const { log } = await work(t, { tasks: 1, leaseTime: 60_000, keepAlive: problem(503, "draining", { "Retry-After": "20" }), ends }, async (task) => {
    task.progress(1);
    // The next keep-alive begins with the pause.
    await task.sleep(2);
  });
  assert(performance.now() - begun < 15_000);
  assert.deepEqual(ends.map(({ status, progress }) => [status, progress]), [["SUCCEEDED", { done: 1, total: 0, message: "" }]]);
  assert.equal(log.filter((line) => line.startsWith("keep-alive of")).length, 1, log.join("\n"));
});

// A balancer answered the final report with a page and `Retry-After: 60`. The worker waited for 30 s, the lease ended, and the result was lost.
test("a lease outlives every Retry-After", { timeout: 30_000 }, async (t) => {
  const headers = { "Retry-After": "60" };
  for (const first of [[503, { "Content-Type": "text/html", ...headers }, "<html>"] satisfies Planted, problem(503, "draining", headers)]) {
    const { told } = await work(t, { tasks: 1, leaseTime: 3_000, first }, (task) => task.sleep(4));
    assert.deepEqual(told, ["1:0:-1 SUCCEEDED"]);
  }
});

// The broker was away for a moment. A worker took UNKNOWN for a loss, and its task was given back after the whole lease time.
test("a confirmation is repeated while an outcome is unknown", { timeout: 30_000 }, async (t) => {
  const outcomes = [["UNKNOWN"], [], ["RESULT_OK"]];
  const { told } = await work(t, { tasks: 1, leaseTime: 60_000, confirm: () => outcomes.shift() ?? [] }, () => assert.equal(outcomes.length, 0));
  assert.deepEqual(told, ["1:0:-1 SUCCEEDED"]);
  const confirm = (stop: () => void): string[] => {
    stop();
    return ["UNKNOWN"];
  };
  const ended = await work(t, { tasks: 1, leaseTime: 60_000, confirm }, () => assert.fail("it begins in a drain"));
  assert.deepEqual(ended.told, ["1:0:-1 RELEASED"]);
});

// A result of a megabyte had many control characters, each of 6 bytes in JSON. The report was too large, and the task failed for good.
test("a text that JSON makes long is sent in base64", { timeout: 30_000 }, async (t) => {
  const texts = ["\u0001".repeat(1_000_000), "ü".repeat(500_000), "short \u0001"];
  const results = [...texts];
  const ends: Record<string, unknown>[] = [];
  await work(t, { tasks: 3, leaseTime: 30_000, ends }, () => results.shift());
  assert(Buffer.from(String(ends[0]?.["result_base64"]), "base64").toString() === texts[0]);
  assert(ends[1]?.["result"] === texts[1] && ends[2]?.["result"] === texts[2]);
});

// A processor ignored its signal, and its promise kept the process alive for as long as it took: the machine killed it, or a deployment waited.
test("a process ends although a processor does not", { timeout: 60_000 }, async (t) => {
  const ends: string[] = [];
  const times = { now: 0, expires_at: 60_000 };
  let isGranted = false;
  const stage = await judging((path, body) => {
    if (path.endsWith("/leases")) {
      const lease = { lease: "l", task: "1:0:-1", epoch: 1, attempt: 1, max_attempts: 3, properties: {}, payload: "", expires_at: 60_000 };
      const leases = isGranted ? [] : [lease];
      isGranted = true;
      return leases.length > 0 ? [200, {}, { leases, now: 0 }] : [204, {}, undefined];
    }
    const { status } = body as { status?: string };
    if (status !== undefined && status !== "IN_PROGRESS") ends.push(status);
    return [200, {}, path.endsWith("confirm") ? { outcomes: [{ outcome: "RESULT_OK" }], now: 0 } : { cancelled: false, ...times }];
  });
  t.after(stage.close);
  const script = `
    const { Client, Worker } = await import(process.argv[1]);
    const never = () => {
      setInterval(() => undefined, 1000);
      console.log("begun");
      return { then: () => undefined };
    };
    await new Worker(new Client({ gateways: process.argv[2] }), "q", never, { drain: 0.1, poll: 0.1 }).run();
    console.log("goes on after run");
  `;
  const program = new URL("../src/index.js", import.meta.url).href;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script, program, stage.url], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  let said = "";
  child.stdout.on("data", (part: Buffer) => (said += part));
  await once(child.stdout, "data");
  child.kill("SIGTERM");
  const begun = performance.now();
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert(performance.now() - begun < 15_000);
  assert.deepEqual([ends, said], [["RELEASED"], "begun\ngoes on after run\n"]);
});

// A worker drained while a proxy answered the report of a success. It forgot the report after the grace, and the result was lost with the process.
test("a drain waits for the ends that are on their way", { timeout: 30_000 }, async (t) => {
  let end: (() => void) | undefined;
  const confirm = (stop: () => void): string[] => {
    end = stop;
    return ["RESULT_OK"];
  };
  // The pauses between them take longer than the grace of 5 s.
  const planted = Array.from({ length: 6 }, (): Planted => [502, {}, "<html>"]);
  const { told, log } = await work(t, { tasks: 1, leaseTime: 60_000, planted, confirm }, () => {
    end?.();
    return "fine";
  });
  assert.deepEqual(told, ["1:0:-1 SUCCEEDED"]);
  assert.deepEqual(log.slice(-2), ["succeeded 1:0:-1", "drained"]);
});

test("a cancel does not wait for a third of a long lease", { timeout: 30_000 }, async (t) => {
  const begun = performance.now();
  const { told } = await work(t, { tasks: 1, leaseTime: 600_000, cancelled: true }, (task) => task.sleep(25));
  assert(performance.now() - begun < 8_000);
  assert.deepEqual(told, ["1:0:-1 FAILED"]);
});

test("news that are refused end no lease", { timeout: 30_000 }, async (t) => {
  const { told } = await work(t, { tasks: 1, progress: problem(422, "request_unfit") }, async (task) => {
    for (let step = 0; step < 8; step += 1) {
      task.progress(1);
      await task.sleep(0.4);
    }
  });
  assert.deepEqual(told, ["1:0:-1 SUCCEEDED"]);
});

// A processor logged half an emoji, or a percentage. Its result was refused with that, and the task failed for good.
test("odd news and reasons decide nothing", { timeout: 30_000 }, async (t) => {
  const ends: Record<string, unknown>[] = [];
  await work(t, { tasks: 2, ends }, (task) => {
    for (const line of ["half \ud83d", "x".repeat(6_000_000), undefined, Object.create(null)]) {
      task.log(line as string);
    }
    for (const done of [33.4, -1, Infinity, NaN, "7"]) {
      task.progress(done as number, 100);
    }
    if (task.id === "1:0:-1") throw new Error(`half \ud83d ${"x".repeat(6_000_000)}`);
    return "fine";
  });
  const [failed, succeeded] = ends;
  assert.deepEqual(failed?.["log"], ["half \ufffd", "x".repeat(256), "undefined", "a value without text"]);
  assert.deepEqual(failed?.["progress"], { done: 0, total: 100, message: "" });
  assert.match(String(failed?.["reason"]), /^half \ufffd xxx/);
  assert.equal(Buffer.byteLength(String(failed?.["reason"])), 16 * 1024);
  assert.equal(failed?.["fatal"], undefined);
  assert.equal(succeeded?.["result"], "fine");
  for (const pause of [NaN, Infinity, "1"]) {
    assert.throws(() => new RetryAfter(pause as number, ""), RangeError);
  }
  assert.equal(new RetryAfter(-0.5, "").seconds, 0);
});

// A task returned a BigInt. Its hour of work was done once per attempt, and failed each time.
test("a result that is no JSON fails once", { timeout: 30_000 }, async (t) => {
  const circle: unknown[] = [];
  circle.push(circle);
  const results: unknown[] = [{ n: 10n }, circle, () => 1, "\ud83d", new DataView(new ArrayBuffer(2)), new Uint8Array([255]).buffer];
  const ends: Record<string, unknown>[] = [];
  await work(t, { tasks: results.length, ends }, () => results.shift());
  for (const end of ends.splice(0, 4)) {
    assert.equal(end["fatal"], true);
    assert.match(String(end["reason"]), /^the result cannot be sent: /);
  }
  assert.deepEqual(ends.map((end) => end["result_base64"]), ["AAA=", "/w=="]);
});

// A gateway refused a final report with 405 or 308 after a faulty update. The worker took that for a verdict, and failed the task for good.
test("only a report that cannot be used is refused for good", { timeout: 60_000 }, async (t) => {
  for (const status of [308, 402, 405, 406, 411, 431, 451]) {
    const { told } = await work(t, { tasks: 1, leaseTime: 30_000, planted: [problem(status, "odd")] }, () => "fine");
    assert.deepEqual(told, ["1:0:-1 SUCCEEDED"], String(status));
  }
  for (const status of [400, 413, 415, 422]) {
    const { told } = await work(t, { tasks: 1, leaseTime: 30_000, planted: [problem(status, "odd")] }, () => "fine");
    assert.deepEqual(told, ["1:0:-1 FAILED"], String(status));
  }
});

// One answer of a proxy to the final report, or a 401 after a token was rotated, threw hours of work away.
test("only a gateway's own code is a verdict", { timeout: 60_000 }, async (t) => {
  const pages = [302, 400, 401, 403, 404, 408, 409, 413, 421, 431, 500, 200].map((status): Planted => [status, { "Content-Type": "text/html" }, "<html>"]);
  for (const planted of [...pages, problem(401, "token_unknown"), problem(403, "scope_missing"), problem(404, "not_found")]) {
    const { told } = await work(t, { tasks: 1, leaseTime: 30_000, planted: [planted] }, () => "fine");
    assert.deepEqual(told, ["1:0:-1 SUCCEEDED"]);
  }
});

test("long times mean themselves, and impossible ones are refused", { timeout: 30_000 }, async (t) => {
  const begun = performance.now();
  // A timer of more than 24.8 days was over at once.
  const { told } = await work(t, { tasks: 1, leaseTime: 600_000, cancelled: true }, (task) => task.sleep(30 * 86_400));
  assert(performance.now() - begun > 3_000);
  assert.deepEqual(told, ["1:0:-1 FAILED"]);
  // A gateway refused each request of a worker with a lease time of 0.05 s or a concurrency of 1.5, and it ran nothing.
  for (const [field, values] of Object.entries({ drain: [NaN, -1], leaseTime: [Infinity, 0.05, 1e9], poll: [31, -1], concurrency: [0, 1.5, NaN] })) {
    for (const value of values) {
      const refusal = { name: "RangeError", message: new RegExp(`^${field} is ${value}`) };
      assert.throws(() => new Worker(new Client(), "q", () => undefined, { [field]: value }), refusal);
    }
  }
});

test("the log has the reason of a failure and where it was thrown", { timeout: 30_000 }, async (t) => {
  const { log } = await work(t, { tasks: 2 }, function torn(task) {
    if (task.id === "1:0:-1") throw new RangeError("page 7");
    throw new Fatal("torn", { cause: new Error("no ink") });
  });
  const [first = "", second = ""] = log.filter((line) => line.startsWith("attempt 1 of "));
  assert.match(first, /^attempt 1 of 1:0:-1 failed: RangeError: page 7\n +at .*torn /);
  assert.match(second, /^attempt 1 of 1:1:-1 failed: Fatal.*: torn\n +at .*torn [^]*cause[^]*no ink/);
});
