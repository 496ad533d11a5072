"""The stream of a queue's events: server-sent events, which continue after a lost connection."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from .errors import Unavailable, Unreachable
from .http import RETRY_AFTER_MAX, Gateways, HaltEvent

# The gateway sends a comment every 15 s: a stream that is silent for longer than this is dead.
_SILENCE = 45.0
# The id of the end of the watched task.
_OVER = "over"
_LINE_BYTES = 8 * 1024 * 1024
_PAUSE, _PAUSE_MAX = 0.2, 5.0


@dataclass(frozen=True)
class Event:
    """An event of a queue.

    `kind` is `task` (`data` is the task, as `longhaul.types.Task`), `evicted` (the task is not shown any more), `caught-up` (all later events are new),
    `broker-lost` or `broker-back`. A stream can continue after `id`, also at another gateway; `broker-lost` and `broker-back` have none.
    """

    kind: str
    data: Any
    id: str | None


class _Cut(Exception):
    """The connection of the stream was lost; another one continues."""


def watch(
    gateways: Gateways, path: str, last_event_id: str | None, patience: float, halt: HaltEvent
) -> Generator[Event, None, None]:
    """Yields the events of a queue until `halt` is aborted. The stream continues after a lost connection.

    Raises the last error when no gateway has served the stream for `patience` seconds.
    """
    pause = _PAUSE
    give_up: float | None = None
    while not halt.is_set() and last_event_id != _OVER:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        try:
            connection, response = gateways.stream(path, headers, _SILENCE, halt)
        except (Unreachable, Unavailable) as error:
            now = time.monotonic()
            give_up = now + patience if give_up is None else give_up
            retry_after = error.retry_after if isinstance(error, Unavailable) else None
            wait = max(min(retry_after or 0.0, RETRY_AFTER_MAX), pause * random.uniform(0.5, 1.0))
            if now + wait > give_up:
                raise
            pause = min(pause * 2, _PAUSE_MAX)
            halt.wait(wait)
            continue
        try:
            for event in _events(response):
                give_up, pause = None, _PAUSE
                last_event_id = event.id or last_event_id
                yield event
        except _Cut:
            # Pause also after a stream that ended at once, because the next ones may do so, too.
            halt.wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _PAUSE_MAX)
        finally:
            connection.close()


def _events(response: http.client.HTTPResponse) -> Generator[Event, None, None]:
    kind, data, place = "message", list[str](), None
    size = 0
    while True:
        try:
            line = response.readline(_LINE_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise _Cut from error
        size += len(line)
        if not line.endswith(b"\n") or size > _LINE_BYTES:
            raise _Cut
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            if data:
                yield Event(kind, _parsed("\n".join(data)), place)
            kind, place, size = "message", None, 0
            data.clear()
            continue
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            place = value


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise _Cut from error
