"""The conformance worker with a fault, by which the suite is judged: each must be found by the check that is named beside it.

    cargo run -p conformance -- --only keep-alive python3 -m tests.faulty no-keep-alive
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from longhaul import LeaseLost, Task, conformance, errors, http, task, worker


def no_keep_alive() -> None:
    Task._keep_alive = lambda self: None  # type: ignore[method-assign]


def slow_news() -> None:
    """News wait for the next keep-alive."""

    def tell(self: Task, name: str, value: object) -> None:
        with self._lock:
            self._news[name] = value

    Task._tell = tell  # type: ignore[method-assign]
    Task.log = lambda self, line: None  # type: ignore[method-assign]
    setattr(task, "_KEEP_ALIVE_EVERY", 60.0)


def no_checkpoint() -> None:
    Task.checkpoint = lambda self, data: None  # type: ignore[method-assign]


def success_after_loss() -> None:
    """What was lost is reported all the same."""
    Task.is_lost = lambda self: False  # type: ignore[method-assign]


def deaf() -> None:
    """A cancellation is not heard of."""
    stop = Task.stop
    Task.stop = lambda self, halt: stop(self, halt) if isinstance(halt, LeaseLost) else None  # type: ignore[method-assign]


def killed_by_a_signal() -> None:
    signal.signal = lambda number, handler: signal.SIG_DFL  # type: ignore[assignment]


def fails_what_it_gives_back() -> None:
    end = Task.end

    def failing(self: Task, status: str, patience: float, **more: Any) -> str | None:
        return end(self, "FAILED" if status == "RELEASED" else status, patience, **more)

    Task.end = failing  # type: ignore[method-assign]


def impatient() -> None:
    """`Retry-After` is not read."""
    from_answer = errors.from_answer
    http.from_answer = lambda status, body, retry_after: from_answer(status, body, None)  # type: ignore[attr-defined]


def tells_once() -> None:
    request = http.Gateways.request

    def once(self: http.Gateways, method: str, path: str, body: object = None, **more: Any) -> http.Answer:
        return request(self, method, path, body, **(more | {"repeatable": not path.endswith(":report")}))

    http.Gateways.request = once  # type: ignore[method-assign]


def one_gateway() -> None:
    os.environ["LONGHAUL_GATEWAY"] = os.environ["LONGHAUL_GATEWAY"].split(",")[0]


def greedy() -> None:
    os.environ["LONGHAUL_CONCURRENCY"] = str(int(os.environ["LONGHAUL_CONCURRENCY"]) + 1)


def one_at_a_time() -> None:
    os.environ["LONGHAUL_CONCURRENCY"] = "1"


def never_for_good() -> None:
    setattr(worker, "Fatal", type("Never", (Exception,), {}))


def text_alone() -> None:
    """Results that are no text do not come through."""
    result = worker._result

    def as_text(value: Any) -> dict[str, Any]:
        return result(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)

    worker._result = as_text


def no_time_for_the_next() -> None:
    """`retry_after` is not sent."""
    setattr(worker, "RetryAfter", type("Never", (Exception,), {}))


def endless_refusal() -> None:
    """A result that is refused is reported again and again, with the keep-alives going on."""

    def refused(self: Task, status: str, error: errors.Invalid, patience: float) -> str:
        return error.code

    Task._refused = refused  # type: ignore[method-assign]


def dies_of_nonsense() -> None:
    process = conformance.process

    def dying(task: Task) -> Any:
        if not task.payload.startswith(b"{"):
            os._exit(1)
        return process(task)

    conformance.process = dying


def main() -> None:
    """Plants the fault, and works."""
    fault: Callable[[], None] = globals()[sys.argv[1].replace("-", "_")]
    fault()
    conformance.main()


if __name__ == "__main__":
    main()
