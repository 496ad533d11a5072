/**
 * Sends requests to the gateways of a client, and repeats them.
 *
 * Any gateway answers any request, so a request whose gateway goes away is sent to the next one. This module decides which requests are repeated:
 *
 * - a request that no gateway has got, or that a gateway has refused with a code which tells that nothing was done: always;
 * - a request without an answer, or with a proxy's answer: only if the caller has marked it as repeatable;
 * - a report on a lease: after any answer that is no verdict of a gateway.
 *
 * `fetch` keeps connections, for less than the 10 s after which a gateway closes them.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { fromAnswer, GatewayError, isProxys, isVerdict, mayBeDone, OutcomeUnknown, Unavailable, Unreachable } from "./errors.ts";
import { VERSION } from "./version.ts";

/** The longest answer that is read: lists have up to 1,000 tasks. */
const ANSWER_BYTES = 64 * 1024 * 1024;
/** Pauses between attempts, in ms. */
const PAUSE = 200;
const PAUSE_MAX = 5_000;
export const RETRY_AFTER_MAX = 30_000;
/** The longest time of a timer: a longer one would be over at once. */
export const TIMER_MAX = 2 ** 31 - 1;
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
  /** An answer that is no JSON object with these fields is as none; with `null`, the answer is bytes. Without fields, an answer may have no body. */
  expects?: readonly string[] | null;
  /** Whether an answer may have no body although it has fields otherwise. */
  mayBeEmpty?: boolean;
  /**
   * The request is about a lease. It heeds only these pauses, by the URL of the gateway, and is repeated until there is a verdict. A proxy's `Retry-After` is
   * ignored: it must not cost the lease.
   */
  pauses?: Map<string, number>;
  /** The limit of a `Retry-After`, in ms. */
  retryAfterMax?: number;
}

class Gateway {
  readonly url: URL;
  /** The end of the gateway's rest, by `performance.now`. */
  resting = 0;

  constructor(url: string) {
    this.url = new URL(url.trim());
    if (this.url.username || this.url.password) {
      throw new TypeError("the URL of a gateway has no user and password: use a token");
    }
    if (!["http:", "https:"].includes(this.url.protocol) || this.url.search || this.url.hash) {
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
    this.#token = typeof token === "string" ? usable(token) : token;
    this.#fetch = fetcher;
  }

  /**
   * Repeats a request until a gateway has answered, for at most `patience` after the first failure. The final error tells whether any of the attempts may have
   * been done, not only the last one.
   */
  async request(method: string, path: string, asking: Asking = {}): Promise<Answer> {
    const { timeout = 30_000, patience = 30_000, repeatable = true, halt, pauses, retryAfterMax = RETRY_AFTER_MAX } = asking;
    if (!(timeout > 0)) {
      throw new RangeError(`${timeout} is no time limit in ms`);
    }
    const content = asking.body && JSON.stringify(asking.body);
    let giveUp: number | undefined;
    let pause = PAUSE;
    let failure: Error = new Unreachable("the program is to end");
    let doubt: Error | undefined;
    for (;;) {
      // A pause that a gateway asked for applies to all requests of the client, but for those about leases.
      const [gateway, free] = this.#pick(pauses);
      const wait = free - performance.now();
      if (wait > 0) {
        await sleep(wait, undefined, halt && { signal: halt }).catch(() => {
          throw doubt ?? failure;
        });
      }
      let retryAfter = 0;
      try {
        return await this.#once(gateway, method, path, content, timeout, asking);
      } catch (error) {
        if (error instanceof GatewayError && !isVerdict(error) && (error instanceof Unavailable || pauses !== undefined)) {
          if (mayBeDone(error)) {
            if (!repeatable) {
              throw new OutcomeUnknown(error.message, { cause: error });
            }
            doubt = error;
          }
          if (pauses === undefined || !isProxys(error)) {
            retryAfter = Math.min((error.retryAfter ?? 0) * 1000, retryAfterMax);
          }
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
      pauses?.set(gateway.url.href, gateway.resting);
      pause = Math.min(pause * 2, PAUSE_MAX);
      if (Math.max(this.#pick(pauses)[1], now) > giveUp || halt?.aborted) {
        throw doubt ?? failure;
      }
    }
  }

  /** Opens an answer that has no end. There is only one attempt: the reader must repeat it. */
  async stream(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const [gateway] = this.#pick();
    const sent = { ...headers, ...this.#headers() };
    let response: Response;
    try {
      response = await this.#fetch(gateway.at(path), { headers: sent, redirect: "manual", signal });
      if (response.ok) {
        const kind = mediaType(response.headers);
        if (response.body !== null && kind === headers["Accept"]) {
          return response.body;
        }
        await response.body?.cancel();
        throw new TypeError(`the answer ${response.status} is not a gateway's: its type is ${kind}`);
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

  async #once(gateway: Gateway, method: string, path: string, content: string | undefined, timeout: number, asking: Asking): Promise<Answer> {
    const headers = this.#headers();
    try {
      const response = await this.#fetch(gateway.at(path), {
        method,
        headers: { ...headers, ...(content !== undefined && { "Content-Type": "application/json" }) },
        ...(content !== undefined && { body: content }),
        redirect: "manual",
        signal: AbortSignal.timeout(Math.min(Math.ceil(timeout), TIMER_MAX)),
      });
      const bytes = await read(response);
      if (response.status >= 300) {
        throw refused(response, Buffer.from(bytes).toString());
      }
      const answer = { status: response.status, body: bytes };
      if (!isGateways(answer, response.headers, asking)) {
        throw new OutcomeUnknown(`${gateway.url.origin}: the answer ${answer.status} is not a gateway's: ${Buffer.from(bytes.subarray(0, 200))}`);
      }
      return answer;
    } catch (error) {
      if (error instanceof TypeError || error instanceof DOMException) {
        const kind = NOT_SENT.has((error.cause as { code?: unknown } | undefined)?.code) ? Unreachable : OutcomeUnknown;
        throw new kind(`${gateway.url.origin}: ${reason(error)}`, { cause: error });
      }
      throw error;
    }
  }

  #headers(): Record<string, string> {
    let token: string | undefined;
    try {
      token = typeof this.#token === "function" ? usable(this.#token()) : this.#token;
    } catch (error) {
      // Such as a file that is being replaced: the next attempt may find one.
      throw new Unreachable(`there is no token: ${error}`, { cause: error });
    }
    return { "User-Agent": `longhaul-typescript/${VERSION}`, ...(token !== undefined && { Authorization: `Bearer ${token}` }) };
  }

  /**
   * Returns the gateway of the last request, unless it rests; then the one whose rest is over, or ends first. Also returns the end of its rest. With `pauses`,
   * these count, and the rests only between gateways that have none.
   */
  #pick(pauses?: Map<string, number>): [gateway: Gateway, free: number] {
    const now = performance.now();
    const rests = (each: Gateway): number[] => [pauses?.get(each.url.href) ?? 0, each.resting].map((end) => Math.max(end, now));
    const isBetter = (one: Gateway, other: Gateway): boolean => {
      const [[own = 0, rest = 0], [otherOwn = 0, otherRest = 0]] = [rests(one), rests(other)];
      return own < otherOwn || (own === otherOwn && rest < otherRest);
    };
    const best = this.#all.reduce((best, each) => (isBetter(each, best) ? each : best), this.#current);
    if (pauses !== undefined) {
      return [best, pauses.get(best.url.href) ?? 0];
    }
    this.#current = best;
    return [best, best.resting];
  }
}

/** The token without space around it. Throws an error, which does not show the token, if no gateway can have issued it. */
function usable(token: string): string {
  const trimmed = token.trim();
  if (!/^[!-~]+$/.test(trimmed)) {
    throw new TypeError(trimmed === "" ? "the token is empty" : "the token has characters that no token has");
  }
  return trimmed;
}

function mediaType(headers: Headers): string | undefined {
  return headers.get("Content-Type")?.split(";")[0]?.trim().toLowerCase();
}

function refused(response: Response, body: string): GatewayError {
  return fromAnswer(response.status, body, response.headers.get("Content-Type"), response.headers.get("Retry-After"));
}

/** Whether the answer is what a gateway would say. A proxy may answer anything, also with 200. */
function isGateways(answer: Answer, headers: Headers, { expects = [], mayBeEmpty = expects?.length === 0 }: Asking): boolean {
  if (expects === null) {
    return mediaType(headers) === "application/octet-stream";
  }
  if (answer.status === 204 && mayBeEmpty) {
    return true;
  }
  try {
    const told = json<unknown>(answer);
    return typeof told === "object" && told !== null && !Array.isArray(told) && expects.every((field) => field in told);
  } catch {
    return false;
  }
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
