"""The client for asyncio. Threads run the methods of `Client`."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from .client import Client
from .http import HaltEvent

P = ParamSpec("P")
R = TypeVar("R")


def _call(method: Callable[Concatenate[Client, P], R]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]:
    """Runs the method in one of the client's threads."""

    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        client, halt = self._with_halt()
        run = functools.partial(method, client, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        finally:
            halt.abort()

    return call


def _iterate(method: Callable[Concatenate[Client, P], Iterator[R]]) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[R, None]]:
    """Runs the iterator that the method returns in a thread of its own, because it may wait long."""

    @functools.wraps(method)
    async def iterate(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[R, None]:
        client, halt = self._with_halt()
        items = method(client, *args, **kwargs)
        thread = ThreadPoolExecutor(1, "longhaul")
        try:
            while item := await asyncio.get_running_loop().run_in_executor(thread, list, islice(items, 1)):
                yield item[0]
        finally:
            halt.abort()
            thread.shutdown(wait=False)

    return iterate


class AsyncClient:
    """A client for asyncio with the methods of `Client`. Several event loops may share it.

    `threads` limits the calls that run at once. Further calls wait for a thread, and their
    `timeout` begins when they get one. `wait` and `result` hold a thread until the task is over.
    Each iteration of `list`, `dead_letters` and `watch` has a thread of its own. Use
    `contextlib.aclosing` to leave an iteration early: it ends the thread.

    Cancelling a call closes its connection and ends its repeats. The gateway may have done the
    request or not. A call that is still connecting keeps its thread until it is connected
    or its `timeout` is over.
    """

    def __init__(self, client: Client, *, threads: int = 32) -> None:
        self.client, self._count = client, threads
        self._start_anew()
        _clients.add(self)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels calls that wait for a thread, and closes idle connections. Do not use the client after that."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()

    def _start_anew(self) -> None:
        """Also for a process that was just forked: the threads stay with the process that started them."""
        self._threads = ThreadPoolExecutor(self._count, "longhaul")

    def _with_halt(self) -> tuple[Client, HaltEvent]:
        """Returns a copy of the client with the same connections, and the event that ends its requests."""
        client = copy.copy(self.client)
        client._halt = halt = HaltEvent()
        return client, halt

    submit = _call(Client.submit)
    submit_batch = _call(Client.submit_batch)
    get = _call(Client.get)
    history = _call(Client.history)
    why = _call(Client.why)
    lease = _call(Client.lease)
    wait = _call(Client.wait)
    result = _call(Client.result)
    payload = _call(Client.payload)
    cancel = _call(Client.cancel)
    kill = _call(Client.kill)
    delete = _call(Client.delete)
    retry = _call(Client.retry)
    force_fail = _call(Client.force_fail)
    force_release = _call(Client.force_release)
    reschedule = _call(Client.reschedule)
    queues = _call(Client.queues)
    queue = _call(Client.queue)
    create_queue = _call(Client.create_queue)
    change_queue = _call(Client.change_queue)
    pause_queue = _call(Client.pause_queue)
    resume_queue = _call(Client.resume_queue)
    delete_queue = _call(Client.delete_queue)
    counts = _call(Client.counts)
    series = _call(Client.series)
    actions = _call(Client.actions)
    purge = _call(Client.purge)
    workers = _call(Client.workers)
    drain_worker = _call(Client.drain_worker)
    dead_letter = _call(Client.dead_letter)
    replay = _call(Client.replay)
    purge_dead_letters = _call(Client.purge_dead_letters)
    schedules = _call(Client.schedules)
    schedule = _call(Client.schedule)
    create_schedule = _call(Client.create_schedule)
    change_schedule = _call(Client.change_schedule)
    pause_schedule = _call(Client.pause_schedule)
    resume_schedule = _call(Client.resume_schedule)
    trigger_schedule = _call(Client.trigger_schedule)
    delete_schedule = _call(Client.delete_schedule)
    list = _iterate(Client.list)
    dead_letters = _iterate(Client.dead_letters)
    watch = _iterate(Client.watch)


# The clients of this process.
_clients: weakref.WeakSet[AsyncClient] = weakref.WeakSet()


def _start_all_anew() -> None:
    for client in list(_clients):
        client._start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_anew)
