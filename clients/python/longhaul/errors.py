"""The errors of this package. Each error of a gateway has a stable `code`; the class tells what to do.

    LonghaulError
      Unreachable        no gateway has got the request: nothing was done
      OutcomeUnknown     the request may have been done or not: check before you repeat it
      GatewayError       a gateway has refused the request
        Invalid          correct the request
          TooLarge       the request has too many bytes
        NotAllowed       use another token, or ask for the permission
        NotFound         there is no such queue, task or lease, or it ended long ago
        Conflict         read the current state, then decide
          LeaseRefused   this worker no longer holds the lease
        Unavailable      try later, or another gateway; nothing was done, unless a proxy has answered
      TaskFailed         the task has ended without a result
      WaitTimeout        the task is not over yet
"""

from __future__ import annotations

import json
import math
from contextlib import suppress

from .types import Problem, Task

__all__ = [
    "Conflict",
    "GatewayError",
    "Invalid",
    "LeaseRefused",
    "LonghaulError",
    "NotAllowed",
    "NotFound",
    "OutcomeUnknown",
    "TaskFailed",
    "TooLarge",
    "Unavailable",
    "Unreachable",
    "WaitTimeout",
]


class LonghaulError(Exception):
    """The base class of all errors of this package."""


class Unreachable(LonghaulError):
    """No gateway has got the request: nothing was done."""


class OutcomeUnknown(LonghaulError):
    """The request may have been done or not. With an idempotency key, you can safely repeat it."""


class GatewayError(LonghaulError):
    """A gateway has refused the request. `code` is stable, `detail` is for people.

    An answer without a gateway's code, such as a proxy's, is an `Unavailable` with the code `http_` and its status. It tells nothing about the request.
    """

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        self.problem = problem
        self.status = problem["status"]
        self.code = problem["code"]
        self.detail = problem["detail"]
        # Seconds.
        self.retry_after = retry_after
        super().__init__(f"{self.status} {self.code}: {self.detail}")


class Invalid(GatewayError):
    """The request is invalid: correct it."""


class TooLarge(Invalid):
    """The request has too many bytes. `detail` names the limit."""


class NotAllowed(GatewayError):
    """The token is missing, unknown or expired, or may not do this."""


class NotFound(GatewayError):
    """There is no such queue, task or lease, or it ended long ago."""


class Conflict(GatewayError):
    """The request does not fit the current state: read the state, then decide."""


class LeaseRefused(Conflict):
    """This worker no longer holds the lease. Its reports do not count."""


class Unavailable(GatewayError):
    """The gateway cannot serve the request now. Nothing was done, unless a proxy has answered: then the outcome is unknown."""


class TaskFailed(LonghaulError):
    """A task has ended without a result. `task` has its status, and `task["reason"]` the reason."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__(f"task {task['id']} is {task['status']}: {task.get('reason') or 'no reason was given'}")


class WaitTimeout(LonghaulError, TimeoutError):
    """A task is not over after the time limit of the wait."""


# Codes that leave open whether the request was done.
_UNKNOWN = frozenset({"outcome_unknown", "timed_out"})
# Prefix of the code of an answer without a gateway's code.
_NO_CODE = "http_"
# Statuses of reports that no gateway can use.
_UNFIT = frozenset({400, 413, 415, 422})
# Codes of reports that are refused because the lease has ended, or another worker has the task.
_LEASE_OVER = frozenset({"stale_lease_id", "not_current_lease_owner", "lease_expired", "task_ended"})
_GONE = frozenset({"task_not_found", "queue_not_found"})

_BY_STATUS: dict[int, type[GatewayError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: NotFound,
    413: TooLarge,
    421: Unavailable,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
}


def from_answer(status: int, body: bytes, content_type: str | None, retry_after: str | None = None) -> GatewayError:
    """Converts an answer to an error. Only a gateway's own code tells anything: a proxy's answer is as none."""
    problem: Problem = {"status": status, "code": f"{_NO_CODE}{status}", "title": "", "detail": body[:200].decode("utf-8", "replace")}
    told = None
    if (content_type or "").partition(";")[0].strip().lower() == "application/problem+json":
        with suppress(ValueError):
            told = json.loads(body)
    seconds = None
    with suppress(ValueError):
        told_to_wait = float(retry_after or "none")
        seconds = max(told_to_wait, 0.0) if math.isfinite(told_to_wait) else None
    if not isinstance(told, dict) or not isinstance(told.get("code"), str):
        return Unavailable(problem, seconds)
    problem.update(told)  # type: ignore[typeddict-item]
    problem["status"] = status
    if problem["code"] in _LEASE_OVER:
        return LeaseRefused(problem, seconds)
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else Invalid)
    return kind(problem, seconds)


def has_code(error: GatewayError) -> bool:
    """Whether the answer has a gateway's own code. Without one, it tells nothing about the request."""
    return not error.code.startswith(_NO_CODE)


def may_be_done(error: GatewayError) -> bool:
    """Whether the request may have been done although it was refused."""
    return error.code in _UNKNOWN or not has_code(error)


def is_over(error: GatewayError) -> bool:
    """Whether a report was refused because the worker no longer has the task."""
    return error.code in _LEASE_OVER or error.code in _GONE


def is_unfit(error: GatewayError) -> bool:
    """Whether a report was refused because no gateway can use it."""
    return error.status in _UNFIT and has_code(error)


def is_verdict(error: GatewayError) -> bool:
    """Whether a report that was refused in this way would be refused again. Any other refusal may end: a token was just rotated."""
    return is_unfit(error) or is_over(error)
