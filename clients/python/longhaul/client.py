"""A client of one or several gateways: submits tasks, looks at them, waits for them, and ends them."""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode

from . import events
from .errors import GatewayError, NotFound, TaskFailed, WaitTimeout, from_answer
from .events import Event
from .http import Answer, Gateways, Token
from .types import History, NewTask, Outcome, Retry, Task, TaskList, Why

# Seconds, or a text such as `1h 30m`.
Length = float | timedelta | str
# Ms since the epoch, or a time that knows its zone.
Instant = int | datetime
Level = Literal["high", "normal", "low"]

# The longest that a gateway waits in one request.
_POLL = 20.0


def length(value: Length) -> str:
    """A length of time as the gateway takes it."""
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{seconds * 1000:.0f}ms"


def instant(value: Instant) -> int:
    """An instant as the gateway takes it."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError("the time does not say its zone: use datetime.now(timezone.utc)")
    return round(value.timestamp() * 1000)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A task that is to be submitted. Each field but the payload may be left out; `longhaul.types.NewTask` says what each is.

    The payload is sent as it is if it is `str` or `bytes`, and otherwise as JSON. A task without an `idempotency_key` and a `dedupe_key` gets a random
    idempotency key with each submit, so that a submit whose answer got lost is repeated. With a `dedupe_key` such a submit raises `OutcomeUnknown`: that key
    is free again when its task is over, so a repeat might make a second task.
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
    max_attempts: int | None = None
    max_duration: Length | None = None
    max_total_duration: Length | None = None
    no_progress_timeout: Length | None = None
    retry: Retry | None = None

    def body(self) -> NewTask:
        """What is sent."""
        body: dict[str, Any] = {}
        if isinstance(self.payload, str):
            body["payload"] = self.payload
        elif isinstance(self.payload, (bytes, bytearray, memoryview)):
            body["payload_base64"] = base64.b64encode(self.payload).decode()
        else:
            body["payload_json"] = self.payload
        for name in ("type", "key", "idempotency_key", "dedupe_key", "order_key", "limit_key", "max_attempts", "retry"):
            body[name] = getattr(self, name)
        for name in ("delay", "max_duration", "max_total_duration", "no_progress_timeout"):
            value = getattr(self, name)
            body[name] = None if value is None else length(value)
        for name in ("scheduled_at", "expires_at"):
            value = getattr(self, name)
            body[name] = None if value is None else instant(value)
        body |= {"tags": list(self.tags), "after": list(self.after), "properties": dict(self.properties)}
        body |= {"priority": self.priority, "overwrite": self.overwrite, "strict": self.strict}
        # What is left out is the same as what the gateway takes for it.
        left_out = {"priority": "normal", "tags": [], "after": [], "properties": {}, "overwrite": False, "strict": False}
        said = {name: value for name, value in body.items() if name.startswith("payload") or (value is not None and left_out.get(name) != value)}
        return cast(NewTask, said)


class Client:
    """One or several gateways of one cluster. Threads may share it.

    `gateways` are URLs, or one text with commas between them; without it the variable `LONGHAUL_GATEWAY` is read, and without that it is
    `http://127.0.0.1:7070`. `token` is a text, or a function that is called for each request; without it the variable `LONGHAUL_TOKEN` is read.
    `ssl_context` says whom to trust and which certificate to show, where the system's trust is not enough. `patience` is for how many seconds a request
    is tried again while no gateway serves it. With `add_keys=False` no task gets an idempotency key of its own: a submit with an unknown outcome raises
    `OutcomeUnknown` then.
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
        urls = gateways.split(",") if isinstance(gateways, str) else list(gateways)
        self.gateways = Gateways(urls, token or os.environ.get("LONGHAUL_TOKEN"), ssl_context)
        self.patience, self.add_keys = patience, add_keys

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are idle. The client may be used again."""
        self.gateways.close()

    def submit(self, queue: str, task: Submission | Any) -> str:
        """Submits a task, and returns its id; it is stored then. What is no `Submission` is the payload."""
        body = self._new_task(task)
        repeatable = "idempotency_key" in body
        answer = self.gateways.request("POST", _at(queue, "tasks"), body, patience=self.patience, repeatable=repeatable)
        return cast(str, answer.json()["id"])

    def submit_batch(self, queue: str, tasks: Iterable[Submission | Any]) -> list[str | GatewayError]:
        """Submits up to 1,000 tasks; for each its id, or why there is none."""
        bodies = [self._new_task(task) for task in tasks]
        repeatable = all("idempotency_key" in body for body in bodies)
        answer = self.gateways.request("POST", _at(queue, "tasks:batch"), {"tasks": bodies}, patience=self.patience, repeatable=repeatable)
        return [_outcome(outcome) for outcome in answer.json()["outcomes"]]

    def get(self, queue: str, task: str) -> Task:
        """How a task stands."""
        return cast(Task, self._get(_at(queue, "tasks", task)).json())

    def history(self, queue: str, task: str) -> History:
        """What has happened to a task, entry by entry."""
        return cast(History, self._get(_at(queue, "tasks", task, "history")).json())

    def why(self, queue: str, task: str) -> Why:
        """Why a task does not run, in one sentence and in its parts."""
        return cast(Why, self._get(_at(queue, "tasks", task, "why")).json())

    def list(
        self,
        queue: str,
        *,
        status: Sequence[str] = (),
        tags: Sequence[str] = (),
        type: str | None = None,
        key: str | None = None,
        created_from: Instant | None = None,
        created_to: Instant | None = None,
        level: Level | None = None,
        page: int = 100,
    ) -> Iterator[Task]:
        """The tasks that fit, in the order of their submission, fetched page by page as they are read."""
        asked: dict[str, Any] = {"status": ",".join(status), "tag": ",".join(tags), "type": type, "key": key, "level": level, "limit": page}
        asked["created_from"] = None if created_from is None else instant(created_from)
        asked["created_to"] = None if created_to is None else instant(created_to)
        while True:
            query = urlencode({name: value for name, value in asked.items() if value not in (None, "")})
            answer: TaskList = self._get(f"{_at(queue, 'tasks')}?{query}").json()
            yield from answer["tasks"]
            asked["after"] = answer.get("next")
            if not asked["after"]:
                return

    def wait(self, queue: str, task: str, timeout: float) -> Task:
        """Waits for the end of a task, however it ends. An id that nobody knows yet is waited for, too.

        Raises `WaitTimeout` when it is not over in time.
        """
        give_up = time.monotonic() + timeout
        while True:
            left = give_up - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"task {task} is not over after {timeout} s")
            wait = min(left, _POLL)
            path = f"{_at(queue, 'tasks', task, 'wait')}?{urlencode({'timeout': length(wait)})}"
            answer = self.gateways.request("GET", path, timeout=wait + 15.0, patience=min(self.patience, left))
            if answer.status == 200:
                return cast(Task, answer.json())

    def result(self, queue: str, task: str, timeout: float) -> bytes:
        """Waits for the end of a task, and returns its result. Raises `TaskFailed` when it has none, `WaitTimeout` when it is not over in time."""
        ended = self.wait(queue, task, timeout)
        if ended["status"] != "completed":
            raise TaskFailed(ended)
        try:
            return self._get(_at(queue, "tasks", task, "result")).body
        except NotFound as error:
            raise TaskFailed(ended) from error

    def payload(self, queue: str, task: str) -> bytes:
        """The payload of a task, as it was submitted."""
        return self._get(_at(queue, "tasks", task, "payload")).body

    def cancel(self, queue: str, task: str, reason: str = "") -> None:
        """Asks for the end of a task. It ends when its worker has heard of it, or at once if it does not run."""
        path = _at(queue, "tasks", f"{task}:cancel")
        self.gateways.request("POST", path, {"reason": reason}, patience=self.patience)

    def watch(
        self, queue: str, *, from_earliest: bool = False, last_event_id: str | None = None, level: Level | None = None
    ) -> Generator[Event, None, None]:
        """Events of a queue, as they come, without an end. After a cut it goes on where it was, at any gateway.

        Begins with what happens from now on; with the last event of each task that is still shown; or behind an event that was seen. Raises why, when no
        gateway has served it for `patience` seconds.
        """
        return events.watch(self.gateways, quote(queue, safe=""), from_earliest, last_event_id, level, self.patience)

    def _new_task(self, task: Submission | Any) -> NewTask:
        body = (task if isinstance(task, Submission) else Submission(payload=task)).body()
        # The gateway takes one kind of key.
        if self.add_keys and "dedupe_key" not in body:
            body.setdefault("idempotency_key", str(uuid.uuid4()))
        return body

    def _get(self, path: str) -> Answer:
        return self.gateways.request("GET", path, patience=self.patience)


def _at(queue: str, *parts: str) -> str:
    return "/".join(["/v1/queues", quote(queue, safe=""), *(quote(part, safe=":~-") for part in parts)])


def _outcome(outcome: Outcome) -> str | GatewayError:
    error = outcome.get("error")
    if error is None:
        return cast(str, outcome.get("id"))
    return from_answer(error["status"], json.dumps(error).encode(), None)
