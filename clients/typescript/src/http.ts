/**
 * Sends requests to the gateways of a client, and repeats them.
 *
 * Any gateway answers any request, so a request whose gateway goes away is sent to the next one. This module decides which requests are repeated:
 *
 * - a request that no gateway has got, or that a gateway has refused with a code which tells that nothing was done: always;
 * - a request without an answer, or with a proxy's answer: only if the caller has marked it as repeatable.
 *
 * `fetch` keeps connections, for less than the 10 s after which a gateway closes them.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { fromAnswer, type GatewayError, mayBeDone, OutcomeUnknown, Unavailable, Unreachable } from "./errors.ts";
import { VERSION } from "./version.ts";

/** The longest answer that is read: lists have up to 1,000 tasks. */
const ANSWER_BYTES = 64 * 1024 * 1024;
/** Pauses between attempts, in ms. */
const PAUSE = 200;
const PAUSE_MAX = 5_000;
const RETRY_AFTER_MAX = 30_000;
/** Causes of errors before a request was sent. */
const NOT_SENT: ReadonlySet<unknown> = new Set([
  ...["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"],
  // TLS: the gateway is not trusted, so nothing was sent.
  ...["DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"],
  ...["CERT_HAS_EXPIRED", "ERR_TLS_CERT_ALTNAME_INVALID"],
]);

/** A token, or a function that returns one for each request. */
export type Token = string | (() => string);

/** The answer of a gateway: a status below 300, and the body. */
export interface Answer {
  status: number;
  body: Uint8Array;
}

/** The body of an answer, parsed as JSON. */
export function json<T>(answer: Answer): T {
  return JSON.parse(Buffer.from(answer.body).toString()) as T;
}

export interface Asking {
  /** The body, which is sent as JSON. */
  body?: object;
  /** The time limit of each attempt, in ms. */
  timeout?: number;
  /** How long the request is repeated after its first failure, in ms. */
  patience?: number;
  /** Whether a repeat does no harm if the request has taken effect. */
  repeatable?: boolean;
  /** Ends the pauses between attempts, but no attempt. */
  halt?: AbortSignal;
}

class Gateway {
  readonly url: URL;
  /** The end of the gateway's rest, by `performance.now`. */
  resting = 0;

  constructor(url: string) {
    this.url = new URL(url.trim());
    if (!["http:", "https:"].includes(this.url.protocol)) {
      throw new TypeError(`\`${url}\` is not the URL of a gateway: http://HOST:PORT or https://HOST:PORT`);
    }
  }

  at(path: string): string {
    return this.url.href.replace(/\/$/, "") + path;
  }
}

/** The gateways of a client. */
export class Gateways {
  readonly #all: readonly Gateway[];
  readonly #token: Token | undefined;
  readonly #fetch: typeof fetch;
  #current: Gateway;

  constructor(urls: readonly string[], token: Token | undefined, fetcher: typeof fetch) {
    this.#all = urls.map((url) => new Gateway(url));
    const [first] = this.#all;
    if (first === undefined) {
      throw new TypeError("no URL of a gateway was given");
    }
    this.#current = first;
    this.#token = token;
    this.#fetch = fetcher;
  }

  /**
   * Repeats a request until a gateway has answered, for at most `patience` after the first failure. The final error tells whether any of the attempts may have
   * been done, not only the last one.
   */
  async request(method: string, path: string, asking: Asking = {}): Promise<Answer> {
    const { timeout = 30_000, patience = 30_000, repeatable = true, halt } = asking;
    const content = asking.body && JSON.stringify(asking.body);
    let giveUp: number | undefined;
    let pause = PAUSE;
    let failure: Error = new Unreachable("the program is to end");
    let doubt: Error | undefined;
    for (;;) {
      // A pause that a gateway asked for applies to all requests of the client.
      const wait = this.#nextFree() - performance.now();
      if (wait > 0) {
        await sleep(wait, undefined, halt && { signal: halt }).catch(() => {
          throw doubt ?? failure;
        });
      }
      const gateway = this.#pick();
      let retryAfter = 0;
      try {
        return await this.#once(gateway, method, path, content, timeout);
      } catch (error) {
        if (error instanceof Unavailable) {
          if (mayBeDone(error)) {
            if (!repeatable) {
              throw new OutcomeUnknown(error.message, { cause: error });
            }
            doubt = error;
          }
          retryAfter = Math.min((error.retryAfter ?? 0) * 1000, RETRY_AFTER_MAX);
        } else if (!(error instanceof Unreachable) && !(error instanceof OutcomeUnknown && repeatable)) {
          throw error;
        }
        if (error instanceof OutcomeUnknown) {
          doubt = error;
        }
        failure = error;
        if (method === "GET") {
          doubt = undefined;
        }
      }
      const now = performance.now();
      giveUp ??= now + patience;
      // The pause that the gateway asked for, or a growing, random one, so that clients do not return at once.
      gateway.resting = now + Math.max(retryAfter, pause * (0.5 + Math.random() / 2));
      pause = Math.min(pause * 2, PAUSE_MAX);
      if (Math.max(this.#nextFree(), now) > giveUp || halt?.aborted) {
        throw doubt ?? failure;
      }
    }
  }

  /** Opens an answer that has no end. There is only one attempt: the reader must repeat it. */
  async stream(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const gateway = this.#pick();
    let response: Response;
    try {
      response = await this.#fetch(gateway.at(path), { headers: { ...headers, ...this.#headers() }, redirect: "manual", signal });
      if (response.status === 200 && response.body !== null) {
        return response.body;
      }
    } catch (error) {
      gateway.resting = performance.now() + PAUSE;
      throw new Unreachable(`${gateway.url.origin}: ${reason(error)}`, { cause: error });
    }
    const failure = refused(response, Buffer.from(await response.arrayBuffer()).toString());
    if (failure instanceof Unavailable) {
      gateway.resting = performance.now() + Math.min((failure.retryAfter ?? 0) * 1000 || PAUSE, RETRY_AFTER_MAX);
    }
    throw failure;
  }

  async #once(gateway: Gateway, method: string, path: string, content: string | undefined, timeout: number): Promise<Answer> {
    try {
      const response = await this.#fetch(gateway.at(path), {
        method,
        headers: { ...this.#headers(), ...(content !== undefined && { "Content-Type": "application/json" }) },
        ...(content !== undefined && { body: content }),
        redirect: "manual",
        signal: AbortSignal.timeout(Math.ceil(timeout)),
      });
      const bytes = await read(response);
      if (response.status < 300) {
        return { status: response.status, body: bytes };
      }
      throw refused(response, Buffer.from(bytes).toString());
    } catch (error) {
      if (error instanceof TypeError || error instanceof DOMException) {
        const kind = NOT_SENT.has((error.cause as { code?: unknown } | undefined)?.code) ? Unreachable : OutcomeUnknown;
        throw new kind(`${gateway.url.origin}: ${reason(error)}`, { cause: error });
      }
      throw error;
    }
  }

  #headers(): Record<string, string> {
    const token = typeof this.#token === "function" ? this.#token() : this.#token;
    return { "User-Agent": `longhaul-typescript/${VERSION}`, ...(token && { Authorization: `Bearer ${token}` }) };
  }

  /** When a request may go to any gateway, by `performance.now`. */
  #nextFree(): number {
    return Math.min(...this.#all.map((each) => each.resting));
  }

  /** Returns the gateway of the last request, unless it rests; then the one whose rest is over, or ends first. */
  #pick(): Gateway {
    const now = performance.now();
    if (this.#current.resting > now) {
      this.#current = this.#all.reduce((best, each) => (Math.max(each.resting, now) < Math.max(best.resting, now) ? each : best));
    }
    return this.#current;
  }
}

function refused(response: Response, body: string): GatewayError {
  return fromAnswer(response.status, body, response.headers.get("Retry-After"));
}

async function read(response: Response): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    size += part.length;
    if (size > ANSWER_BYTES) {
      throw new OutcomeUnknown(`the answer has more than ${ANSWER_BYTES} bytes`);
    }
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function reason(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return String(error) + cause;
}
