"""A worker: leases tasks, runs several at once, and gives back unfinished tasks when it ends.

Threads send the keep-alives, because an event loop that a processor blocks would send them too late.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import json
import logging
import math
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from . import ending
from .client import Client, base64_field, length, text_field
from .errors import GatewayError, LonghaulError
from .http import HaltEvent
from .task import REASON_BYTES, Cancelled, Draining, Fatal, GiveBack, Halt, RetryAfter, Task, mend, third, time_left
from .types import Leases

logger = logging.getLogger("longhaul")

# The most tasks that a gateway leases to one request.
_COUNT = 100
_PAUSE_MAX = 10.0
# The outcome of a confirmation that must be repeated.
_UNKNOWN = "UNKNOWN"
# How long a processor may take to end after a `Draining`, in seconds. After that, its task is given back although it runs.
_GRACE = 5.0
# How often the worker checks whether to cancel a coroutine, in seconds.
_LOOK_EVERY = 1.0

# What the future of a cancelled coroutine raises.
_CANCELLED = asyncio.CancelledError, concurrent.futures.CancelledError

# A function or an `async def` function.
Processor = Callable[[Task], Any]


class Worker:
    """Runs the tasks of a queue by calling `processor` with each.

    The processor returns the result: `bytes` and `str` as they are, `None` for none, anything else as JSON. An exception fails the attempt, with its text
    as the reason; `longhaul.task` has exceptions with other effects. Each task has its own thread, and at most `concurrency` tasks run at once.

    An `async def` processor runs in an event loop, which one thread runs for all tasks. The worker
    cancels the coroutine (`asyncio.CancelledError`) within a second when its task is cancelled or
    lost, or must be given back. Do not call `task.sleep` there: it blocks the loop.

    - `name`: the name of the worker for display; by default host and process id.
    - `lease_time`: seconds of silence after which other workers may get the tasks. The worker sends keep-alives three times in that
      time, and at least every 5 s.
    - `types`: leases only tasks of these types.
    - `drain`: how many seconds running tasks may take to end when the worker ends; `math.inf`: as long as they take. After that, the worker gives them
      back with their checkpoints.
    - `poll`: for how many seconds, 30 at most, a request waits for a task. A worker that ends may wait for this request, because cancelling it could lose a
      task.
    - `report_patience`: for how many seconds the worker repeats the report of a task's end while no gateway takes it.

    The logger `longhaul` logs the outcome of each task at the level info, and why an attempt failed, with the traceback, at the level warning.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        processor: Processor,
        *,
        concurrency: int = 4,
        name: str | None = None,
        lease_time: float = 30.0,
        types: Sequence[str] = (),
        drain: float = 10.0,
        poll: float = 5.0,
        report_patience: float = 60.0,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency is 1 at least")
        if not (drain >= 0 and report_patience >= 0 and 0 <= poll <= 30 and 0 < lease_time < math.inf):
            raise ValueError("a time is negative, endless or no number, or `poll` is above 30 s")
        self.client, self.processor = client, processor
        self.queue = quote(queue, safe="")
        self.concurrency, self.drain, self.report_patience = concurrency, drain, report_patience
        self._timeout = poll + 10.0
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._asked: dict[str, Any] = {
            "worker": self.name,
            "confirms": True,
            "wait": length(poll),
            "lease_time": length(lease_time),
        }
        if types:
            self._asked["types"] = list(types)
        # Runs an `async def` processor.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping, self._ended = HaltEvent(), threading.Event()
        self._changed = threading.Condition()
        self._running: set[Task] = set()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Works until SIGTERM or Ctrl-C, until `stop`, or until somebody drains it (`longhaul worker drain`). Returns when the last task is over or given back.

        A signal drains all workers of this process, and then this waits for all of them. A second signal ends the process. In another thread than the main one,
        signals are the program's until the main thread has ended. At the end of the interpreter, a daemon thread drains, and any other works on.
        """
        with ending.signals() as signalled:
            self._work()
            if signalled.is_set():
                ending.drain_all()

    def start(self) -> None:
        """Starts the worker in its own thread. It works until `stop`, or until the interpreter ends.

        In the main thread, this installs a handler for SIGTERM that ends the interpreter, if there is no handler yet. The end of the interpreter drains.
        """
        ending.end_at_signal()
        self._thread = threading.Thread(target=self._work, name=f"worker {self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tells the worker to end as described for `run`, and returns at once. You may call it more than once."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end of a started worker. Returns whether it has ended."""
        if self._thread is not None:
            self._thread.join(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
            return not self._thread.is_alive()
        return True

    def _work(self) -> None:
        self._is_daemon = threading.current_thread().daemon
        ending.working.add(self)
        try:
            self._work_and_drain()
        finally:
            ending.working.discard(self)
            self._ended.set()

    def _work_and_drain(self) -> None:
        # Tells this start of the worker apart from others with its name.
        self._asked["instance"] = secrets.token_hex(8)
        if any(inspect.iscoroutinefunction(it) for it in (self.processor, type(self.processor).__call__)):
            self._loop = _loop_in_thread()
        logger.info("ready")
        pause = 0.5
        while not self._stopping.is_set():
            free = self._free()
            if free == 0 or self._stopping.is_set():
                continue
            try:
                self._lease(free)
                pause = 0.5
            except Exception as error:
                if isinstance(error, GatewayError) and error.code == "worker_drained":
                    logger.info("told to drain")
                    self.stop()
                    break
                # Also after an answer that is not a gateway's: a gateway may answer again.
                logger.warning("no lease: %s", error or type(error).__name__)
                self._stopping.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _PAUSE_MAX)
        self._drain()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _free(self) -> int:
        """Waits briefly for a free slot, and returns how many more tasks the worker may run."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._running) < self.concurrency, 0.2)
            return min(self.concurrency - len(self._running), _COUNT)

    def _lease(self, count: int) -> None:
        gateways, path = self.client.gateways, f"/v1/queues/{self.queue}/leases"
        # Leases that are not confirmed are given back, so the request is repeatable.
        answer = gateways.request("POST", path, self._asked | {"count": count}, timeout=self._timeout, patience=5.0, halt=self._stopping)
        if answer.status == 204:
            return
        since = time.monotonic()
        leases: Leases = answer.json()
        tasks = [Task(gateways, self.queue, lease, leases["now"], since) for lease in leases["leases"]]
        for task, outcome in zip(tasks, self._confirm(path, leases)):
            if outcome != "RESULT_OK":
                logger.warning("lost %s before it began: %s", task.id, outcome)
                continue
            with self._changed:
                self._running.add(task)
            self._begin(task)

    def _confirm(self, path: str, leases: Leases) -> list[str]:
        """Tells the gateway that the leases have come, and returns the outcome of each. Repeats this until all are known, while the leases last.

        A worker that ends gives back what is not known. So that counts as confirmed, and does not begin.
        """
        wanted = {"leases": [lease["lease"] for lease in leases["leases"]]}
        lasting = min((time_left(lease["expires_at"], leases["now"]) for lease in leases["leases"]), default=0.0)
        give_up, pause = time.monotonic() + lasting, 0.0
        outcomes = [_UNKNOWN] * len(wanted["leases"])
        while _UNKNOWN in outcomes and (left := give_up - time.monotonic()) > 0 and not self._stopping.wait(pause):
            try:
                answer = self.client.gateways.request(
                    "POST",
                    f"{path}:confirm",
                    wanted,
                    timeout=min(third(lasting), 10.0),
                    patience=left,
                    halt=self._stopping,
                    expects=("outcomes",),
                    pauses={},
                    pause_max=third(lasting),
                )
            except LonghaulError as error:
                logger.warning("leases are not confirmed: %s", error)
                break
            told = [outcome["outcome"] for outcome in answer.json()["outcomes"]]
            outcomes = told + [_UNKNOWN] * (len(outcomes) - len(told))
            pause = min(2 * pause, 1.0) or 0.2
        is_ending = self._stopping.is_set()
        return ["RESULT_OK" if is_ending and outcome == _UNKNOWN else outcome for outcome in outcomes]

    def _begin(self, task: Task) -> None:
        """Runs the processor in a thread or in the event loop. A thread reports its end."""
        logger.info("leased %s attempt %s", task.id, task.attempt)
        if self._stopping.is_set():
            # A worker that drains begins nothing.
            task.stop(Draining("the worker is to end"))

        def run(process: Callable[[], Any]) -> None:
            threading.Thread(target=self._run, args=(task, process), name=task.id, daemon=True).start()

        def call() -> Any:
            task.check()
            return self.processor(task)

        def give_back() -> Any:
            # Other workers may have room for a thread, and this one in a while.
            raise GiveBack(1.0)

        try:
            task.keep()
            if self._loop is None:
                run(call)
                return
        except RuntimeError as error:
            logger.warning("no thread for %s: %s", task.id, error)
            self._run(task, give_back)
            return

        def ended(result: Callable[[], Any]) -> None:
            try:
                run(result)
            except RuntimeError:
                # The loop must wait, since there is no thread.
                self._run(task, result)

        asyncio.run_coroutine_threadsafe(self._await(task), self._loop).add_done_callback(lambda it: ended(it.result))

    async def _await(self, task: Task) -> Any:
        """Awaits the processor, and cancels it when there is a `Halt`."""
        work = asyncio.ensure_future(self.processor(task))
        while not task.halted:
            if (await asyncio.wait([work], timeout=_LOOK_EVERY))[0]:
                break
        else:
            work.cancel()
        return await work

    def _drain(self) -> None:
        if not self._wait_for_end(self.drain):
            for task in self._still_running():
                task.stop(Draining("the worker is to end"))
            if not self._wait_for_end(_GRACE):
                self._abandon_all()
        logger.info("drained")

    def _wait_for_end(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, min(seconds, threading.TIMEOUT_MAX))

    def _still_running(self) -> list[Task]:
        with self._changed:
            return list(self._running)

    def _abandon_all(self) -> None:
        threads = [threading.Thread(target=self._abandon, args=(task,), daemon=True) for task in self._still_running()]
        started = []
        # At once, since each may take a while.
        for thread in threads:
            try:
                thread.start()
                started.append(thread)
            except RuntimeError:
                # The interpreter ends, or the system has no thread left.
                thread.run()
        for thread in started:
            thread.join()

    def _abandon(self, task: Task) -> None:
        """Gives back a task whose processor does not end, or waits while its end is being reported."""
        with task.ending:
            if task.end("RELEASED", self.report_patience) is None:
                logger.info("released %s though it still runs", task.id)

    def _run(self, task: Task, process: Callable[[], Any]) -> None:
        try:
            self._process(task, process)
        except Exception:
            logger.exception("task %s", task.id)
        finally:
            task.forget()
            with self._changed:
                self._running.discard(task)
                self._changed.notify_all()

    def _process(self, task: Task, process: Callable[[], Any]) -> None:
        status, more = "FAILED", dict[str, Any]()
        told = ""
        try:
            result = _called(task, process)
            try:
                more, status = _result(result), "SUCCEEDED"
            except Exception as error:
                # Another attempt would end alike.
                raise Fatal(f"the result cannot be sent: {type(error).__name__}: {mend(error, 1000)}") from error
        except Cancelled as halt:
            more, told = {"reason": str(halt)}, "cancelled"
        except Halt:
            # Also after a lost lease: the gateway decides whether it is over. If not, another attempt may begin at once.
            status = "RELEASED"
        except GiveBack as back:
            status = "RELEASED"
            more = {} if back.after is None else {"after": length(back.after)}
        except Fatal as error:
            more = _failure(task, error, fatal=True)
        except RetryAfter as error:
            more = _failure(task, error, retry_after=length(error.seconds))
        except BaseException as error:
            # Any other error ends only this attempt.
            more = _failure(task, error)
        with task.ending:
            why = task.end(status, self.report_patience, **more)
            if task.is_lost() and not told:
                logger.warning("lost %s: %s", task.id, why)
            elif why is not None and not told:
                logger.info("not %s %s: %s", status.lower(), task.id, why)
            else:
                logger.info("%s %s", told or status.lower(), task.id)


def _loop_in_thread() -> asyncio.AbstractEventLoop:
    """An event loop that a thread runs until it is stopped."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        is_stopped = False
        while not is_stopped:
            # A processor raised it, and its attempt has failed. The others continue.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
                is_stopped = True
        loop.close()

    threading.Thread(target=run, name="processors", daemon=True).start()
    return loop


def _called(task: Task, process: Callable[[], Any]) -> Any:
    """Calls the processor. If it was told to stop, whatever it raises means that it has stopped."""
    try:
        return process()
    except BaseException as error:
        if (halt := task.told()) is None or isinstance(error, GiveBack):
            raise
        if not isinstance(error, (Halt, *_CANCELLED)):
            logger.warning("attempt %s of %s failed when it was told to stop", task.attempt, task.id, exc_info=error)
        raise halt from None


def _failure(task: Task, error: BaseException, **more: Any) -> dict[str, Any]:
    """The report of a failed attempt. The log gets the traceback as well."""
    said = mend(error, REASON_BYTES)
    reason = said if isinstance(error, (Fatal, RetryAfter)) else mend(f"{type(error).__name__}: {said}", REASON_BYTES)
    logger.warning("attempt %s of %s failed: %s", task.attempt, task.id, reason, exc_info=error)
    return {"reason": reason} | more


def _result(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        # Fails if the text has half of a surrogate pair, which no gateway takes.
        value.encode()
        return text_field("result", value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64_field("result", value)
    # Fails if the value has no form in JSON, and as above.
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    return {"result_json": value}
