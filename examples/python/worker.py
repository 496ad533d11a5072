"""A worker in Python, with nothing but the standard library: it leases tasks from a gateway of longhaul, keeps each lease alive while it works on
the task, and reports how the task ended.

    python3 worker.py QUEUE [--url http://127.0.0.1:7070] [--name NAME] [--lease-time SECONDS]

A token of the gateway is taken from LONGHAUL_TOKEN. Replace `process` by what your tasks are.
"""

import argparse
import base64
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request


def process(task):
    """Copies the pages of a book, and goes on where the last attempt was. Returns the result; an exception is a failed attempt."""
    order = json.loads(task.payload)
    if "broken" in order:
        raise Fatal(order["broken"])
    pages = order["pages"]
    for page in range(int(task.checkpoint or 0) + 1, pages + 1):
        if order.get("stuck_at") == page and task.attempt == 1:
            raise RuntimeError(f"page {page} is stuck")
        time.sleep(order.get("seconds_per_page", 0.1))
        # Raises when there is no use in going on.
        task.progress(page, pages, "copying", checkpoint=str(page).encode())
    return f"{pages} pages".encode()


# News of a task are sent when they come, but no more often than this, in seconds.
NEWS_EVERY = 1


class Fatal(Exception):
    """The task has failed for good: another attempt would fail as well."""


class Lost(Exception):
    """The task is not ours any more: nobody wants to hear of it from us."""


class Cancelled(Exception):
    """Somebody has asked for the end of the task. It ends as cancelled, whatever we report, and sooner if we do."""


class Stopped(Exception):
    """This worker is to end: the task is given back, which costs it no attempt."""


class Gateway:
    """A gateway, and one queue of it."""

    def __init__(self, url, queue):
        self.queue = f"{url}/v1/queues/{queue}"
        self.headers = {"Content-Type": "application/json"}
        if token := os.environ.get("LONGHAUL_TOKEN"):
            self.headers["Authorization"] = f"Bearer {token}"

    def post(self, path, body, timeout):
        """Returns the status and the answer. Status 0: there was none."""
        request = urllib.request.Request(self.queue + path, json.dumps(body).encode(), self.headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")
        except (OSError, ValueError) as error:
            return 0, {"code": "unreachable", "detail": str(error)}


class Task:
    """A task that was leased to this worker, and the thread that keeps the lease alive."""

    def __init__(self, gateway, lease, stopping):
        self.gateway, self.lease, self.stopping = gateway, lease["lease"], stopping
        self.id, self.attempt, self.properties = lease["task"], lease["attempt"], lease["properties"]
        text = lease.get("payload")
        self.payload = text.encode() if text is not None else base64.b64decode(lease["payload_base64"])
        kept = lease.get("checkpoint_base64")
        self.checkpoint = base64.b64decode(kept) if kept is not None else None
        self.news, self.halt = {}, None
        self.fresh, self.over = threading.Event(), threading.Event()
        # The gateway's clock and ours may differ: only the time between two of its own instants counts.
        self.left = (lease["expires_at"] - lease["now"]) / 1000
        self.keeper = threading.Thread(target=self.keep_alive, daemon=True)
        self.keeper.start()

    def progress(self, done, total, message="", checkpoint=None):
        """Tells how far the task has come, and keeps a checkpoint for the next attempt. Both are sent within a second or so, the newest alone."""
        if self.halt:
            raise self.halt
        if self.stopping.is_set():
            raise Stopped()
        news = {"progress": {"done": done, "total": total, "message": message}}
        if checkpoint is not None:
            news["checkpoint_base64"] = base64.b64encode(checkpoint).decode()
        self.news = news
        self.fresh.set()

    def keep_alive(self):
        """When there is news, and otherwise three times per lease, so that one answer may be late or missing."""
        while not self.over.is_set():
            pause = min(NEWS_EVERY, self.left / 3)
            self.fresh.wait(self.left / 3 - pause)
            self.fresh.clear()
            if not self.over.is_set():
                self.tell_news()
            self.over.wait(pause)

    def tell_news(self):
        news, self.news = self.news, {}
        status, answer = self.report("IN_PROGRESS", **news)
        if status == 200:
            self.left = (answer["expires_at"] - answer["now"]) / 1000
            self.halt = Cancelled("cancelled") if answer["cancelled"] else None
        elif status in (404, 409):
            self.halt = Lost(answer["code"])
        else:
            self.news = news | self.news
            self.fresh.set()

    def report(self, status, **more):
        body = {"lease": self.lease, "status": status} | more
        return self.gateway.post("/leases:report", body, timeout=10)

    def stop(self):
        """Ends the keep-alives."""
        self.over.set()
        self.fresh.set()
        self.keeper.join()

    def end(self, status, **more):
        """Reports the end, and asks again where it is not known whether it counts: the gateway knows the lease's own report again."""
        self.stop()
        if status != "SUCCEEDED":
            # The next attempt goes on from the last checkpoint.
            more |= self.news
        give_up = time.monotonic() + self.left
        while True:
            code, answer = self.report(status, **more)
            if code not in (0, 429, 503) or time.monotonic() > give_up:
                return code, answer
            time.sleep(0.5)


def work_on(task):
    """Runs one task, and says how it ended."""
    print(f"leased {task.id} attempt {task.attempt}", flush=True)
    try:
        result = process(task)
        outcome = "SUCCEEDED", {"result_base64": base64.b64encode(result).decode()}
    except Lost as lost:
        task.stop()
        print(f"lost {task.id}: {lost}", flush=True)
        return
    except Cancelled as cancelled:
        task.end("FAILED", reason=str(cancelled))
        print(f"cancelled {task.id}", flush=True)
        return
    except Stopped:
        outcome = "RELEASED", {}
    except Fatal as error:
        outcome = "FAILED", {"reason": str(error), "fatal": True}
    except Exception as error:  # whatever a task may meet
        outcome = "FAILED", {"reason": f"{type(error).__name__}: {error}"}
    code, answer = task.end(outcome[0], **outcome[1])
    told = outcome[0].lower() if code == 200 else f"not {outcome[0].lower()}"
    print(f"{told} {task.id} {answer.get('code', '')}".rstrip(), flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("queue")
    options.add_argument("--url", default="http://127.0.0.1:7070")
    options.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}")
    options.add_argument("--lease-time", type=float, default=30)
    options = options.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    gateway = Gateway(options.url, options.queue)
    print("ready", flush=True)
    while not stopping.is_set():
        # The gateway answers at once when there is a task. Short all the same: a signal must not end a poll that may just have got one.
        wanted = {"worker": options.name, "wait": "2s", "lease_time": options.lease_time}
        status, answer = gateway.post("/leases", wanted, timeout=10)
        if status == 200:
            for lease in answer["leases"]:
                work_on(Task(gateway, lease | {"now": answer["now"]}, stopping))
        elif status != 204:
            print(f"no lease: {answer.get('code')}: {answer.get('detail')}", flush=True)
            stopping.wait(1)


if __name__ == "__main__":
    main()
