"""DescribeLogDirs: what an operator sees of the disks of a broker."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kalda.broker.requests.handlers.describe_log_dirs import HANDLER, handle
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.unit.broker.data_path_fakes import DataPath, batch, leadership
from tests.unit.broker.handler_parts import finished


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path / "a", tmp_path / "b")
    yield path
    path.close()


def described(broker: DataPath, topics: Any = None) -> list[DescribeLogDirsResult]:
    request = DescribeLogDirsRequest(topics=topics)
    return finished(handle(broker.logs, request, broker.context(5))).results


def test_every_directory_is_listed_with_its_logs_and_their_sizes(broker: DataPath) -> None:
    broker.host(leadership(0), leadership(1))
    broker.produce(batch(b"a"))
    results = described(broker)
    assert [result.log_dir for result in results] == list(broker.logs.live_directories)
    found = {
        each.partition_index: (each.partition_size, each.offset_lag, each.is_future_key)
        for result in results
        for topic in result.topics
        for each in topic.partitions
    }
    assert {0: (broker.partition(0).log.size, 0, False), 1: (0, 0, False)} == found
    assert all(0 < result.usable_bytes <= result.total_bytes for result in results)


def test_only_the_partitions_asked_for_are_told(broker: DataPath) -> None:
    broker.host(leadership(0), leadership(1))
    results = described(broker, [DescribableLogDirTopic(topic="orders", partitions=[1, 7])])
    assert [1] == [each.partition_index for r in results for topic in r.topics for each in topic.partitions]


def test_a_cordoned_directory_is_marked(broker: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    [first, second] = broker.logs.live_directories
    monkeypatch.setattr(broker.logs, "cordoned_directories", lambda: (second,))
    assert {first: False, second: True} == {each.log_dir: each.is_cordoned for each in described(broker)}


def test_a_log_that_moves_is_there_twice(broker: DataPath) -> None:
    broker.host(leadership(0))
    broker.produce(batch(b"a"))
    broker.produce(batch(b"b"))
    source = os.path.dirname(broker.partition(0).log.directory)
    [target] = [each for each in broker.logs.live_directories if each != source]
    broker.logs.create_future(broker.partition(0).topic_partition, target)
    found = {
        result.log_dir: [(each.partition_size, each.offset_lag, each.is_future_key) for each in of_topic]
        for result in described(broker)
        for of_topic in [topic.partitions for topic in result.topics]
    }
    assert {source: [(broker.partition(0).log.size, 0, False)], target: [(0, 2, True)]} == found
    broker.replicas.roles.take_offline(source)
    [partition] = [
        each for result in described(broker) for topic in result.topics for each in topic.partitions
    ]
    assert (True, -1) == (partition.is_future_key, partition.offset_lag)


def test_a_failed_directory_has_an_error_and_nothing_else(broker: DataPath) -> None:
    broker.host(leadership(0), leadership(1))
    bad = broker.logs.live_directories[0]
    broker.logs.resources.failures.note(bad, OSError(errno.EIO, "broken"))
    broker.replicas.roles.take_offline(bad)
    results = {result.log_dir: result for result in described(broker)}
    assert ErrorCode.KAFKA_STORAGE_ERROR == results[bad].error_code
    assert [] == results[bad].topics
    assert 1 == sum(len(topic.partitions) for result in results.values() for topic in result.topics)


def test_a_refused_request_says_why() -> None:
    assert HANDLER.error_response is not None
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert code == HANDLER.error_response(DescribeLogDirsRequest(topics=None), code).error_code
