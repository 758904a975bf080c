"""What an old consumer commits when it gives partitions up, while ZooKeeper comes and goes."""

import asyncio
from typing import Any, cast

import pytest

from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.stream_reading import StreamReading
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import ConnectionLossError, NoAuthError, ZooKeeperError

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
SESSION_MS = 6_000


class Stream:
    """Has consumed some offsets, until it forgets them."""

    def __init__(self) -> None:
        self.offsets = {FIRST: 7, SECOND: 9}
        self.has_message_in_hand = False

    def consumed(self) -> dict[TopicPartition, int]:
        return self.offsets

    def clear(self) -> None:
        """Have nothing to take back."""

    def forget(self) -> None:
        self.offsets = {}


class Bench:
    """A reading whose storage fails as the test wants, and whose waits take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: list[ZooKeeperError]) -> None:
        self.stream = Stream()
        self.waited = 0.0
        self.written: list[dict[TopicPartition, int]] = []
        self.failures = failures
        config = ConsumerConfig(
            {"group.id": "old", "zookeeper.connect": "localhost", "zookeeper.session.timeout.ms": SESSION_MS}
        )
        self.reading = StreamReading(config, cast(Any, None), cast(Any, [self.stream]), cast(Any, None))
        monkeypatch.setattr(self.reading._storage, "write", self._write)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _write(self, offsets: dict[TopicPartition, int]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(offsets)

    async def _sleep(self, seconds: float) -> None:
        self.waited += seconds


async def test_the_last_commit_waits_until_zookeeper_can_be_reached_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, [ConnectionLossError("away")] * 20)
    await bench.reading.stop()
    assert [{FIRST: 7, SECOND: 9}] == bench.written


async def test_it_does_not_wait_for_longer_than_the_session_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kalda.clients.legacy.consumer.stream_reading.jittered", lambda seconds, _: seconds)
    bench = Bench(monkeypatch, [ConnectionLossError("away")] * 1_000)
    await bench.reading.stop()
    assert [] == bench.written
    assert SESSION_MS / 1000 - 0.2 < bench.waited < SESSION_MS / 1000 + 0.2
    assert "their messages come again: away" in caplog.text


async def test_what_a_lost_session_forgot_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, [ConnectionLossError("away")])
    wait = bench._sleep

    async def lose_session(seconds: float) -> None:
        bench.stream.offsets = {SECOND: 9}
        await wait(seconds)

    monkeypatch.setattr(asyncio, "sleep", lose_session)
    await bench.reading.stop()
    assert [{SECOND: 9}] == bench.written


async def test_another_error_ends_the_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch, [NoAuthError("denied")])
    await bench.reading.stop()
    assert [] == bench.written
    assert "their messages come again: denied" in caplog.text
