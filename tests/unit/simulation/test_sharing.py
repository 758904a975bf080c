"""The workload of share groups at its end: what it reads again, and what it calls wrong."""

import asyncio
from collections.abc import Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.clients.errors import BrokerConnectionError
from kalda.common.types import TopicPartition
from kalda.coordinator.share.delivery_state import RecordState, StateRange
from kalda.simulation.checks.deliveries import DeliveredRecord
from kalda.simulation.checks.share_reasons import Reasons
from kalda.simulation.workloads import sharing
from kalda.simulation.workloads.sharing import GROUP, TOPIC, Sharers
from tests.virtual_time import run_virtual

PLACE = (0, 7)


class VirtualWorld(SimpleNamespace):
    """What the workload uses of a world; its time is that of the loop."""

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()


class Group:
    """A share group without a lag, which its partitions without records do not have at all."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.reads: list[Exception | float] = []
        """How the next reads of the topic end: with an error, or after so many seconds."""
        history = SimpleNamespace(violate=lambda rule, text: self.violations.append(rule))
        world = VirtualWorld(random=lambda name: Random(1), history=history, cluster=None, bootstrap="h:1")
        self.sharers = Sharers(cast(Any, world))
        stand_in = cast(Any, self.sharers)
        stand_in._consumer = lambda name: self
        stand_in._poll = self._poll
        stand_in._read = self._read

    async def __aenter__(self) -> "Group":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def commit(self, *, timeout_s: float) -> None: ...

    async def list_share_group_offsets(self, groups: list[str]) -> dict[str, Any]:
        return {GROUP: dict.fromkeys(TopicPartition(TOPIC, each) for each in range(3))}

    async def _poll(self, _: object) -> list[object]:
        await asyncio.sleep(0.5)
        return []

    async def _read(self, topic: str, partitions: int) -> dict[tuple[int, int], Any]:
        ending = self.reads.pop(0)
        if isinstance(ending, Exception):
            raise ending
        await asyncio.sleep(ending)
        return {}


def drain(group: Group, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(sharing, "AsyncAdmin", lambda **_: group)
    found: list[bool] = []

    async def run() -> None:
        work: Coroutine[Any, Any, bool] = cast(Any, group.sharers)._drain()
        found.append(await work)

    run_virtual(run())
    return found[0]


def test_a_read_at_the_end_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    group.reads = [BrokerConnectionError("lost"), 1.0]
    assert drain(group, monkeypatch)
    assert [] == group.violations


def test_a_read_at_the_end_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    group.reads = [1e3]
    assert not drain(group, monkeypatch)
    assert ["share groups end"] == group.violations


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # The leader had no answer to the rejection, and delivered the record again.
        (DeliveredRecord(accepted_epoch=4, ends_sent=2, rejections_sent=1), []),
        (DeliveredRecord(ends_sent=1, rejections_sent=1), ["what is given up has a letter"]),
        # Nobody rejected it.
        (DeliveredRecord(accepted_epoch=4, ends_sent=1), ["what is given up has a letter"]),
        (
            DeliveredRecord(accepted_epoch=4, rejected_epoch=5, ends_sent=2, rejections_sent=1),
            ["what is given up has a letter"],
        ),
    ],
)
def test_what_was_given_up_has_a_letter(record: DeliveredRecord, expected: list[str]) -> None:
    group = Group()
    sharers = cast(Any, group.sharers)
    sharers._options = sharers._options._replace(has_letters=True)
    sharers._deliveries.records[PLACE] = record
    reasons = Reasons(is_complete=True)
    reasons.add(0, [StateRange(7, 7, RecordState.ARCHIVING, 1)])

    sharers._check_ends({PLACE: SimpleNamespace(value=b"job")}, reasons, [])

    assert expected == group.violations
