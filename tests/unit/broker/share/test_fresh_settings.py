"""Settings of groups that this broker has not heard of, read where a share partition begins."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kalda.broker.config.config_admin import GROUPS
from kalda.broker.config.dynamic_config import ConfigStore
from kalda.broker.share import fresh_settings
from kalda.broker.share.fresh_settings import FreshSettings
from kalda.broker.share.stored_share_settings import StoredShareSettings
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ConnectionLossError
from tests.unit.cluster.in_memory import InMemoryZooKeeper

EARLIEST = {"share.auto.offset.reset": "earliest"}


class Cluster:
    """The coordination engine: `answer` is awaited by each read."""

    def __init__(self, answer: Callable[[int], Awaitable[dict[str, str]]]) -> None:
        self.reads = 0
        self._answer = answer

    async def newest_config(self, entity_type: str, name: str) -> dict[str, str]:
        self.reads += 1
        return await self._answer(self.reads)


async def done(pending: Pending[None]) -> Exception | None:
    """Return the error of what was waited for, None without one."""
    finished = asyncio.Event()
    pending.add_done(lambda _: finished.set())
    async with asyncio.timeout(30):
        await finished.wait()
    return pending.error


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_settings, "_RETRY_SECONDS", (0, 0))


async def test_settings_that_were_not_announced_yet_are_in_force() -> None:
    cluster, config = await InMemoryZooKeeper().cluster(), BrokerConfig.from_properties({})
    store = ConfigStore(config)
    settings, fresh = StoredShareSettings(config, store), FreshSettings(store, cluster)
    await cluster.set_config(GROUPS, "a%2Fb", EARLIEST)
    assert "latest" == settings.offset_reset("a/b")
    task = asyncio.create_task(fresh.run())
    loads = [fresh.load("a/b"), fresh.load("a/b"), fresh.load("other")]
    assert [None] * 3 == [await done(each) for each in loads]
    assert ("earliest", "latest") == (settings.offset_reset("a/b"), settings.offset_reset("other"))
    task.cancel()


async def test_a_read_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)

    async def answer(read: int) -> dict[str, str]:
        if read == 1:
            raise ConnectionLossError("no answer")
        return EARLIEST

    store, cluster = ConfigStore(BrokerConfig.from_properties({})), Cluster(answer)
    fresh = FreshSettings(store, cast(Any, cluster))
    task = asyncio.create_task(fresh.run())
    assert None is await done(fresh.load("g"))
    assert (2, EARLIEST) == (cluster.reads, store.entity(GROUPS, "g"))
    task.cancel()


async def test_reads_that_fail_end_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)

    async def answer(read: int) -> dict[str, str]:
        if read <= 3:
            raise ConnectionLossError("no answer")
        return {}

    cluster = Cluster(answer)
    fresh = FreshSettings(ConfigStore(BrokerConfig.from_properties({})), cast(Any, cluster))
    task = asyncio.create_task(fresh.run())
    error: Any = await done(fresh.load("g"))
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == error.code
    assert None is await done(fresh.load("g")), "who asks again gets another answer"
    task.cancel()


async def test_what_is_announced_meanwhile_is_not_replaced_by_an_older_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_pauses(monkeypatch)
    newer = {"share.auto.offset.reset": "latest"}
    store = ConfigStore(BrokerConfig.from_properties({}))

    async def answer(read: int) -> dict[str, str]:
        if read == 1:
            store.set_entity(GROUPS, "g", newer)
            return EARLIEST
        return newer

    cluster = Cluster(answer)
    fresh = FreshSettings(store, cast(Any, cluster))
    task = asyncio.create_task(fresh.run())
    assert None is await done(fresh.load("g"))
    assert (2, newer) == (cluster.reads, store.entity(GROUPS, "g"))
    task.cancel()


async def test_who_asks_during_a_read_waits_for_the_next_one() -> None:
    """Else a change between the two would be missed."""
    begun, first = asyncio.Event(), asyncio.Event()

    async def answer(read: int) -> dict[str, str]:
        if read == 1:
            begun.set()
            await first.wait()
            return {}
        return EARLIEST

    store, cluster = ConfigStore(BrokerConfig.from_properties({})), Cluster(answer)
    fresh = FreshSettings(store, cast(Any, cluster))
    task = asyncio.create_task(fresh.run())
    before = fresh.load("g")
    await begun.wait()
    after = fresh.load("g")
    first.set()
    assert [None, None] == [await done(before), await done(after)]
    assert (2, EARLIEST) == (cluster.reads, store.entity(GROUPS, "g"))
    task.cancel()
