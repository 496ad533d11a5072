"""A gateway that answers what a test has written for it, and keeps what it was asked."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], Any]


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client may close its connections."""


class Busy:
    """Answers requests with these, one after the other: a status, headers and a body; none means that the connection is closed without an answer.

    With `judge`, that function answers each request, by its path and body.
    """

    def __init__(self, *answers: Answer | None, judge: Callable[[str, Any], Answer | None] | None = None) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, str, dict[str, str]]]()
        self.bodies: list[Any] = []
        self.sizes: list[int] = []
        busy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(content or b"null")
                busy.sizes.append(len(content))
                busy.asked.append((self.command, self.path, dict(self.headers)))
                busy.bodies.append(body)
                answer = judge(self.path, body) if judge else busy.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, body = answer
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" in headers:
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> "Busy":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def problem(status: int, code: str, **headers: str) -> Answer:
    """A refusal as a gateway gives it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"Content-Type": "application/problem+json"} | named, {"status": status, "code": code, "title": "", "detail": "planted"}
