"""Turns a filter of a query into the offsets to read. No I/O.

DuckDB hands the filter of a scan over as an Arrow expression. This module does not take it apart: it asks
Arrow whether rows with known bounds can pass, as Arrow does to leave out files of a data set, and looks for
the outermost offsets that can. So any form of condition narrows a range as far as Arrow understands it, and
one that Arrow does not understand narrows nothing.

A range may be too wide, never too narrow. Timestamps do not rise with the offsets. ListOffsets returns the
first offset with a timestamp at or after the one asked for, so a lower bound on the time may move the start;
nothing says where the last record below a time is, so an upper one moves nothing.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kalda.common.types import TopicPartition

TIMESTAMP: Final = pa.timestamp("us", "UTC")
"""The type of the column; DuckDB compares with microseconds."""

_TIMESTAMP_MAX_MS: Final = 2**53
"""Later than any date; a timestamp in microseconds still fits into 64 bits."""
_FORMAT: Final = ds.IpcFileFormat()
_FILES: Final = LocalFileSystem()


class Pruning:
    """What of a topic can have rows that pass a filter.

    Args:
        filter: The filter, with the names of `schema`.
        schema: The columns of the table.
    """

    def __init__(self, filter: ds.Expression, schema: pa.Schema) -> None:
        self._filter: Final = filter
        self._schema: Final = schema

    def offsets(self, partition: TopicPartition, begin: int, end: int) -> range:
        """Return the offsets from `begin` to `end` in which all rows are that can pass.

        ``"offset" >= 10 AND "offset" < 20`` makes [0, 100) [10, 20). The range is empty where no row passes.
        """
        here = _equals(partition)
        offset = ds.field("offset")

        def passes(first: int, last: int) -> bool:
            return self._passes(here & (offset >= _int64(first)) & (offset <= _int64(last)))

        if begin >= end or not passes(begin, end - 1):
            return range(begin, begin)
        first = _first(begin, end - 1, lambda each: passes(begin, each))
        # The same search from the other side, by the distance from the end.
        distance = _first(0, end - 1 - first, lambda each: passes(end - 1 - each, end - 1))
        last = end - 1 - distance
        return range(first, last + 1) if passes(first, last) else range(begin, begin)

    def least_timestamp_ms(self, partition: TopicPartition) -> int | None:
        """Return a time before which no row of the partition can pass; None without such a bound."""
        here = _equals(partition)
        timestamp = ds.field("timestamp")

        def passes(at_ms: int) -> bool:
            return self._passes(here & (timestamp <= pa.scalar(at_ms * 1000, TIMESTAMP)))

        if passes(0) or not passes(_TIMESTAMP_MAX_MS):
            return None
        return _first(0, _TIMESTAMP_MAX_MS, passes)

    def _passes(self, known: ds.Expression) -> bool:
        """Return whether rows of which `known` holds can pass. Nothing is opened: the file has no name."""
        fragment = _FORMAT.make_fragment("", filesystem=_FILES, partition_expression=known)
        data_set = ds.FileSystemDataset([fragment], self._schema, _FORMAT, filesystem=_FILES)
        return any(True for _ in data_set.get_fragments(filter=self._filter))


def _equals(partition: TopicPartition) -> ds.Expression:
    is_topic = ds.field("topic") == pa.scalar(partition.topic, pa.string())
    return is_topic & (ds.field("partition") == pa.scalar(partition.partition, pa.int32()))


def _int64(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int64())


def _first(least: int, most: int, holds: Callable[[int], bool]) -> int:
    """Return a number below which nothing holds, the least one where all above it hold too.

    `most` is not tried. Only numbers that were seen not to hold are passed over.
    """
    if holds(least):
        return least
    while least + 1 < most:
        middle = (least + most) // 2
        if holds(middle):
            most = middle
        else:
            least = middle
    return most
