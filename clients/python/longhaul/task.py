"""A task that a worker has leased, and the thread that keeps its lease alive.

The processor gets a `Task`. It returns the result, or raises an exception, which fails the attempt; `Fatal`, `RetryAfter` and `GiveBack` have other effects.
The methods of a task raise a `Halt` when the processor must stop. If you catch it, raise it again.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

from .errors import GatewayError, LonghaulError, is_over, is_unfit
from .http import Gateways, HaltEvent
from .types import Lease, Reported

logger = logging.getLogger("longhaul")

# The shortest time between two reports with news, in seconds.
_NEWS_EVERY = 1.0
# The longest time between two keep-alives, in seconds: their answers tell that the task was cancelled.
_KEEP_ALIVE_EVERY = 5.0
_CHECKPOINT_BYTES = 64 * 1024
_LOG_LINES = 100
_LINE_BYTES = 256
REASON_BYTES = 16 * 1024
# The largest number of a progress.
_NUMBER_MAX = 2**64 - 1
# Of a progress message. A report has 5 MiB at most.
_MESSAGE_BYTES = 64 * 1024


class Fatal(Exception):
    """Raise it to fail the task for good: no further attempt follows."""


class RetryAfter(Exception):
    """Raise it to fail the attempt. The next attempt begins after `seconds`, whatever the queue's backoff is."""

    def __init__(self, seconds: float, reason: str) -> None:
        self.seconds = _pause(seconds)
        super().__init__(reason)


class GiveBack(Exception):
    """Raise it to give the task back, which costs no attempt. No worker gets the task before `after` seconds."""

    def __init__(self, after: float | None = None) -> None:
        self.after = None if after is None else _pause(after)
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
    `epoch` and `last_checkpoint`. `keep`, `stop`, `told`, `is_lost`, `ending`, `end` and `forget` are for the worker.
    """

    def __init__(self, gateways: Gateways, queue: str, lease: Lease, now: int, since: float) -> None:
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
        self._heard, self._left = since, time_left(lease["expires_at"], now)
        # The pauses that gateways asked for after keep-alives of this task.
        self._pauses: dict[str, float] = {}
        self._warned = set[str]()
        self._path = f"/v1/queues/{queue}/leases:report"
        self._lock = threading.Lock()
        self._news: dict[str, Any] = {}
        self._halt: Halt | None = None
        # Why the gateway has refused a report.
        self._lost: str | None = None
        self._halted, self._fresh = threading.Event(), threading.Event()
        # Also ends the pauses and repeats of a keep-alive: the end of the task waits for none of them.
        self._over = HaltEvent()
        # Held while the end is reported and logged.
        self.ending = threading.Lock()
        self._keeper = threading.Thread(target=self._keep_alive, name=f"keeps {self.id}", daemon=True)

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
        end = time.monotonic() + _pause(seconds, math.inf)
        while not self.halted and (left := end - time.monotonic()) > 0:
            self._halted.wait(min(left, 1.0))
        self.check()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Reports the progress of the task, in units of its own, within about a second. Newer progress replaces it. Raises a `Halt` like `check`.

        Numbers are rounded, and a negative one is 0. Whatever is no number is left out, with a warning.
        """
        said: dict[str, Any] = {name: _number(value) for name, value in (("done", done), ("total", total)) if value is not None}
        if message is not None:
            said["message"] = mend(message, _MESSAGE_BYTES)
        self.check()
        if any(value is None for value in said.values()) or "done" not in said:
            self._warn("progress", f"{mend(done, 50)} of {mend(total, 50)} is no progress")
        if said.get("done") is not None:
            self._tell("progress", {name: value for name, value in said.items() if value is not None})

    def checkpoint(self, data: bytes | str) -> None:
        """Stores up to 64 KiB for the next attempt, as its `last_checkpoint`, within about a second. Raises a `Halt` like `check`."""
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"a checkpoint is bytes or text, and this one is {type(data).__name__}")
        kept = data.encode() if isinstance(data, str) else bytes(data)
        if len(kept) > _CHECKPOINT_BYTES:
            raise ValueError(f"a checkpoint has {_CHECKPOINT_BYTES} bytes at most, and this one {len(kept)}")
        self.check()
        self._tell("checkpoint_base64", base64.b64encode(kept).decode())

    def log(self, line: str) -> None:
        """Reports a line for people who watch the task, cut at 256 bytes. Of more than 100 lines in a second, the last are sent."""
        mended = mend(line, _LINE_BYTES)
        if isinstance(line, str) and mended != line:
            self._warn("log", f"a log line is sent as {mended!r}")
        with self._lock:
            self._news["log"] = [*self._news.get("log", []), mended][-_LOG_LINES:]
        self._fresh.set()

    def _warn(self, kind: str, line: str) -> None:
        """Logs a warning, once per task and kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("%s of %s: %s", kind, self.id, line[:500])

    def _tell(self, name: str, value: object) -> None:
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

    def keep(self) -> None:
        """Begins the keep-alives. Raises a `RuntimeError` if no thread can be started."""
        self._keeper.start()

    def stop(self, halt: Halt) -> None:
        """Tells the processor to stop. The first reason counts, but `LeaseLost` replaces the others."""
        with self._lock:
            if self._halt is None or (isinstance(halt, LeaseLost) and not isinstance(self._halt, LeaseLost)):
                self._halt = halt
        self._halted.set()

    def told(self) -> Halt | None:
        """The `Halt` that the processor was told, if any."""
        return self._halt

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

    def _limit(self) -> float:
        """Seconds for one attempt of a keep-alive."""
        return min(third(self._left), 10.0)

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
        for part in _ever_less(news):
            try:
                keep_alive = {"status": "IN_PROGRESS"} | part
                reported = self._report(keep_alive, timeout=self._limit(), patience=self._pause() / 2, pauses=self._pauses, halt=self._over)
            except LonghaulError as error:
                if isinstance(error, GatewayError):
                    if is_over(error):
                        self._lose(error)
                        return
                    if part and is_unfit(error):
                        # The gateway would refuse these news again, but the lease must go on.
                        self._warn("news", str(error))
                        continue
                if not self._over.is_set():
                    logger.warning("keep-alive of %s: %s", self.id, error)
                self._put_back(part)
                self._fresh.set()
                return
            self._heard = sent
            expires_at = reported.get("expires_at")
            if expires_at is not None:
                self._left = time_left(expires_at, reported["now"])
            if reported["cancelled"]:
                self.stop(Cancelled("cancelled"))
            if reported.get("checkpoint_stored") is False and "checkpoint_base64" in part:
                self._put_back({"checkpoint_base64": part["checkpoint_base64"]})
            return

    def _report(
        self, body: dict[str, Any], timeout: float, patience: float, pauses: dict[str, float], halt: HaltEvent | None = None
    ) -> Reported:
        # The gateway knows the lease's own report again.
        body = {"lease": self._lease} | body
        answer = self._gateways.request(
            "POST",
            self._path,
            body,
            timeout=timeout,
            patience=patience,
            halt=halt,
            expects=("cancelled", "now"),
            pauses=pauses,
            pause_max=third(self._left),
        )
        reported = cast(Reported, answer.json())
        for warning in reported.get("warnings") or ():
            logger.warning("news of %s: %s", self.id, warning)
        return reported

    def end(self, status: str, patience: float, **more: Any) -> str | None:
        """Reports the end of the task. Repeats the report until its outcome is known, for `patience` seconds and while the lease may last.

        Returns why the report does not count, if so. The caller holds `ending`.
        """
        if self._over.is_set():
            return "already reported"
        self.forget()
        if self._keeper.is_alive():
            self._keeper.join(self._limit())
        if self.is_lost():
            return self._lost
        news = self._take_news()
        if status == "SUCCEEDED":
            # No attempt follows that could continue from it.
            news.pop("checkpoint_base64", None)
        bodies = [{"status": status} | part | more for part in _ever_less(news)]
        refused: str | None = None
        for body in bodies:
            try:
                self._report(body, timeout=10.0, patience=max(patience, self._left), pauses={})
                return refused
            except GatewayError as error:
                if is_over(error):
                    return self._lose(error)
                if not is_unfit(error):
                    return error.code
                logger.warning("the end of %s is refused: %s", self.id, error)
                if body is bodies[-1] and status != "RELEASED" and refused is None:
                    # Such as a result that is too large: another attempt would end alike.
                    refused = error.code
                    bodies.append({"status": "FAILED", "fatal": True, "reason": mend(f"{error.code}: {error.detail}", REASON_BYTES)})
                elif body is bodies[-1]:
                    return refused or error.code
            except LonghaulError as error:
                return str(error)
        return refused

    def forget(self) -> None:
        """Ends the keep-alives of a lost lease."""
        self._over.set()
        self._fresh.set()


def _ever_less(news: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What to send of the news, each part after the one before it was refused: all, the checkpoint alone, nothing."""
    kept = {name: value for name, value in news.items() if name == "checkpoint_base64"}
    yield news
    if kept and kept != news:
        yield kept
    if news:
        yield {}


def time_left(expires_at: float, now: float) -> float:
    """Returns the seconds that a lease has left, by the gateway's clock alone, because ours may differ."""
    return max((expires_at - now) / 1000, 0.1)


def third(lease_time: float) -> float:
    """The longest pause between two requests about a lease: two more fit into the lease."""
    return max(lease_time / 3, 0.5)


def mend(value: object, limit: int) -> str:
    """The value as text that a report can carry: half of a surrogate pair is replaced, and the end is cut."""
    try:
        text = str(value)
    except Exception:
        text = f"a {type(value).__name__} without text"
    # `encode` would make a copy of megabytes.
    text = text[:limit].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.encode()[:limit].decode("utf-8", "ignore")


def _number(value: Any) -> int | None:
    """A number of a progress; `None` if it is none."""
    try:
        return min(max(int(round(value)), 0), _NUMBER_MAX)
    except Exception:
        return None


def _pause(seconds: float, limit: float = 1e12) -> float:
    """A pause, which is 0 if it is below. Raises an error if it is no number, or above the limit."""
    if not seconds <= limit:
        raise ValueError(f"{seconds} is no pause in seconds")
    return max(float(seconds), 0.0)


__all__ = ["Cancelled", "Draining", "Fatal", "GiveBack", "Halt", "LeaseLost", "RetryAfter", "Task"]
