"""The Celery application of `task_rounds`; as a program, it sends tasks until it is ended."""

import os
import time
from itertools import count

from celery import Celery

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
app = Celery("chaos", broker=f"kalda://{BOOTSTRAP.partition(',')[0]}")
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    task_default_queue=QUEUE,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "client_options": {"bootstrap_servers": BOOTSTRAP},
        "topic": {"partitions": 1, "replication_factor": int(os.environ[TOPICS_REPLICATION])},
    },
)


@app.task(name="work")  # type: ignore[untyped-decorator]  # Celery has no types
def work(number: int) -> None:
    """Work for a while and note it."""
    time.sleep(work_seconds())
    note(DONE, number)


def main() -> None:
    """Send number after number, each until it is accepted; every tenth with a countdown."""
    for number in count():
        while True:
            try:
                work.apply_async((number,), countdown=0.5 if number % 10 == 0 else None)
                break
            except Exception as error:
                log(f"{number}: {error!r}")
                time.sleep(0.1)
        note(SENT, number)
        time.sleep(pause_seconds())


if __name__ == "__main__":
    main()
