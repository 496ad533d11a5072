/**
 * What can go wrong. Each error of a gateway has its `code`, which does not change; the class says what to do about it.
 */

import type { Problem, Task } from "./types.ts";

/** Whatever this package reports. */
export class LonghaulError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No gateway has answered, and none has got the request: nothing was done. */
export class Unreachable extends LonghaulError {}

/** The request may have been done or not. With an idempotency key it is safe to ask again. */
export class OutcomeUnknown extends LonghaulError {}

/**
 * A gateway has refused the request.
 *
 * An answer without a code of a gateway, such as that of a proxy, has the code `http_` and its status. It does not say whether the request was done.
 */
export class GatewayError extends LonghaulError {
  /** What the gateway has answered. */
  readonly problem: Problem;
  /** The status of HTTP. */
  readonly status: number;
  /** What kind of problem it is, for machines: it does not change. */
  readonly code: string;
  /** After how many seconds to ask again, if the gateway says so. */
  readonly retryAfter: number | undefined;

  constructor(problem: Problem, retryAfter?: number) {
    super(`${problem.status} ${problem.code}: ${problem.detail}`);
    this.problem = problem;
    this.status = problem.status;
    this.code = problem.code;
    this.retryAfter = retryAfter;
  }
}

/** The request cannot be used: mend it. */
export class Invalid extends GatewayError {}

/** The request has too many bytes: the message names the limit. */
export class TooLarge extends Invalid {}

/** The token is missing, unknown or expired, or may not do this. */
export class NotAllowed extends GatewayError {}

/** There is no such queue, task or lease, or it has ended long ago. */
export class NotFound extends GatewayError {}

/** Something stands differently: look again, then decide. */
export class Conflict extends GatewayError {}

/** The lease is not this worker's any more: whatever it reports does not count. */
export class LeaseRefused extends Conflict {}

/** The gateway cannot serve this now. Nothing was done, unless a proxy has answered: then the outcome is unknown. */
export class Unavailable extends GatewayError {}

/** A task has ended without a result; `task` says how and why. */
export class TaskFailed extends LonghaulError {
  readonly task: Task;

  constructor(task: Task) {
    super(`task ${task.id} is ${task.status}: ${task.reason ?? "no reason was given"}`);
    this.task = task;
  }
}

/** A task is not over after the time that was waited for it. */
export class WaitTimeout extends LonghaulError {}

/** Codes of which it is not known whether the request was done. */
const UNKNOWN: ReadonlySet<string> = new Set(["outcome_unknown", "timed_out"]);

/** Begins the code of an answer that has none of a gateway. */
const NO_CODE = "http_";

/** Codes with which a report is refused because the lease has ended, or is somebody else's. */
const LEASE_OVER: ReadonlySet<string> = new Set(["stale_lease_id", "not_current_lease_owner", "lease_expired", "task_ended"]);

const BY_STATUS = new Map<number, typeof GatewayError>([
  [401, NotAllowed],
  [403, NotAllowed],
  [404, NotFound],
  [409, Conflict],
  [410, NotFound],
  [413, TooLarge],
  [429, Unavailable],
  [502, Unavailable],
  [503, Unavailable],
]);

/** The error that an answer stands for. A proxy in between may answer something else than a problem. */
export function fromAnswer(status: number, body: string, retryAfter: string | null): GatewayError {
  let problem: Problem = { status, code: `${NO_CODE}${status}`, title: "", detail: body.slice(0, 200) };
  try {
    const told: unknown = JSON.parse(body);
    if (typeof told === "object" && told !== null && "code" in told && typeof told.code === "string") {
      problem = { ...problem, ...(told as Problem), status };
    }
  } catch {
    // It is no JSON: what was said of the answer stands.
  }
  const seconds = retryAfter === null || !Number.isFinite(Number(retryAfter)) ? undefined : Number(retryAfter);
  if (LEASE_OVER.has(problem.code)) {
    return new LeaseRefused(problem, seconds);
  }
  let kind = BY_STATUS.get(status) ?? (status >= 500 ? Unavailable : Invalid);
  if (problem.code.startsWith(NO_CODE) && (kind === NotFound || kind === Conflict)) {
    // A proxy does not know what there is.
    kind = GatewayError;
  }
  return new kind(problem, seconds);
}

/** Whether the request may have been done although it was refused. Only the code of a gateway says that it was not. */
export function mayBeDone(error: GatewayError): boolean {
  return UNKNOWN.has(error.code) || error.code.startsWith(NO_CODE);
}
