"""The `kalda.worker` of `task_rounds`; with ``send``, it sends records until it is ended.

Every twentieth record fails at its first delivery and comes again after a back-off.
"""

import asyncio
import os
import sys
import time
from itertools import count

import kalda
from kalda.clients.share.task_topics import DELAYED, DELIVERY_AT, TaskTopics
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

BOOTSTRAP = os.environ[BOOTSTRAP_VARIABLE]
FAILS_EVERY = 20


@kalda.worker([QUEUE, QUEUE + DELAYED], QUEUE, concurrency=4, backoff_s=0.2, bootstrap_servers=BOOTSTRAP)
async def work(record: kalda.ShareRecord[bytes | None, bytes | None]) -> None:
    """Work for a while and note it."""
    number = int(record.value or b"")
    await asyncio.sleep(work_seconds())
    if number % FAILS_EVERY == 0 and record.delivery_count == 1:
        raise ValueError(f"{number} fails once")
    note(DONE, number)


async def send() -> None:
    """Send number after number, each until it is stored; every tenth with a delay."""
    async with kalda.AsyncAdmin(bootstrap_servers=BOOTSTRAP) as admin:
        topics = TaskTopics(1, int(os.environ[TOPICS_REPLICATION]), {}, {})
        await topics.create_queue(admin, QUEUE, QUEUE)
    async with kalda.AsyncProducer(bootstrap_servers=BOOTSTRAP, linger_ms=0) as producer:
        for number in count():
            is_late = number % 10 == 0
            due_ms = round(time.time() * 1000) + 500
            while True:
                try:
                    sent = await producer.send(
                        QUEUE + DELAYED if is_late else QUEUE,
                        b"%d" % number,
                        headers=[(DELIVERY_AT, b"%d" % due_ms)] if is_late else [],
                    )
                    await sent
                    break
                except kalda.ClientError as error:
                    log(f"{number}: {error!r}")
                    await asyncio.sleep(0.1)
            note(SENT, number)
            await asyncio.sleep(pause_seconds())


if __name__ == "__main__":
    if sys.argv[1:] == ["send"]:
        asyncio.run(send())
    else:
        work.run()
