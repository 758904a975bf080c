"""Handlers of many elements yield after each, and answer as they answer the same elements one by one."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import GeneratorType
from typing import Any, NamedTuple

import pytest

from kalda.broker.requests.handlers import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from kalda.common.pending import Pending
from kalda.common.turns import STEPS_AT_ONCE, STEPS_PER_TURN, first_turn
from kalda.protocol.fast.produce import PARTITIONS_MAX
from kalda.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kalda.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kalda.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kalda.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kalda.protocol.protocol_errors import ProtocolError
from tests.unit.broker.data_path_fakes import DataPath, batch, leadership


class Case(NamedTuple):
    bound: Callable[[DataPath], Any]
    """Returns the handler with the parts of a broker."""
    version: int
    request: Callable[[Sequence[tuple[str, Sequence[int]]]], Any]
    results: Callable[[Any], Any]


CASES = {
    "ListOffsets": Case(
        lambda broker: partial(list_offsets.handle, broker.replicas, broker.clock, broker.logs),
        7,
        lambda wanted: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes
                    ],
                )
                for name, indexes in wanted
            ],
        ),
        lambda response: [(topic.name, each) for topic in response.topics for each in topic.partitions],
    ),
    "OffsetForLeaderEpoch": Case(
        lambda broker: partial(offset_for_leader_epoch.handle, broker.replicas),
        4,
        lambda wanted: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes
                    ],
                )
                for name, indexes in wanted
            ]
        ),
        lambda response: [(topic.topic, each) for topic in response.topics for each in topic.partitions],
    ),
    "DescribeProducers": Case(
        lambda broker: partial(describe_producers.handle, broker.replicas),
        0,
        lambda wanted: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=list(indexes)) for name, indexes in wanted]
        ),
        lambda response: [(topic.name, each) for topic in response.topics for each in topic.partitions],
    ),
    "DeleteRecords": Case(
        lambda broker: partial(delete_records.handle, broker.replicas, broker.purgatories["delete_records"]),
        2,
        lambda wanted: DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes],
                )
                for name, indexes in wanted
            ],
        ),
        lambda response: [(topic.name, each) for topic in response.topics for each in topic.partitions],
    ),
}


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    path = DataPath(tmp_path)
    path.host(*(leadership(number) for number in range(3)))
    return path


def handled(broker: DataPath, case: Case, wanted: Sequence[tuple[str, Sequence[int]]]) -> tuple[Any, int]:
    """Return the answer, and how many turns it took."""
    result = case.bound(broker)(case.request(wanted), broker.context(case.version))
    turns = 1
    while isinstance(result, GeneratorType):
        result = first_turn(result)
        turns += 1
    return (result.value if isinstance(result, Pending) else result), turns


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", ["topics", "partitions"])
def test_many_elements_take_many_turns_and_get_the_answers_of_single_requests(
    broker: DataPath, name: str, shape: str
) -> None:
    """Neither many topics nor many partitions of one topic are handled in one turn."""
    case = CASES[name]
    wanted: list[tuple[str, Sequence[int]]]
    if shape == "topics":
        wanted = [("orders" if number == 3 else f"topic-{number}", [0]) for number in range(200)]
    else:
        wanted = [("orders", range(200))]
    whole, turns = handled(broker, case, wanted)
    assert 200 // STEPS_AT_ONCE < turns
    singles = [
        each
        for topic, indexes in wanted
        for index in indexes
        for each in case.results(handled(broker, case, [(topic, [index])])[0])
    ]
    assert singles == case.results(whole)


def test_duplicates_are_found_across_turns(broker: DataPath) -> None:
    """A partition that is named again some turns later is refused in both places, as in Kafka."""
    case = CASES["ListOffsets"]
    wanted: list[tuple[str, Sequence[int]]] = [("orders", [0, *range(100, 200), 0])]
    answers = [each.error_code for _, each in case.results(handled(broker, case, wanted)[0])]
    assert (42, 42) == (answers[0], answers[-1])


async def test_many_produced_partitions_are_appended_in_turns(broker: DataPath) -> None:
    """The frame is gone after the first turn, and so is the memory that the records were in."""
    count = 2 * produce.PARTITIONS_AT_ONCE
    broker.host(*(leadership(number) for number in range(count)))
    batches = {number: batch(b"record %d" % number) for number in range(count)}
    pending = broker.produce_request(dict(batches), acks=1)
    assert isinstance(pending, Pending)
    logs = [broker.partition(number).log for number in range(count)]
    ends = [0]
    while not pending.is_done and len(ends) < 1000:
        await asyncio.sleep(0)
        ends.append(sum(log.log_end_offset for log in logs))
    assert STEPS_PER_TURN >= max(after - before for before, after in itertools.pairwise(ends))
    response = broker.produce_response(pending.value)
    answers = response.responses[0].partition_responses
    assert [(number, 0, 0) for number in range(count)] == [
        (each.index, each.error_code, each.base_offset) for each in answers
    ]


def test_a_produce_request_of_too_many_partitions_is_refused(broker: DataPath) -> None:
    with pytest.raises(ProtocolError, match="it names 25001 partitions, more than 25000"):
        broker.produce_request(dict.fromkeys(range(PARTITIONS_MAX + 1), b""))


def test_a_fetch_of_too_many_partitions_is_refused(broker: DataPath) -> None:
    offsets = dict.fromkeys(range(fetch.PARTITIONS_MAX + 1), 0)
    with pytest.raises(ProtocolError, match="it names 25001 partitions, more than 25000"):
        broker.fetch_request(offsets)
