"""The taskiq application of `task_rounds`; as a program, it sends tasks until it is ended."""

import asyncio
import os
from itertools import count

from kalda.taskiq import KaldaBroker
from tests.chaos.task_notes import (
    BOOTSTRAP_VARIABLE,
    DONE,
    QUEUE,
    SENT,
    TOPICS_REPLICATION,
    log,
    note,
    pause_seconds,
    work_seconds,
)

broker = KaldaBroker(
    bootstrap_servers=os.environ[BOOTSTRAP_VARIABLE],
    topic=QUEUE,
    partitions=1,
    replication_factor=int(os.environ[TOPICS_REPLICATION]),
)


@broker.task(task_name="work")
async def work(number: int) -> None:
    """Work for a while and note it."""
    await asyncio.sleep(work_seconds())
    note(DONE, number)


async def send() -> None:
    """Send number after number, each until it is accepted; every tenth with a delay."""
    await broker.startup()
    for number in count():
        kicker = work.kicker().with_labels(delay=0.5) if number % 10 == 0 else work.kicker()
        while True:
            try:
                await kicker.kiq(number)
                break
            except Exception as error:
                log(f"{number}: {error!r}")
                await asyncio.sleep(0.1)
        note(SENT, number)
        await asyncio.sleep(pause_seconds())


if __name__ == "__main__":
    asyncio.run(send())
