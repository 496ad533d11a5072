"""What the clients of the dialects `jobs` and `dqueue` share: a server that may be killed, requests, checks, and a runner for failures.

Only the standard library is used: these are the clients that somebody writes who has never heard of longhaul, and only knows the original queue.
"""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from urllib.parse import urlsplit

# How long an answer may take: a long poll takes 30 s.
ANSWER_SECONDS = 60
# How long a server may take to be ready.
READY_SECONDS = 60
PATIENCE_SECONDS = 120


class Answer:
    """Status, headers in lower case, and body of an answer."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    def code(self):
        """The code of a problem."""
        return self.json().get("code") if self.body else None

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


def ask(url, method, path, body=None, headers=None):
    """Sends one request on a connection of its own. A body that is no bytes is sent as JSON."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=ANSWER_SECONDS)
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def ask_until_answered(url, method, path, body=None, headers=None):
    """The same as a client that tries again while the server is away, or says that it cannot be sure."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = ask(url() if callable(url) else url, method, path, body, headers)
            if answer.status != 503:
                return answer
            why = answer
        except (OSError, http.client.HTTPException) as error:
            why = error
        if time.monotonic() > end:
            raise AssertionError(f"{method} {path} is not answered: {why!r}")
        time.sleep(0.05)


def check(is_so, *told):
    """Fails with what was told."""
    if not is_so:
        raise AssertionError(" ".join(str(it) for it in told))


def is_status(answer, status, what=""):
    check(answer.status == status, what, "is answered with", answer, "and not with", status)
    return answer


def until(what, seconds, look):
    """Looks again and again until something is there. Returns it, and how long that took."""
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found, time.monotonic() - began
        check(time.monotonic() - began < seconds, what, "does not come within", seconds, "s")
        time.sleep(0.05)


def at_once(*calls):
    """Makes calls in threads of their own that begin together. Returns what they return, in their order."""
    together, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number, call):
        together.wait()
        try:
            results[number] = call()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        check(not thread.is_alive(), "a call does not return")
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


class Server:
    """A process of the program, with a folder of its own. It listens at the same addresses whenever it is started again."""

    def __init__(self, program, arguments, folder, name):
        self.arguments, self.folder, self.name = [program, *arguments], folder, name
        self.addresses, self.told, self.process = {}, {}, None
        self.start()

    def start(self):
        """Starts it, and waits until it listens."""
        options = [word for flag in ("http", "broker", "admin") for word in self.option(flag)]
        log = open(os.path.join(self.folder, f"{self.name}.log"), "ab")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LONGHAUL_", "PULSAR_")) and name != "RUST_LOG"
        }
        environment["LONGHAUL_CONFIG"] = os.path.join(self.folder, "no-config.toml")
        # What happens to tasks is told as the dialect `jobs` tells it.
        environment["RUST_LOG"] = "warn,longhaul::tasks=debug"
        self.process = subprocess.Popen(
            [*self.arguments, *options, "-o", "jsonl"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=self.folder,
            env=environment,
        )
        log.close()
        timer = threading.Timer(READY_SECONDS, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        check(line, self.name, "does not start:", self.log()[-2000:])
        self.told = json.loads(line)
        for flag in ("http", "broker", "admin"):
            if self.told.get(flag):
                self.addresses[flag] = urlsplit(self.told[flag]).netloc

    def option(self, flag):
        has_broker = "--engine" not in self.arguments
        if flag != "http" and not has_broker:
            return []
        return [f"--{flag}", self.addresses.get(flag, "127.0.0.1:0")]

    def url(self):
        return self.told["http"]

    def kill(self):
        """As `kill -9` does."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def kill_and_start(self):
        self.kill()
        self.start()

    def stop(self):
        """As a supervisor does. Returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)

    def log(self):
        with open(os.path.join(self.folder, f"{self.name}.log"), errors="replace") as log:
            return log.read()

    def has_logged(self, event, **fields):
        """Whether a line of the log has this event, with these fields."""
        words = [f'event="{event}"', *(f"{name}={value}" for name, value in fields.items())]
        return any(all(word in line for word in words) for line in self.log().splitlines())

    def get(self, path):
        return ask(self.url(), "GET", path)

    def post(self, path, body=None, headers=None):
        return ask(self.url(), "POST", path, body, headers)


class Stage:
    """What one failure is played on: a folder, and servers that do not outlive it."""

    def __init__(self, program):
        self.program, self.servers = program, []
        self.folder = tempfile.mkdtemp(prefix="longhaul-peer-")

    def dev(self, dialect):
        """One command: a broker and a gateway in one process."""
        name = f"dev-{len(self.servers)}"
        data = os.path.join(self.folder, name)
        return self.add(Server(self.program, ["dev", "--data", data, "--dialect", dialect], self.folder, name))

    def gateway(self, before, dialect):
        """A gateway before the broker of another process."""
        options = ["--engine", "pulsar", "--service-url", before.told["broker"]]
        options += ["--admin-url", before.told["admin"], "--dialect", dialect]
        name = f"gateway-{len(self.servers)}"
        return self.add(Server(self.program, ["server", "start", *options], self.folder, name))

    def add(self, server):
        self.servers.append(server)
        return server

    def close(self, is_kept):
        for server in self.servers:
            if server.process.poll() is None:
                server.kill()
        if not is_kept:
            shutil.rmtree(self.folder, ignore_errors=True)


def play(failure, program):
    """Plays one failure. Returns whether it went well."""
    stage, began = Stage(program), time.monotonic()
    try:
        notes = failure(stage)
        seconds = time.monotonic() - began
        print(f"ok: {failure.__name__} ({seconds:.1f} s){': ' + notes if notes else ''}", flush=True)
        stage.close(is_kept=False)
        return True
    except BaseException:
        logs = "".join(f"--- {it.name}\n{it.log()[-3000:]}" for it in stage.servers)
        print(f"FAILED: {failure.__name__}\n{traceback.format_exc()}{logs}", flush=True)
        stage.close(is_kept=True)
        return False


def main(failures):
    """Plays all failures side by side, or those that are named behind the program: they mostly wait for leases to run out."""
    program, names = sys.argv[1], sys.argv[2:]
    chosen = [it for it in failures if not names or it.__name__ in names]
    check(chosen, "there is no failure of these names:", names)
    results = at_once(*[lambda it=it: play(it, program) for it in chosen])
    print(f"{sum(results)} of {len(results)} went well", flush=True)
    sys.exit(0 if all(results) else 1)
