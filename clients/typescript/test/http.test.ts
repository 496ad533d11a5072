/** What is tried again, where, and when, and what is not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, Conflict, LeaseRefused, OutcomeUnknown, Unavailable, Unreachable } from "../src/index.ts";
import { busy, type Busy, closed, judging, type Planted, problem } from "./stage.ts";

const SUBMITTED: Planted = [201, {}, { id: "1:0:-1", now: 1 }];

test("a refusal is waited out as long as it says", async (t) => {
  const gateway = await busy(problem(429, "rate_limited", { "Retry-After": "1" }), SUBMITTED);
  t.after(gateway.close);
  const begun = performance.now();
  assert.equal(await new Client({ gateways: gateway.url }).submit("q", "x"), "1:0:-1");
  assert(performance.now() - begun >= 990);
});

test("another gateway is asked at once", async (t) => {
  const first = await busy(problem(503, "draining", { "Retry-After": "20" }));
  const second = await busy(SUBMITTED, SUBMITTED);
  t.after(first.close);
  t.after(second.close);
  const client = new Client({ gateways: [await closed(), first.url, second.url] });
  const begun = performance.now();
  await client.submit("q", "x");
  assert(performance.now() - begun < 5_000);
  // The next request begins with the one that has answered.
  await client.submit("q", "x");
  assert.deepEqual([first.asked.length, second.asked.length], [1, 2]);
});

test("what may have been done is repeated only if that is the same", async (t) => {
  // Only a gateway's own code says that nothing was done: a proxy may answer after the gateway has got the request.
  const proxy: Planted[] = [[502, {}, "<html>"], [503, { "Retry-After": "1" }, ""], [504, {}, { error: "timeout" }]];
  for (const answer of [undefined, problem(503, "outcome_unknown", { "Retry-After": "1" }), ...proxy]) {
    const once = await busy(answer, SUBMITTED);
    const repeated = await busy(answer, SUBMITTED);
    t.after(once.close);
    t.after(repeated.close);
    await assert.rejects(new Client({ gateways: once.url }).submit("q", "x", { dedupeKey: "d" }), OutcomeUnknown);
    assert.equal(once.asked.length, 1);
    await new Client({ gateways: repeated.url }).submit("q", "x", { idempotencyKey: "k" });
    assert.deepEqual(repeated.bodies, [{ payload: "x", idempotency_key: "k" }, { payload: "x", idempotency_key: "k" }]);
  }
});

test("a submit without a key gets one that makes it repeatable", async (t) => {
  const batch: Planted = [200, {}, { outcomes: [{ id: "1:0:-1" }, { id: "1:1:-1" }], now: 1 }];
  const gateway = await busy([502, {}, "<html>"], SUBMITTED, SUBMITTED, undefined, batch);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url });
  await client.submit("q", "x");
  await client.submit("q", "x");
  await client.submitBatch("q", [{ payload: "x" }, { payload: "y", submission: { idempotencyKey: "mine" } }]);
  type Keyed = { idempotency_key: string };
  const [first, again, second, ...batches] = gateway.bodies as [Keyed, Keyed, Keyed, ...{ tasks: Keyed[] }[]];
  assert.deepEqual(first, again);
  assert.deepEqual(batches[0], batches[1]);
  const keys = [first, second, ...(batches[0]?.tasks ?? [])].map((each) => each.idempotency_key);
  assert.deepEqual([new Set(keys).size, keys[3]], [4, "mine"]);
});

test("a submit gets no key where none is wanted", async (t) => {
  const gateway = await busy(SUBMITTED, undefined);
  t.after(gateway.close);
  await new Client({ gateways: gateway.url }).submit("q", "x", { dedupeKey: "d" });
  await assert.rejects(new Client({ gateways: gateway.url, addKeys: false }).submit("q", "x"), OutcomeUnknown);
  assert.deepEqual(gateway.bodies, [{ payload: "x", dedupe_key: "d" }, { payload: "x" }]);
});

test("a closed port does not hide that an attempt before may have been done", async (t) => {
  // A submit that was cut off, and then found the port closed, threw `Unreachable`: nothing was done.
  const gateway: Busy = await judging(() => gateway.close() as undefined);
  t.after(gateway.close);
  await assert.rejects(new Client({ gateways: gateway.url, patience: 1 }).submit("q", "x", { idempotencyKey: "k" }), OutcomeUnknown);
});

test("patience has an end", async (t) => {
  const begun = performance.now();
  await assert.rejects(new Client({ gateways: await closed(), patience: 1 }).get("q", "1:0:-1"), Unreachable);
  const gateway = await busy(problem(503, "draining", { "Retry-After": "20" }));
  t.after(gateway.close);
  await assert.rejects(new Client({ gateways: gateway.url, patience: 1 }).get("q", "1:0:-1"), { name: "Unavailable", code: "draining" });
  assert(performance.now() - begun < 10_000);
});

test("errors have their class by their code", async (t) => {
  const gateway = await busy(problem(409, "lease_expired"), problem(409, "version_conflict"), [502, {}, "<html>"]);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url, patience: 0 });
  await assert.rejects(client.get("q", "1:0:-1"), LeaseRefused);
  await assert.rejects(client.get("q", "1:0:-1"), (error) => error instanceof Conflict && !(error instanceof LeaseRefused));
  // What a proxy answers says nothing, also with a body like a gateway's.
  for (const status of [302, 400, 401, 404, 409, 410]) {
    const proxy = await busy([status, {}, { code: "task_not_found" }]);
    t.after(proxy.close);
    const asked = new Client({ gateways: proxy.url, patience: 0 }).get("q", "1:0:-1");
    await assert.rejects(asked, (error) => error instanceof Unavailable && error.code === `http_${status}`);
  }
  await assert.rejects(client.get("q", "1:0:-1"), (error) => error instanceof Unavailable && error.code === "http_502");
});

test("an answer that is not a gateway's is none", async (t) => {
  const page: Planted = [200, { "Content-Type": "text/html" }, "<html>"];
  const gateway = await busy(page, [200, {}, { other: 1 }], SUBMITTED, page);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url });
  assert.equal(await client.submit("q", "x"), "1:0:-1");
  await assert.rejects(new Client({ gateways: gateway.url, patience: 0 }).payload("q", "1:0:-1"), OutcomeUnknown);
});

// `submit(queue, await response.arrayBuffer())` stored `{}`, and a date that was no date was none: the task ran at once.
test("buffers are bytes, and a date is a date", async (t) => {
  const gateway = await busy(SUBMITTED);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url });
  await client.submit("q", new Uint8Array([255]).buffer);
  assert.equal((gateway.bodies[0] as { payload_base64: string }).payload_base64, "/w==");
  await assert.rejects(client.submit("q", "x", { scheduledAt: new Date("oops") }), RangeError);
  assert.throws(() => new Client({ gateways: "http://u:p@127.0.0.1:1" }), /no user and password/);
});

test("a token is asked for each time", async (t) => {
  const gateway = await busy(SUBMITTED, SUBMITTED);
  t.after(gateway.close);
  const tokens = ["first", "second"];
  const client = new Client({ gateways: gateway.url, token: () => tokens.shift() ?? "" });
  await client.submit("q", "x");
  await client.submit("q", "x");
  assert.deepEqual(gateway.asked.map((headers) => headers.authorization), ["Bearer first", "Bearer second"]);
});

test("after a cut a stream asks for what comes behind", async (t) => {
  const head = { "Content-Type": "text/event-stream" };
  const first = 'event: task\nid: -1@1:0\ndata: {"id":"1:0:-1"}\n\nevent: task\nid: -1@1:1\ndata: {"cut';
  const second = ': a comment\n\nevent: evicted\nid: -1@1:1\ndata: {"id":"1:0:-1"}\n\n';
  const gateway = await busy([200, head, first], [200, head, second]);
  t.after(gateway.close);
  const seen: unknown[] = [];
  for await (const event of new Client({ gateways: gateway.url }).watch("q")) {
    seen.push([event.kind, event.id]);
    if (seen.length === 2) break;
  }
  assert.deepEqual(seen, [["task", "-1@1:0"], ["evicted", "-1@1:1"]]);
  assert.equal(gateway.asked[1]?.["last-event-id"], "-1@1:0");
});
