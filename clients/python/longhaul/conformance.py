"""The worker that the conformance suite tests: the payload of a task tells what to do.

    cargo run -p conformance -- python3 -m longhaul.conformance

docs/leases.md of the project describes the steps.
"""

from __future__ import annotations

import base64
import logging
import os
import sys
import time
from typing import Any

from . import Client, Fatal, GiveBack, RetryAfter, Task, Worker


def process(task: Task) -> Any:
    """Executes the steps that the script has for this attempt."""
    try:
        attempts = task.json()["attempts"]
        steps = attempts[min(task.attempt, len(attempts)) - 1]
    except (ValueError, LookupError, TypeError) as error:
        raise Fatal(f"the payload is no script: {error}") from error
    for step in steps:
        match step:
            case {"succeed": str(text)}:
                return text
            case {"succeed_base64": str(text)}:
                return base64.b64decode(text)
            case {"succeed_with": "checkpoint"}:
                if task.last_checkpoint is not None:
                    return task.last_checkpoint
            case {"succeed_with": "payload"}:
                return task.payload
            case {"succeed_bytes": int(count)}:
                return b"x" * count
            case {"fail_bytes": int(count)}:
                raise RuntimeError("x" * count)
            case {"fail": str(reason), "fatal": True}:
                raise Fatal(reason)
            case {"fail": str(reason), "retry_after": seconds}:
                raise RetryAfter(seconds, reason)
            case {"fail": str(reason)}:
                raise RuntimeError(reason)
            case {"give_back": after}:
                raise GiveBack(after)
            case {"progress": [done, total, message]}:
                task.progress(float(done) if done in ("nan", "inf") else done, total, message)
            case {"checkpoint": str(text)}:
                task.checkpoint(text)
            case {"log": str(line)}:
                task.log(line)
            case {"log_bytes": int(count)}:
                task.log("x" * count)
            case {"sleep": seconds}:
                task.sleep(seconds)
            case {"block": seconds}:
                time.sleep(seconds)
            case _:
                raise Fatal(f"the script has an unknown step: {step}")
    return None


def main() -> None:
    """Runs the worker until it is told to end."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    *others, last = [
        Worker(
            Client(),
            queue,
            process,
            name=os.environ["LONGHAUL_WORKER"],
            concurrency=int(os.environ["LONGHAUL_CONCURRENCY"]),
            lease_time=float(os.environ["LONGHAUL_LEASE_TIME"]),
            drain=float(os.environ["LONGHAUL_DRAIN"]),
        )
        for queue in os.environ["LONGHAUL_QUEUE"].split(",")
    ]
    for worker in others:
        worker.start()
    last.run()


if __name__ == "__main__":
    main()
