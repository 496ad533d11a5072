"""Workers and submitters for longhaul, over HTTP: long-running tasks on Apache Pulsar.

    client = longhaul.Client("http://127.0.0.1:7070")
    task = client.submit("mails", "hello")
    client.result("mails", task, timeout=60)

    longhaul.Worker(client, "mails", lambda task: task.text().upper()).run()

`Client` submits, looks and operates; `AsyncClient` does the same for asyncio; `Worker` runs tasks. `longhaul.errors` says what can go wrong, and
`longhaul.types` has what the gateway takes and answers. Nothing but the standard library is needed.
"""

# The version of this package, which is that of the gateway it was made for.
__version__ = "0.1.0"

from .asynchronous import AsyncClient
from .client import Client, Submission
from .errors import LonghaulError
from .events import Event
from .task import Cancelled, Draining, Fatal, GiveBack, Halt, LeaseLost, RetryAfter, Task
from .worker import Worker

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "Draining",
    "Event",
    "Fatal",
    "GiveBack",
    "Halt",
    "LeaseLost",
    "LonghaulError",
    "RetryAfter",
    "Submission",
    "Task",
    "Worker",
]
