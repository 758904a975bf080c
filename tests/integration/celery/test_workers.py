"""Celery's own worker processes on a broker."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kalda import Consumer
from tests.shared_broker import shared_broker

WAIT_SECONDS = 90
APPLICATION = textwrap.dedent(
    """
    import json, os, time
    from celery import Celery
    from kalda import Producer

    BROKERS = os.environ["BROKERS"]
    app = Celery("tasks", broker="kalda://" + BROKERS)
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, task_ignore_result=True)

    def note(**found):
        with Producer(bootstrap_servers=BROKERS) as producer:
            producer.send("notes", json.dumps(found).encode()).result(60)

    @app.task
    def add(x, y):
        note(name="add", sum=x + y)

    @app.task(bind=True, max_retries=3)
    def flaky(self):
        note(name="flaky", retries=self.request.retries, at=time.time())
        if self.request.retries < 2:
            raise self.retry(countdown=0.5)

    @app.task(bind=True)
    def deadly(self):
        again = self.request.delivery_info["redelivered"]
        note(name="deadly", again=again)
        while not again:
            time.sleep(1)
    """
)


class Application:
    def __init__(self, directory: Path, bootstrap: str) -> None:
        (directory / "tasks.py").write_text(APPLICATION)
        self._directory = directory
        self._environment = {**os.environ, "BROKERS": bootstrap}
        self._notes = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        self._notes.subscribe("notes")
        self._seen: list[dict[str, Any]] = []

    def close(self) -> None:
        self._notes.close()

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", *arguments]
        return subprocess.Popen(command, cwd=self._directory, env=self._environment, start_new_session=True)

    def run(self, code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from tasks import *\n" + code],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def wait(self, name: str, count: int) -> list[dict[str, Any]]:
        """Return what tasks of a name have noted, once there is so much."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found := [each for each in self._seen if each["name"] == name]) < count:
            assert time.monotonic() < deadline, self._seen
            self._seen += [json.loads(each.value or b"") for each in self._notes.poll(1.0)]
        return found


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    with shared_broker(tmp_path) as bootstrap:
        application = Application(tmp_path, bootstrap)
        yield application
        application.close()


def end(worker: "subprocess.Popen[bytes]") -> None:
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(WAIT_SECONDS)


def test_tasks_run_and_are_retried_and_a_worker_answers(application: Application) -> None:
    """One test for all, because a worker takes seconds to start."""
    application.run("for number in range(10): add.delay(number, 1)\nflaky.delay()")
    worker = application.start()
    try:
        assert set(range(1, 11)) == {each["sum"] for each in application.wait("add", 10)}
        attempts = application.wait("flaky", 3)
        assert [0, 1, 2] == [each["retries"] for each in attempts]
        assert all(after["at"] - before["at"] >= 0.5 for before, after in pairwise(attempts))
        replies = application.run(
            "replies = []\nwhile not replies: replies = app.control.ping(timeout=2)\nprint(replies)"
        )
        assert "'ok': 'pong'" in replies
        worker.terminate()
        assert 0 == worker.wait(WAIT_SECONDS)
        count = "print(c.default_channel.queue_declare('celery', passive=True).message_count)"
        assert "0" == application.run(f"with app.connection_for_read() as c: {count}").strip()
    finally:
        if worker.poll() is None:
            end(worker)


def test_a_task_whose_worker_is_killed_runs_again(application: Application) -> None:
    application.run("deadly.delay()")
    worker = application.start()
    try:
        assert [False] == [each["again"] for each in application.wait("deadly", 1)]
    finally:
        end(worker)
    another = application.start()
    try:
        assert [False, True] == [each["again"] for each in application.wait("deadly", 2)]
    finally:
        end(another)
