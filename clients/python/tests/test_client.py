"""What a submitter does, against a real gateway."""

import threading
import time
import unittest
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from typing import Any

from longhaul import Client, Event, Fatal, Submission, Worker
from longhaul.errors import GatewayError, Invalid, NotFound, TaskFailed, Unreachable, WaitTimeout

from .busy import Answer, Busy
from .stage import GATEWAY, queue


class Submitting(unittest.TestCase):
    def setUp(self) -> None:
        self.client, self.queue = Client(GATEWAY), queue()
        self.addCleanup(self.client.close)

    def work(self, processor: Any) -> None:
        worker = Worker(self.client, self.queue, processor, drain=0.0, poll=0.5)
        worker.start()

        def end() -> None:
            worker.stop()
            assert worker.join(30)

        self.addCleanup(end)

    def test_a_payload_arrives_as_it_was_and_so_does_the_result(self) -> None:
        self.work(lambda task: task.payload)
        for payload, expected in [("Grüße", "Grüße".encode()), (b"\x00\xff", b"\x00\xff"), ({"a": [1]}, b'{"a":[1]}'), ("", b"")]:
            task = self.client.submit(self.queue, payload)
            self.assertEqual(self.client.result(self.queue, task, 60), expected)
            self.assertEqual(self.client.payload(self.queue, task), expected)

    def test_all_that_can_be_said_of_a_task_is_understood(self) -> None:
        other = self.client.submit(self.queue, "first")
        submission = Submission(
            payload="x",
            type="mail",
            key="mine",
            tags=["eu", "new"],
            properties={"a": "b"},
            delay=timedelta(hours=1),
            expires_at=datetime.now(timezone.utc) + timedelta(days=1),
            idempotency_key="once",
            limit_key="customer",
            after=[other],
            max_attempts=2,
            max_duration=60,
            max_total_duration="2h",
            no_progress_timeout=30.5,
            retry={"base": "1s", "max": "5s"},
            strict=True,
        )
        task = self.client.submit(self.queue, submission)
        self.assertEqual(self.client.submit(self.queue, submission), task)
        found = self.client.get(self.queue, task)
        self.assertEqual((found["status"], found["type"], found["key"], found["tags"]), ("scheduled", "mail", "mine", ["eu", "new"]))
        with self.assertRaises(Invalid) as raised:
            self.client.submit(self.queue, Submission(payload="x", max_attempts=0))
        self.assertEqual(raised.exception.code, "request_unfit")

    def test_a_batch_tells_of_each_task(self) -> None:
        outcomes = self.client.submit_batch(self.queue, ["a", Submission(payload="b", max_attempts=0), b"c"])
        kinds = [type(outcome) for outcome in outcomes]
        self.assertEqual(kinds, [str, Invalid, str])
        self.assertIsInstance(outcomes[1], GatewayError)

    def test_lists_go_on_behind_a_page(self) -> None:
        tasks = [self.client.submit(self.queue, Submission(payload=str(number), tags=["all"])) for number in range(7)]
        found = [task["id"] for task in self.client.list(self.queue, tags=["all"], page=3)]
        self.assertEqual(found, tasks)
        self.assertEqual(list(self.client.list(self.queue, status=["completed", "failed"])), [])

    def test_ends_are_told_apart(self) -> None:
        task = self.client.submit(self.queue, "x")
        with self.assertRaises(WaitTimeout):
            self.client.wait(self.queue, task, 0.2)
        self.client.cancel(self.queue, task, "no use")
        self.assertEqual(self.client.wait(self.queue, task, 60)["status"], "cancelled")

        def fail(_: object) -> None:
            raise Fatal("torn")

        self.work(fail)
        task = self.client.submit(self.queue, "x")
        with self.assertRaises(TaskFailed) as raised:
            self.client.result(self.queue, task, 60)
        self.assertEqual(raised.exception.task["status"], "failed")
        self.assertIn("torn", raised.exception.task["reason"] or "")
        events = [entry["event"] for entry in self.client.history(self.queue, task)["entries"]]
        self.assertIn("leased", events)
        self.assertEqual(self.client.why(self.queue, task)["sentence"], "the task is over: failed")
        with self.assertRaises(NotFound):
            self.client.get(self.queue, "999999:0:-1")


class Watching(unittest.TestCase):
    def test_a_stream_goes_on_behind_the_last_event_that_was_seen(self) -> None:
        client, name = Client(GATEWAY), queue()
        self.addCleanup(client.close)
        seen: list[Event] = []
        news = client.watch(name)
        self.assertEqual(next(news).kind, "caught-up")
        worker = Worker(client, name, lambda task: None, poll=0.5)
        worker.start()
        task = client.submit(name, "x")
        for event in news:
            seen.append(event)
            if event.kind == "task" and event.data["status"] == "completed":
                break
        news.close()
        self.assertEqual({event.data["id"] for event in seen}, {task})
        again = takewhile(lambda event: event.kind != "caught-up", client.watch(name, last_event_id=seen[0].id))
        self.assertEqual([event.id for event in again], [event.id for event in seen[1:]])
        one = [event.data["status"] for event in client.watch(name, task=task)]
        self.assertEqual(one, ["completed"], "it ends by itself")
        worker.stop()
        self.assertTrue(worker.join(30))

    def test_after_a_cut_it_asks_for_what_comes_behind(self) -> None:
        head = {"Content-Type": "text/event-stream"}
        first = b'event: task\nid: -1@1:0\ndata: {"id":"1:0:-1"}\n\nevent: task\nid: -1@1:1\ndata: {"cut'
        second = b': a comment\n\nevent: evicted\nid: -1@1:1\ndata: {"id":"1:0:-1"}\n\n'
        with Busy((200, head, first), (200, head, second)) as busy:
            news = Client(busy.url).watch("q")
            kinds = [(event.kind, event.id) for event in (next(news), next(news))]
            news.close()
        self.assertEqual(kinds, [("task", "-1@1:0"), ("evicted", "-1@1:1")])
        self.assertEqual(busy.asked[1][2].get("Last-Event-ID"), "-1@1:0")

    def test_a_page_in_place_of_the_stream_is_no_answer(self) -> None:
        """The session at a proxy had ended. It answered a watch with its sign-in page and 200, and the program waited for ever."""
        page: Answer = (200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>\ndata: {}\n\n</html>")
        stream: Answer = (200, {"Content-Type": "text/event-stream; charset=utf-8"}, b"event: caught-up\ndata: {}\n\n")
        odd: Answer = (200, {"Content-Type": "text/event-stream"}, b"data: <html>\n\n")
        with Busy(page, (204, {}, b""), odd, stream) as busy:
            news = Client(busy.url).watch("q")
            self.assertEqual(next(news).kind, "caught-up")
            news.close()
        with Busy(judge=lambda *_: page) as busy:
            begun = time.monotonic()
            with self.assertRaisesRegex(Unreachable, "its type is text/html"):
                next(Client(busy.url, patience=2.0).watch("q"))
            self.assertLess(time.monotonic() - begun, 10)
            # It pauses between requests.
            self.assertLess(len(busy.asked), 20)

    def test_threads_may_share_a_client(self) -> None:
        client, name = Client(GATEWAY), queue()
        self.addCleanup(client.close)
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append(client.submit(name, "x"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(found)), 20)


if __name__ == "__main__":
    unittest.main()
