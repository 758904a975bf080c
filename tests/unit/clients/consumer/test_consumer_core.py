"""How positions of new partitions are found, with a group whose answers the test gives. No sockets."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.consumer.offset_reset import EARLIEST
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.clients.network_client import NetworkClient
from kalda.clients.values import OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
Committed = dict[TopicPartition, OffsetAndMetadata | None]


class Coordinator:
    """A member of a group that answers questions for committed offsets when the test says so."""

    next_poll_at: float | None = None

    def __init__(self) -> None:
        self.questions: asyncio.Queue[tuple[set[TopicPartition], asyncio.Future[Committed]]] = asyncio.Queue()

    async def committed(self, partitions: Collection[TopicPartition]) -> Committed:
        answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self.questions.put_nowait((set(partitions), answer))
        return await answer

    def start(self) -> None:
        return

    def subscription_changed(self) -> None:
        return

    def take_error(self) -> ClientError | None:
        return None

    async def close(self, timeout_s: float, *, leave_group: bool = True) -> None:
        return


@contextmanager
def without_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patches:
        patches.setattr(NetworkClient, "start", lambda _: None)
        yield


@asynccontextmanager
async def subscribed(
    monkeypatch: pytest.MonkeyPatch, **settings: str
) -> AsyncIterator[tuple[ConsumerCore, Any]]:
    """Yield a consumer of a group that has subscribed to t, and its coordinator."""
    names = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.metrics.push": "false"}
    values = {"auto.offset.reset": "latest", "retry.backoff.ms": "1"} | settings
    with without_network(monkeypatch):
        core = ConsumerCore(ConsumerConfig.from_properties(names | values), lambda: None)
        group: Any = Coordinator()
        core.start(group)
        core.subscribe("t")
        try:
            yield core, group
        finally:
            await core.close(1)


async def question(group: Coordinator) -> tuple[set[TopicPartition], Any]:
    async with asyncio.timeout(60):
        return await group.questions.get()


def test_an_answer_from_before_a_rebalance_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition was another member's meanwhile: the old answer would skip what that one committed.

    Without a committed offset, `auto.offset.reset=latest` would skip all that was written since.
    """

    async def main() -> None:
        async with subscribed(monkeypatch) as (core, group):
            core.subscription.assign_from_subscribed([P])
            core.took()
            asked, old = await question(group)
            assert {P} == asked
            core.subscription.assign_from_subscribed([])
            core.subscription.assign_from_subscribed([P, Q])
            old.set_result({P: None})
            asked, new = await question(group)
            assert {P, Q} == asked
            assert {} == core.subscription.needing_reset(float("inf"))
            new.set_result({P: OffsetAndMetadata(7), Q: None})
            assert 7 == await core.position(P, timeout_ms=5000)
            assert {Q} == core.subscription.needing_reset(float("inf")).keys()

    asyncio.run(main())


def test_positions_wait_until_the_coordinator_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with subscribed(monkeypatch) as (core, group):
            core.subscription.assign_from_subscribed([P])
            core.took()
            _, first = await question(group)
            first.set_exception(BrokerResponseError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "offsets"))
            _, second = await question(group)
            assert {P} == core.subscription.initializing().keys()
            second.set_result({P: OffsetAndMetadata(3)})
            assert 3 == await core.position(P, timeout_ms=5000)

    asyncio.run(main())


def test_committed_offsets_are_not_asked_for_before_the_user_wants_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the assignment and the first poll the user may seek."""

    async def main() -> None:
        async with subscribed(monkeypatch) as (core, group):
            core.subscription.assign_from_subscribed([P])
            core.positions_changed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            core.seek(P, 5)
            core.took()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert group.questions.empty()
            state = core.subscription.valid_position(P)
            assert state is not None
            assert 5 == state.offset

    asyncio.run(main())


def test_a_position_that_is_looked_up_later_is_awaited_without_asking_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed look-up is repeated after its back-off; until then the wait must not keep the loop busy."""
    looks = 0

    async def main() -> None:
        nonlocal looks
        async with subscribed(monkeypatch) as (core, _):
            core.subscription.assign_from_subscribed([P])
            core.subscription.request_reset(P, EARLIEST)

            async def fail(now_ms: int) -> None:
                nonlocal looks
                looks += 1
                core.subscription.retry_later([P], asyncio.get_running_loop().time() + 3600)

            monkeypatch.setattr(core.offset_fetcher, "reset_positions", fail)
            position = asyncio.ensure_future(core.position(P, timeout_ms=3_600_000))
            for _ in range(200):
                await asyncio.sleep(0)
            position.cancel()
            await asyncio.gather(position, return_exceptions=True)

    asyncio.run(main())
    assert 3 > looks
