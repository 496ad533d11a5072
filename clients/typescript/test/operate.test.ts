/** What operators do, against a real gateway; and which of it is repeated. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test, type TestContext } from "node:test";
import { Client, Conflict, Fatal, NotFound, OutcomeUnknown, type Processor, VERSION, Worker, type WorkerOptions } from "../src/index.ts";
import { busy, GATEWAY, queue } from "./stage.ts";

const client = new Client({ gateways: GATEWAY });
const LEVELS = ["high", "normal", "low"] as const;

/** All that is iterated: Node 20 has no `Array.fromAsync`. */
async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** A worker that ends with the test. */
function work(t: TestContext, name: string, processor: Processor, options: WorkerOptions = {}): Promise<void> {
  const worker = new Worker(client, name, processor, { drain: 0, poll: 0.5, ...options });
  const ended = worker.work();
  t.after(() => {
    worker.stop();
    return ended;
  });
  return ended;
}

test("queues are made, changed and deleted", async () => {
  const name = `${await queue()}-more`;
  assert.notDeepEqual((await client.createQueue(name, { levels: true, partitions: 2 })).steps, []);
  assert.deepEqual((await client.createQueue(name)).steps, []);
  assert((await client.queues()).includes(name));
  const found = await client.queue(name);
  assert.deepEqual([found.name, found.levels, found.version], [name, true, 0]);
  const version = await client.changeQueue(name, { description: "letters" }, found.version);
  assert.equal(await client.pauseQueue(name, "too many"), version + 1);
  const { description, paused } = (await client.queue(name)).settings;
  assert.deepEqual([description, paused], ["letters", true]);
  await assert.rejects(client.changeQueue(name, {}, version), { name: "Conflict", code: "version_conflict" });
  await client.resumeQueue(name);
  assert.equal((await client.queue(name)).settings.paused, false);
  await client.deleteQueue(name, "no use");
  await assert.rejects(client.queue(name), NotFound);
});

test("each level has its own tasks", async () => {
  const name = await queue();
  await client.createQueue(name, { levels: true });
  const high = await client.submit(name, "x", { priority: "high" });
  const normal = await client.submit(name, "x");
  const list = await all(client.list(name, { level: "high" }));
  assert.deepEqual(list.map(({ id }) => id), [high]);
  const counts = await Promise.all(LEVELS.map((level) => client.counts(name, { level })));
  assert.deepEqual(counts.map(({ total }) => total), [1, 1, 0]);
  const series = await Promise.all(LEVELS.map((level) => client.series(name, { step: 60, steps: 2, level })));
  assert.deepEqual(series.map(({ steps }) => steps.reduce((sum, { submitted }) => sum + submitted, 0)), [1, 1, 0]);
  await client.forceFail(name, high, "torn");
  await client.forceFail(name, normal, "torn");
  assert.deepEqual((await client.actions(name, { level: "high" })).map(({ task }) => task), [high]);
  assert.deepEqual((await client.actions(name, { limit: 1 })).map(({ task }) => task), [normal]);
  await Promise.all([high, normal].map((task) => client.wait(name, task, 60)));
  assert.equal((await client.purgeDeadLetters(name, { all: true }, { level: "high" })).purged, 1);
  const letters = await all(client.deadLetters(name));
  assert.deepEqual(letters.map(({ task }) => task), [normal]);
});

test("tasks are ended, and run once more", async (t) => {
  const name = await queue();
  const submit = (type: string): Promise<string> => client.submit(name, "x", { type });
  const [killed, deleted, purged] = [await submit("killed"), await submit("deleted"), await submit("purged")];
  await client.kill(name, killed, "no use");
  await client.delete(name, deleted);
  assert.equal((await client.purge(name, { type: "purged" })).deleted, 1);
  for (const task of [killed, deleted, purged]) {
    assert.equal((await client.wait(name, task, 60)).status, "cancelled");
  }
  const { value: newest } = await client.list(name, { order: "newest", why: true }).next();
  assert.equal(newest?.id, purged);
  const failed = await client.submit(name, "again");
  await client.forceFail(name, failed, "torn");
  await client.wait(name, failed, 60);
  work(t, name, (task) => task.payload);
  const again = await client.retry(name, failed);
  assert.equal(Buffer.from(await client.result(name, again, 60)).toString(), "again");
});

test("a task is taken from its worker", async (t) => {
  const name = await queue();
  const seen: unknown[] = [];
  work(t, name, async (task) => {
    if (task.attempt === 1) {
      seen.push((await client.lease(name, task.id)).worker);
      await assert.rejects(client.forceRelease(name, task.id, "", task.epoch + 1), { code: "stale_epoch" });
      await client.forceRelease(name, task.id, "hangs", task.epoch);
      seen.push("released");
    }
  }, { name: "ann", leaseTime: 3 });
  await client.wait(name, await client.submit(name, "x"), 60);
  assert.deepEqual(seen.slice(0, 2), ["ann", "released"]);
});

test("dead letters are read, replayed and purged", async (t) => {
  const name = await queue();
  work(t, name, (task) => {
    if (task.properties["REPLAY_OF"] === undefined) throw new Fatal(`torn ${task.text()}`);
  });
  const tasks = await Promise.all(["a", "b", "c"].map((text) => client.submit(name, text, { tags: ["mail"] })));
  const [first = "", second = "", third = ""] = tasks;
  await Promise.all(tasks.map((task) => client.wait(name, task, 60)));
  const letters = await all(client.deadLetters(name, { tags: ["mail"], page: 2 }));
  assert.deepEqual(letters.map(({ task }) => task).toSorted(), tasks.toSorted());
  assert.deepEqual((await all(client.deadLetters(name, { reason: "torn b" }))).map(({ task }) => task), [second]);
  assert.equal((await client.deadLetter(name, first)).payload_base64, "YQ==");
  const { outcomes } = await client.replay(name, { tasks: [first], reason: "mended" });
  assert.deepEqual(outcomes.map(({ task, outcome }) => [task, outcome]), [[first, "RESTARTED"]]);
  assert.equal((await client.purgeDeadLetters(name, { failed_with: "torn b" })).purged, 1);
  assert.deepEqual((await all(client.deadLetters(name))).map(({ task }) => task), [third]);
});

test("schedules fire, pause and change", async (t) => {
  const name = await queue();
  work(t, name, (task) => task.payload);
  const cron = { cron: "30 2 * * *", time_zone: "Europe/Berlin" };
  let version = await client.createSchedule(name, "nightly", cron, { report: 1 });
  assert.equal(version, 1);
  await assert.rejects(client.createSchedule(name, "nightly", cron, "x"), Conflict);
  assert.deepEqual((await client.schedules(name)).map((each) => each.name), ["nightly"]);
  version = await client.changeSchedule(name, "nightly", version, { schedule: { every: "1h" } });
  version = await client.changeSchedule(name, "nightly", version, { payload: "report", submission: { type: "mail" } });
  assert.equal(await client.pauseSchedule(name, "nightly"), version + 1);
  await client.triggerSchedule(name, "nightly", "at once");
  for await (const event of client.watch(name, { fromEarliest: true })) {
    if (event.kind === "task" && event.task.status === "completed") {
      assert.equal(event.task.type, "mail");
      assert.equal(Buffer.from(await client.payload(name, event.task.id)).toString(), "report");
      break;
    }
  }
  await client.resumeSchedule(name, "nightly");
  assert.equal((await client.schedule(name, "nightly")).schedule.paused, false);
  await client.deleteSchedule(name, "nightly");
  assert.deepEqual(await client.schedules(name), []);
});

test("a worker is drained by its name, and a gateway is not", { timeout: 60_000 }, async (t) => {
  const name = await queue();
  const [begun, goOn] = [new AbortController(), new AbortController()];
  const processor = async (): Promise<string> => {
    begun.abort();
    await once(goOn.signal, "abort");
    return "done";
  };
  const ended = work(t, name, processor, { name: "ann", concurrency: 2, drain: 60 });
  const task = await client.submit(name, "x");
  await once(begun.signal, "abort");
  const workers = await client.workers(name);
  assert(workers.some((it) => it.worker?.name === "ann"));
  assert.equal((await client.drainWorker(name, "ann")).worker.name, "ann");
  goOn.abort();
  // Nobody else tells it to end.
  await ended;
  assert.equal((await client.get(name, task)).status, "completed");
  const gateway = workers.find((it) => it.worker?.grants_leases);
  const drain = client.drainWorker(name, gateway?.worker?.name ?? "", "its machine goes");
  await assert.rejects(drain, { code: "worker_is_gateway" });
  await assert.rejects(client.drainWorker(name, "nobody/at:all"), { code: "worker_not_found" });
});

const NOT_REPEATED: [path: string, ask: (client: Client) => Promise<unknown>][] = [
  ["POST /v1/queues/q/tasks/1:retry", (client) => client.retry("q", "1")],
  ["POST /v1/queues/q/tasks/1:force-release", (client) => client.forceRelease("q", "1")],
  ["POST /v1/queues/q:purge?level=low", (client) => client.purge("q", { all: true }, { level: "low" })],
  ["POST /v1/queues/q/dead:replay?level=low", (client) => client.replay("q", { all: true }, { level: "low" })],
  ["POST /v1/queues/q/dead:purge", (client) => client.purgeDeadLetters("q", { all: true })],
  ["POST /v1/queues/q/schedules/s", (client) => client.createSchedule("q", "s", { every: "1h" }, "x")],
  ["PATCH /v1/queues/q/schedules/s", (client) => client.changeSchedule("q", "s", 1, { payload: "x" })],
  ["POST /v1/queues/q/schedules/s:trigger", (client) => client.triggerSchedule("q", "s")],
  ["PATCH /v1/queues/q", (client) => client.changeQueue("q", {}, 1)],
];

const REPEATED: typeof NOT_REPEATED = [
  ["PUT /v1/queues/q", (client) => client.createQueue("q")],
  ["DELETE /v1/queues/q?reason=a+b", (client) => client.deleteQueue("q", "a b")],
  ["DELETE /v1/queues/q/tasks/1", (client) => client.delete("q", "1")],
  ["DELETE /v1/queues/q/schedules/s", (client) => client.deleteSchedule("q", "s")],
  ["POST /v1/queues/q/tasks/1:cancel", (client) => client.cancel("q", "1")],
  ["POST /v1/queues/q/tasks/1:kill", (client) => client.kill("q", "1")],
  ["POST /v1/queues/q/tasks/1:force-fail", (client) => client.forceFail("q", "1")],
  ["POST /v1/queues/q:pause", (client) => client.pauseQueue("q")],
  ["POST /v1/queues/q:resume", (client) => client.resumeQueue("q")],
  ["POST /v1/queues/q/workers/a%2Fb:drain", (client) => client.drainWorker("q", "a/b")],
  ["POST /v1/queues/q/schedules/s:pause", (client) => client.pauseSchedule("q", "s")],
  ["POST /v1/queues/q/schedules/s:resume", (client) => client.resumeSchedule("q", "s")],
];

test("a request whose answer is lost is repeated only if it does no work twice", async () => {
  for (const [path, ask] of [...NOT_REPEATED, ...REPEATED]) {
    const { url, paths, asked, close } = await busy(undefined, [200, {}, { version: 1, id: "1:0:-1" }]);
    const isRepeated = REPEATED.some(([each]) => each === path);
    const answered = ask(new Client({ gateways: url }));
    await (isRepeated ? answered : assert.rejects(answered, OutcomeUnknown));
    assert.deepEqual(paths, isRepeated ? [path, path] : [path]);
    assert.equal(asked[0]?.["user-agent"], `longhaul-typescript/${VERSION}`);
    close();
  }
});
