/** The stream of a queue's events: server-sent events, which continue after a lost connection. */

import { setTimeout as sleep } from "node:timers/promises";
import { Unavailable, Unreachable } from "./errors.ts";
import { type Gateways, RETRY_AFTER_MAX } from "./http.ts";
import type { Task } from "./types.ts";

/** The gateway sends a comment every 15 s: a stream that is silent for longer than this is dead. In ms. */
const SILENCE = 45_000;
/** The id of the end of the watched task. */
const OVER = "over";
const EVENT_CHARS = 8 * 1024 * 1024;
const PAUSE = 200;
const PAUSE_MAX = 5_000;

/**
 * An event of a queue. A stream can continue after `id`, also at another gateway; `broker-lost` and `broker-back` have none.
 */
export type TaskEvent =
  | { kind: "task"; task: Task; id: string | undefined }
  /** The task is not shown any more. */
  | { kind: "evicted"; task: string; id: string | undefined }
  /** All later events are new. */
  | { kind: "caught-up"; id: string | undefined }
  | { kind: "broker-lost"; detail: string; id: undefined }
  | { kind: "broker-back"; id: undefined };

export interface Watching {
  path: string;
  lastEventId: string | undefined;
  /** How long to repeat the request while no gateway serves the stream, in ms. */
  patience: number;
  signal: AbortSignal | undefined;
}

/** Yields the events of a queue until the signal is aborted. It continues after a lost connection, and throws when no gateway serves it for `patience`. */
export async function* watch(gateways: Gateways, { path, lastEventId, patience, signal }: Watching): AsyncGenerator<TaskEvent, void, undefined> {
  let pause = PAUSE;
  let giveUp: number | undefined;
  while (!signal?.aborted && lastEventId !== OVER) {
    const silence = new AbortController();
    const headers = { Accept: "text/event-stream", ...(lastEventId !== undefined && { "Last-Event-ID": lastEventId }) };
    const either = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
    const timer = setTimeout(() => silence.abort(), SILENCE);
    let retryAfter = 0;
    try {
      for await (const event of events(await gateways.stream(path, headers, either), () => timer.refresh())) {
        giveUp = undefined;
        pause = PAUSE;
        lastEventId = event.id ?? lastEventId;
        yield event;
      }
    } catch (error) {
      if (signal?.aborted) {
        return;
      }
      if (error instanceof Unavailable || error instanceof Unreachable) {
        giveUp ??= performance.now() + patience;
        retryAfter = error instanceof Unavailable ? Math.min((error.retryAfter ?? 0) * 1000, RETRY_AFTER_MAX) : 0;
        if (performance.now() + retryAfter > giveUp) {
          throw error;
        }
      } else if (!(error instanceof TypeError) && !(error instanceof SyntaxError) && !(error instanceof DOMException)) {
        throw error;
      }
    } finally {
      clearTimeout(timer);
      silence.abort();
    }
    // Pause also after a stream that ended at once, because the next ones may do so, too.
    await sleep(Math.max(retryAfter, pause * (0.5 + Math.random() / 2)), undefined, signal && { signal }).catch(() => {});
    pause = Math.min(pause * 2, PAUSE_MAX);
  }
}

async function* events(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<TaskEvent, void, undefined> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const part of body) {
    heard();
    text += decoder.decode(part, { stream: true });
    if (text.length > EVENT_CHARS) {
      throw new TypeError("an event is too long");
    }
    let end: number;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = meaning(text.slice(0, end));
      text = text.slice(end + 2);
      if (event !== undefined) {
        yield event;
      }
    }
  }
}

/** Parses the lines of an event. Returns nothing for a comment or an unknown event. */
function meaning(lines: string): TaskEvent | undefined {
  let kind = "message";
  let id: string | undefined;
  const data: string[] = [];
  for (const line of lines.split("\n")) {
    const [field, ...rest] = line.split(":");
    const value = rest.join(":").replace(/^ /, "");
    if (field === "event") kind = value;
    if (field === "id") id = value;
    if (field === "data") data.push(value);
  }
  if (data.length === 0) {
    return undefined;
  }
  const said = JSON.parse(data.join("\n")) as unknown;
  switch (kind) {
    case "task":
      return { kind, task: said as Task, id };
    case "evicted":
      return { kind, task: (said as { id: string }).id, id };
    case "caught-up":
      return { kind, id };
    case "broker-lost":
      return { kind, detail: (said as { detail?: string }).detail ?? "", id: undefined };
    case "broker-back":
      return { kind, id: undefined };
    default:
      return undefined;
  }
}
