"""What a worker does when its lease runs out, against a gateway that judges by its own clock."""

import base64
import ctypes
import logging
import math
import threading
import time
import unittest
import unittest.mock
from collections.abc import Callable
from typing import Any

from longhaul import Client, Fatal, GiveBack, LeaseLost, RetryAfter, Submission, Task, Worker
from longhaul.http import Gateways, Token

from .busy import Answer, Busy, problem

_LEASE = 1.0


class Leased:
    """A gateway with so many tasks. A lease ends when its keep-alives are missing; a report after that is refused."""

    def __init__(self, tasks: int, *, keep_alive: Answer | None = None) -> None:
        self.tasks, self.keep_alive = list(range(tasks)), keep_alive
        self.until: dict[str, float] = {}
        self.told: list[tuple[str, str]] = []
        self.ends: list[Any] = []
        self.kept_alive: list[float] = []
        # Of the bodies, in bytes.
        self.sizes: list[int] = []
        self.lease_time = _LEASE
        self.cancelled = False
        self.changed = threading.Condition()

    def answer(self, path: str, body: Any) -> Answer:
        now = time.monotonic()
        with self.changed:
            if path.endswith("/leases"):
                return self.lease(now)
            if path.endswith("/leases:confirm"):
                return 200, {}, {"outcomes": [{"outcome": "RESULT_OK"} for _ in body["leases"]], "now": now * 1000}
            task, status = body["lease"], body["status"]
            if status != "IN_PROGRESS":
                self.ends.append(body)
            if now > self.until[task]:
                status += " refused"
            if status == "IN_PROGRESS":
                self.kept_alive.append(now)
                if self.keep_alive is not None:
                    return self.keep_alive
                self.until[task] = now + self.lease_time
            else:
                self.told.append((task, status))
                self.changed.notify_all()
            if status.endswith("refused"):
                return problem(409, "lease_expired")
            return 200, {}, {"cancelled": self.cancelled, "now": now * 1000, "expires_at": (now + self.lease_time) * 1000}

    def lease(self, now: float) -> Answer:
        if not self.tasks:
            time.sleep(0.05)
            return 204, {}, None
        task = f"1:{self.tasks.pop(0)}:-1"
        self.until[task] = now + self.lease_time
        lease = {"lease": task, "task": task, "epoch": 1, "attempt": 1, "max_attempts": 3, "properties": {}, "payload": task}
        return 200, {}, {"leases": [lease | {"expires_at": (now + self.lease_time) * 1000}], "now": now * 1000}


class Leasing(unittest.TestCase):
    def work(
        self, gateway: Leased, processor: Callable[[Task], object], concurrency: int = 1, token: Token = None
    ) -> list[logging.LogRecord]:
        """Works until something was told of each task, keep-alives that were taken not counted. Returns what was logged."""
        tasks = {f"1:{number}:-1" for number in gateway.tasks}
        with Busy(judge=gateway.answer) as busy, Client(busy.url, token=token) as client, self.assertLogs("longhaul") as logs:
            worker = Worker(client, "q", processor, concurrency=concurrency, poll=0.1, lease_time=gateway.lease_time, drain=0.0)
            worker.start()
            with gateway.changed:
                gateway.sizes = busy.sizes
                enough = gateway.changed.wait_for(lambda: tasks <= {task for task, _ in gateway.told}, 20)
            worker.stop()
            self.assertTrue(worker.join(30))
        self.assertTrue(enough, gateway.told)
        return logs.records


class Leases(Leasing):
    def test_a_processor_that_holds_the_interpreter_loses_its_task_and_the_worker_goes_on(self) -> None:
        seen: list[object] = []

        def process(task: Task) -> str:
            if task.id != "1:2:-1":
                hold(1.5 * _LEASE)
            if task.id == "1:0:-1":
                seen.append(task.halted)
                try:
                    task.check()
                except LeaseLost as halt:
                    seen.append(str(halt))
                    raise
            return "late"

        gateway = Leased(3)
        logged = [record.getMessage() for record in self.work(gateway, process)]
        # The gateway refuses a keep-alive or the end of a late task, whichever comes first.
        self.assertTrue(all(status.endswith("refused") for task, status in gateway.told if task != "1:2:-1"), gateway.told)
        self.assertNotIn(("1:0:-1", "SUCCEEDED refused"), gateway.told)
        self.assertIn(("1:2:-1", "SUCCEEDED"), gateway.told)
        self.assertIs(seen[0], True)
        sentence = r"no keep-alive succeeded for 1\.\d s, and the lease lasts 1\.0 s"
        self.assertRegex(str(seen[1]), sentence)
        for task in ("1:0:-1", "1:1:-1"):
            (line,) = (line for line in logged if line.startswith(f"lost {task}"))
            self.assertRegex(line, f"lease_expired: {sentence}")
        self.assertIn("succeeded 1:2:-1", logged)

    def test_a_processor_is_told_when_no_keep_alive_is_answered(self) -> None:
        told_after: list[float] = []

        def process(task: Task) -> None:
            begun = time.monotonic()
            try:
                task.sleep(10)
            finally:
                told_after.append(time.monotonic() - begun)

        # The worker waits as long as the gateway says, and the processor is told meanwhile.
        gateway = Leased(1, keep_alive=problem(503, "draining", Retry_After="4"))
        logged = [record.getMessage() for record in self.work(gateway, process)]
        self.assertLess(told_after[0], 3 * _LEASE)
        self.assertRegex("".join(logged), "lost 1:0:-1: lease_expired: no keep-alive succeeded for ")

    def test_a_cancel_does_not_wait_for_a_third_of_a_long_lease(self) -> None:
        gateway = Leased(1)
        gateway.lease_time, gateway.cancelled = 600.0, True
        begun = time.monotonic()
        self.work(gateway, lambda task: task.sleep(60))
        self.assertLess(time.monotonic() - begun, 8)
        self.assertEqual(gateway.told, [("1:0:-1", "FAILED")])

    def test_the_news_that_are_refused_end_no_lease(self) -> None:
        def process(task: Task) -> str:
            for _ in range(8):
                task.progress(1)
                task.sleep(0.4)
            return "kept"

        gateway = Leased(1)
        answer = gateway.answer
        refused: Callable[[str, Any], Answer] = lambda path, body: problem(422, "request_unfit") if "progress" in body else answer(path, body)
        setattr(gateway, "answer", refused)
        self.work(gateway, process)
        self.assertEqual(gateway.told, [("1:0:-1", "SUCCEEDED")])

    def test_odd_news_and_reasons_decide_nothing(self) -> None:
        """A processor logged a file name that is no UTF-8, or `progress(33.3, 100)`. Its result was refused with that, and the task failed for good."""

        def process(task: Task) -> str:
            for line in ("caf\udce9", "x" * 6_000_000, Odd()):
                task.log(line)  # type: ignore[arg-type]
            for done in (33.4, -1, math.inf, math.nan, "7", None, 10**30):
                task.progress(done, 100)  # type: ignore[arg-type]
            if task.id == "1:0:-1":
                raise RuntimeError("caf\udce9 " + "x" * 6_000_000)
            return "fine"

        gateway = Leased(2)
        self.work(gateway, process)
        failed, succeeded = gateway.ends
        self.assertEqual(failed["log"], ["caf\ufffd", "x" * 256, "a Odd without text"])
        self.assertEqual(failed["progress"], {"done": 2**64 - 1, "total": 100})
        self.assertTrue(failed["reason"].startswith("RuntimeError: caf\ufffd xxx"), failed["reason"][:50])
        self.assertEqual((failed["status"], len(failed["reason"]), "fatal" in failed), ("FAILED", 16 * 1024 - 2, False))
        self.assertEqual(succeeded["result"], "fine")
        for pause in (math.nan, math.inf, "1"):
            with self.assertRaises((ValueError, TypeError)):
                RetryAfter(pause, "")  # type: ignore[arg-type]
        self.assertEqual((RetryAfter(-0.5, "").seconds, GiveBack(-1).after), (0.0, 0.0))

    def test_a_checkpoint_survives_the_news_beside_it(self) -> None:
        """A log line was refused, and the checkpoint that was sent with it was lost: the next attempt began from zero."""

        def process(task: Task) -> None:
            task.log("refused")
            task.checkpoint("kept")
            if task.id == "1:0:-1":
                task.sleep(0.8 * _LEASE)
            raise GiveBack

        gateway = Leased(2)
        answer = gateway.answer
        kept: list[Any] = []

        def refusing(path: str, body: Any) -> Answer:
            if "log" in body:
                return problem(422, "request_unfit")
            if "checkpoint_base64" in body:
                kept.append(body["lease"])
            return answer(path, body)

        setattr(gateway, "answer", refusing)
        self.work(gateway, process)
        self.assertEqual(kept, ["1:0:-1", "1:1:-1"])
        self.assertEqual([status for _, status in gateway.told], ["RELEASED", "RELEASED"])

    def test_only_a_gateway_s_own_code_is_a_verdict(self) -> None:
        """One answer of a proxy to the final report, or a 401 after a token was rotated, threw hours of work away."""
        statuses = [302, 400, 401, 403, 404, 408, 409, 413, 421, 431, 500, 200]
        answers: list[Answer] = [(status, {"Content-Type": "text/html"}, b"<html>") for status in statuses]
        answers += [problem(401, "token_unknown"), problem(403, "scope_missing"), problem(404, "not_found"), (204, {}, b"")]
        # These were taken for verdicts as well: a gateway of another version gave a code with a status that the contract does not list.
        answers += [problem(status, "odd") for status in (308, 402, 405, 409, 410, 411, 418, 431, 451)]
        gateway = Leased(len(answers))
        gateway.lease_time = 30.0
        answer, planted = gateway.answer, set[str]()

        def first_refusing(path: str, body: Any) -> Answer:
            if body.get("status") == "SUCCEEDED" and body["lease"] not in planted:
                planted.add(body["lease"])
                return answers.pop()
            return answer(path, body)

        setattr(gateway, "answer", first_refusing)
        self.work(gateway, lambda task: "fine", concurrency=25)
        self.assertEqual({status for _, status in gateway.told}, {"SUCCEEDED"})

    def test_an_end_waits_for_a_token(self) -> None:
        """The file of the token was half written when a task ended. `http.client` refused the token, and hours of work were lost."""
        gateway, tokens = Leased(1), ["", "half\nwritten", "h\u20aclf"]
        gateway.lease_time = 30.0
        has_ended = threading.Event()

        def process(task: Task) -> str:
            has_ended.set()
            return "fine"

        self.work(gateway, process, token=lambda: tokens.pop() if has_ended.is_set() and tokens else "whole")
        self.assertEqual((gateway.told, tokens), ([("1:0:-1", "SUCCEEDED")], []))

    def test_a_text_that_json_makes_long_is_sent_in_base64(self) -> None:
        """A result of a megabyte had many control characters, each of 6 bytes in JSON. The report was too large, and the task failed for good."""
        texts = ["\u0001" * 1_000_000, "ü" * 500_000, "short \u0001"]
        gateway = Leased(4)
        gateway.lease_time = 30.0

        def process(task: Task) -> object:
            number = int(task.id.split(":")[1])
            return texts[number] if number < 3 else {"text": texts[1]}

        self.work(gateway, process)
        ends = {end["lease"]: end for end in gateway.ends}
        self.assertEqual(base64.b64decode(ends["1:0:-1"]["result_base64"]).decode(), texts[0])
        self.assertEqual((ends["1:1:-1"]["result"], ends["1:2:-1"]["result"]), (texts[1], texts[2]))
        self.assertEqual(ends["1:3:-1"]["result_json"], {"text": texts[1]})
        self.assertLess(max(gateway.sizes), 1_500_000)
        self.assertEqual(set(Submission(payload=texts[0]).body()), {"payload_base64"})

    def test_a_pause_that_others_were_told_holds_up_no_end(self) -> None:
        """A lease request was told to wait for 20 s, and the keep-alives and the end of a running task waited as well."""
        gateway = Leased(1)
        answer = gateway.answer

        def busy(path: str, body: Any) -> Answer:
            if path.endswith("/leases") and not gateway.tasks:
                return problem(503, "draining", Retry_After="20")
            return answer(path, body)

        setattr(gateway, "answer", busy)
        self.work(gateway, lambda task: task.sleep(2 * _LEASE), concurrency=2)
        self.assertEqual(gateway.told, [("1:0:-1", "SUCCEEDED")])

    def test_an_end_does_not_wait_for_the_pause_of_a_keep_alive(self) -> None:
        """A keep-alive was told to wait for 20 s. The processor returned, and its end was sent after the pause, when the lease was over."""
        gateway = Leased(1, keep_alive=problem(503, "draining", Retry_After="20"))
        gateway.lease_time = 60.0
        request, keep_alives, pauses = Gateways.request, list[Any](), threading.Event()

        def counting(gateways: Gateways, method: str, path: str, body: Any, **more: Any) -> Any:
            if body.get("status") == "IN_PROGRESS":
                keep_alives.append(body)
                if len(keep_alives) == 2:
                    # The first one was refused, so this one begins with the pause.
                    pauses.set()
            return request(gateways, method, path, body, **more)

        def process(task: Task) -> None:
            task.progress(1)
            self.assertTrue(pauses.wait(15))

        begun = time.monotonic()
        with unittest.mock.patch.object(Gateways, "request", counting):
            self.work(gateway, process)
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual([(end["status"], end["progress"]) for end in gateway.ends], [("SUCCEEDED", {"done": 1})])

    def test_a_lease_outlives_every_retry_after(self) -> None:
        """A balancer answered the final report with its page and `Retry-After: 60`. The worker waited for 30 s, the lease ended, and the result was lost."""
        for refusal in ((503, {"Content-Type": "text/html", "Retry-After": "60"}, b"<html>"), problem(503, "draining", Retry_After="60")):
            with self.subTest(refusal[2]):
                gateway = Leased(1)
                gateway.lease_time = 3.0
                answer, refused = gateway.answer, set[str]()

                def first_refusing(path: str, body: Any) -> Answer:
                    kind = body.get("status", path)
                    if kind in refused or path.endswith("/leases"):
                        return answer(path, body)
                    refused.add(kind)
                    return refusal

                setattr(gateway, "answer", first_refusing)
                self.work(gateway, lambda task: task.sleep(1.2 * gateway.lease_time))
                self.assertEqual(len(refused), 3)
                self.assertEqual(gateway.told, [("1:0:-1", "SUCCEEDED")])

    def test_an_end_does_not_wait_for_a_keep_alive_that_hangs(self) -> None:
        """The name server was slow, and a keep-alive was still connecting. The end of the task waited for it until the lease was over."""
        gateway, hanging = Leased(1), threading.Event()
        gateway.lease_time = 3.0
        request, over = Gateways.request, threading.Event()

        def connecting(gateways: Gateways, method: str, path: str, body: Any, **more: Any) -> Any:
            if body.get("status") == "IN_PROGRESS":
                hanging.set()
                over.wait(30)
            return request(gateways, method, path, body, **more)

        self.addCleanup(over.set)
        with unittest.mock.patch.object(Gateways, "request", connecting):
            self.work(gateway, lambda task: str(hanging.wait(10)))
        self.assertEqual(gateway.told, [("1:0:-1", "SUCCEEDED")])

    def test_a_confirmation_is_repeated_while_an_outcome_is_unknown(self) -> None:
        """The broker was away for a moment. A worker took UNKNOWN for a loss, and its tasks were given back after the whole lease time."""
        asked: list[list[str]] = []
        outcomes = [["RESULT_OK", "UNKNOWN"], ["UNKNOWN", "UNKNOWN"], ["RESULT_OK"], ["RESULT_OK", "NOT_IN_PROGRESS"]]
        gateway = Leased(2)
        gateway.lease_time = 60.0
        answer = gateway.answer

        def unsure(path: str, body: Any) -> Answer:
            if path.endswith("/leases") and gateway.tasks:
                both = [answer(path, body)[2] for _ in range(2)]
                return 200, {}, both[0] | {"leases": [lease for each in both for lease in each["leases"]]}
            if path.endswith("/leases:confirm"):
                asked.append(body["leases"])
                if len(asked) == 4:
                    gateway.told.append(("1:1:-1", "lost"))
                return 200, {}, {"outcomes": [{"outcome": it} for it in outcomes[len(asked) - 1]], "now": 1}
            return answer(path, body)

        setattr(gateway, "answer", unsure)
        self.work(gateway, lambda task: "fine", concurrency=2)
        self.assertEqual(asked, [["1:0:-1", "1:1:-1"]] * 4)
        self.assertEqual(gateway.told, [("1:1:-1", "lost"), ("1:0:-1", "SUCCEEDED")])

    def test_a_worker_that_ends_gives_back_what_is_not_confirmed(self) -> None:
        gateway = Leased(1)
        gateway.lease_time = 60.0
        answer, unsure = gateway.answer, threading.Event()

        def confirming(path: str, body: Any) -> Answer:
            if path.endswith("/leases:confirm"):
                unsure.set()
                return 200, {}, {"outcomes": [{"outcome": "UNKNOWN"}], "now": 1}
            return answer(path, body)

        with Busy(judge=confirming) as busy, Client(busy.url) as client:
            worker = Worker(client, "q", lambda task: "never", poll=0.1)
            worker.start()
            self.assertTrue(unsure.wait(30))
            worker.stop()
            self.assertTrue(worker.join(30))
        self.assertEqual(gateway.told, [("1:0:-1", "RELEASED")])

    def test_a_worker_that_ends_waits_for_ends_on_their_way(self) -> None:
        """A gateway was busy when a worker drained. The success of a task was on its way, but the process ended at once, and the work was lost."""
        gateway = Leased(1)
        gateway.lease_time = 60.0
        answer, reporting, drained = gateway.answer, threading.Event(), threading.Event()

        def busy(path: str, body: Any) -> Answer:
            if body.get("status") == "SUCCEEDED" and not drained.is_set():
                reporting.set()
                return problem(503, "draining")
            return answer(path, body)

        with Busy(judge=busy) as busy_gateway, Client(busy_gateway.url) as client, unittest.mock.patch("longhaul.worker._GRACE", 0.1):
            worker = Worker(client, "q", lambda task: "fine", poll=0.1, drain=0.1)
            worker.start()
            self.assertTrue(reporting.wait(30))
            worker.stop()
            self.assertFalse(worker.join(3))
            drained.set()
            self.assertTrue(worker.join(30))
        self.assertEqual(gateway.told, [("1:0:-1", "SUCCEEDED")])

    def test_nothing_begins_before_it_is_confirmed(self) -> None:
        begun: list[str] = []
        gateway = Leased(2)
        answer = gateway.answer

        def confirming(path: str, body: Any) -> Answer:
            if path.endswith("/leases"):
                self.assertTrue(body["confirms"])
            if path.endswith("/leases:confirm") and body["leases"] == ["1:1:-1"]:
                gateway.told.append(("1:1:-1", "unconfirmed"))
                return 200, {}, {"outcomes": [{"outcome": "NOT_IN_PROGRESS"}], "now": 1}
            return answer(path, body)

        setattr(gateway, "answer", confirming)
        self.work(gateway, lambda task: begun.append(task.id))
        self.assertEqual(begun, ["1:0:-1"])

    def test_a_task_without_a_thread_is_given_back(self) -> None:
        """A container was at its limit of threads. The slot of the task was lost, and its lease kept alive for ever."""
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "1:0:-1":
                raise RuntimeError("can't start new thread")
            start(thread)

        with unittest.mock.patch.object(threading.Thread, "start", refuse):
            gateway = Leased(2)
            self.work(gateway, lambda task: "fine")
        self.assertEqual(gateway.told, [("1:0:-1", "RELEASED"), ("1:1:-1", "SUCCEEDED")])

    def test_the_log_has_the_reason_of_a_failure_and_where_it_was_raised(self) -> None:
        def process(task: Task) -> None:
            if task.id == "1:0:-1":
                raise KeyError("page 7")
            raise Fatal("torn") from ValueError("no ink")

        records = self.work(Leased(2), process)
        raised = [record for record in records if record.exc_info]
        self.assertEqual([record.levelno for record in raised], [logging.WARNING, logging.WARNING])
        first, second = (logging.Formatter().format(record) for record in raised)
        self.assertTrue(first.startswith("attempt 1 of 1:0:-1 failed: KeyError: 'page 7'\n"), first)
        self.assertIn('raise KeyError("page 7")', first)
        self.assertTrue(second.startswith("attempt 1 of 1:1:-1 failed: torn\n"), second)
        self.assertIn("ValueError: no ink", second)


class Odd:
    def __str__(self) -> str:
        raise ValueError


def hold(seconds: float) -> None:
    """Keeps all other threads from running, as a bad regular expression does."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


if __name__ == "__main__":
    unittest.main()
