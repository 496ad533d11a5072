/** What a submitter and a worker do, against a real gateway. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { Cancelled, Client, Draining, Fatal, GatewayError, GiveBack, Halt, Invalid, NotFound, type Processor, TaskFailed, Worker, type WorkerOptions } from "../src/index.ts";
import { GATEWAY, queue } from "./stage.ts";

const client = new Client({ gateways: GATEWAY });

/** A worker that ends with the test. */
function work(t: TestContext, name: string, processor: Processor, options: WorkerOptions = {}): Worker {
  const worker = new Worker(client, name, processor, { drain: 0, leaseTime: 3, poll: 0.5, ...options });
  const ended = worker.work();
  t.after(() => {
    worker.stop();
    return ended;
  });
  return worker;
}

test("a payload arrives as it was, and so does the result", async (t) => {
  const name = await queue();
  work(t, name, (task) => task.payload);
  const cases: [unknown, Buffer][] = [
    ["Grüße", Buffer.from("Grüße")],
    [Uint8Array.of(0, 255), Buffer.of(0, 255)],
    [{ a: [1] }, Buffer.from('{"a":[1]}')],
    ["", Buffer.of()],
  ];
  for (const [payload, expected] of cases) {
    const task = await client.submit(name, payload);
    assert.deepEqual(Buffer.from(await client.result(name, task, 60)), expected);
    assert.deepEqual(Buffer.from(await client.payload(name, task)), expected);
  }
});

test("all that can be said of a task is understood", async () => {
  const name = await queue();
  const other = await client.submit(name, "first");
  const said = {
    type: "mail",
    key: "mine",
    tags: ["eu", "new"],
    properties: { a: "b" },
    delay: 3600,
    expiresAt: new Date(Date.now() + 86_400_000),
    idempotencyKey: "once",
    limitKey: "customer",
    after: [other],
    maxAttempts: 2,
    maxDuration: 60,
    maxTotalDuration: "2h",
    noProgressTimeout: 30.5,
    retry: { base: "1s", max: 5 },
    strict: true,
  };
  const task = await client.submit(name, "x", said);
  assert.equal(await client.submit(name, "x", said), task);
  const { status, type, key, tags } = await client.get(name, task);
  assert.deepEqual({ status, type, key, tags }, { status: "scheduled", type: "mail", key: "mine", tags: ["eu", "new"] });
  await assert.rejects(client.submit(name, "x", { maxAttempts: 0 }), { name: "Invalid", code: "request_unfit" });
});

test("a batch tells of each task, and lists go on behind a page", async () => {
  const name = await queue();
  const outcomes = await client.submitBatch(name, [{ payload: "a" }, { payload: "b", submission: { maxAttempts: 0 } }, { payload: Buffer.from("c") }]);
  assert(outcomes[1] instanceof Invalid && outcomes[1] instanceof GatewayError);
  const found: string[] = [];
  for await (const task of client.list(name, { page: 1 })) {
    found.push(task.id);
  }
  // They are stored in the order of the batch as a rule, and not always.
  assert.deepEqual(found.toSorted(), [outcomes[0], outcomes[2]].toSorted());
});

test("ends are told apart", async (t) => {
  const name = await queue();
  let task = await client.submit(name, "x");
  await assert.rejects(client.wait(name, task, 0.2), { name: "WaitTimeout" });
  await client.cancel(name, task, "no use");
  assert.equal((await client.wait(name, task, 60)).status, "cancelled");
  work(t, name, () => {
    throw new Fatal("torn");
  });
  task = await client.submit(name, "x");
  await assert.rejects(client.result(name, task, 60), (error) => error instanceof TaskFailed && /torn/.test(error.message) && error.task.cause === "error");
  assert((await client.history(name, task)).entries.some((entry) => entry.event === "leased"));
  assert.equal((await client.why(name, task)).sentence, "the task is over: failed");
  await assert.rejects(client.get(name, "999999:0:-1"), NotFound);
});

test("a processor is told why there is no use in going on", { timeout: 120_000 }, async (t) => {
  const name = await queue();
  const halts: unknown[] = [];
  const begun: (() => void)[] = [];
  const worker = work(t, name, async (task) => {
    begun.shift()?.();
    await task.sleep(60).catch((halt: unknown) => halts.push(halt));
    task.check();
  });
  const start = async (): Promise<string> => {
    const running = new Promise<void>((resolve) => begun.push(resolve));
    const task = await client.submit(name, "x");
    await running;
    return task;
  };
  const first = await start();
  await client.cancel(name, first);
  assert.equal((await client.wait(name, first, 60)).status, "cancelled");
  const second = await start();
  const released = (async () => {
    for (;;) {
      const { entries } = await client.history(name, second);
      if (entries.some((entry) => entry.event === "released")) return;
    }
  })();
  worker.stop();
  await released;
  assert.deepEqual(halts.map((halt) => [halt instanceof Halt, halt instanceof Cancelled, halt instanceof Draining]), [[true, true, false], [true, false, true]]);
});

test("what is given back costs no attempt, and its checkpoint is kept", async (t) => {
  const name = await queue();
  work(t, name, (task) => {
    if (task.lastCheckpoint === undefined) {
      task.checkpoint("seen");
      throw new GiveBack(0.1);
    }
    return `attempt ${task.attempt}`;
  });
  const task = await client.submit(name, "x");
  assert.equal(Buffer.from(await client.result(name, task, 60)).toString(), "attempt 1");
});

test("a stream goes on behind the last event that was seen", async (t) => {
  const name = await queue();
  const ids: (string | undefined)[] = [];
  let task: string | undefined;
  for await (const event of client.watch(name)) {
    if (event.kind === "caught-up") {
      work(t, name, () => undefined);
      task = await client.submit(name, "x");
    } else if (event.kind === "task") {
      assert.equal(event.task.id, task);
      ids.push(event.id);
      if (event.task.status === "completed") break;
    }
  }
  const again: (string | undefined)[] = [];
  const [first = ""] = ids;
  for await (const event of client.watch(name, { lastEventId: first })) {
    if (event.kind === "caught-up") break;
    again.push(event.id);
  }
  assert.deepEqual(again, ids.slice(1));
  // It ends by itself.
  for await (const event of client.watch(name, { task: task ?? "" })) {
    assert.equal(event.kind === "task" && event.task.status, "completed");
  }
});

/**
 * No report can be made of such a result. It looked like an answer that was lost, and was tried again for a minute; then the lease ran out, and each further
 * attempt met the same.
 */
test("what is no JSON is the mistake of who says it", async (t) => {
  const name = await queue();
  work(t, name, () => ({ large: 1n }), { leaseTime: 60 });
  const task = await client.submit(name, "x", { maxAttempts: 1 });
  const ended = await client.wait(name, task, 20);
  assert.match(ended.reason ?? "", /BigInt/);
  await assert.rejects(client.submit(name, { large: 1n }), TypeError);
});
