"""What the conformance suite does not see of a worker: what the processor is told, and what is logged."""

import asyncio
import threading
import unittest
from datetime import datetime
from decimal import Decimal
from typing import Any

from longhaul import Cancelled, Draining, Fatal, GiveBack, Halt, Submission, Task, Worker

from .stage import WithQueue


class Working(WithQueue):
    def worker(self, processor: Any, **options: Any) -> Worker:
        return super().worker(processor, **({"lease_time": 3.0} | options))

    def test_a_processor_knows_its_task(self) -> None:
        seen: list[Task] = []

        def process(task: Task) -> dict[str, int]:
            seen.append(task)
            return {"length": len(task.text())}

        self.worker(process, types=["count"])
        other = self.client.submit(self.queue, Submission(payload="?", type="other"))
        task = self.client.submit(self.queue, Submission(payload="four", type="count", properties={"a": "b"}, max_attempts=5))
        self.assertEqual(self.client.result(self.queue, task, 60), b'{"length":4}')
        (found,) = seen
        self.assertEqual((found.id, found.attempt, found.max_attempts, found.type, found.properties["a"]), (task, 1, 5, "count", "b"))
        self.assertEqual(self.client.get(self.queue, other)["status"], "ready")

    def test_halts_pass_through_what_catches_exceptions(self) -> None:
        halts: list[BaseException] = []
        begun = threading.Event()

        def process(task: Task) -> None:
            begun.set()
            try:
                while True:
                    try:
                        task.sleep(60)
                    except Exception:
                        pass
            except BaseException as halt:
                halts.append(halt)
                raise

        worker = self.worker(process)
        task = self.client.submit(self.queue, "x")
        begun.wait(30)
        self.client.cancel(self.queue, task)
        self.assertEqual(self.client.wait(self.queue, task, 60)["status"], "cancelled")
        begun.clear()
        task = self.client.submit(self.queue, "x")
        begun.wait(30)
        worker.stop()
        self.assertTrue(worker.join(60))
        self.assertEqual([type(halt) for halt in halts], [Cancelled, Draining])
        self.assertEqual(self.client.get(self.queue, task)["attempts"], 0)

    def test_a_halt_decides_whatever_the_processor_raises_after_it(self) -> None:
        """A worker drained, and its processors raised what they had made of the `Draining`, such as the error of a driver. Each task lost an attempt."""
        begun = threading.Semaphore(0)

        def process(task: Task) -> None:
            begun.release()
            try:
                task.sleep(60)
            except Halt as halt:
                match task.text():
                    case "group":
                        raise BaseExceptionGroup("of tasks", [halt]) from None
                    case "driver":
                        raise ConnectionError("interrupted") from halt
                    case "fatal":
                        raise Fatal("interrupted")
            finally:
                if task.text() == "cleanup":
                    raise KeyError("half done")

        async def grouped(task: Task) -> None:
            begun.release()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as error:
                raise BaseExceptionGroup("of tasks", [error]) from None

        for processor, payloads in [(process, ["group", "driver", "fatal", "cleanup"]), (grouped, ["coroutine"])]:
            worker = self.worker(processor)
            tasks = [self.client.submit(self.queue, Submission(payload=payload, max_attempts=1)) for payload in payloads]
            for _ in tasks:
                self.assertTrue(begun.acquire(timeout=30))
            with self.assertLogs("longhaul") as logs:
                worker.stop()
                self.assertTrue(worker.join(60))
            for task in tasks:
                self.assertEqual(self.client.get(self.queue, task)["attempts"], 0, logs.output)
                # The error is logged all the same.
                self.assertEqual(sum(task in record.getMessage() and record.exc_info is not None for record in logs.records), 1, logs.output)
                self.client.cancel(self.queue, task)

    def test_what_is_given_back_costs_no_attempt(self) -> None:
        def process(task: Task) -> str:
            if task.last_checkpoint is None:
                task.checkpoint("seen")
                raise GiveBack(0.1)
            return f"attempt {task.attempt}"

        self.worker(process)
        task = self.client.submit(self.queue, "x")
        self.assertEqual(self.client.result(self.queue, task, 60), b"attempt 1")

    def test_a_checkpoint_that_is_too_large_is_the_mistake_of_who_keeps_it(self) -> None:
        self.worker(lambda task: task.checkpoint(b"x" * 70_000))
        task = self.client.submit(self.queue, Submission(payload="x", max_attempts=1))
        ended = self.client.wait(self.queue, task, 60)
        self.assertIn("ValueError: a checkpoint has 65536 bytes at most", ended["reason"] or "")

    def test_a_result_that_is_no_json_fails_once(self) -> None:
        """A task returned a `datetime`. Its hour of work was done once per attempt, and failed each time."""

        def process(task: Task) -> object:
            if task.text() == "line":
                task.log(KeyError("k"))  # type: ignore[arg-type]
                return "logged"
            circle: list[object] = []
            circle.append(circle)
            results = {"set": {1, 2}, "number": float("nan"), "time": datetime.now(), "decimal": Decimal(1), "circle": circle, "half": "\ud83d"}
            return results[task.text()]

        self.worker(process, lease_time=60.0)

        def ended(payload: str) -> str:
            task = self.client.submit(self.queue, Submission(payload=payload, max_attempts=3))
            over = self.client.wait(self.queue, task, 20)
            self.assertEqual(over["attempts"], 1)
            return over.get("reason") or ""

        self.assertIn("TypeError: Object of type set is not JSON serializable", ended("set"))
        self.assertIn("ValueError: Out of range float values are not JSON compliant", ended("number"))
        for payload in ("time", "decimal", "circle", "half"):
            self.assertIn("the result cannot be sent: ", ended(payload))
        self.assertEqual("", ended("line"))

    def test_progress_and_lines_are_shown(self) -> None:
        done = threading.Event()

        def process(task: Task) -> None:
            task.progress(1, 2, "half")
            task.log("a line")
            done.wait(60)

        self.worker(process, lease_time=60.0)
        task = self.client.submit(self.queue, "x")
        for event in self.client.watch(self.queue, from_earliest=True):
            if event.kind == "task" and event.data.get("progress"):
                break
        self.assertEqual(event.data["progress"], {"done": 1, "total": 2, "message": "half"})
        done.set()
        self.client.result(self.queue, task, 60)


if __name__ == "__main__":
    unittest.main()
