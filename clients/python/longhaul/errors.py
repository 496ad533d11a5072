"""The errors of this package. Each error of a gateway has a stable `code`; the class tells what to do.

    LonghaulError
      Unreachable        no gateway has got the request: nothing was done
      OutcomeUnknown     the request may have been done or not: check before you repeat it
      GatewayError       a gateway has refused the request; with a code such as `http_404`, a proxy has answered
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

    An answer without a gateway's code, such as a proxy's, gets the code `http_` with its status. It does not tell whether the request was done.
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
# Codes of reports that are refused because the lease has ended, or another worker has the task.
LEASE_OVER = frozenset({"stale_lease_id", "not_current_lease_owner", "lease_expired", "task_ended"})

_BY_STATUS: dict[int, type[GatewayError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    413: TooLarge,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
}


def from_answer(status: int, body: bytes, retry_after: str | None) -> GatewayError:
    """Converts an answer to an error. A proxy's answer may have another form than a gateway's."""
    problem: Problem = {"status": status, "code": f"{_NO_CODE}{status}", "title": "", "detail": body[:200].decode("utf-8", "replace")}
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if isinstance(told, dict) and isinstance(told.get("code"), str):
        problem.update(told)  # type: ignore[typeddict-item]
        problem["status"] = status
    try:
        seconds = float(retry_after) if retry_after is not None else None
    except ValueError:
        seconds = None
    if problem["code"] in LEASE_OVER:
        return LeaseRefused(problem, seconds)
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else Invalid)
    if problem["code"].startswith(_NO_CODE) and issubclass(kind, (NotFound, Conflict)):
        # A proxy does not know the tasks and queues of a gateway.
        kind = GatewayError
    return kind(problem, seconds)


def may_be_done(error: GatewayError) -> bool:
    """Whether the request may have been done although it was refused. Only a gateway's code tells that it was not."""
    return error.code in _UNKNOWN or error.code.startswith(_NO_CODE)
