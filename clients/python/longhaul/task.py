"""A task that a worker has leased, and the thread that keeps its lease alive.

The processor gets a `Task`. It returns the result, or raises an exception, which fails the attempt; `Fatal`, `RetryAfter` and `GiveBack` have other effects.
The methods of a task raise a `Halt` when the processor must stop. If you catch it, raise it again.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from typing import Any, cast

from .errors import GatewayError, Invalid, LeaseRefused, LonghaulError, NotFound
from .http import Gateways
from .types import Lease, Reported

logger = logging.getLogger("longhaul")

# The shortest time between two reports with news, in seconds.
_NEWS_EVERY = 1.0
# The longest time between two keep-alives, in seconds: their answers tell that the task was cancelled.
_KEEP_ALIVE_EVERY = 5.0
_CHECKPOINT_BYTES = 64 * 1024
_LOG_LINES = 100


class Fatal(Exception):
    """Raise it to fail the task for good: no further attempt follows."""


class RetryAfter(Exception):
    """Raise it to fail the attempt. The next attempt begins after `seconds`, whatever the queue's backoff is."""

    def __init__(self, seconds: float, reason: str) -> None:
        self.seconds = seconds
        super().__init__(reason)


class GiveBack(Exception):
    """Raise it to give the task back, which costs no attempt. No worker gets the task before `after` seconds."""

    def __init__(self, after: float | None = None) -> None:
        self.after = after
        super().__init__("given back")


class Halt(BaseException):
    """The processor must stop: `Cancelled`, `LeaseLost` or `Draining`. It is not an `Exception`, so `except Exception` does not catch it."""


class LeaseLost(Halt):
    """The worker has lost the task: the gateway has refused a report, or no keep-alive has succeeded within the lease time."""


class Cancelled(Halt):
    """Somebody has cancelled the task. It ends as cancelled, whatever is reported, and a report ends it sooner. Then `Client.get` has the reason."""


class Draining(Halt):
    """The worker ends. It gives the task back, which costs no attempt and keeps the checkpoint."""


class Task:
    """A task for a processor, with methods for reports during the work. Any thread may call them.

    Attributes: `id`, `queue`, `type`, `properties`, `payload` (bytes), `attempt` (from 1), `max_attempts`,
    `epoch` and `last_checkpoint`. `stop`, `is_lost`, `end` and `forget` are for the worker.
    """

    def __init__(self, gateways: Gateways, queue: str, lease: Lease, now: int) -> None:
        self.queue = queue
        self.id: str = lease["task"]
        # From 1.
        self.attempt: int = lease["attempt"]
        self.max_attempts: int = lease["max_attempts"]
        # Grows with each lease of the task. With the id, it is a fencing token for what the processor writes elsewhere.
        self.epoch: int = lease["epoch"]
        self.type: str | None = lease.get("type")
        self.properties: dict[str, str] = lease["properties"]
        text = lease.get("payload")
        self.payload: bytes = text.encode() if text is not None else base64.b64decode(lease.get("payload_base64") or "")
        kept = lease.get("checkpoint_base64")
        # The checkpoint of an earlier attempt.
        self.last_checkpoint: bytes | None = base64.b64decode(kept) if kept is not None else None

        self._gateways, self._lease = gateways, lease["lease"]
        # When the last report was sent that succeeded, and for how many seconds the lease lasts from then on.
        self._heard, self._left = time.monotonic(), _left(lease["expires_at"], now)
        self._path = f"/v1/queues/{queue}/leases:report"
        self._lock = threading.Lock()
        self._news: dict[str, Any] = {}
        self._halt: Halt | None = None
        # Why the gateway has refused a report.
        self._lost: str | None = None
        self._halted, self._fresh, self._over = threading.Event(), threading.Event(), threading.Event()
        self._keeper = threading.Thread(target=self._keep_alive, name=f"keeps {self.id}", daemon=True)
        self._keeper.start()

    def text(self) -> str:
        """The payload as text."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload, parsed as JSON."""
        return json.loads(self.payload)

    @property
    def halted(self) -> bool:
        """Whether the processor must stop: the task was cancelled or lost, or the worker ends."""
        return self._look() is not None

    def check(self) -> None:
        """Raises a `Halt` if the processor must stop."""
        halt = self._look()
        if halt is not None:
            raise halt

    def sleep(self, seconds: float) -> None:
        """Waits. Raises a `Halt` as soon as the processor must stop."""
        end = time.monotonic() + seconds
        while not self.halted and (left := end - time.monotonic()) > 0:
            self._halted.wait(min(left, 1.0))
        self.check()

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Reports the progress of the task, in units of its own, within about a second. Newer progress replaces it. Raises a `Halt` like `check`."""
        said = {"done": done, "total": total, "message": message}
        self._tell("progress", {name: value for name, value in said.items() if value is not None})

    def checkpoint(self, data: bytes | str) -> None:
        """Stores up to 64 KiB for the next attempt, as its `last_checkpoint`, within about a second. Raises a `Halt` like `check`."""
        kept = data.encode() if isinstance(data, str) else data
        if len(kept) > _CHECKPOINT_BYTES:
            raise ValueError(f"a checkpoint has {_CHECKPOINT_BYTES} bytes at most, and this one {len(kept)}")
        self._tell("checkpoint_base64", base64.b64encode(kept).decode())

    def log(self, line: str) -> None:
        """Reports a line for people who watch the task. Of more than 100 lines in a second, the last are sent."""
        with self._lock:
            self._news["log"] = [*self._news.get("log", []), str(line)][-_LOG_LINES:]
        self._fresh.set()

    def _tell(self, name: str, value: object) -> None:
        self.check()
        # Fails if the value has no form in JSON: it must not get into a report.
        json.dumps(value, allow_nan=False)
        with self._lock:
            self._news[name] = value
        self._fresh.set()

    def _look(self) -> Halt | None:
        """The `Halt`, if there is one. Reads the clock, since a processor that keeps other threads from running also holds up the keep-alives."""
        silent = time.monotonic() - self._heard
        if silent > self._left:
            self.stop(LeaseLost(f"no keep-alive succeeded for {silent:.1f} s, and the lease lasts {self._left:.1f} s"))
        return self._halt

    # The rest is for the worker.

    def stop(self, halt: Halt) -> None:
        """Tells the processor to stop. The first reason counts, but `LeaseLost` replaces the others."""
        with self._lock:
            if self._halt is None or (isinstance(halt, LeaseLost) and not isinstance(self._halt, LeaseLost)):
                self._halt = halt
        self._halted.set()

    def is_lost(self) -> bool:
        """Whether the gateway has refused a report because the lease is over."""
        return self._lost is not None

    def _lose(self, error: GatewayError) -> str:
        """Records that the gateway has refused a report, and returns what the log says about it."""
        halt = self._look()
        self._lost = f"{error.code}: {halt}" if isinstance(halt, LeaseLost) else error.code
        self.stop(LeaseLost(self._lost))
        return self._lost

    def _pause(self) -> float:
        """Seconds between keep-alives: three per lease at least, so that one answer may be late or missing."""
        return min(self._left / 3, _KEEP_ALIVE_EVERY)

    def _keep_alive(self) -> None:
        """Sends news when there is any, and otherwise keep-alives."""
        while not self._over.is_set() and not self.is_lost():
            pause = min(_NEWS_EVERY, self._pause())
            self._fresh.wait(self._pause() - pause)
            self._fresh.clear()
            if self._over.is_set():
                return
            try:
                self._send_news(self._take_news())
            except Exception:
                # Whatever it is, the next keep-alive must be sent.
                logger.exception("keep-alive of %s", self.id)
            self._over.wait(pause)

    def _take_news(self) -> dict[str, Any]:
        with self._lock:
            news, self._news = self._news, {}
        return news

    def _put_back(self, news: dict[str, Any]) -> None:
        """Keeps news that were not sent for the next report, unless there are newer ones."""
        with self._lock:
            lines = [*news.get("log", []), *self._news.get("log", [])][-_LOG_LINES:]
            self._news = news | self._news | ({"log": lines} if lines else {})

    def _send_news(self, news: dict[str, Any]) -> None:
        sent = time.monotonic()
        try:
            limit = max(min(10.0, self._left / 3), 0.5)
            reported = self._report({"status": "IN_PROGRESS"} | news, timeout=limit, patience=self._pause() / 2)
        except (LeaseRefused, NotFound) as error:
            self._lose(error)
        except LonghaulError as error:
            if news and isinstance(error, Invalid):
                # The gateway would refuse the news again: the lease is kept alive without them.
                logger.warning("news of %s are refused: %s", self.id, error)
                self._send_news({})
                return
            logger.warning("keep-alive of %s: %s", self.id, error)
            self._put_back(news)
            self._fresh.set()
        else:
            self._heard = sent
            expires_at = reported.get("expires_at")
            if expires_at is not None:
                self._left = _left(expires_at, reported["now"])
            if reported["cancelled"]:
                self.stop(Cancelled("cancelled"))
            if reported.get("checkpoint_stored") is False:
                self._put_back({"checkpoint_base64": news["checkpoint_base64"]})

    def _report(self, body: dict[str, Any], timeout: float, patience: float) -> Reported:
        # The gateway knows the lease's own report again.
        answer = self._gateways.request("POST", self._path, {"lease": self._lease} | body, timeout=timeout, patience=patience)
        return cast(Reported, answer.json())

    def end(self, status: str, patience: float, **more: Any) -> str | None:
        """Reports the end of the task. Repeats the report for `patience` seconds until its outcome is known. Returns why the report does not count, if so."""
        with self._lock:
            if self._over.is_set():
                return "already reported"
            self.forget()
        self._keeper.join()
        if self.is_lost():
            return self._lost
        news = self._take_news()
        if status == "SUCCEEDED":
            # No attempt follows that could continue from it.
            news.pop("checkpoint_base64", None)
        try:
            self._report({"status": status} | news | more, timeout=10.0, patience=max(patience, self._left))
        except Invalid as error:
            return self._refused(status, error, patience)
        except (LeaseRefused, NotFound) as error:
            return self._lose(error)
        except LonghaulError as error:
            return error.code if isinstance(error, GatewayError) else str(error)
        return None

    def _refused(self, status: str, error: Invalid, patience: float) -> str:
        """Fails the task for good after an invalid report, such as one with a result that is too large: another attempt would end in the same way."""
        if status != "RELEASED":
            try:
                body = {"status": "FAILED", "fatal": True, "reason": f"{error.code}: {error.detail}"}
                self._report(body, timeout=10.0, patience=max(patience, self._left))
            except LonghaulError as second:
                logger.warning("the end of %s was not told: %s", self.id, second)
        return error.code

    def forget(self) -> None:
        """Ends the keep-alives of a lost lease."""
        self._over.set()
        self._fresh.set()


def _left(expires_at: int, now: int) -> float:
    """Returns the seconds that a lease has left, by the gateway's clock alone, because ours may differ."""
    return max((expires_at - now) / 1000, 0.1)


__all__ = ["Cancelled", "Draining", "Fatal", "GiveBack", "Halt", "LeaseLost", "RetryAfter", "Task"]
