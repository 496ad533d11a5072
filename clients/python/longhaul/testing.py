"""A broker with a gateway for your tests: a separate process, on free ports, that keeps nothing.

    with longhaul.testing.Embedded() as embedded:
        client = longhaul.Client(embedded.url)            # tasks, over HTTP
        client.submit(embedded.queue(), "hello")
        pulsar.Client(embedded.service_url)               # any client of Apache Pulsar

It needs the program `longhaul`. With pytest, the fixtures `longhaul_embedded` and `longhaul_queue`
are there as soon as this package is installed.
"""

import atexit
import json
import os
import subprocess
import threading
import uuid
from typing import Self

from .client import Client


def new_queue(gateway: str) -> str:
    """Creates a queue with a new name at this gateway, and returns the name."""
    name = f"test-{uuid.uuid4().hex}"
    with Client(gateway) as client:
        client.create_queue(name)
    return name


class Embedded:
    """A running `longhaul dev`.

    `url` is its gateway, `service_url` its broker, and `admin_url` the broker's admin API. The
    program is `program`, or that of the environment variable `LONGHAUL_PROGRAM`, or `longhaul`
    on the path. It ends with `close`, with the `with` block, or with this process,
    however that ends: its standard input is a pipe that this process holds.
    """

    def __init__(self, program: str | None = None, start_timeout: float = 30.0) -> None:
        if not start_timeout >= 0:
            raise ValueError(f"a time limit of {start_timeout} s is negative or no number")
        words = [program or os.environ.get("LONGHAUL_PROGRAM") or "longhaul", "dev", "-o", "jsonl", "--until-stdin-closes"]
        for address in ("--http", "--broker", "--admin"):
            words += [address, "127.0.0.1:0"]
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except FileNotFoundError as missing:
            raise FileNotFoundError(f"there is no program `{words[0]}`: install longhaul, or name it in LONGHAUL_PROGRAM") from missing
        atexit.register(self.close)
        # A program that is not ready in time is killed, and its output ends.
        patience = threading.Timer(min(start_timeout, threading.TIMEOUT_MAX), self._process.kill)
        patience.daemon = True
        patience.start()
        assert self._process.stdout is not None
        try:
            line = self._process.stdout.readline()
        finally:
            patience.cancel()
        if not line:
            self.close()
            raise RuntimeError(f"`{' '.join(words)}` was not ready within {start_timeout:g} s, or has ended; its error output says why")
        started = json.loads(line)
        self.url: str = started["http"]
        self.service_url: str = started["broker"]
        self.admin_url: str = started["admin"]

    def queue(self) -> str:
        """Creates a queue with a new name, and returns the name."""
        return new_queue(self.url)

    def close(self) -> None:
        """Ends the process. Its data is lost."""
        atexit.unregister(self.close)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
