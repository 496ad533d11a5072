"""A gateway for the tests: the one that `LONGHAUL_TEST_GATEWAY` names, or a `longhaul dev` of the program that `LONGHAUL_TEST_PROGRAM` names."""

import atexit
import itertools
import json
import os
import subprocess
import unittest
import urllib.request
import uuid
from typing import Any

from longhaul import Client, Worker

_names = itertools.count()
_run = uuid.uuid4().hex[:8]


def _start() -> str:
    url = os.environ.get("LONGHAUL_TEST_GATEWAY")
    if url:
        return url
    words = [os.environ.get("LONGHAUL_TEST_PROGRAM", "longhaul"), "dev", "-o", "jsonl"]
    for port in ("--http", "--broker", "--admin"):
        words += [port, "127.0.0.1:0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def end() -> None:
        process.terminate()
        process.wait(30)

    atexit.register(end)
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["http"])


GATEWAY = _start()


def queue() -> str:
    """A queue that no other test has."""
    name = f"python-{_run}-{next(_names)}"
    request = urllib.request.Request(f"{GATEWAY}/v1/queues/{name}", method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status < 300
    return name


class WithQueue(unittest.TestCase):
    """A client, a queue that no other test has, and workers on it that end with the test."""

    def setUp(self) -> None:
        self.client, self.queue = Client(GATEWAY), queue()
        self.addCleanup(self.client.close)

    def worker(self, processor: Any, **options: Any) -> Worker:
        worker = Worker(self.client, self.queue, processor, **({"drain": 0.0, "poll": 0.5} | options))
        worker.start()

        def end() -> None:
            worker.stop()
            assert worker.join(30)

        self.addCleanup(end)
        return worker
