"""taskiq's own worker processes on a broker."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from taskiq.api import run_receiver_task

from kalda import ClientConfigError, Consumer
from kalda.taskiq import KaldaBroker, seconds_of
from tests.shared_broker import shared_broker

WAIT_SECONDS = 90
APPLICATION = textwrap.dedent(
    """
    import asyncio, json, os, time
    from kalda import Producer
    from kalda.taskiq import KaldaBroker

    BROKERS = os.environ["BROKERS"]
    broker = KaldaBroker(bootstrap_servers=BROKERS)

    def note(**found):
        with Producer(bootstrap_servers=BROKERS) as producer:
            producer.send("notes", json.dumps(found).encode()).result(60)

    @broker.task
    async def add(x, y):
        note(sum=x + y, at=time.time())

    @broker.task
    async def deadly():
        marker = "deadly-was-here"
        again = os.path.exists(marker)
        open(marker, "w").close()
        note(again=again)
        while not again:
            await asyncio.sleep(1)

    async def send():
        await broker.startup()
        await deadly.kiq()
        for number in range(10):
            await add.kiq(number, 0)
        note(sent=time.time())
        await add.kicker().with_labels(delay=1.5).kiq(100, 0)
        await broker.shutdown()
    """
)


def test_tasks_run_and_those_of_a_killed_worker_run_again(tmp_path: Path) -> None:
    """One test for all, because a worker takes seconds to start."""
    (tmp_path / "tasks.py").write_text(APPLICATION)
    with shared_broker(tmp_path) as bootstrap:
        environment = {**os.environ, "BROKERS": bootstrap}
        options: dict[str, Any] = {"cwd": tmp_path, "env": environment}

        def start() -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-m", "taskiq", "worker", "tasks:broker", "--workers", "1"]
            return subprocess.Popen(command, start_new_session=True, **options)

        def end(worker: "subprocess.Popen[bytes]") -> None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait(WAIT_SECONDS)

        subprocess.run(
            [sys.executable, "-c", "from tasks import *; asyncio.run(send())"],
            check=True,
            timeout=WAIT_SECONDS,
            **options,
        )
        seen: list[dict[str, Any]] = []
        with Consumer("notes", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as notes:

            def wait(key: str, values: set[object]) -> None:
                deadline = time.monotonic() + WAIT_SECONDS
                while not values <= {each.get(key) for each in seen}:
                    assert time.monotonic() < deadline, seen
                    seen.extend(json.loads(each.value or b"") for each in notes.poll(1.0))

            worker = start()
            try:
                wait("again", {False})
                wait("sum", {*range(10), 100})
            finally:
                end(worker)
            another = start()
            try:
                wait("again", {True})
            finally:
                end(another)
        sent = next(each["sent"] for each in seen if "sent" in each)
        assert next(each["at"] for each in seen if each.get("sum") == 100) >= sent + 1.5


def test_a_receiver_that_is_cancelled_leaves_no_error(tmp_path: Path) -> None:
    """As taskiq's example of dynamic brokers does; each worker that ends would log a traceback."""
    errors: list[dict[str, Any]] = []

    async def main(bootstrap: str) -> list[int]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        broker = KaldaBroker(bootstrap_servers=bootstrap)
        await broker.startup()
        seen: asyncio.Queue[int] = asyncio.Queue()
        task = broker.register_task(lambda number: seen.put_nowait(number), task_name="dynamic")
        receiver = asyncio.create_task(run_receiver_task(broker))
        await task.kiq(7)
        found = await asyncio.wait_for(seen.get(), WAIT_SECONDS)
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await broker.shutdown()
        return [found]

    with shared_broker(tmp_path) as bootstrap:
        assert [7] == asyncio.run(main(bootstrap))
    gc.collect()
    assert [] == errors


@pytest.mark.parametrize(("label", "expected"), [(None, None), (2, 2.0), ("0.5", 0.5), (0, None)])
def test_the_delay_of_a_task_is_its_label(label: object, expected: float | None) -> None:
    assert expected == seconds_of(label)


@pytest.mark.parametrize("label", ["soon", -1, "inf", "nan", b"1"])
def test_a_delay_that_is_no_number_of_seconds_is_refused(label: object) -> None:
    with pytest.raises(ClientConfigError, match=r"label delay=.* is not allowed"):
        seconds_of(label)
