"""What is tried again, where, and when, and what is not."""

import math
import os
import socket
import threading
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from longhaul import Client, Submission
from longhaul.errors import Conflict, LeaseRefused, OutcomeUnknown, Unavailable, Unreachable
from longhaul.http import HaltEvent
from longhaul.testing import Embedded

from .busy import Answer, Busy, problem

SUBMITTED: Answer = (201, {}, {"id": "1:0:-1", "now": 1})


def closed() -> str:
    """The URL of a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


@contextmanager
def dripping(begin: bytes, part: bytes) -> Iterator[str]:
    """The URL of a proxy that sends these parts of an answer, five a second."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(begin)
                for _ in range(30):
                    connection.sendall(part)
                    time.sleep(0.2)

        threading.Thread(target=drip, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class Asking(unittest.TestCase):
    def client(self, gateways: str | list[str], **options: Any) -> Client:
        client = Client(gateways, **options)
        self.addCleanup(client.close)
        return client


class TriedAgain(Asking):
    def test_a_refusal_is_waited_out_as_long_as_it_says(self) -> None:
        with Busy(problem(429, "rate_limited", Retry_After="1"), SUBMITTED) as busy:
            begun = time.monotonic()
            self.assertEqual(self.client(busy.url).submit("q", "x"), "1:0:-1")
            self.assertGreaterEqual(time.monotonic() - begun, 1.0)

    def test_another_gateway_is_asked_at_once(self) -> None:
        with Busy(problem(503, "draining", Retry_After="20")) as first, Busy(SUBMITTED, SUBMITTED) as second:
            client = self.client([closed(), first.url, second.url])
            begun = time.monotonic()
            client.submit("q", "x")
            self.assertLess(time.monotonic() - begun, 5.0)
            # The next request begins with the one that has answered.
            client.submit("q", "x")
            self.assertEqual((len(first.asked), len(second.asked)), (1, 2))

    def test_what_may_have_been_done_is_repeated_only_if_that_is_the_same(self) -> None:
        # Only a gateway's own code says that nothing was done: a proxy may answer after the gateway has got the request.
        proxy: tuple[Answer, ...] = (502, {}, b"<html>"), (503, {"Retry-After": "1"}, b""), (504, {}, {"error": "timeout"})
        for answer in (None, problem(503, "outcome_unknown", Retry_After="1"), *proxy):
            with self.subTest(answer=answer):
                with Busy(answer, SUBMITTED) as busy, self.assertRaises(OutcomeUnknown):
                    self.client(busy.url).submit("q", Submission(payload="x", dedupe_key="d"))
                self.assertEqual(len(busy.asked), 1)
                with Busy(answer, SUBMITTED) as busy:
                    self.client(busy.url).submit("q", Submission(payload="x", idempotency_key="k"))
                self.assertEqual([body["idempotency_key"] for body in busy.bodies], ["k", "k"])

    def test_a_submit_without_a_key_gets_one_that_makes_it_repeatable(self) -> None:
        batch: Answer = (200, {}, {"outcomes": [{"id": "1:0:-1"}, {"id": "1:1:-1"}], "now": 1})
        with Busy((502, {}, b"<html>"), SUBMITTED, SUBMITTED, None, batch) as busy:
            client = self.client(busy.url)
            task = Submission(payload="x")
            client.submit("q", task)
            client.submit("q", task)
            client.submit_batch("q", [task, Submission(payload="y", idempotency_key="mine")])
        first, again, second, *batches = busy.bodies
        self.assertEqual(first, again)
        self.assertEqual(batches[0], batches[1])
        keys = [first["idempotency_key"], second["idempotency_key"], *(each["idempotency_key"] for each in batches[0]["tasks"])]
        self.assertEqual((len(set(keys)), keys[3]), (4, "mine"))

    def test_a_submit_gets_no_key_where_none_is_wanted(self) -> None:
        with Busy(SUBMITTED, None) as busy:
            self.client(busy.url).submit("q", Submission(payload="x", dedupe_key="d"))
            with self.assertRaises(OutcomeUnknown):
                self.client(busy.url, add_keys=False).submit("q", "x")
        self.assertEqual(busy.bodies, [{"payload": "x", "dedupe_key": "d"}, {"payload": "x"}])


    def test_a_halt_ends_no_attempt_that_is_on_its_way(self) -> None:
        halt, threads = HaltEvent(), list[threading.Thread]()

        def judge(*_: object) -> Answer:
            # Each connection has its thread.
            threads.append(threading.current_thread())
            halt.set()
            return problem(503, "draining", Retry_After="20") if len(threads) == 2 else SUBMITTED

        with Busy(judge=judge) as busy:
            gateways = self.client(busy.url).gateways
            self.assertEqual(gateways.request("GET", "/", halt=halt).status, 201)
            halt.clear()
            with self.assertRaises(Unavailable):
                gateways.request("GET", "/", halt=halt)
            gateways.request("GET", "/")
            self.assertEqual((len(threads), len(set(threads))), (3, 1))


class GivenUp(Asking):
    def test_patience_has_an_end(self) -> None:
        begun = time.monotonic()
        with self.assertRaises(Unreachable):
            self.client(closed(), patience=1.0).get("q", "1:0:-1")
        with Busy(problem(503, "draining", Retry_After="20")) as busy, self.assertRaises(Unavailable) as raised:
            self.client(busy.url, patience=1.0).get("q", "1:0:-1")
        self.assertEqual(raised.exception.code, "draining")
        self.assertLess(time.monotonic() - begun, 10.0)

    def test_a_closed_port_does_not_hide_that_an_attempt_before_may_have_been_done(self) -> None:
        # A submit that was cut off, and then found the port closed, raised `Unreachable`: nothing was done.
        def dies(*_: object) -> None:
            busy.server.socket.close()

        with Busy(judge=dies) as busy, self.assertRaises(OutcomeUnknown):
            self.client(busy.url, patience=1.0).submit("q", Submission(payload="x", idempotency_key="k"))
        self.assertEqual(len(busy.asked), 1)

    def test_errors_have_their_class_by_their_code(self) -> None:
        for code, kind in [("lease_expired", LeaseRefused), ("version_conflict", Conflict)]:
            with Busy(problem(409, code)) as busy, self.assertRaises(kind) as raised:
                self.client(busy.url).get("q", "1:0:-1")
            self.assertIs(type(raised.exception), kind)
        # What a proxy answers says nothing, also with a body like a gateway's.
        for status in (302, 400, 401, 404, 409, 410, 502):
            for body in (b"<html>", {"code": "task_not_found"}):
                with Busy((status, {}, body)) as busy, self.assertRaises(Unavailable) as unavailable:
                    self.client(busy.url, patience=0.0).get("q", "1:0:-1")
                self.assertEqual(unavailable.exception.code, f"http_{status}")

    def test_a_page_with_200_is_no_answer(self) -> None:
        """A submit that a proxy answered with its sign-in page raised a bare JSONDecodeError, though its key made a repeat safe."""
        page: Answer = (200, {"Content-Type": "text/html"}, b"<html>")
        with Busy(page, (200, {}, {"other": 1}), SUBMITTED) as busy:
            self.assertEqual(self.client(busy.url).submit("q", "x"), "1:0:-1")
        with Busy(page) as busy, self.assertRaises(OutcomeUnknown):
            self.client(busy.url, patience=0.0).payload("q", "1:0:-1")

    def test_a_cut_answer_is_none(self) -> None:
        """A gateway was killed in the middle of its answer, and `payload` returned 10 of 1,000 bytes."""
        bytes_of = {"Content-Type": "application/octet-stream"}
        with Busy((200, bytes_of | {"Content-Length": "1000"}, b"A" * 10), (200, bytes_of, b"A" * 1000)) as busy:
            self.assertEqual(self.client(busy.url).payload("q", "1:0:-1"), b"A" * 1000)

    def test_an_answer_that_drips_is_none(self) -> None:
        """A proxy sent a byte of its answer every few seconds. The time limit began anew with each, and the request never ended."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: "
        for begin in (b"HTTP/1.1 2", head + b"1000\r\n\r\n"):
            with self.subTest(begin), dripping(begin, b"0") as url, self.assertRaises(OutcomeUnknown):
                begun = time.monotonic()
                self.client(url).gateways.request("GET", "/", timeout=1.0, patience=0.0)
            self.assertLess(time.monotonic() - begun, 4)
        # A large answer may take longer.
        with dripping(head + b"1500000\r\n\r\n", b"0" * 100_000) as url:
            answer = self.client(url).gateways.request("GET", "/", timeout=1.0, patience=0.0, expects=None)
        self.assertEqual(len(answer.body), 1_500_000)

    def test_a_token_function_may_fail_for_a_moment(self) -> None:
        tokens = iter(["", " fresh\n"])

        def token() -> str:
            if not (text := next(tokens)):
                raise OSError("the file is being replaced")
            return text

        with Busy(SUBMITTED) as busy:
            self.client(busy.url, token=token).submit("q", "x")
            self.assertEqual(busy.asked[0][2]["Authorization"], "Bearer fresh")

    def test_a_token_that_is_half_written_is_none(self) -> None:
        """A token was read from a file while it was replaced. `http.client` refused its bytes with a ValueError, or the request was sent without a token."""
        for odd in ("", "\n", "half\nsecret", "half secret", "h\u20aclf", "\x00", b"secret", None):
            tokens = iter([odd, "fresh", odd, "fresh"])
            stream: Answer = (200, {"Content-Type": "text/event-stream"}, b"event: caught-up\ndata: {}\n\n")
            with self.subTest(odd), Busy(SUBMITTED, stream) as busy:
                client = self.client(busy.url, token=lambda: next(tokens))
                client.submit("q", "x")
                news = client.watch("q")
                self.assertEqual(next(news).kind, "caught-up")
                news.close()
                self.assertEqual([headers.get("Authorization") for _, _, headers in busy.asked], ["Bearer fresh"] * 2)
            with self.assertRaises(Unreachable) as raised:
                self.client(busy.url, token=lambda: odd, patience=0.0).submit("q", "x")
            self.assertNotIn("secret", str(raised.exception))
            if isinstance(odd, str) and odd:
                with self.assertRaises(ValueError):
                    self.client(busy.url, token=odd)

    def test_endless_is_no_limit_and_no_number_is_refused_at_once(self) -> None:
        """`purge(timeout=math.inf)` raised an OverflowError, and a client with a patience of NaN repeated a request for ever."""
        with Busy(*[(200, {}, {"deleted": 1})] * 2, SUBMITTED) as busy:
            client = self.client(busy.url, patience=math.inf)
            for timeout in (math.inf, 1e20):
                self.assertEqual(client.purge("q", all=True, timeout=timeout), {"deleted": 1})
            # On the same connection.
            client.submit("q", "x")
            for nothing in (math.nan, -1.0):
                with self.assertRaises(ValueError):
                    client.purge("q", all=True, timeout=nothing)
                with self.assertRaises(ValueError):
                    self.client(busy.url, patience=nothing)
                with self.assertRaises(ValueError):
                    Embedded(start_timeout=nothing)
            for endless in (math.nan, math.inf):
                with self.assertRaises(ValueError):
                    Submission(delay=endless)

    def test_a_pause_that_is_no_number_is_none(self) -> None:
        pages: list[Answer] = [(503, {"Retry-After": text}, b"<html>") for text in ("nan", "inf", "1e400", "soon")]
        with Busy(*pages, SUBMITTED) as busy:
            begun = time.monotonic()
            self.client(busy.url).submit("q", "x")
            self.assertLess(time.monotonic() - begun, 10)

    def test_a_batch_names_the_task_that_has_no_form_in_json(self) -> None:
        """One NaN was sent as it is, which is not JSON. The gateway refused the whole batch, and did not say which task it was."""
        with Busy() as busy:
            client = self.client(busy.url)
            for odd, kind in [({"a": math.nan}, ValueError), ({1, 2}, TypeError), (Submission(max_attempts=math.inf), ValueError)]:  # type: ignore[arg-type]
                with self.assertRaisesRegex(kind, "^task 1 of the batch cannot be sent: "):
                    client.submit_batch("q", ["fine", odd])
                with self.assertRaises(kind):
                    client.submit("q", odd)
        self.assertEqual(busy.asked, [])

    def test_a_password_in_the_url_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "no user and password"):
            Client("http://u:p@127.0.0.1:1")

    def test_a_fork_begins_with_connections_of_its_own(self) -> None:
        """Processes forked from one that had made a request shared its connection, and got the ids of each other's tasks."""
        with Busy(judge=lambda path, body: (201, {}, {"id": body["payload"], "now": 1})) as busy:
            client = self.client(busy.url)
            client.submit("q", "parent")
            children = []
            for child in range(4):
                if (pid := os.fork()) == 0:
                    wrong = sum(client.submit("q", f"{child}-{each}") != f"{child}-{each}" for each in range(40))
                    os._exit(wrong > 0)
                children.append(pid)
            self.assertEqual([os.waitpid(pid, 0)[1] for pid in children], [0] * 4)

    def test_a_token_is_asked_for_each_time(self) -> None:
        tokens = iter(["first", "second"])
        with Busy(SUBMITTED, SUBMITTED) as busy:
            client = self.client(busy.url, token=lambda: next(tokens))
            client.submit("q", "x")
            client.submit("q", "x")
            self.assertEqual([headers["Authorization"] for _, _, headers in busy.asked], ["Bearer first", "Bearer second"])


if __name__ == "__main__":
    unittest.main()
