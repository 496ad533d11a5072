"""What operators do, against a real gateway; and which of it is repeated."""

import threading
import unittest
from collections.abc import Callable

from longhaul import Client, Fatal, Submission, Task
from longhaul.client import Level
from longhaul.errors import Conflict, NotFound, OutcomeUnknown

from .busy import Busy
from .stage import WithQueue

LEVELS: tuple[Level, ...] = ("high", "normal", "low")


class Operating(WithQueue):
    def test_queues_are_made_changed_and_deleted(self) -> None:
        name = f"{self.queue}-more"
        self.assertTrue(self.client.create_queue(name, levels=True, partitions=2)["steps"])
        self.assertEqual(self.client.create_queue(name)["steps"], [])
        self.assertIn(name, self.client.queues())
        found = self.client.queue(name)
        self.assertEqual((found["name"], found["levels"], found["version"]), (name, True, 0))
        version = self.client.change_queue(name, {"description": "letters"}, found["version"])
        self.assertEqual(self.client.pause_queue(name, "too many"), version + 1)
        settings = self.client.queue(name)["settings"]
        self.assertEqual((settings.get("description"), settings.get("paused")), ("letters", True))
        with self.assertRaises(Conflict) as raised:
            self.client.change_queue(name, {}, version)
        self.assertEqual(raised.exception.code, "version_conflict")
        self.client.resume_queue(name)
        self.assertFalse(self.client.queue(name)["settings"].get("paused"))
        self.client.delete_queue(name, "no use")
        with self.assertRaises(NotFound):
            self.client.queue(name)

    def test_each_level_has_its_own_tasks(self) -> None:
        self.client.create_queue(self.queue, levels=True)
        high, normal = (self.client.submit(self.queue, Submission(payload="x", priority=level)) for level in ("high", "normal"))
        self.assertEqual([task["id"] for task in self.client.list(self.queue, level="high")], [high])
        self.assertEqual([self.client.counts(self.queue, level=level)["total"] for level in LEVELS], [1, 1, 0])
        self.client.force_fail(self.queue, high, "torn")
        self.client.force_fail(self.queue, normal, "torn")
        self.assertEqual([action["task"] for action in self.client.actions(self.queue, level="high")], [high])
        self.assertEqual([action["task"] for action in self.client.actions(self.queue, limit=1)], [normal])
        series = [self.client.series(self.queue, step=60, steps=2, level=level)["steps"] for level in LEVELS]
        self.assertEqual([sum(step["submitted"] for step in steps) for steps in series], [1, 1, 0])
        for task in (high, normal):
            self.client.wait(self.queue, task, 60)
        self.assertEqual(self.client.purge_dead_letters(self.queue, level="high", all=True)["purged"], 1)
        self.assertEqual([letter["task"] for letter in self.client.dead_letters(self.queue)], [normal])

    def test_tasks_are_ended_and_run_once_more(self) -> None:
        killed, deleted, purged = (self.client.submit(self.queue, Submission(payload="x", type=name)) for name in ("killed", "deleted", "purged"))
        self.client.kill(self.queue, killed, "no use")
        self.client.delete(self.queue, deleted)
        self.assertEqual(self.client.purge(self.queue, type="purged")["deleted"], 1)
        for task in (killed, deleted, purged):
            self.assertEqual(self.client.wait(self.queue, task, 60)["status"], "cancelled")
        newest = next(iter(self.client.list(self.queue, order="newest", why=True)))
        self.assertEqual(newest["id"], purged)
        failed = self.client.submit(self.queue, "again")
        self.client.force_fail(self.queue, failed, "torn")
        self.client.wait(self.queue, failed, 60)
        self.worker(lambda task: task.payload)
        again = self.client.retry(self.queue, failed)
        self.assertEqual(self.client.result(self.queue, again, 60), b"again")

    def test_a_task_is_taken_from_its_worker(self) -> None:
        def process(task: Task) -> str:
            if task.attempt == 1:
                running.append((self.client.lease(self.queue, task.id)["worker"], task.epoch))
                try:
                    self.client.force_release(self.queue, task.id, epoch=task.epoch + 1)
                except Conflict as error:
                    running.append((error.code, task.epoch))
                self.client.force_release(self.queue, task.id, "hangs", epoch=task.epoch)
            task.sleep(0)
            return "released"

        running: list[tuple[str, int]] = []
        self.worker(process, name="ann", lease_time=3.0)
        task = self.client.submit(self.queue, "x")
        self.client.wait(self.queue, task, 60)
        (worker, epoch), (code, _), *_ = running
        self.assertEqual((worker, epoch, code), ("ann", 1, "stale_epoch"))
        self.assertIn("force-release", [action["action"] for action in self.client.actions(self.queue)])

    def test_dead_letters_are_read_replayed_and_purged(self) -> None:
        def process(task: Task) -> None:
            if not task.properties.get("REPLAY_OF"):
                raise Fatal(f"torn {task.text()}")

        self.worker(process)
        tasks = [self.client.submit(self.queue, Submission(payload=text, tags=["mail"])) for text in ("a", "b", "c")]
        for task in tasks:
            self.client.wait(self.queue, task, 60)
        letters = list(self.client.dead_letters(self.queue, tags=["mail"], page=2))
        self.assertEqual(sorted(letter["task"] for letter in letters), sorted(tasks))
        self.assertEqual([letter["task"] for letter in self.client.dead_letters(self.queue, reason="torn b")], [tasks[1]])
        self.assertEqual(self.client.dead_letter(self.queue, tasks[0]).get("payload_base64"), "YQ==")
        outcomes = self.client.replay(self.queue, tasks=tasks[:1], reason="mended")["outcomes"]
        self.assertEqual([(outcome["task"], outcome["outcome"]) for outcome in outcomes], [(tasks[0], "RESTARTED")])
        self.assertEqual(self.client.purge_dead_letters(self.queue, failed_with="torn b")["purged"], 1)
        self.assertEqual([letter["task"] for letter in self.client.dead_letters(self.queue)], tasks[2:])

    def test_schedules_fire_pause_and_change(self) -> None:
        self.worker(lambda task: task.payload)
        version = self.client.create_schedule(self.queue, "nightly", {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}, {"report": 1})
        self.assertEqual(version, 1)
        with self.assertRaises(Conflict):
            self.client.create_schedule(self.queue, "nightly", {"every": "1h"}, "x")
        self.assertEqual([each["name"] for each in self.client.schedules(self.queue)], ["nightly"])
        version = self.client.change_schedule(self.queue, "nightly", version, schedule={"every": "1h"})
        version = self.client.change_schedule(self.queue, "nightly", version, task=Submission(payload="report", type="mail"))
        self.assertEqual(self.client.pause_schedule(self.queue, "nightly"), version + 1)
        self.client.trigger_schedule(self.queue, "nightly", "at once")
        news = self.client.watch(self.queue, from_earliest=True)
        task = next(event.data for event in news if event.kind == "task" and event.data["status"] == "completed")
        news.close()
        self.assertEqual((task["type"], self.client.payload(self.queue, task["id"])), ("mail", b"report"))
        self.client.resume_schedule(self.queue, "nightly")
        found = self.client.schedule(self.queue, "nightly")
        self.assertFalse(found["schedule"].get("paused"))
        self.client.delete_schedule(self.queue, "nightly")
        self.assertEqual(self.client.schedules(self.queue), [])

    def test_a_worker_is_drained_by_its_name_and_a_gateway_is_not(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def process(task: Task) -> bytes:
            begun.set()
            go_on.wait(60)
            return task.payload

        task = self.client.submit(self.queue, "x")
        worker = self.worker(process, name="ann", concurrency=2, drain=60.0)
        self.assertTrue(begun.wait(60))
        listed = [it["worker"] or {} for it in self.client.workers(self.queue)]
        self.assertIn("ann", [it.get("name") for it in listed])
        self.client.drain_worker(self.queue, "ann", "its machine goes")
        go_on.set()
        # Nobody else tells it to end.
        self.assertTrue(worker.join(60))
        self.assertEqual(self.client.result(self.queue, task, 60), b"x")
        (name,) = (it.get("name", "") for it in listed if it.get("grants_leases"))
        with self.assertRaises(Conflict) as raised:
            self.client.drain_worker(self.queue, name, "its machine goes")
        self.assertEqual(raised.exception.code, "worker_is_gateway")
        with self.assertRaises(NotFound) as missing:
            self.client.drain_worker(self.queue, "nobody/at:all")
        self.assertEqual(missing.exception.code, "worker_not_found")


class Repeated(unittest.TestCase):
    """An answer is lost; a request that is not repeated raises `OutcomeUnknown`."""

    def requests(self, ask: Callable[[Client], object]) -> list[str]:
        with Busy(None, (200, {}, {"version": 1, "id": "1:0:-1"})) as busy, Client(busy.url) as client:
            try:
                ask(client)
                self.assertEqual(len(busy.asked), 2)
            except OutcomeUnknown:
                self.assertEqual(len(busy.asked), 1)
            return [f"{method} {path}" for method, path, _ in busy.asked]

    def test_what_does_work_is_not_repeated(self) -> None:
        asks: list[tuple[str, Callable[[Client], object]]] = [
            ("POST /v1/queues/q/tasks/1:retry", lambda client: client.retry("q", "1")),
            ("POST /v1/queues/q/tasks/1:force-release", lambda client: client.force_release("q", "1")),
            ("POST /v1/queues/q:purge?level=low", lambda client: client.purge("q", level="low", all=True)),
            ("POST /v1/queues/q/dead:replay?level=low", lambda client: client.replay("q", level="low", all=True)),
            ("POST /v1/queues/q/dead:purge", lambda client: client.purge_dead_letters("q", all=True)),
            ("POST /v1/queues/q/schedules/s", lambda client: client.create_schedule("q", "s", {"every": "1h"}, "x")),
            ("PATCH /v1/queues/q/schedules/s", lambda client: client.change_schedule("q", "s", 1, task="x")),
            ("POST /v1/queues/q/schedules/s:trigger", lambda client: client.trigger_schedule("q", "s")),
            ("PATCH /v1/queues/q", lambda client: client.change_queue("q", {}, 1)),
        ]
        for path, ask in asks:
            with self.subTest(path):
                self.assertEqual(self.requests(ask), [path])

    def test_what_may_be_done_twice_is_repeated(self) -> None:
        asks: list[tuple[str, Callable[[Client], object]]] = [
            ("PUT /v1/queues/q", lambda client: client.create_queue("q")),
            ("DELETE /v1/queues/q?reason=a+b", lambda client: client.delete_queue("q", "a b")),
            ("DELETE /v1/queues/q/tasks/1", lambda client: client.delete("q", "1")),
            ("DELETE /v1/queues/q/schedules/s", lambda client: client.delete_schedule("q", "s")),
            ("POST /v1/queues/q/tasks/1:cancel", lambda client: client.cancel("q", "1")),
            ("POST /v1/queues/q/tasks/1:kill", lambda client: client.kill("q", "1")),
            ("POST /v1/queues/q/tasks/1:force-fail", lambda client: client.force_fail("q", "1")),
            ("POST /v1/queues/q:pause", lambda client: client.pause_queue("q")),
            ("POST /v1/queues/q:resume", lambda client: client.resume_queue("q")),
            ("POST /v1/queues/q/workers/a%2Fb:drain", lambda client: client.drain_worker("q", "a/b")),
            ("POST /v1/queues/q/schedules/s:pause", lambda client: client.pause_schedule("q", "s")),
            ("POST /v1/queues/q/schedules/s:resume", lambda client: client.resume_schedule("q", "s")),
        ]
        for path, ask in asks:
            with self.subTest(path):
                self.assertEqual(self.requests(ask), [path, path])


if __name__ == "__main__":
    unittest.main()
