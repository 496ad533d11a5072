"""How the workers of a process end with it: signals, the end of the interpreter, and forks."""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures.thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .worker import Worker

# The workers of this process, which work or drain.
working: set[Worker] = set()
# Whether a signal ends the interpreter.
_is_told = False
# The handlers of the program for which those of this module stand, by signal.
_replaced = dict[int, Any]()


def stop_all() -> None:
    for worker in list(working):
        worker.stop()


def drain_all() -> None:
    """Drains all workers: a worker in a thread of its own would leave its tasks to the end of their leases."""
    while workers := list(working):
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker._ended.wait()


@contextmanager
def signals() -> Iterator[threading.Event]:
    """Makes the first SIGTERM or Ctrl-C stop all workers and set the event, and the second one end the process."""
    signalled = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        # The main thread, which runs this, may hold the lock of any event. A bare thread needs no lock.
        _thread.start_new_thread(stop_them, ())

    def stop_them() -> None:
        signalled.set()
        stop_all()

    former = {number: _handle(number, stop) for number in (signal.SIGTERM, signal.SIGINT) if _is_main()}
    try:
        yield signalled
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def end_at_signal() -> None:
    """Makes SIGTERM end the interpreter, which drains, if this is the main thread and the program has no handler."""
    if _is_main() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        _handle(signal.SIGTERM, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    global _is_told
    _is_told = True
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, handler: Any) -> Any:
    """Installs a handler of this module, and returns the former one."""
    # Python cannot install a handler again that is not its own.
    former = signal.getsignal(number) or signal.SIG_DFL
    if not _is_ours(former):
        _replaced[number] = former
    signal.signal(number, handler)
    return former


def _is_ours(handler: Any) -> bool:
    return getattr(handler, "__module__", None) == __name__


@atexit.register
def _drain_at_end() -> None:
    """Drains the workers. Before that, lets those work on whose threads keep the interpreter alive, until a signal drains all."""
    while not _is_told and (lasting := [worker for worker in working if not worker._is_daemon]):
        with signals():
            for worker in lasting:
                worker._ended.wait()
    drain_all()


# Also before `concurrent.futures` ends, which takes no more calls of `asyncio.to_thread` then, and waits for its threads. The functions that are registered
# here are called in reverse order, so its own must be there. At its end, a process of `multiprocessing` calls only these.
getattr(threading, "_register_atexit", atexit.register)(_drain_at_end)


def _start_anew() -> None:
    """Makes a process that was just forked forget the workers: their threads stay with the process that started them."""
    global _is_told
    _is_told = False
    working.clear()
    for number, handler in _replaced.items():
        # A handler that drains nothing would ignore the first signal.
        if _is_ours(signal.getsignal(number)):
            signal.signal(number, handler)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
