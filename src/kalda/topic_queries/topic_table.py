"""Makes a topic a table of DuckDB: a scan reads the offsets that its filter leaves, batch by batch.

DuckDB takes a `pyarrow.dataset.Dataset` for a table and asks it for a scanner with the columns and the filter
of the query; it does not apply the filter again. `TopicTable` answers as a data set does. The reads
themselves are behind the port `TopicSource`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from kalda.common.types import TopicPartition
from kalda.topic_queries.columns import Columns
from kalda.topic_queries.push_down import Pruning


class TopicSource(Protocol):
    """What a table needs of the cluster."""

    def ranges(self, topic: str) -> Mapping[TopicPartition, range]:
        """Return the offsets of each partition, from the first record to the end at the statement's start."""
        ...

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the first offset whose timestamp is at or after the one given; None where there is none."""
        ...

    def read(self, ranges: Mapping[TopicPartition, range]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges with the columns of `poll_arrow`, none without a range."""
        ...


class TopicTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A topic as a table.

    Args:
        topic: Its name.
        source: Where its records come from.
        columns: Its columns and how records get them.
    """

    def __init__(self, topic: str, source: TopicSource, columns: Columns) -> None:
        # Not the constructor of the base, which refuses: pyarrow creates its own data sets in C++.
        self.topic: Final = topic
        self.failure: BaseException | None = None
        """What ended a scan: DuckDB passes on no more of an exception than its text."""
        self._source: Final = source
        self._columns: Final = columns

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._columns.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: ds.Expression | None = None
    ) -> "TopicScan":
        """Return the scan of a query.

        Args:
            columns: The columns that the query needs, in this order; None for all.
            filter: What rows must pass; None for all rows.
        """
        return TopicScan(self, list(columns or self.schema.names), filter)

    def needed(self, filter: ds.Expression | None) -> dict[TopicPartition, range]:
        """Return the offsets that a query with the filter needs, of partitions where there are any."""
        known = self._source.ranges(self.topic)
        if filter is None:
            return {partition: offsets for partition, offsets in known.items() if offsets}
        pruning = Pruning(filter, self.schema)
        needed = {each: pruning.offsets(each, offsets.start, offsets.stop) for each, offsets in known.items()}
        needed = {partition: offsets for partition, offsets in needed.items() if offsets}
        times = {each: at for each in needed if (at := pruning.least_timestamp_ms(each)) is not None}
        starts = self._source.offsets_for_times(times) if times else {}
        for partition, start in starts.items():
            offsets = needed[partition]
            needed[partition] = range(
                offsets.stop if start is None else max(start, offsets.start), offsets.stop
            )
        return {partition: offsets for partition, offsets in needed.items() if offsets}

    def rows(self, names: Sequence[str], filter: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the filter, with the named columns."""
        try:
            # The text may have the name as a value; the column is then made for nothing.
            text = "" if filter is None else str(filter)
            read = [each for each in self.schema.names if each in names or each in text]
            for records in self._source.read(self.needed(filter)):
                rows = pa.Table.from_batches([self._columns.of_records(records, read)])
                passed = rows if filter is None else rows.filter(filter)
                yield from passed.select(names).to_batches()
        except GeneratorExit:
            raise  # the query needs no more rows
        except BaseException as error:
            self.failure = error
            raise


class TopicScan:
    """One scan of a topic; DuckDB reads it once."""

    def __init__(self, table: TopicTable, names: list[str], filter: ds.Expression | None) -> None:
        self._table: Final = table
        self._names: Final = names
        self._filter: Final = filter

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        schema = pa.schema([self._table.schema.field(name) for name in self._names])
        return pa.RecordBatchReader.from_batches(schema, self._table.rows(self._names, self._filter))
