"""Workers and submitters for longhaul, over HTTP: long-running tasks on Apache Pulsar.

    client = longhaul.Client("http://127.0.0.1:7070")
    task = client.submit("mails", "hello")
    client.result("mails", task, timeout=60)

    longhaul.Worker(client, "mails", lambda task: task.text().upper()).run()

`Client` submits tasks and operates queues, `AsyncClient` does the same for asyncio, and `Worker`
runs tasks. `longhaul.errors` has the errors, and `longhaul.types` the gateway's requests and answers.
The package needs only the standard library.
"""

# The version of this package and of the gateway that it was made for.
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
