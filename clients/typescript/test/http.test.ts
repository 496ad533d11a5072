/** What is tried again, where, and when, and what is not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, Conflict, LeaseRefused, OutcomeUnknown, Unavailable, Unreachable } from "../src/index.ts";
import { Embedded } from "../src/testing.ts";
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
  const gateway = await busy(page, [200, {}, { other: 1 }], SUBMITTED, page, [200, {}, []]);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url });
  assert.equal(await client.submit("q", "x"), "1:0:-1");
  const impatient = new Client({ gateways: gateway.url, patience: 0 });
  await assert.rejects(impatient.payload("q", "1:0:-1"), OutcomeUnknown);
  await assert.rejects(impatient.get("q", "1:0:-1"), OutcomeUnknown);
  // A proxy's own JSON made `result` throw `TaskFailed`.
  const proxy = await judging((path) => (path.includes("/wait?") ? [200, {}, { error: "signed out" }] : undefined));
  t.after(proxy.close);
  await assert.rejects(new Client({ gateways: proxy.url, patience: 0 }).result("q", "1:0:-1", 60), OutcomeUnknown);
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

// A token was read from a file while it was replaced. `fetch` refused it with an error that showed it, or the request was sent without a token.
test("a token that is half written is none", async (t) => {
  const stream: Planted = [200, { "Content-Type": "text/event-stream" }, "event: caught-up\ndata: {}\n\n"];
  for (const odd of ["", "\n", "half\nsecret", "half secret", "h\u20aclf", "\0", undefined, new Error("there is no file")]) {
    const told = (token: unknown): string => {
      if (token instanceof Error) throw token;
      return token as string;
    };
    const tokens = [odd, "fresh", odd, "fresh"];
    const gateway = await busy(SUBMITTED, stream);
    t.after(gateway.close);
    const client = new Client({ gateways: gateway.url, token: () => told(tokens.shift()) });
    await client.submit("q", "x", { dedupeKey: "d" });
    for await (const event of client.watch("q")) {
      assert.equal(event.kind, "caught-up");
      break;
    }
    assert.deepEqual(gateway.asked.map((headers) => headers.authorization), ["Bearer fresh", "Bearer fresh"]);
    const asked = new Client({ gateways: gateway.url, token: () => told(odd), patience: 0 }).submit("q", "x");
    await assert.rejects(asked, (error: Error) => error instanceof Unreachable && !error.message.includes("secret"));
    if (typeof odd === "string" && odd !== "") {
      assert.throws(() => new Client({ gateways: gateway.url, token: odd }), TypeError);
    }
  }
});

// A client with a patience of NaN repeated a request for ever, and `startTimeout: Infinity` killed the broker at once.
test("endless is no limit, and no number is refused at once", async (t) => {
  const gateway = await busy([200, {}, { deleted: 1 }], [200, {}, { deleted: 1 }]);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url, patience: Infinity });
  for (const timeout of [Infinity, 1e20]) {
    assert.deepEqual(await client.purge("q", { all: true }, { timeout }), { deleted: 1 });
  }
  for (const nothing of [NaN, -1]) {
    assert.throws(() => new Client({ gateways: gateway.url, patience: nothing }), RangeError);
    await assert.rejects(client.purge("q", { all: true }, { timeout: nothing }), RangeError);
    await assert.rejects(Embedded.start({ startTimeout: nothing }), RangeError);
  }
  await assert.rejects(client.wait("q", "1:0:-1", NaN), RangeError);
  const program = "no-such-program";
  await assert.rejects(Embedded.start({ startTimeout: Infinity, program }), (error: Error) => !(error instanceof RangeError));
  for (const odd of [{ delay: NaN }, { delay: Infinity }, { maxAttempts: Infinity }]) {
    await assert.rejects(client.submit("q", "x", odd), RangeError);
  }
});

test("a pause that is no number is none, and a long one is cut", async (t) => {
  const pages = ["nan", "inf", "1e400", "soon"].map((text): Planted => [503, { "Retry-After": text }, "<html>"]);
  const gateway = await busy(...pages, SUBMITTED);
  t.after(gateway.close);
  const begun = performance.now();
  await new Client({ gateways: gateway.url }).submit("q", "x");
  assert(performance.now() - begun < 10_000);
  // A timer of more than 24.8 days was over at once.
  const resting = await judging(() => problem(503, "draining", { "Retry-After": "3000000" }));
  t.after(resting.close);
  for await (const event of new Client({ gateways: resting.url, patience: Infinity }).watch("q", { signal: AbortSignal.timeout(1_000) })) {
    assert.fail(event.kind);
  }
  assert.equal(resting.asked.length, 1);
});

// A batch had a BigInt, or a function that JSON leaves out. The error did not say which task it was, or the task was stored without a payload.
test("a batch names the task that has no form in JSON", async (t) => {
  const gateway = await busy();
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url });
  for (const payload of [1n, { large: 1n }, () => 1, Symbol("s")]) {
    await assert.rejects(client.submitBatch("q", [{ payload: "fine" }, { payload }]), { name: "TypeError", message: /^task 1 of the batch cannot be sent: / });
    await assert.rejects(client.submit("q", payload), TypeError);
  }
  const odd = { payload: "x", submission: { scheduledAt: new Date("oops") } };
  await assert.rejects(client.submitBatch("q", [odd]), { name: "RangeError", message: /^task 0 of the batch / });
  assert.equal(gateway.asked.length, 0);
});

test("a payload that JSON makes long is sent in base64", async (t) => {
  const gateway = await busy(SUBMITTED, SUBMITTED);
  t.after(gateway.close);
  const client = new Client({ gateways: gateway.url });
  const [long, half] = ["\u0001".repeat(100_000), "\ud83d".repeat(100_000)];
  await client.submit("q", long, { dedupeKey: "d" });
  await client.submit("q", half, { dedupeKey: "d" });
  assert.deepEqual(gateway.bodies, [{ payload_base64: Buffer.from(long).toString("base64"), dedupe_key: "d" }, { payload: half, dedupe_key: "d" }]);
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

// The session at a proxy had ended. It answered a watch with its sign-in page and 200, and the program waited for ever.
test("a page in place of the stream is no answer", async (t) => {
  const page: Planted = [200, { "Content-Type": "text/html; charset=utf-8" }, "<html>\ndata: {}\n\n</html>"];
  const odd: Planted = [200, { "Content-Type": "text/event-stream" }, "event: task\ndata: <html>\n\n"];
  const stream: Planted = [200, { "Content-Type": "text/event-stream; charset=utf-8" }, "event: caught-up\ndata: {}\n\n"];
  const gateway = await busy(page, [204, {}, undefined], odd, stream);
  t.after(gateway.close);
  for await (const event of new Client({ gateways: gateway.url }).watch("q")) {
    assert.equal(event.kind, "caught-up");
    break;
  }
  const proxy = await judging(() => page);
  t.after(proxy.close);
  const begun = performance.now();
  const watched = new Client({ gateways: proxy.url, patience: 2 }).watch("q").next();
  await assert.rejects(watched, (error: Error) => error instanceof Unreachable && error.message.includes("its type is text/html"));
  assert(performance.now() - begun < 10_000);
  // It pauses between requests.
  assert(proxy.asked.length < 20);
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
