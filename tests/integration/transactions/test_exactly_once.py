"""Consume, transform, produce: every input once in the output, whoever dies in between."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kalda.testing import Cluster
from tests.integration.groups.conftest import fill
from tests.integration.groups.members import wait_until
from tests.integration.transactions.clients import read_all
from tests.integration.transactions.conftest import PARTITIONS, SETTINGS

SCRIPT = Path(__file__).with_name("copier_process.py")
VALUES = 1500
COPIERS = 2
STUCK_SECONDS = 15.0

MakeTopic = Callable[[str], str]


class Copiers:
    """Copier processes of one group."""

    def __init__(self, bootstrap: str, client: str, source: str, target: str) -> None:
        self._options: dict[str, Any] = {
            "bootstrap": bootstrap,
            "client": client,
            "group": f"copiers-{uuid.uuid4().hex[:8]}",
            "source": source,
            "target": target,
        }
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self.copied = 0
        self._seen, self._seen_at = 0, time.monotonic()

    def start(self, number: int) -> None:
        """Start a copier; one of an earlier life of the same number is fenced by it."""
        options = self._options | {
            "transactional_id": f"{self._options['group']}-{number}",
            "partitions": list(range(number, PARTITIONS, COPIERS)),
        }
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes[number] = process
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for _ in lines:
                self.copied += 1

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def revive(self) -> None:
        """Start again whoever ended by itself, and everybody if nothing was copied for a while.

        A copier ends when it was fenced, or its coordinator was gone for too long. librdkafka 2.16 may also
        wait for ever for a group's coordinator that was taken out of the metadata while it was down.
        """
        now = time.monotonic()
        if self.copied != self._seen:
            self._seen, self._seen_at = self.copied, now
        if now - self._seen_at > STUCK_SECONDS:
            self._seen_at = now
            for number in tuple(self._processes):
                self.kill(number)
                self.start(number)
        for number, process in tuple(self._processes.items()):
            if process.poll() is not None:
                self.start(number)

    def end(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()


@pytest.fixture
def copiers() -> Iterator[Callable[..., Copiers]]:
    made: list[Copiers] = []

    def make(*arguments: str) -> Copiers:
        made.append(Copiers(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.end()


def wait_copied(each: Copiers, bootstrap: str, target: str, expected: list[str]) -> None:
    def is_complete() -> bool:
        each.revive()
        return len(read_all(bootstrap, target, PARTITIONS, committed=True)) >= len(expected)

    wait_until(is_complete, f"{len(expected)} records are copied", 90)
    assert sorted(expected) == sorted(read_all(bootstrap, target, PARTITIONS, committed=True))


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_copiers_that_die_copy_everything_once(
    three_brokers: str, make_topic: MakeTopic, copiers: Callable[..., Copiers], client: str
) -> None:
    source, target = make_topic(three_brokers), make_topic(three_brokers)
    expected = fill(three_brokers, source, range(VALUES))
    running = copiers(three_brokers, client, source, target)
    for number in range(COPIERS):
        running.start(number)
    chance = random.Random(7)
    for _ in range(4):
        before = running.copied
        wait_until(lambda before=before: running.copied > before or is_done(running), "some are copied")  # type: ignore[misc]
        time.sleep(chance.random() * 0.2)
        victim = chance.randrange(COPIERS)
        running.kill(victim)
        running.start(victim)
    wait_copied(running, three_brokers, target, expected)


def is_done(running: Copiers) -> bool:
    """Whether so much was copied that nothing more may come."""
    return running.copied * 20 >= VALUES


def test_coordinators_that_die_lose_and_double_nothing(
    tmp_path: Path, copiers: Callable[..., Copiers]
) -> None:
    """One broker after the other is killed and comes back, each being coordinator of something."""
    with Cluster(brokers=3, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics(
            [NewTopic(name, PARTITIONS, 3) for name in ("source", "target")]
        ).values():
            future.result(30)
        expected = fill(cluster.bootstrap, "source", range(500))
        running = copiers(cluster.bootstrap, "confluent", "source", "target")
        for number in range(COPIERS):
            running.start(number)
        wait_until(lambda: running.copied > 2, "some are copied")
        for broker_id in range(3):
            cluster.wait_in_sync("__transaction_state")
            cluster.wait_in_sync("__consumer_offsets")
            cluster.wait_in_sync("target")
            cluster.kill(broker_id, expire_session=True)
            begin = 500 * (broker_id + 1)
            expected += fill(cluster.bootstrap, "source", range(begin, begin + 500))
            running.revive()
            cluster.start(broker_id)
        wait_copied(running, cluster.bootstrap, "target", expected)
        # Without brokers they would not end by themselves.
        running.end()
