"""The search for a damaged log's missing records, with other replicas that answer as told."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, cast

import pytest

from kalda.broker.replicas.follower.ports import LeaderConnection
from kalda.broker.replicas.missing_records import MissingRecords
from kalda.broker.replicas.partition import Partition
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kalda.records.batch import set_base_offset_and_leader_epoch
from kalda.storage.log_config import LogConfig
from kalda.storage.unified_log import UnifiedLog
from tests.runtimes import rules_without_followers
from tests.unit.storage.log_fixtures import Broker, append, batch

OWN_ID, LEADER, OTHER = 0, 1, 2
TOPIC_ID = uuid.UUID(int=7)
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)

Answer = Callable[[int], PartitionData | ConnectionError]
"""What a broker answers a fetch from an offset with."""


def nothing(_: int) -> PartitionData:
    """Answer as a replica whose high watermark is not above the offset."""
    return PartitionData(partition_index=0, records=b"")


def refused(_: int) -> ConnectionError:
    return ConnectionError("connection refused")


def failing(code: ErrorCode) -> Answer:
    return lambda _: PartitionData(partition_index=0, error_code=code, records=None)


def record(offset: int) -> PartitionData:
    """Answer with the record that `damaged_log` appended at this offset."""
    records = batch(b"%d" % offset)
    set_base_offset_and_leader_epoch(records, 0, offset, -1)
    return PartitionData(partition_index=0, records=bytes(records))


class Replicas:
    """The other brokers: broker n listens at port n."""

    def __init__(self, answers: dict[int, Answer]) -> None:
        self.answers = answers

    async def dial(self, host: str, port: int, _: object) -> LeaderConnection:
        return cast("LeaderConnection", Replica(self.answers[port]))


class Replica:
    """A connection to one of them."""

    is_closed = False

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def request(self, request: FetchRequest, **_: object) -> FetchResponse:
        data = self._answer(request.topics[0].partitions[0].fetch_offset)
        if isinstance(data, ConnectionError):
            raise data
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])

    def version_of(self, _: ApiKey) -> int:
        return 17

    def close(self) -> None:
        return


def damaged_log() -> tuple[Broker, UnifiedLog]:
    """A log of 20 records, all below the high watermark, whose last segment is lost."""
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    broker.log.high_watermark = 20
    last = broker.log.segments[-1].base_offset
    broker.manager.close()
    files = broker.file_system.crash()
    del files.nodes[f"{broker.log.directory}/{last:020d}.log"].content[:]
    broker = Broker(SMALL, files)
    assert [(last, 20)] == list(broker.log.missing.ranges)
    return broker, broker.log


async def search(broker: Broker, answers: dict[int, Answer], leader: int = LEADER) -> list[Partition]:
    """Follow a leader with a damaged log for one round of questions; return the partitions to fetch."""
    partition = Partition(
        TopicPartition("orders", 0), TOPIC_ID, OWN_ID, broker.log, rules_without_followers()
    )
    partition.leader_id, partition.leader_epoch = leader, 0
    partition.replicas = partition.isr = (OWN_ID, LEADER, OTHER)
    missing = MissingRecords(
        OWN_ID,
        broker.manager.resources,
        cast("Any", Replicas(answers)),
        lambda broker_id: BrokerEndpoint(broker_id, "host", broker_id, None),
        broker.clock,
    )
    settled: list[Partition] = []
    missing.listen(settled.append)
    assert missing.take(partition)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(missing.run())
        for _ in range(200):
            await asyncio.sleep(0)
        task.cancel()
    return settled


@pytest.mark.parametrize(
    ("leader", "answer"),
    [
        (LEADER, refused),
        (-1, refused),
        (LEADER, failing(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (LEADER, failing(ErrorCode.OFFSET_NOT_AVAILABLE)),
    ],
)
def test_a_tail_is_not_cut_off_before_the_leader_says_that_it_is_not_committed(
    leader: int, answer: Answer
) -> None:
    """The replica may be elected next: with a shorter log it would cut the records off all others."""
    broker, log = damaged_log()
    ranges = log.missing.ranges
    assert not asyncio.run(search(broker, {LEADER: answer, OTHER: nothing}, leader))
    assert (20, ranges) == (log.log_end_offset, log.missing.ranges)


@pytest.mark.parametrize("answer", [nothing, failing(ErrorCode.OFFSET_OUT_OF_RANGE)])
def test_a_tail_that_the_leader_has_not_committed_is_cut_off_and_fetched(answer: Answer) -> None:
    broker, log = damaged_log()
    first = log.missing.ranges[0].first
    settled = asyncio.run(search(broker, {LEADER: answer, OTHER: refused}))
    assert (first, (), 1) == (log.log_end_offset, log.missing.ranges, len(settled))


def test_a_tail_that_the_leader_has_committed_is_put_back() -> None:
    broker, log = damaged_log()
    settled = asyncio.run(search(broker, {LEADER: record, OTHER: refused}))
    assert (20, (), 1) == (log.log_end_offset, log.missing.ranges, len(settled))
    assert 20 == log.high_watermark


def test_a_tail_of_which_the_leader_has_committed_a_part_is_cut_off_behind_it() -> None:
    broker, log = damaged_log()
    first = log.missing.ranges[0].first
    leader: Answer = lambda offset: record(offset) if offset == first else nothing(offset)  # noqa: E731
    settled = asyncio.run(search(broker, {LEADER: leader, OTHER: refused}))
    assert (first + 1, (), 1) == (log.log_end_offset, log.missing.ranges, len(settled))
