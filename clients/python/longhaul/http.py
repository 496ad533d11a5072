"""Sends requests to the gateways of a client, keeps connections, and repeats requests.

Any gateway answers any request, so a request whose gateway goes away is sent to the next one. This module decides which requests are repeated:

- a request that no gateway has got, or that a gateway has refused with a code which tells that nothing was done: always;
- a request without an answer, or with a proxy's answer: only if the caller has marked it as repeatable;
- a report on a lease: after any answer that is no verdict of a gateway.
"""

from __future__ import annotations

import functools
import http.client
import io
import json
import os
import random
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from . import __version__
from .errors import GatewayError, LonghaulError, OutcomeUnknown, Unavailable, Unreachable, from_answer, has_code, is_verdict, may_be_done

# A gateway closes a connection that is idle for 10 s: one that is used again must be younger than that.
_IDLE_SECONDS = 5.0
_IDLE_CONNECTIONS = 8
# The longest answer that is read: lists have up to 1,000 tasks.
_ANSWER_BYTES = 64 * 1024 * 1024
# Pauses between attempts, in seconds.
_PAUSE, _PAUSE_MAX = 0.2, 5.0
# An answer may take one second longer for so many bytes.
_SLOWEST = 100_000
# The longest time limit of a connection that the system has: 24 days.
_TIMEOUT_MAX = 2_000_000.0
RETRY_AFTER_MAX = 30.0

Token = str | Callable[[], str] | None
_BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True)
class Answer:
    """The answer of a gateway: a status below 300, and the body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body, parsed as JSON."""
        return json.loads(self.body)

    def has(self, fields: Sequence[str]) -> bool:
        """Whether the body is a JSON object with these fields. A proxy may answer anything, also with 200."""
        try:
            told = self.json()
        except ValueError:
            return False
        return isinstance(told, dict) and all(field in told for field in fields)


class _Timed(io.RawIOBase):
    """Reads an answer until a deadline, because the time limit of a socket begins anew with each read. A large answer may take longer."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connection, deadline
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(min(left, _TIMEOUT_MAX))
        count = self._raw.readinto(buffer)
        self._deadline += (count or 0) / _SLOWEST
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *more: Any, deadline: float, **options: Any) -> None:
        super().__init__(sock, *more, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock, deadline))


class HaltEvent(threading.Event):
    """Ends a request from another thread: `set` ends its pauses and repeats, `abort` also closes its connection.

    After `set`, the answer of an attempt that is on its way still counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock, self.is_aborted = threading.Lock(), False
        self._socket: socket.socket | None = None

    def guard(self, connection: socket.socket | None) -> None:
        """Sets the connection that `abort` closes. With `None`, another request may use the connection."""
        with self._lock:
            self._socket = connection
            self._shut()

    def abort(self) -> None:
        """Sets the event, and closes the connection, which wakes the thread that reads from it."""
        self.set()
        with self._lock:
            self.is_aborted = True
            self._shut()

    def _shut(self) -> None:
        if self.is_aborted and self._socket is not None:
            with suppress(OSError):
                # Not the method of `SSLSocket`: another thread may be reading.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _Gateway:
    """A gateway and its idle connections."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise ValueError("the URL of a gateway has no user and password: use a token")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"`{url}` is not the URL of a gateway: http://HOST:PORT or https://HOST:PORT")
        self.url, self.scheme, self.host, self.port = url, parts.scheme, parts.hostname, parts.port
        self.path = parts.path.rstrip("/")
        self.context = context
        # The end of the gateway's rest, by `time.monotonic`.
        self.resting = 0.0
        self.start_anew()

    def start_anew(self) -> None:
        """Leaves the connections, which a process shares with the one that it was forked from. A thread of that one may have held the lock."""
        for _, connection in getattr(self, "_idle", []):
            connection.close()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    def connect(self, timeout: float, fresh: bool = False) -> http.client.HTTPConnection:
        """Returns an idle connection or a new one. A `fresh` connection is not shared with other requests."""
        limit = min(timeout, _TIMEOUT_MAX)
        while not fresh:
            with self._lock:
                if not self._idle:
                    break
                since, connection = self._idle.pop()
            if time.monotonic() - since < _IDLE_SECONDS and connection.sock is not None:
                connection.sock.settimeout(limit)
                return connection
            connection.close()
        if self.scheme == "https":
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=limit, context=self.context)
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=limit)
        connection.connect()
        return connection

    def keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()


class Gateways:
    """The gateways of a client. Threads may share it."""

    def __init__(self, urls: Sequence[str], token: Token, context: ssl.SSLContext | None) -> None:
        if not urls:
            raise ValueError("no URL of a gateway was given")
        self._token = token if token is None or callable(token) else _usable(token)
        self._all = tuple(_Gateway(url.strip().rstrip("/"), context) for url in urls)
        self._lock = threading.Lock()
        self._current = self._all[0]
        _clients.add(self)

    def start_anew(self) -> None:
        """Makes the client fit for a process that was just forked."""
        self._lock = threading.Lock()
        for gateway in self._all:
            gateway.start_anew()

    def close(self) -> None:
        """Closes the idle connections."""
        for gateway in self._all:
            gateway.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout: float = 30.0,
        patience: float = 30.0,
        repeatable: bool = True,
        halt: HaltEvent | None = None,
        expects: Sequence[str] | None = (),
        pauses: dict[str, float] | None = None,
        pause_max: float = RETRY_AFTER_MAX,
    ) -> Answer:
        """Repeats a request until a gateway has answered, for at most `patience` seconds after the first failure.

        `timeout` limits each attempt, but a large answer may take longer. A request that is not `repeatable` is not sent again once it
        may have been done. No attempt follows once `halt` is set. The final error tells whether any
        of the attempts may have been done, not only the last one.

        An answer that is no JSON object with the fields `expects` is as none; with `None`, the answer is bytes.

        With `pauses`, the request is about a lease. It heeds only these pauses, by the URL of the gateway, and is repeated until there is a verdict. No
        pause is longer than `pause_max`, and the `Retry-After` of an answer without a gateway's code is ignored: a proxy knows nothing of the lease.
        """
        if not timeout > 0:
            raise ValueError(f"{timeout} is no time limit in seconds")
        halt = halt or HaltEvent()
        content = None if body is None else encoded(body)
        give_up: float | None = None
        pause = _PAUSE
        failure: LonghaulError = Unreachable("the program is to end")
        doubt: LonghaulError | None = None
        while True:
            # A pause that a gateway asked for applies to all requests of the client, but for those about leases.
            gateway, free = self._pick(pauses)
            if halt.wait(max(free - time.monotonic(), 0.0)):
                raise doubt or failure
            retry_after = 0.0
            try:
                return self._once(gateway, method, path, content, timeout, halt, expects)
            except GatewayError as error:
                if is_verdict(error) if pauses is not None else not isinstance(error, Unavailable):
                    raise
                if may_be_done(error):
                    if not repeatable:
                        raise OutcomeUnknown(str(error)) from error
                    doubt = error
                failure = error
                if pauses is None or has_code(error):
                    retry_after = error.retry_after or 0.0
            except Unreachable as error:
                failure = error
            except OutcomeUnknown as error:
                if not repeatable:
                    raise
                failure = doubt = error
            if method == "GET":
                doubt = None
            if halt.is_set():
                # The gateway is not to blame, so it does not rest.
                raise doubt or failure
            now = time.monotonic()
            give_up = now + patience if give_up is None else give_up
            # The pause that the gateway asked for, or a growing, random one, so that clients do not return at once.
            rest = min(max(retry_after, pause * random.uniform(0.5, 1.0)), pause_max, RETRY_AFTER_MAX)
            pause = min(pause * 2, _PAUSE_MAX)
            gateway.resting = now + rest
            if pauses is not None:
                pauses[gateway.url] = now + rest
            if max(self._pick(pauses)[1], now) > give_up:
                raise doubt or failure

    def stream(
        self, path: str, headers: dict[str, str], timeout: float, halt: HaltEvent
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Opens an answer that has no end. There is only one attempt: the reader must repeat it."""
        gateway, connection = self._pick()[0], None
        sent = self._headers(headers)
        try:
            connection = gateway.connect(timeout, fresh=True)
            halt.guard(connection.sock)
            connection.request("GET", gateway.path + path, headers=sent)
            response = connection.getresponse()
            if response.status == 200:
                kind = response.headers.get_content_type()
                if kind != headers["Accept"]:
                    raise http.client.UnknownProtocol(f"the answer is not a gateway's: its type is {kind}")
                return connection, response
            failure = _refusal(response, response.read(_ANSWER_BYTES))
        except _BROKEN as error:
            if connection is not None:
                connection.close()
            if not halt.is_set():
                gateway.resting = time.monotonic() + _PAUSE
            raise Unreachable(f"{gateway.url}: {error}") from error
        connection.close()
        if isinstance(failure, Unavailable):
            gateway.resting = time.monotonic() + min(failure.retry_after or _PAUSE, RETRY_AFTER_MAX)
        raise failure

    def _once(self, gateway: _Gateway, method: str, path: str, content: bytes | None, timeout: float, halt: HaltEvent, expects: Sequence[str] | None) -> Answer:
        kind = {"Content-Type": "application/json"} if content is not None else {}
        headers = self._headers(kind)
        deadline = time.monotonic() + timeout
        try:
            connection = gateway.connect(timeout)
        except _BROKEN as error:
            raise Unreachable(f"{gateway.url}: {error}") from error
        try:
            halt.guard(connection.sock)
            connection.response_class = functools.partial(_Response, deadline=deadline)  # type: ignore[assignment]
            connection.request(method, gateway.path + path, content, headers)
            response = connection.getresponse()
            body = response.read(_ANSWER_BYTES + 1)
            if response.length and len(body) <= _ANSWER_BYTES:
                raise http.client.IncompleteRead(body, response.length)
        except _BROKEN as error:
            connection.close()
            raise OutcomeUnknown(f"{gateway.url}: {error or type(error).__name__}") from error
        finally:
            halt.guard(None)
        if response.will_close or len(body) > _ANSWER_BYTES or halt.is_aborted:
            connection.close()
        else:
            gateway.keep(connection)
        if len(body) > _ANSWER_BYTES:
            raise OutcomeUnknown(f"{gateway.url}: the answer has more than {_ANSWER_BYTES} bytes")
        if response.status >= 300:
            raise _refusal(response, body)
        answer = Answer(response.status, body)
        if expects is None:
            is_whole = response.headers.get_content_type() == "application/octet-stream"
        else:
            # Only what expects no field may get an answer without a body.
            is_whole = (answer.status == 204 and not expects) or answer.has(expects)
        if not is_whole:
            raise OutcomeUnknown(f"{gateway.url}: the answer {answer.status} is not a gateway's: {body[:200].decode('utf-8', 'replace')}")
        return answer

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        try:
            token = _usable(self._token()) if callable(self._token) else self._token
        except Exception as error:
            # Such as a file that is being replaced: the next attempt may find one.
            raise Unreachable(f"there is no token: {error or type(error).__name__}") from error
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        return {"User-Agent": f"longhaul-python/{__version__}"} | more | authorization

    def _pick(self, pauses: dict[str, float] | None = None) -> tuple[_Gateway, float]:
        """Returns the gateway of the last request, unless it rests; then the one whose rest is over, or ends first. Also returns the end of its rest.

        With `pauses`, these count, and the rests only between gateways that have none.
        """
        now = time.monotonic()
        with self._lock:
            if pauses is not None:
                best = min((self._current, *self._all), key=lambda each: (max(pauses.get(each.url, 0.0), now), max(each.resting, now)))
                return best, pauses.get(best.url, 0.0)
            if self._current.resting > now:
                self._current = min(self._all, key=lambda gateway: max(gateway.resting, now))
            return self._current, self._current.resting


def encoded(body: object) -> bytes:
    """The JSON of a body. Raises a `ValueError` or `TypeError` if there is none, such as for NaN."""
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has a form in JSON. The gateway decides about it.
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _usable(token: str) -> str:
    """The token without space around it. Raises an error, which does not show the token, if no gateway can have issued it."""
    if not isinstance(token, str):
        raise TypeError(f"the token is text, and this one is {type(token).__name__}")
    token = token.strip()
    if not token:
        raise ValueError("the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the token has characters that no token has")
    return token


def _refusal(response: http.client.HTTPResponse, body: bytes) -> GatewayError:
    return from_answer(response.status, body, response.getheader("Content-Type"), response.getheader("Retry-After"))


# The clients of this process.
_clients: weakref.WeakSet[Gateways] = weakref.WeakSet()


def _start_anew() -> None:
    for client in list(_clients):
        client.start_anew()


if hasattr(os, "register_at_fork"):
    # Two processes that use one connection would get each other's answers.
    os.register_at_fork(after_in_child=_start_anew)
