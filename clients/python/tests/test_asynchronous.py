"""The asyncio client, and processors that are coroutines."""

import asyncio
import inspect
import os
import signal
import threading
import time
import unittest
from contextlib import aclosing
from typing import Any

from longhaul import AsyncClient, Client, Submission, Task, Worker, __version__
from longhaul.errors import NotFound

from .busy import Answer, Busy, problem
from .stage import GATEWAY, queue
from .test_lease import Leased, Leasing, hold


class Asking(unittest.IsolatedAsyncioTestCase):
    def client(self, gateway: str, threads: int = 32) -> AsyncClient:
        client = AsyncClient(Client(gateway), threads=threads)
        self.addCleanup(client.close)
        return client

    def test_it_has_the_methods_of_the_client(self) -> None:
        def methods(kind: type) -> set[str]:
            return {name for name in vars(kind) if not name.startswith("_")}

        self.assertEqual(methods(AsyncClient), methods(Client))
        self.assertEqual(inspect.signature(AsyncClient.replay), inspect.signature(Client.replay))

    async def test_more_calls_than_threads_are_answered(self) -> None:
        async with self.client(GATEWAY, threads=3) as client:
            name = await asyncio.to_thread(queue)
            worker = Worker(client.client, name, lambda task: task.payload, poll=0.5)
            worker.start()
            tasks = await asyncio.gather(*(client.submit(name, str(number)) for number in range(10)))
            results = await asyncio.gather(*(client.result(name, task, 60) for task in tasks))
            self.assertEqual(results, [str(number).encode() for number in range(10)])
            self.assertEqual(sorted([task["id"] async for task in client.list(name, page=4)]), sorted(tasks))
            with self.assertRaises(NotFound):
                await client.get(name, "999999:0:-1")
            worker.stop()
            await asyncio.to_thread(worker.join)

    async def test_calls_share_the_threads(self) -> None:
        threads: set[int] = set()

        def token() -> str:
            threads.add(threading.get_ident())
            return "secret"

        with Busy(judge=lambda *_: (200, {}, {"queues": []})) as busy:
            async with AsyncClient(Client(busy.url, token=token), threads=3) as client:
                await asyncio.gather(*(client.queues() for _ in range(30)))
        self.assertLessEqual(len(threads), 3)

    async def test_to_leave_a_watch_ends_its_thread(self) -> None:
        client, name = self.client(GATEWAY), await asyncio.to_thread(queue)
        task = await client.submit(name, "x")
        before = set(threading.enumerate())
        begun = time.monotonic()
        async with aclosing(client.watch(name, from_earliest=True)) as events:
            async for event in events:
                if event.kind == "task":
                    self.assertEqual(event.data["id"], task)
                if event.kind == "caught-up":
                    break
            waiting = asyncio.ensure_future(anext(events))
            # The thread waits for a line, and none comes.
            await asyncio.sleep(0)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
        for thread in set(threading.enumerate()) - before:
            await asyncio.to_thread(thread.join, 10)
            self.assertFalse(thread.is_alive())
        # A gateway sends a comment after 15 s.
        self.assertLess(time.monotonic() - begun, 10)

    async def test_a_call_that_is_cancelled_leaves_its_thread_at_once(self) -> None:
        asked, answered = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def judge(path: str, _: Any) -> Answer:
            loop.call_soon_threadsafe(asked.set)
            if path.endswith("/silent"):
                answered.wait(60)
            return problem(503, "draining", Retry_After="20")

        self.addCleanup(answered.set)
        for name in ("silent", "busy"):
            with self.subTest(name), Busy(judge=judge) as busy:
                client = self.client(busy.url, threads=1)
                asked.clear()
                begun = time.monotonic()
                call = asyncio.ensure_future(client.queue(name))
                await asked.wait()
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
                await loop.run_in_executor(client._threads, lambda: None)
                self.assertLess(time.monotonic() - begun, 10)
                answered.set()
                self.assertEqual([path for _, path, _ in busy.asked], [f"/v1/queues/{name}"])
                self.assertEqual(busy.asked[0][2]["User-Agent"], f"longhaul-python/{__version__}")


class Forked(unittest.TestCase):
    def test_a_client_works_in_a_child(self) -> None:
        """A server made its client before it forked. In its processes the threads of the client were dead, and each call hung."""
        with Busy(judge=lambda path, body: (201, {}, {"id": body["payload"], "now": 1})) as busy:
            client = AsyncClient(Client(busy.url), threads=1)
            self.addCleanup(client.close)
            self.assertEqual(asyncio.run(client.submit("q", "parent")), "parent")
            if (pid := os.fork()) == 0:
                signal.alarm(30)
                is_right = asyncio.run(client.submit("q", "child")) == "child"
                os._exit(0 if is_right else 1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual(asyncio.run(client.submit("q", "parent")), "parent")


class Awaiting(Leasing):
    """Processors that are coroutines, against a gateway that judges leases by its own clock."""

    def test_many_run_at_once_in_one_thread(self) -> None:
        threads: set[int] = set()
        together = asyncio.Barrier(20)

        async def process(task: Task) -> str:
            threads.add(threading.get_ident())
            await together.wait()
            return "done"

        gateway = Leased(20)
        gateway.lease_time = 10.0
        self.work(gateway, process, concurrency=20)
        self.assertEqual({status for _, status in gateway.told}, {"SUCCEEDED"})
        self.assertEqual(len(threads), 1)

    def test_a_loop_that_is_blocked_keeps_its_leases(self) -> None:
        async def process(task: Task) -> str:
            threading.Event().wait(2.5 * gateway.lease_time)
            return "late"

        gateway = Leased(1)
        self.work(gateway, process)
        self.assertEqual(gateway.told, [("1:0:-1", "SUCCEEDED")])

    def test_an_interpreter_that_is_held_loses_its_lease(self) -> None:
        async def process(task: Task) -> None:
            hold(1.5 * gateway.lease_time)
            await asyncio.sleep(60)

        gateway = Leased(1)
        logged = [record.getMessage() for record in self.work(gateway, process)]
        self.assertRegex("".join(logged), "lost 1:0:-1: lease_expired")

    def test_a_lost_lease_cancels(self) -> None:
        seen: list[object] = []

        async def process(task: Task) -> None:
            # The gateway refuses nothing, and answers no keep-alive.
            gateway.until[task.id] = float("inf")
            begun = time.monotonic()
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                seen.append(time.monotonic() - begun < 3.5)
                raise

        gateway = Leased(1, keep_alive=problem(503, "draining", Retry_After="4"))
        self.work(gateway, process)
        self.assertEqual(seen, [True])
        self.assertEqual(gateway.told, [("1:0:-1", "RELEASED")])

    def test_an_exit_ends_its_attempt_alone(self) -> None:
        other = asyncio.Event()

        async def process(task: Task) -> str:
            if task.id == "1:0:-1":
                other.set()
                raise SystemExit("enough")
            await other.wait()
            return "done"

        gateway = Leased(2)
        self.work(gateway, process, concurrency=2)
        self.assertEqual(sorted(gateway.told), [("1:0:-1", "FAILED"), ("1:1:-1", "SUCCEEDED")])


class Halting(unittest.TestCase):
    def test_a_cancel_and_a_drain_cancel_the_coroutine(self) -> None:
        client, name = Client(GATEWAY), queue()
        self.addCleanup(client.close)
        begun, seen = threading.Event(), list[str]()

        async def process(task: Task) -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                # What it does before it ends counts: the end is reported after it.
                await asyncio.sleep(0)
                seen.append(task.text())
                raise

        worker = Worker(client, name, process, drain=0.0, lease_time=3.0, poll=0.5)
        worker.start()
        first = client.submit(name, "cancelled")
        begun.wait(30)
        client.cancel(name, first)
        self.assertEqual(client.wait(name, first, 60)["status"], "cancelled")
        begun.clear()
        second = client.submit(name, Submission(payload="drained", max_attempts=1))
        begun.wait(30)
        worker.stop()
        self.assertTrue(worker.join(60))
        self.assertEqual(seen, ["cancelled", "drained"])
        self.assertEqual(client.get(name, second)["attempts"], 0)


if __name__ == "__main__":
    unittest.main()
