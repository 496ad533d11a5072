"""A gateway for the tests: the one that `LONGHAUL_TEST_GATEWAY` names, or one that is started for them."""

import os
import unittest
import urllib.request
import uuid
from typing import Any

from longhaul import Client, Worker
from longhaul.testing import Embedded

GATEWAY = os.environ.get("LONGHAUL_TEST_GATEWAY") or Embedded().url


def queue() -> str:
    """A queue that no other test has."""
    name = f"python-{uuid.uuid4().hex}"
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
