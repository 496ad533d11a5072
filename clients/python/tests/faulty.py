"""The conformance worker with a fault, by which the suite is judged: each must be found by the check that is named beside it.

    cargo run -p conformance -- --only keep-alive python3 -m tests.faulty no-keep-alive
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from longhaul import LeaseLost, Task, conformance, ending, errors, http, task, worker


_PROBLEM = "application/problem+json"


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


def works_on() -> None:
    """A loss does not stop the processor."""
    stop = Task.stop
    Task.stop = lambda self, halt: None if isinstance(halt, LeaseLost) else stop(self, halt)  # type: ignore[method-assign]


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
    setattr(http, "from_answer", lambda status, body, kind, retry_after: from_answer(status, body, kind))


def _once(suffix: str) -> None:
    request = http.Gateways.request

    def once(self: http.Gateways, method: str, path: str, body: object = None, **more: Any) -> http.Answer:
        if path.endswith(suffix):
            more |= {"repeatable": False, "patience": 0.0}
        return request(self, method, path, body, **more)

    http.Gateways.request = once  # type: ignore[method-assign]


def tells_once() -> None:
    _once(":report")


def confirms_once() -> None:
    _once(":confirm")


def ends_after_the_pause() -> None:
    """An end waits for the pause of a keep-alive."""
    end = Task.end

    def late(self: Task, status: str, patience: float, **more: Any) -> str | None:
        time.sleep(max(max(self._pauses.values(), default=0.0) - time.monotonic(), 0.0))
        return end(self, status, patience, **more)

    Task.end = late  # type: ignore[method-assign]


def forgets_the_unknown() -> None:
    """An unknown outcome of a confirmation is taken for a loss."""
    setattr(worker, "_UNKNOWN", "")


def believes_pages() -> None:
    """A proxy's answer is taken for a gateway's."""

    def from_answer(status: int, body: bytes, kind: str | None, retry_after: str | None = None) -> errors.GatewayError:
        return errors.from_answer(status, body if kind == _PROBLEM else b'{"code": "page"}', _PROBLEM, retry_after)

    setattr(http, "from_answer", from_answer)


def gives_up_without_a_token() -> None:
    is_verdict = errors.is_verdict
    setattr(http, "is_verdict", lambda error: is_verdict(error) or error.status in (401, 403))


def reads_little() -> None:
    """An answer with many leases is too large for it."""
    setattr(http, "_ANSWER_BYTES", 6 * 1024 * 1024)


def starts_unconfirmed() -> None:
    worker.Worker._confirm = lambda self, path, leases: ["RESULT_OK"] * len(leases["leases"])  # type: ignore[method-assign]


def strict_news() -> None:
    """A log line that is no UTF-8 raises."""
    log = Task.log
    Task.log = lambda self, line: log(self, line.encode().decode())  # type: ignore[method-assign]


def raw_reasons() -> None:
    """Reasons are sent as they are, whatever their size."""
    setattr(worker, "mend", lambda value, limit: str(value))


def hasty() -> None:
    """No limit is taken for no time."""
    os.environ["LONGHAUL_DRAIN"] = "0"


def drains_one() -> None:
    """SIGTERM drains only the worker in `run`."""

    def stop() -> None:
        for each in list(ending.working):
            if each._thread is None:
                each.stop()

    setattr(ending, "stop_all", stop)
    setattr(ending, "drain_all", lambda: None)


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
    """After a refusal, nothing tells that the task has failed for good."""
    end = Task.end

    def refused(self: Task, status: str, patience: float, **more: Any) -> str | None:
        return "refused" if more.get("fatal") or len(more.get("result_base64", "")) > 1_400_000 else end(self, status, patience, **more)

    Task.end = refused  # type: ignore[method-assign]


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
