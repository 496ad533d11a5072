"""How workers and test servers end with their process."""

import os
import signal
import subprocess
import sys
import unittest

from .stage import GATEWAY, WithQueue

_WORKER = """
import sys, threading, longhaul
begun = threading.Event()
def process(task):
    begun.set()
    task.sleep(60)
longhaul.Worker(longhaul.Client(sys.argv[1]), sys.argv[2], process, drain=0.1, poll=0.5).start()
begun.wait()
print("begun", flush=True)
if len(sys.argv) > 3:
    threading.Event().wait()
"""

_SERVER = """
import os, signal
from longhaul.testing import Embedded
embedded = Embedded()
os.kill(os.getpid(), signal.SIGKILL)
"""


class Ending(WithQueue):
    def test_a_started_worker_drains_at_the_end_of_the_interpreter(self) -> None:
        """A program ended, or got SIGTERM, and the task of its started worker stood until its lease was over."""
        for is_killed in (False, True):
            task = self.client.submit(self.queue, "x")
            words = [sys.executable, "-c", _WORKER, GATEWAY, self.queue, *(["wait"] if is_killed else [])]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
                assert program.stdout is not None
                self.assertEqual(program.stdout.readline(), b"begun\n")
                if is_killed:
                    program.send_signal(signal.SIGTERM)
                self.assertEqual(program.wait(30), 143 if is_killed else 0)
            self.assertEqual(self.client.get(self.queue, task)["attempts"], 0)
            self.client.cancel(self.queue, task)

    @unittest.skipIf("LONGHAUL_TEST_GATEWAY" in os.environ, "no program is named")
    def test_a_server_ends_with_a_killed_test_run(self) -> None:
        """A test run was killed, and its server ran on for ever."""
        # The server shares the error output, whose end this awaits.
        run = subprocess.run([sys.executable, "-c", _SERVER], capture_output=True, timeout=60)
        self.assertEqual(run.returncode, -signal.SIGKILL, run.stderr)



if __name__ == "__main__":
    unittest.main()
