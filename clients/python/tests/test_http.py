"""What is tried again, where, and when, and what is not."""

import socket
import time
import unittest
from typing import Any

from longhaul import Client, Submission
from longhaul.errors import Conflict, LeaseRefused, OutcomeUnknown, Unavailable, Unreachable

from .busy import Busy, problem

SUBMITTED: tuple[int, dict[str, str], Any] = (201, {}, {"id": "1:0:-1", "now": 1})


def closed() -> str:
    """The URL of a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


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

    def test_a_gateway_that_another_one_names_is_asked(self) -> None:
        with Busy(SUBMITTED) as other:
            with Busy(problem(503, "broker_unreachable", Retry_After="20", longhaul_gateway=other.url)) as busy:
                self.client(busy.url).submit("q", "x")
            self.assertEqual(len(other.asked), 1)

    def test_a_gateway_without_tls_is_not_learned_from_one_with_it(self) -> None:
        with Busy() as other:
            client = self.client("https://127.0.0.1:1")
            client.gateways._learn(other.url)
            self.assertEqual(len(client.gateways._all), 1)

    def test_what_may_have_been_done_is_repeated_only_if_that_is_the_same(self) -> None:
        with Busy(None) as busy, self.assertRaises(OutcomeUnknown):
            self.client(busy.url).submit("q", "x")
        self.assertEqual(len(busy.asked), 1)
        with Busy(problem(503, "outcome_unknown", Retry_After="1")) as busy, self.assertRaises(OutcomeUnknown):
            self.client(busy.url).submit("q", "x")
        with Busy(None, SUBMITTED) as busy:
            self.client(busy.url).submit("q", Submission(payload="x", idempotency_key="k"))
            self.assertEqual(len(busy.asked), 2)


class GivenUp(Asking):
    def test_patience_has_an_end(self) -> None:
        begun = time.monotonic()
        with self.assertRaises(Unreachable):
            self.client(closed(), patience=1.0).get("q", "1:0:-1")
        with Busy(problem(503, "draining", Retry_After="20")) as busy, self.assertRaises(Unavailable) as raised:
            self.client(busy.url, patience=1.0).get("q", "1:0:-1")
        self.assertEqual(raised.exception.code, "draining")
        self.assertLess(time.monotonic() - begun, 10.0)

    def test_errors_have_their_class_by_their_code(self) -> None:
        for code, kind in [("lease_expired", LeaseRefused), ("version_conflict", Conflict)]:
            with Busy(problem(409, code)) as busy, self.assertRaises(kind) as raised:
                self.client(busy.url).get("q", "1:0:-1")
            self.assertIs(type(raised.exception), kind)
        # A proxy in between may answer something else.
        with Busy((502, {}, b"<html>")) as busy, self.assertRaises(Unavailable) as unavailable:
            self.client(busy.url, patience=0.0).get("q", "1:0:-1")
        self.assertEqual(unavailable.exception.code, "http_502")

    def test_a_token_is_asked_for_each_time(self) -> None:
        tokens = iter(["first", "second"])
        with Busy(SUBMITTED, SUBMITTED) as busy:
            client = self.client(busy.url, token=lambda: next(tokens))
            client.submit("q", "x")
            client.submit("q", "x")
            self.assertEqual([headers["Authorization"] for _, _, headers in busy.asked], ["Bearer first", "Bearer second"])


if __name__ == "__main__":
    unittest.main()
