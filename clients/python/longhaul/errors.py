"""What can go wrong. Each error of a gateway has its `code`, which does not change; the class says what to do about it.

    LonghaulError
      Unreachable        nobody has answered: nothing was done
      OutcomeUnknown     it may have been done or not: look before you ask again
      GatewayError       a gateway has refused the request, and says why; as `http_404` and the like, a proxy has answered
        Invalid          mend the request
          TooLarge       it has too many bytes
        NotAllowed       another token, or another permission
        NotFound         there is no such thing, or it has gone
        Conflict         look again, then decide
          LeaseRefused   the lease is not this worker's any more
        Unavailable      later, or at another gateway; nothing was done, unless a proxy has answered
      TaskFailed         a task that was waited for has ended without a result
      WaitTimeout        a task that was waited for is not over yet
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
    """Whatever this package reports."""


class Unreachable(LonghaulError):
    """No gateway has answered, and none has got the request: nothing was done."""


class OutcomeUnknown(LonghaulError):
    """The request may have been done or not. With an idempotency key it is safe to ask again."""


class GatewayError(LonghaulError):
    """A gateway has refused the request. `code` does not change, `detail` is for people.

    An answer without a code of a gateway, such as that of a proxy, has the code `http_` and its status. It does not say whether the request was done.
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
    """The request cannot be used: mend it."""


class TooLarge(Invalid):
    """The request has too many bytes: `detail` names the limit."""


class NotAllowed(GatewayError):
    """The token is missing, unknown or expired, or may not do this."""


class NotFound(GatewayError):
    """There is no such queue, task or lease, or it has ended long ago."""


class Conflict(GatewayError):
    """Something stands differently: look again, then decide."""


class LeaseRefused(Conflict):
    """The lease is not this worker's any more: whatever it reports does not count."""


class Unavailable(GatewayError):
    """The gateway cannot serve this now. Nothing was done, unless a proxy has answered: then the outcome is unknown."""


class TaskFailed(LonghaulError):
    """A task has ended without a result; `task` says how, and `task["reason"]` why."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__(f"task {task['id']} is {task['status']}: {task.get('reason') or 'no reason was given'}")


class WaitTimeout(LonghaulError, TimeoutError):
    """A task is not over after the time that was waited for it."""


# Codes of which it is not known whether the request was done.
_UNKNOWN = frozenset({"outcome_unknown", "timed_out"})
# Begins the code of an answer that has none of a gateway.
_NO_CODE = "http_"
# Codes with which a report is refused because the lease has ended, or is somebody else's.
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
    """The error that an answer stands for. A proxy in between may answer something else than a problem."""
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
        # A proxy does not know what there is.
        kind = GatewayError
    return kind(problem, seconds)


def may_be_done(error: GatewayError) -> bool:
    """Whether the request may have been done although it was refused. Only the code of a gateway says that it was not."""
    return error.code in _UNKNOWN or error.code.startswith(_NO_CODE)
