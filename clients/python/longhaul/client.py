"""A client of one or several gateways. It submits tasks and operates queues, workers, dead letters and schedules."""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack, cast, overload
from urllib.parse import quote, urlencode

from . import events, types
from .errors import GatewayError, NotFound, TaskFailed, WaitTimeout, from_answer
from .events import Event
from .http import Answer, Gateways, HaltEvent, Token, encoded

# Seconds, or a text such as `1h 30m`.
Length = float | timedelta | str
# Ms since the epoch, or a time that knows its zone.
Instant = int | datetime
Level = Literal["high", "normal", "low"]

# The longest that a gateway waits in one request.
_POLL = 20.0
# The length up to which a text is sent as it is.
_SHORT = 64 * 1024
# How long a request about many tasks may take, in seconds.
_BULK = 300.0


@overload
def length(value: Length) -> str: ...
@overload
def length(value: None) -> None: ...
def length(value: Length | None) -> str | None:
    """Converts a duration to the form that the gateway reads."""
    if value is None or isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no number of seconds")
    return f"{seconds * 1000:.0f}ms"


def instant(value: Instant | None) -> int | None:
    """Converts an instant to the form that the gateway reads."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError("the time does not say its zone: use datetime.now(timezone.utc)")
    return round(value.timestamp() * 1000)


def text_field(name: str, text: str) -> dict[str, str]:
    """A text as a field of a request, or in base64 if JSON makes it much longer: a control character takes 6 bytes, and a body has a limit."""
    if len(text) > _SHORT and len(json.dumps(text, ensure_ascii=False)) > 2 * len(text):
        return base64_field(name, text.encode())
    return {name: text}


def base64_field(name: str, data: bytes | bytearray | memoryview) -> dict[str, str]:
    """Bytes as a field of a request."""
    return {f"{name}_base64": base64.b64encode(data).decode()}


_LENGTHS = ("delay", "max_duration", "max_total_duration", "no_progress_timeout")
_INSTANTS = ("scheduled_at", "expires_at")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A task to submit. All fields are optional.

    - `type`: selects the processor. `key`: your name for the task. `tags`: words to find it by. `properties`: for the processor.
    - `delay`, `scheduled_at`: the earliest start. `expires_at`: the latest start of an attempt.
    - `idempotency_key`: of all tasks with this key, one runs.
    - `dedupe_key`: of all unfinished tasks with this key, one runs. With `overwrite`, the new task replaces the earlier one.
    - `order_key`: on a queue with an order, tasks with this key run one at a time. `limit_key`: the queue's limits for this key apply.
    - `after`, `after_keys`: ids or keys of tasks that must be over first. `after_failed`: what happens if one of them has no result.
    - `max_attempts`: the most attempts. `retry`: the pauses between attempts, as `{"base": .., "max": ..}` or `{"intervals": [..]}`.
    - `max_duration`: time limit of an attempt. `max_total_duration`: time limit of all attempts. `no_progress_timeout`: how long an attempt may report nothing.

    Durations are seconds, `timedelta`, or texts such as `"30s"` (in `retry`, only texts). Instants are ms since the epoch, or `datetime` with a time zone.

    A payload of type `str` or `bytes` is sent as it is, any other as JSON. A task without `idempotency_key` and `dedupe_key` gets a random
    idempotency key with each submit, so that the client can repeat a submit whose answer got lost. With a `dedupe_key`, such a submit raises `OutcomeUnknown`:
    that key is free again when its task is over, so a repeat might create a second task.
    """

    payload: Any = ""
    type: str | None = None
    key: str | None = None
    tags: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    priority: Level = "normal"
    delay: Length | None = None
    scheduled_at: Instant | None = None
    expires_at: Instant | None = None
    idempotency_key: str | None = None
    dedupe_key: str | None = None
    overwrite: bool = False
    strict: bool = False
    order_key: str | None = None
    limit_key: str | None = None
    after: Sequence[str] = ()
    after_keys: Sequence[str] = ()
    after_failed: Literal["fail", "skip", "run"] | None = None
    max_attempts: int | None = None
    max_duration: Length | None = None
    max_total_duration: Length | None = None
    no_progress_timeout: Length | None = None
    retry: types.Retry | None = None

    def __post_init__(self) -> None:
        for name in _LENGTHS:
            length(getattr(self, name))
        for name in _INSTANTS:
            instant(getattr(self, name))

    def body(self) -> types.NewTask:
        """Returns the JSON body of the request."""
        body: dict[str, Any] = {}
        if isinstance(self.payload, str):
            body |= text_field("payload", self.payload)
        elif isinstance(self.payload, (bytes, bytearray, memoryview)):
            body |= base64_field("payload", self.payload)
        else:
            body["payload_json"] = self.payload
        for name in ("type", "key", "idempotency_key", "dedupe_key", "order_key", "limit_key", "after_failed", "max_attempts", "retry"):
            body[name] = getattr(self, name)
        for name in _LENGTHS:
            body[name] = length(getattr(self, name))
        for name in _INSTANTS:
            body[name] = instant(getattr(self, name))
        body |= {"tags": list(self.tags), "properties": dict(self.properties)}
        body |= {"after": list(self.after), "after_keys": list(self.after_keys)}
        body |= {"priority": self.priority, "overwrite": self.overwrite, "strict": self.strict}
        # The gateway uses these values for omitted fields.
        left_out = {"priority": "normal", "tags": [], "after": [], "after_keys": [], "properties": {}, "overwrite": False, "strict": False}
        said = {name: value for name, value in body.items() if name.startswith("payload") or (value is not None and left_out.get(name) != value)}
        return cast(types.NewTask, said)


class Client:
    """A client of one or several gateways of one cluster. Threads may share it.

    - `gateways`: URLs, as a sequence or as a text separated by commas. The default is the environment variable `LONGHAUL_GATEWAY`, or else
      `http://127.0.0.1:7070`.
    - `token`: a text, or a function that is called for each request. If it raises an error or returns no token, the request is repeated.
      The default is the environment variable `LONGHAUL_TOKEN`.
    - `ssl_context`: the trusted authorities and the client certificate, if those of the system do not fit.
    - `patience`: for how many seconds the client repeats a request while no gateway serves it.
    - `add_keys`: with `False`, tasks get no random idempotency key, and a submit with an unknown outcome raises `OutcomeUnknown`.
    """

    def __init__(
        self,
        gateways: str | Sequence[str] | None = None,
        *,
        token: Token = None,
        ssl_context: ssl.SSLContext | None = None,
        patience: float = 30.0,
        add_keys: bool = True,
    ) -> None:
        if gateways is None:
            gateways = os.environ.get("LONGHAUL_GATEWAY") or "http://127.0.0.1:7070"
        if not patience >= 0:
            raise ValueError(f"a patience of {patience} s is negative or no number")
        urls = gateways.split(",") if isinstance(gateways, str) else list(gateways)
        self.gateways = Gateways(urls, token or os.environ.get("LONGHAUL_TOKEN", "").strip() or None, ssl_context)
        self.patience, self.add_keys = patience, add_keys
        # Ends requests from another thread: for `AsyncClient`.
        self._halt: HaltEvent | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. You may use the client again."""
        self.gateways.close()

    # Tasks.

    def submit(self, queue: str, task: Submission | Any) -> str:
        """Submits a task, and returns its id when it is stored. Anything but a `Submission` is the payload."""
        body = self._new_task(task)
        answer = self._ask("POST", _at(queue, "tasks"), body, repeatable="idempotency_key" in body, expects=("id",))
        return cast(str, answer.json()["id"])

    def submit_batch(self, queue: str, tasks: Iterable[Submission | Any]) -> list[str | GatewayError]:
        """Submits up to 1,000 tasks, and returns for each its id, or the error.

        A task that has no form in JSON, such as one with NaN, raises an error with its index, and then none is submitted.
        """
        bodies = [self._in_batch(index, task) for index, task in enumerate(tasks)]
        repeatable = all("idempotency_key" in body for body in bodies)
        answer = self._ask("POST", _at(queue, "tasks:batch"), {"tasks": bodies}, repeatable=repeatable, expects=("outcomes",))
        return [_outcome(outcome) for outcome in answer.json()["outcomes"]]

    def get(self, queue: str, task: str) -> types.Task:
        """Returns the state of a task."""
        return cast(types.Task, self._get(_at(queue, "tasks", task)))

    def history(self, queue: str, task: str) -> types.History:
        """Returns the history of a task, entry by entry."""
        return cast(types.History, self._get(_at(queue, "tasks", task, "history")))

    def why(self, queue: str, task: str) -> types.Why:
        """Explains why a task does not run, in one sentence and in details."""
        return cast(types.Why, self._get(_at(queue, "tasks", task, "why")))

    def lease(self, queue: str, task: str) -> types.LeaseHolder:
        """Returns the worker that has leased a task. Raises `NotFound` if none has."""
        return cast(types.LeaseHolder, self._get(_at(queue, "tasks", task, "lease")))

    def wait(self, queue: str, task: str, timeout: float) -> types.Task:
        """Waits up to `timeout` seconds for the end of a task, however it ends, and returns the task. Also waits for an unknown id.

        Raises `WaitTimeout` if the task is not over in time.
        """
        give_up = time.monotonic() + timeout
        while True:
            left = give_up - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"task {task} is not over after {timeout} s")
            wait = min(left, _POLL)
            query = {"timeout": length(wait)}
            answer = self._ask("GET", _at(queue, "tasks", task, "wait"), query=query, timeout=wait + 15.0, patience=min(self.patience, left))
            if answer.status == 200:
                return cast(types.Task, answer.json())

    def result(self, queue: str, task: str, timeout: float) -> bytes:
        """Waits up to `timeout` seconds for the end of a task, and returns its result.

        Raises `TaskFailed` if the task has none, `WaitTimeout` if it is not over in time.
        """
        ended = self.wait(queue, task, timeout)
        if ended["status"] != "completed":
            raise TaskFailed(ended)
        try:
            return self._ask("GET", _at(queue, "tasks", task, "result"), expects=None).body
        except NotFound as error:
            raise TaskFailed(ended) from error

    def payload(self, queue: str, task: str) -> bytes:
        """Returns the payload of a task, as it was submitted."""
        return self._ask("GET", _at(queue, "tasks", task, "payload"), expects=None).body

    def cancel(self, queue: str, task: str, reason: str = "") -> None:
        """Requests the end of a task. A running task ends when its worker has learned of it, any other at once."""
        self._ask("POST", _at(queue, "tasks", f"{task}:cancel"), {"reason": reason}, repeatable=True)

    def kill(self, queue: str, task: str, reason: str = "") -> None:
        """Requests the end of a task without waiting for its processor."""
        self._ask("POST", _at(queue, "tasks", f"{task}:kill"), {"reason": reason}, repeatable=True)

    def delete(self, queue: str, task: str, reason: str = "") -> None:
        """Closes a task as cancelled, whatever its status. Raises `Conflict` if it is over."""
        self._ask("DELETE", _at(queue, "tasks", task), query={"reason": reason})

    def retry(self, queue: str, task: str, reason: str = "") -> str:
        """Restarts a task that failed for good, as a new task, and returns the id of the new task.

        A repeat returns the same id. If the new task fails too, retry the new task.
        """
        return cast(str, self._ask("POST", _at(queue, "tasks", f"{task}:retry"), {"reason": reason}).json()["id"])

    def force_fail(self, queue: str, task: str, reason: str = "", *, epoch: int | None = None) -> None:
        """Closes a task as failed for good.

        With `epoch`, it raises `Conflict` if the task is in another epoch.
        """
        self._ask("POST", _at(queue, "tasks", f"{task}:force-fail"), {"reason": reason, "epoch": epoch}, repeatable=True)

    def force_release(self, queue: str, task: str, reason: str = "", *, epoch: int | None = None) -> None:
        """Takes a running task from its worker. Another attempt follows.

        With `epoch`, it raises `Conflict` if the task is in another epoch.
        """
        self._ask("POST", _at(queue, "tasks", f"{task}:force-release"), {"reason": reason, "epoch": epoch})

    def reschedule(self, queue: str, task: str, delay: float, reason: str = "") -> None:
        """Starts a waiting task after `delay` seconds, up to 100 years; 0 starts it now. It costs no attempt.

        Raises `Conflict` if the task runs or waits for others.
        """
        self._ask("POST", _at(queue, "tasks", f"{task}:reschedule"), {"reason": reason, "delay": length(delay)}, repeatable=True)

    # Queues.

    def queues(self) -> list[str]:
        """Returns the names of the queues that the token may use."""
        return cast("list[str]", self._get("/v1/queues")["queues"])

    def queue(self, queue: str) -> types.QueueBody:
        """Returns the settings of a queue and their version."""
        return cast(types.QueueBody, self._get(_at(queue)))

    def create_queue(self, queue: str, **settings: Unpack[types.NewQueue]) -> types.CreatedQueue:
        """Creates a queue, or corrects its topics. Omitted settings stay as they are."""
        return cast(types.CreatedQueue, self._ask("PUT", _at(queue), settings).json())

    def change_queue(self, queue: str, settings: types.QueueSettings, expected_version: int, reason: str = "") -> int:
        """Replaces the settings of a queue, and returns their new version.

        Raises `Conflict` if `expected_version` is not the current version.
        """
        body = {"settings": settings, "expected_version": expected_version, "reason": reason}
        return self._version("PATCH", _at(queue), body)

    def pause_queue(self, queue: str, reason: str = "") -> int:
        """Pauses a queue: no task begins until it is resumed. Running tasks continue. Returns the new version of the settings."""
        return self._version("POST", f"{_at(queue)}:pause", {"reason": reason}, repeatable=True)

    def resume_queue(self, queue: str, reason: str = "") -> int:
        """Resumes a queue, and returns the new version of the settings."""
        return self._version("POST", f"{_at(queue)}:resume", {"reason": reason}, repeatable=True)

    def delete_queue(self, queue: str, reason: str = "") -> None:
        """Deletes a queue with all its tasks and their history."""
        self._ask("DELETE", _at(queue), query={"reason": reason})

    def counts(self, queue: str, *, level: Level | None = None) -> types.Counts:
        """Returns the numbers of tasks by status, and how many have ever ended."""
        return cast(types.Counts, self._get(_at(queue, "counts"), {"level": level}))

    def series(self, queue: str, *, step: Length | None = None, steps: int | None = None, level: Level | None = None) -> types.Series:
        """Returns how many tasks were submitted and ended in each step, and how long they took.

        By default, a step is a minute, and the answer has the last 60 steps; 1,440 at most.
        """
        return cast(types.Series, self._get(_at(queue, "series"), {"step": length(step), "steps": steps, "level": level}))

    def actions(self, queue: str, *, limit: int = 100, level: Level | None = None) -> list[types.Action]:
        """Returns the operators' actions on the queue, its tasks, workers and schedules, with their reasons, the oldest first.

        The list has the newest `limit` actions, 10,000 at most.
        """
        return cast("list[types.Action]", self._get(_at(queue, "actions"), {"limit": limit, "level": level})["actions"])

    def purge(self, queue: str, *, level: Level | None = None, timeout: float = _BULK, **selection: Unpack[types.Purge]) -> types.Purged:
        """Deletes unfinished tasks of one level; `all=True` selects all of them.

        After `timeout` seconds, the purge stops and raises `OutcomeUnknown`.
        """
        return cast(types.Purged, self._ask("POST", f"{_at(queue)}:purge", selection, query={"level": level}, timeout=timeout).json())

    # Workers.

    def workers(self, queue: str, *, level: Level | None = None) -> list[types.QueueWorker]:
        """Returns the workers of a queue, and the tasks that they run."""
        return cast("list[types.QueueWorker]", self._get(_at(queue, "workers"), {"level": level})["workers"])

    def drain_worker(self, queue: str, worker: str, reason: str = "") -> types.ToldToDrain:
        """Drains a worker: it takes nothing new, finishes its tasks, and ends.

        `worker` is a name from `workers`, an owner id or an instance.
        Raises `Conflict` for a gateway and for a worker that leases without an `instance`. Raises
        `NotFound` for a worker that is not listed: an idle worker of this package is listed within 10 s.
        """
        return cast(types.ToldToDrain, self._ask("POST", _at(queue, "workers", f"{worker}:drain"), {"reason": reason}, repeatable=True).json())

    # Dead letters.

    def dead_letter(self, queue: str, task: str) -> types.DeadLetter:
        """Returns the dead letter of a task, with its payload."""
        return cast(types.DeadLetter, self._get(_at(queue, "dead", task)))

    def replay(self, queue: str, *, level: Level | None = None, timeout: float = _BULK, **selection: Unpack[types.DeadSelection]) -> types.ReplayList:
        """Restarts tasks that failed for good, each as a new task.

        Select up to 100 by `tasks`, or others by their fields, or all by `all=True`. A request replays
        at most 100,000; then the answer has `stopped`. Raises `OutcomeUnknown` after `timeout` seconds.
        """
        return cast(types.ReplayList, self._ask("POST", _at(queue, "dead:replay"), selection, query={"level": level}, timeout=timeout).json())

    def purge_dead_letters(
        self, queue: str, *, level: Level | None = None, timeout: float = _BULK, **selection: Unpack[types.DeadSelection]
    ) -> types.PurgedLetters:
        """Marks dead letters as handled. Select them as for `replay`.

        Raises `OutcomeUnknown` after `timeout` seconds.
        """
        return cast(types.PurgedLetters, self._ask("POST", _at(queue, "dead:purge"), selection, query={"level": level}, timeout=timeout).json())

    # Schedules.

    def schedules(self, queue: str) -> list[types.ScheduleBody]:
        """Returns the schedules of a queue, by name."""
        return cast("list[types.ScheduleBody]", self._get(_at(queue, "schedules"))["schedules"])

    def schedule(self, queue: str, name: str) -> types.ScheduleBody:
        """Returns a schedule with its version, its last firing and its next slots."""
        return cast(types.ScheduleBody, self._get(_at(queue, "schedules", name)))

    def create_schedule(self, queue: str, name: str, schedule: types.Schedule, task: Submission | Any, reason: str = "") -> int:
        """Creates a schedule that submits `task`, and returns its version.

        Raises `Conflict` if a schedule of this name exists.
        """
        body = {"schedule": schedule, "task": _submission(task).body(), "reason": reason}
        return self._version("POST", _at(queue, "schedules", name), body)

    def change_schedule(
        self,
        queue: str,
        name: str,
        expected_version: int,
        *,
        schedule: types.Schedule | None = None,
        task: Submission | Any = None,
        reason: str = "",
    ) -> int:
        """Changes either the times or the task of a schedule, and returns its new version.

        Raises `Conflict` if `expected_version` is not the current version.
        """
        task = None if task is None else _submission(task).body()
        body = {"expected_version": expected_version, "schedule": schedule, "task": task, "reason": reason}
        return self._version("PATCH", _at(queue, "schedules", name), body)

    def pause_schedule(self, queue: str, name: str, reason: str = "") -> int:
        """Pauses a schedule: it fires only by `trigger_schedule`. Returns its new version."""
        return self._version("POST", _at(queue, "schedules", f"{name}:pause"), {"reason": reason}, repeatable=True)

    def resume_schedule(self, queue: str, name: str, reason: str = "") -> int:
        """Resumes a schedule without the missed slots, and returns its new version."""
        return self._version("POST", _at(queue, "schedules", f"{name}:resume"), {"reason": reason}, repeatable=True)

    def trigger_schedule(self, queue: str, name: str, reason: str = "") -> int:
        """Fires a schedule now, and returns its new version."""
        return self._version("POST", _at(queue, "schedules", f"{name}:trigger"), {"reason": reason})

    def delete_schedule(self, queue: str, name: str, reason: str = "") -> None:
        """Deletes a schedule. Tasks that it has submitted continue."""
        self._ask("DELETE", _at(queue, "schedules", name), query={"reason": reason})

    # Iterators.

    def list(
        self,
        queue: str,
        *,
        status: Sequence[str] = (),
        tags: Sequence[str] = (),
        type: str | None = None,
        key: str | None = None,
        text: str | None = None,
        created_from: Instant | None = None,
        created_to: Instant | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        why: bool = False,
        level: Level | None = None,
        page: int = 100,
    ) -> Iterator[types.Task]:
        """Iterates over the matching tasks in the order of their submission, and fetches them page by page.

        `text` has words; a task must have each of them in its id, key, type, tags or reason.
        A page has 1,000 tasks at most. With `why`, each task that does not run has the reason, and a
        page has 100 tasks at most.
        """
        query: dict[str, Any] = {"status": ",".join(status), "tag": ",".join(tags), "type": type, "key": key, "text": text, "level": level, "limit": page}
        query |= {"created_from": instant(created_from), "created_to": instant(created_to), "order": order, "why": "true" if why else None}
        return self._pages(_at(queue, "tasks"), "tasks", query)

    def dead_letters(
        self,
        queue: str,
        *,
        reason: str | None = None,
        tags: Sequence[str] = (),
        type: str | None = None,
        key: str | None = None,
        level: Level | None = None,
        page: int = 100,
    ) -> Iterator[types.DeadLetter]:
        """Iterates over the matching dead letters, and fetches them page by page.

        They have no payloads. `reason` is a part of their reason. A page has 1,000 letters at most.
        """
        query = {"reason": reason, "tag": ",".join(tags), "type": type, "key": key, "level": level, "limit": page}
        return self._pages(_at(queue, "dead"), "dead_letters", query)

    def watch(
        self,
        queue: str,
        *,
        task: str | None = None,
        from_earliest: bool = False,
        last_event_id: str | None = None,
        level: Level | None = None,
    ) -> Generator[Event, None, None]:
        """Streams the events of a queue, without an end. After a lost connection, the stream continues where it was, at any gateway.

        The stream begins with the next change; with `from_earliest`, with the last event of each task that is still shown; with `last_event_id`, after that
        event. With `task`, it has the state of that task, its changes, and its end, which ends the stream. Raises the last error when no gateway has served the
        stream for `patience` seconds.
        """
        path = _with_query(_at(queue, "events"), {"task": task, "from": "earliest" if from_earliest else None, "level": level})
        return events.watch(self.gateways, path, last_event_id, self.patience, self._halt or HaltEvent())

    def _pages(self, path: str, name: str, query: dict[str, Any]) -> Iterator[Any]:
        while True:
            answer = self._get(path, query)
            yield from answer[name]
            query["after"] = answer.get("next")
            if not query["after"]:
                return

    def _new_task(self, task: Submission | Any) -> types.NewTask:
        body = _submission(task).body()
        # The gateway takes one kind of key.
        if self.add_keys and "dedupe_key" not in body:
            body.setdefault("idempotency_key", str(uuid.uuid4()))
        return body

    def _in_batch(self, index: int, task: Submission | Any) -> types.NewTask:
        try:
            body = self._new_task(task)
            encoded(body)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"task {index} of the batch cannot be sent: {error}") from error
        return body

    def _version(self, method: str, path: str, body: object, repeatable: bool | None = None) -> int:
        """Changes a queue's settings or a schedule, and returns the new version."""
        return cast(int, self._ask(method, path, body, repeatable=repeatable).json()["version"])

    def _get(self, path: str, query: Mapping[str, Any] = {}) -> Any:
        return self._ask("GET", path, query=query).json()

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, Any] = {},
        repeatable: bool | None = None,
        timeout: float = 30.0,
        patience: float | None = None,
        expects: Sequence[str] | None = (),
    ) -> Answer:
        """Sends a request. By default it is repeatable if its method is GET, PUT or DELETE."""
        return self.gateways.request(
            method,
            _with_query(path, query),
            body,
            timeout=timeout,
            patience=self.patience if patience is None else patience,
            repeatable=method in ("GET", "PUT", "DELETE") if repeatable is None else repeatable,
            halt=self._halt,
            expects=expects,
        )


def _submission(task: Submission | Any) -> Submission:
    return task if isinstance(task, Submission) else Submission(payload=task)


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    said = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path


def _at(queue: str, *parts: str) -> str:
    return "/".join(["/v1/queues", quote(queue, safe=""), *(quote(part, safe=":~-") for part in parts)])


def _outcome(outcome: types.Outcome) -> str | GatewayError:
    error = outcome.get("error")
    if error is None:
        return cast(str, outcome.get("id"))
    return from_answer(error["status"], json.dumps(error).encode(), "application/problem+json")
