"""WriteTxnMarkers: a marker that cannot be right is refused by itself, whatever stands beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.requests.api import Pending
from kalda.broker.requests.handlers.write_txn_markers import handle
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.broker.data_path_fakes import TOPIC, DataPath, leadership
from tests.unit.broker.handler_parts import finished

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership(), leadership(1))
    yield path
    path.close()


def marker(
    producer_id: int = 9, epoch: int = 0, coordinator_epoch: int = 0, partitions: tuple[int, ...] = (0,)
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=list(partitions))],
    )


def write(broker: DataPath, *markers: WritableTxnMarker) -> list[tuple[int, list[tuple[int, int]]]]:
    """Send one request; return each marker's producer id with the partitions' codes."""
    answer = handle(broker.marker_appends(), WriteTxnMarkersRequest(markers=list(markers)), broker.context(1))
    assert isinstance(answer, Pending)
    return [
        (
            each.producer_id,
            [(it.partition_index, it.error_code) for topic in each.topics for it in topic.partitions],
        )
        for each in finished(answer.value).markers
    ]


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-(2**63), 0), (9, -1), (9, -(2**15)), (-1, -1)])
def test_a_marker_without_a_producer_is_refused_and_the_one_beside_it_is_written(
    broker: DataPath, producer_id: int, epoch: int
) -> None:
    bad = marker(producer_id, epoch)
    assert [(producer_id, [(0, INVALID)])] == write(broker, bad)
    assert [(8, [(0, NONE)]), (producer_id, [(0, INVALID)]), (7, [(0, NONE)])] == write(
        broker, marker(8), bad, marker(7)
    )
    assert 2 == broker.partition().log.log_end_offset


def test_a_partition_that_is_named_twice_gets_one_marker(broker: DataPath) -> None:
    twice = marker(partitions=(0, 0))
    twice.topics.append(WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1]))
    assert [(9, [(0, NONE), (1, NONE)])] == write(broker, twice)
    assert 1 == broker.partition().log.log_end_offset


def test_nothing_to_write_is_answered_at_once(broker: DataPath) -> None:
    assert [] == write(broker)
    without_topics = marker()
    without_topics.topics.clear()
    assert [(9, []), (8, []), (7, [(0, NONE)])] == write(
        broker, without_topics, marker(8, partitions=()), marker(7)
    )


def test_the_coordinator_epoch_of_the_operators_tool_is_taken(broker: DataPath) -> None:
    """``kafka-transactions.sh abort`` sends -1 for a transaction whose log saw no coordinator yet."""
    assert [(9, [(0, NONE)])] == write(broker, marker(coordinator_epoch=-1))
    assert [(9, [(0, NONE)])] == write(broker, marker(coordinator_epoch=3))
    assert [(9, [(0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)])] == write(
        broker, marker(coordinator_epoch=-1)
    )


def test_unknown_partitions_are_named_one_by_one(broker: DataPath) -> None:
    assert [(9, [(77, UNKNOWN), (-1, UNKNOWN), (0, NONE)])] == write(broker, marker(partitions=(77, -1, 0)))
