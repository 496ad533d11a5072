"""The conformance worker with a coroutine as its processor.

    cargo run -p conformance -- python3 -m tests.coroutines
"""

import asyncio
from typing import Any

from longhaul import Task, conformance

script = conformance.process


async def process(task: Task) -> Any:
    """Runs the script in a thread, which ends by itself: its steps look for a `Halt`."""
    return await asyncio.to_thread(script, task)


if __name__ == "__main__":
    setattr(conformance, "process", process)
    conformance.main()
