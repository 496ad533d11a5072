"""A worker in Python, upon the package in `clients/python`: it copies books, page by page, and goes on where the last attempt was.

    pip install ./clients/python
    python3 worker.py QUEUE [--url http://127.0.0.1:7070] [--name NAME] [--lease-time SECONDS]

A token of the gateway is taken from LONGHAUL_TOKEN. Replace `process` by what your tasks are.
"""

import argparse
import logging
import sys

from longhaul import Client, Fatal, Task, Worker


def process(task: Task) -> str:
    """Copies the pages of a book. Returns the result; an exception is a failed attempt."""
    order = task.json()
    if "broken" in order:
        raise Fatal(order["broken"])
    pages = order["pages"]
    for page in range(int(task.last_checkpoint or 0) + 1, pages + 1):
        if order.get("stuck_at") == page and task.attempt == 1:
            raise RuntimeError(f"page {page} is stuck")
        # Both raise when there is no use in going on.
        task.sleep(order.get("seconds_per_page", 0.1))
        task.checkpoint(str(page))
        task.progress(page, pages, "copying")
    return f"{pages} pages"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("queue")
    options.add_argument("--url")
    options.add_argument("--name")
    options.add_argument("--lease-time", type=float, default=30)
    options = options.parse_args()
    # What becomes of each task.
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    Worker(Client(options.url), options.queue, process, concurrency=1, name=options.name, lease_time=options.lease_time, drain=0).run()


if __name__ == "__main__":
    main()
