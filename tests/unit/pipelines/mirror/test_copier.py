"""What a copy of records consists of; the clusters are scripted."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from kalda.clients.range_reader.partition_fetch import FetchedRecords
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.copier import Copier
from kalda.records.record import RecordBatchBuilder

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("source.t", 0)


class Source:
    """A reader and its fetcher, of one batch."""

    def __init__(self, timestamps: list[int]) -> None:
        builder = RecordBatchBuilder()
        for each in timestamps:
            builder.append(b"k", b"v", each)
        self.fetched = FetchedRecords(bytes(builder.build()), len(timestamps), 9, 9, 0, ())

    @contextlib.contextmanager
    def fetcher(self, *_: Any, **__: Any) -> "Iterator[Source]":
        yield self

    def next(self) -> FetchedRecords:
        return self.fetched


class Range:
    def __init__(self, count: int) -> None:
        self.base_offset, self.record_count = 0, count


class Target:
    """A producer, its futures and its delivery."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.progress: Mapping[TopicPartition, Any] = {}

    @contextlib.contextmanager
    def unit(self) -> Iterator[None]:
        yield

    def commit(self, progress: Mapping[TopicPartition, Any]) -> None:
        self.progress = progress

    def send_arrow(self, topic: str, batch: pa.RecordBatch) -> "Target":
        self.batches.append(batch)
        return self

    def result(self, _: float) -> "Target":
        return self

    @property
    def ranges(self) -> list[Range]:
        return [Range(each.num_rows) for each in self.batches]

    def send(self, *_: Any, **__: Any) -> None: ...

    def flush(self, _: float) -> None: ...


def copied_times(timestamps: list[int]) -> list[int | None]:
    source: Any = Source(timestamps)
    target: Any = Target()
    copier = Copier("m", source, target, target, lambda _: None, lambda _: "")
    copied = copier.copy({SOURCE: (0, len(timestamps))}, {SOURCE: TARGET})
    assert len(timestamps) == copied.records
    assert len(timestamps) == target.progress[TARGET].offset
    times: list[int | None] = target.batches[0]["timestamp"].to_pylist()
    return times


def test_a_record_without_a_timestamp_gets_the_time_of_its_copy() -> None:
    """Old clients wrote -1, which the producer of the copy refuses: the mirror ended with a traceback."""
    assert [1000, None, 3000] == copied_times([1000, -1, 3000])


def test_timestamps_are_those_of_the_originals() -> None:
    assert [0, 5, 2**40] == copied_times([0, 5, 2**40])
