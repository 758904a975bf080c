"""Filters narrow what is read, and never take away a row that they let through."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kalda.common.types import TopicPartition
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.options import parse_batch_options
from kalda.spark.source.push_down import Bounds, push_filters
from kalda.spark.source.reader import KaldaFilteringReader
from kalda.spark.source.schema import source_schema
from tests.unit.spark.source.cluster_fakes import FakeCluster, FakeGroup

TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY = (
    (name,) for name in ("topic", "partition", "offset", "timestamp", "key")
)


def at(milliseconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (EqualTo(TOPIC, "a"), Bounds(topics=frozenset({"a"}))),
        (In(TOPIC, ("a", "b")), Bounds(topics=frozenset({"a", "b"}))),
        (EqualTo(PARTITION, 3), Bounds(partitions=frozenset({3}))),
        (In(PARTITION, (1, 2)), Bounds(partitions=frozenset({1, 2}))),
        (GreaterThan(PARTITION, 3), Bounds(partition_min=4, partition_max=2**63 - 2)),
        (LessThanOrEqual(PARTITION, 3), Bounds(partition_max=3)),
        (EqualTo(OFFSET, 7), Bounds(offset_start=7, offset_end=8)),
        (GreaterThanOrEqual(OFFSET, 7), Bounds(offset_start=7)),
        (LessThan(OFFSET, 7), Bounds(offset_end=7)),
        (LessThan(OFFSET, -5), Bounds(offset_end=-5)),
    ],
)
def test_filters_that_the_ranges_apply(given: Filter, bounds: Bounds) -> None:
    assert (bounds, []) == push_filters([given])


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (In(OFFSET, (7, 9)), Bounds(offset_start=7, offset_end=10)),
        (GreaterThanOrEqual(TIMESTAMP, at(5)), Bounds(timestamp_min=5)),
        (GreaterThanOrEqual(TIMESTAMP, at(5.001)), Bounds(timestamp_min=6)),
        (GreaterThan(TIMESTAMP, at(5)), Bounds(timestamp_min=6)),
        (GreaterThan(TIMESTAMP, at(5.001)), Bounds(timestamp_min=6)),
        (EqualTo(TIMESTAMP, at(5)), Bounds(timestamp_min=5)),
        (In(TIMESTAMP, (at(9), at(5))), Bounds(timestamp_min=5)),
        (LessThan(TIMESTAMP, at(5)), Bounds()),
        (EqualTo(TOPIC, None), Bounds()),
        (In(TOPIC, ("a", None)), Bounds()),
        (In(PARTITION, (1, None)), Bounds()),
        (In(OFFSET, ()), Bounds()),
        (EqualTo(PARTITION, True), Bounds()),
        (EqualTo(KEY, b"k"), Bounds()),
        (EqualTo(("headers", "offset"), 5), Bounds()),
        (EqualNullSafe(OFFSET, 5), Bounds()),
        (IsNotNull(OFFSET), Bounds()),
        (Not(EqualTo(OFFSET, 5)), Bounds()),
    ],
)
def test_filters_that_spark_applies_as_well(given: Filter, bounds: Bounds) -> None:
    assert (bounds, [given]) == push_filters([given])


def test_all_filters_apply() -> None:
    narrowed, remaining = push_filters(
        [
            In(TOPIC, ("a", "b")),
            EqualTo(TOPIC, "b"),
            GreaterThan(OFFSET, 5),
            LessThan(OFFSET, 3),
            GreaterThan(TIMESTAMP, at(1)),
            GreaterThan(TIMESTAMP, at(7)),
        ]
    )

    assert Bounds(topics=frozenset({"b"}), offset_start=6, offset_end=3, timestamp_min=8) == narrowed
    assert 2 == len(remaining)


def kept_offsets(cluster: FakeCluster, filters: list[Filter]) -> dict[TopicPartition, set[int]]:
    """The offsets that a reader with these filters plans to read."""
    options = parse_batch_options(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "pushdown": "per-frame"}
    )
    reader = KaldaFilteringReader(options, source_schema(include_headers=False))
    reader.pushFilters(filters)
    discovery = Discovery(options, client=cluster, group=FakeGroup())
    partitions = discovery.require_partitions().partitions
    starts, ends = reader._narrowed(
        discovery, discovery.starting_offsets(partitions), discovery.ending_offsets(partitions)
    )
    return {each: set(range(starts[each], ends[each])) for each in ends}


def test_a_late_record_with_an_old_timestamp_is_read() -> None:
    cluster = FakeCluster()
    late = cluster.add("t", 0, [10, 50, 20, 90, 5, 60])

    assert {late: {1, 2, 3, 4, 5}} == kept_offsets(cluster, [GreaterThanOrEqual(TIMESTAMP, at(40))])
    assert {late: {0, 1, 2, 3, 4, 5}} == kept_offsets(cluster, [LessThan(TIMESTAMP, at(6))])
    assert {late: set()} == kept_offsets(cluster, [GreaterThan(TIMESTAMP, at(90))])


@pytest.mark.parametrize("seed", range(40))
def test_no_matching_record_is_left_out(seed: int) -> None:
    """Any timestamps in any order, and any conjunction of comparisons on time, offset and partition."""
    chance = random.Random(seed)
    cluster = FakeCluster()
    for number in range(3):
        cluster.add("t", number, [chance.randrange(1, 30) for _ in range(20)], first=chance.randrange(5))
    kinds = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    columns: dict[tuple[str, ...], Any] = {
        TIMESTAMP: lambda: at(chance.randrange(30)),
        OFFSET: lambda: chance.randrange(25),
        PARTITION: lambda: chance.randrange(3),
    }
    filters: list[Filter] = [
        chance.choice(kinds)(column, columns[column]())
        for column in chance.choices(list(columns), k=chance.randrange(1, 4))
    ]

    kept = kept_offsets(cluster, filters)

    for partition, log in cluster.logs.items():
        for index, time_ms in enumerate(log):
            offset = cluster.first[partition] + index
            row: dict[tuple[str, ...], Any] = {
                TIMESTAMP: at(time_ms),
                OFFSET: offset,
                PARTITION: partition.partition,
            }
            if all(_lets_through(each, row) for each in filters):
                assert offset in kept.get(partition, set()), (seed, filters, row)


def _lets_through(given: Any, row: dict[tuple[str, ...], Any]) -> bool:
    value = row[given.attribute]
    match given:
        case EqualTo():
            return bool(value == given.value)
        case GreaterThan():
            return bool(value > given.value)
        case GreaterThanOrEqual():
            return bool(value >= given.value)
        case LessThan():
            return bool(value < given.value)
    return bool(value <= given.value)
