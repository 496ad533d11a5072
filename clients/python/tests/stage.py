"""A gateway for the tests: the one that `LONGHAUL_TEST_GATEWAY` names, or one that is started for them."""

import os
import unittest
from typing import Any

from longhaul import Client, Worker
from longhaul.testing import Embedded, new_queue

GATEWAY = os.environ.get("LONGHAUL_TEST_GATEWAY") or Embedded().url


def queue() -> str:
    """A queue that no other test has."""
    return new_queue(GATEWAY)


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
