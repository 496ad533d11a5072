/**
 * The errors of this package. Each error of a gateway has a stable `code`; the class tells what to do.
 */

import type { Problem, Task } from "./types.ts";

/** The base class of all errors of this package. */
export class LonghaulError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No gateway has got the request: nothing was done. */
export class Unreachable extends LonghaulError {}

/** The request may have been done or not. With an idempotency key, you can safely repeat it. */
export class OutcomeUnknown extends LonghaulError {}

/**
 * A gateway has refused the request.
 *
 * An answer without a gateway's code, such as a proxy's, is an `Unavailable` with the code `http_` and its status. It tells nothing about the request.
 */
export class GatewayError extends LonghaulError {
  /** The answer of the gateway. */
  readonly problem: Problem;
  /** The HTTP status. */
  readonly status: number;
  /** The kind of the error, for programs. It is stable. */
  readonly code: string;
  /** The number of seconds after which to repeat the request, if the gateway gave one. */
  readonly retryAfter: number | undefined;

  constructor(problem: Problem, retryAfter?: number) {
    super(`${problem.status} ${problem.code}: ${problem.detail}`);
    this.problem = problem;
    this.status = problem.status;
    this.code = problem.code;
    this.retryAfter = retryAfter;
  }
}

/** The request is invalid: correct it. */
export class Invalid extends GatewayError {}

/** The request has too many bytes. The message names the limit. */
export class TooLarge extends Invalid {}

/** The token is missing, unknown or expired, or may not do this. */
export class NotAllowed extends GatewayError {}

/** There is no such queue, task or lease, or it ended long ago. */
export class NotFound extends GatewayError {}

/** The request does not fit the current state: read the state, then decide. */
export class Conflict extends GatewayError {}

/** This worker no longer holds the lease. Its reports do not count. */
export class LeaseRefused extends Conflict {}

/** The gateway cannot serve the request now. Nothing was done, unless a proxy has answered: then the outcome is unknown. */
export class Unavailable extends GatewayError {}

/** A task has ended without a result. `task` has its status, the reason, and the `cause` for programs. */
export class TaskFailed extends LonghaulError {
  readonly task: Task;

  constructor(task: Task) {
    super(`task ${task.id} is ${task.status}: ${task.reason ?? "no reason was given"}`);
    this.task = task;
  }
}

/** A task is not over after the time limit of the wait. */
export class WaitTimeout extends LonghaulError {}

/** Codes that leave open whether the request was done. */
const UNKNOWN: ReadonlySet<string> = new Set(["outcome_unknown", "timed_out"]);

/** Prefix of the code of an answer without a gateway's code. */
const NO_CODE = "http_";

/** Codes of reports that are refused because the lease has ended, or another worker has the task. */
const LEASE_OVER: ReadonlySet<string> = new Set(["stale_lease_id", "not_current_lease_owner", "lease_expired", "task_ended"]);
const GONE: ReadonlySet<string> = new Set(["task_not_found", "queue_not_found"]);

const BY_STATUS = new Map<number, typeof GatewayError>([
  [400, Invalid],
  [401, NotAllowed],
  [403, NotAllowed],
  [404, NotFound],
  [408, Unavailable],
  [409, Conflict],
  [410, NotFound],
  [413, TooLarge],
  [415, Invalid],
  [421, Unavailable],
  [422, Invalid],
  [429, Unavailable],
]);

/** Converts an answer to an error. Only a gateway's own code tells anything: a proxy's answer is as none. */
export function fromAnswer(status: number, body: string, contentType: string | null, retryAfter: string | null): GatewayError {
  const seconds = retryAfter === null || !Number.isFinite(Number(retryAfter)) ? undefined : Number(retryAfter);
  let told: Partial<Problem> | null = null;
  if (/^application\/problem\+json\s*(;|$)/i.test(contentType ?? "")) {
    try {
      told = JSON.parse(body) as Partial<Problem> | null;
    } catch {
      // A body that was cut off says nothing.
    }
  }
  if (typeof told?.code !== "string") {
    return new Unavailable({ status, code: `${NO_CODE}${status}`, title: "", detail: body.slice(0, 200) }, seconds);
  }
  const problem: Problem = { title: "", detail: "", ...told, code: told.code, status };
  if (LEASE_OVER.has(problem.code)) {
    return new LeaseRefused(problem, seconds);
  }
  return new (BY_STATUS.get(status) ?? (status >= 500 ? Unavailable : GatewayError))(problem, seconds);
}

/** Whether the answer has no gateway's code, such as a proxy's. It tells nothing. */
export function isProxys(error: GatewayError): boolean {
  return error.code.startsWith(NO_CODE);
}

/** Whether the request may have been done although it was refused. Only a gateway's code tells that it was not. */
export function mayBeDone(error: GatewayError): boolean {
  return UNKNOWN.has(error.code) || isProxys(error);
}

/** Whether a report was refused because the worker no longer has the task. */
export function isOver(error: unknown): error is GatewayError {
  return error instanceof GatewayError && (LEASE_OVER.has(error.code) || GONE.has(error.code));
}

/** Whether a report that was refused in this way would be refused again. A 401 or 403 may end: a token was just rotated. */
export function isVerdict(error: GatewayError): boolean {
  return error instanceof Invalid || isOver(error);
}
