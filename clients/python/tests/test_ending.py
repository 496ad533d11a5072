"""How workers and test servers end with their process."""

import os
import signal
import subprocess
import sys
import unittest

from longhaul import Submission

from .stage import GATEWAY, WithQueue, queue

_WORKER = """
import multiprocessing, sys, threading, longhaul
begun = threading.Event()
def process(task):
    begun.set()
    task.sleep(60)
def main():
    longhaul.Worker(longhaul.Client(sys.argv[1]), sys.argv[2], process, drain=0.1, poll=0.5).start()
    begun.wait()
    print("begun", flush=True)
if sys.argv[3] == "in a child":
    child = multiprocessing.get_context("fork").Process(target=main)
    child.start()
    child.join()
else:
    main()
if sys.argv[3] == "killed":
    threading.Event().wait()
"""

_IN_THREADS = """
import sys, threading, time, longhaul
def worker(queue):
    return longhaul.Worker(longhaul.Client(sys.argv[1]), queue, process, drain=0.1, poll=0.5)
def process(task):
    if task.text() == "short":
        return "done"
    print("begun", flush=True)
    task.sleep(60)
def look_later():
    time.sleep(2)
    print("works on", flush=True)
threading.Thread(target=worker(sys.argv[2]).run).start()
if sys.argv[3] == "alone":
    threading.Thread(target=look_later, daemon=True).start()
else:
    worker(sys.argv[4]).start()
    threading.Event().wait()
"""

_TO_THREAD = """
import asyncio, sys, threading, longhaul
begun = threading.Event()
def work(task):
    begun.set()
    if task.text() == "short":
        return "done"
    task.sleep(60)
async def process(task):
    begun.set()
    if task.text() == "short":
        await asyncio.to_thread(worker._stopping.wait, 10)
    return await asyncio.to_thread(work, task)
worker = longhaul.Worker(longhaul.Client(sys.argv[1]), sys.argv[2], process, drain=float(sys.argv[3]), poll=0.5)
worker.start()
begun.wait()
"""

_FORK = """
import multiprocessing, os, signal, sys, threading, longhaul
def wait(begun):
    begun.send("begun")
    signal.pause()
def process(task):
    # From a thread of the worker, and by `fork`, as Python up to 3.13 does by default.
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=wait, args=[there])
    child.start()
    here.recv()
    child.terminate()
    child.join(10)
    code, _ = child.exitcode, child.kill()
    return str(code)
worker = longhaul.Worker(longhaul.Client(sys.argv[1]), sys.argv[2], process, poll=0.5)
getattr(worker, sys.argv[3])()
worker.join()
"""

_SERVER = """
import os, signal
from longhaul.testing import Embedded
embedded = Embedded()
os.kill(os.getpid(), signal.SIGKILL)
"""


class Ending(WithQueue):
    def test_a_started_worker_drains_at_the_end_of_the_interpreter(self) -> None:
        """A program ended, or got SIGTERM, or a process of `multiprocessing` ended, and the task of its started worker stood until its lease was over."""
        for how in ("by itself", "killed", "in a child"):
            task = self.client.submit(self.queue, "x")
            words = [sys.executable, "-c", _WORKER, GATEWAY, self.queue, how]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
                assert program.stdout is not None
                self.assertEqual(program.stdout.readline(), b"begun\n")
                if how == "killed":
                    program.send_signal(signal.SIGTERM)
                self.assertEqual(program.wait(30), 143 if how == "killed" else 0)
            self.assertEqual(self.client.get(self.queue, task)["attempts"], 0)
            self.client.cancel(self.queue, task)

    def test_a_worker_that_runs_in_a_thread_works_on_when_the_main_thread_ends(self) -> None:
        """A program called `run` in threads, and its main thread ended. The workers drained at once, and the program ended with exit code 0."""
        for how in ("alone", "beside a started one"):
            queues = [self.queue, queue()]
            words = [sys.executable, "-c", _IN_THREADS, GATEWAY, queues[0], how, queues[1]]
            with self.subTest(how), subprocess.Popen(words, stdout=subprocess.PIPE) as program:
                assert program.stdout is not None
                if how == "alone":
                    self.assertEqual(program.stdout.readline(), b"works on\n")
                    short = self.client.submit(self.queue, "short")
                    self.assertEqual(self.client.result(self.queue, short, 30), b"done")
                    del queues[1]
                tasks = [(each, self.client.submit(each, "long")) for each in queues]
                self.assertEqual([program.stdout.readline() for _ in tasks], [b"begun\n"] * len(tasks))
                program.send_signal(signal.SIGTERM)
                self.assertEqual(program.wait(30), 0 if how == "alone" else 143)
                for each, task in tasks:
                    self.assertEqual(self.client.get(each, task)["attempts"], 0)
                    self.client.cancel(each, task)

    def test_coroutines_end_in_threads_while_the_interpreter_ends(self) -> None:
        """A program ended. Its coroutines could not call `asyncio.to_thread` any more, and each task that the worker leased meanwhile failed."""
        for payload, drain in [("short", "30"), ("long", "0.1")]:
            task = self.client.submit(self.queue, Submission(payload=payload, max_attempts=1))
            words = [sys.executable, "-c", _TO_THREAD, GATEWAY, self.queue, drain]
            self.assertEqual(subprocess.run(words, timeout=60).returncode, 0)
            if payload == "short":
                self.assertEqual(self.client.result(self.queue, task, 30), b"done")
            else:
                self.assertEqual(self.client.get(self.queue, task)["attempts"], 0)

    def test_a_child_ends_at_the_first_signal(self) -> None:
        """A processor started a process and terminated it. The child had the worker's handler, which drained nothing, and so it ran on."""
        for start in ("run", "start"):
            task = self.client.submit(self.queue, "x")
            words = [sys.executable, "-c", _FORK, GATEWAY, self.queue, start]
            with subprocess.Popen(words) as program:
                try:
                    self.assertEqual(self.client.result(self.queue, task, 60), str(-signal.SIGTERM).encode())
                finally:
                    program.terminate()

    @unittest.skipIf("LONGHAUL_TEST_GATEWAY" in os.environ, "no program is named")
    def test_a_server_ends_with_a_killed_test_run(self) -> None:
        """A test run was killed, and its server ran on for ever."""
        # The server shares the error output, whose end this awaits.
        run = subprocess.run([sys.executable, "-c", _SERVER], capture_output=True, timeout=60)
        self.assertEqual(run.returncode, -signal.SIGKILL, run.stderr)


if __name__ == "__main__":
    unittest.main()
