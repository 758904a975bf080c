"""Finds the columns of a batch whose format declares none, before its rows are written.

Each task looks at all records of one range; the driver merges what they find. So a column counts wherever in
the batch its first record is, and the tasks that write decode all ranges to the same columns.

A value that does not fit the columns of earlier batches is bad. Its fields are columns too, because a field
without a column is ignored, but they must not turn a column of good values into text.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.formats.merging import extended, merged_all, settled, text_places
from kalda.pipelines.direct.range_records import RangeReader, ReadMeter, read_range, without_values
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange


@dataclass(frozen=True, slots=True)
class ShownColumns:
    """The columns that values have."""

    good: pa.StructType
    """Those of the values that fit the columns of earlier batches."""
    all: pa.StructType

    @classmethod
    def together(cls, parts: Iterable["ShownColumns"]) -> "ShownColumns":
        """Return the columns of several parts of a batch."""
        found = list(parts)
        return cls(merged_all(each.good for each in found), merged_all(each.all for each in found))

    def beside(self, known: pa.StructType) -> pa.StructType:
        """Return the columns of the batch, of which those of earlier batches are `known`."""
        return settled(extended(extended(known, self.good), self.all))

    def texts_beside(self, columns: pa.StructType) -> Collection[str]:
        """Return the columns of the batch whose nested fields were not all found."""
        return frozenset(text_places(columns, self.all))


@dataclass(frozen=True, slots=True)
class ColumnsJob:
    """What every task of a batch does with its range to find columns."""

    batch_id: int
    source: SourceOptions
    rows: RowPlan
    passed: Mapping[TopicPartition, Collection[int]] = field(default_factory=dict)
    """The offsets of records that are passed over; what their values show does not count."""
    known: pa.StructType = field(default_factory=lambda: pa.struct([]))
    """The columns of earlier batches."""
    read: RangeReader = read_range

    def run(self, offset_range: OffsetRange, part: int) -> ShownColumns:
        """Return the columns that the values of a range have.

        Raises:
            DataLossError: records of the range are gone, and `failOnDataLoss` is true.
            ClientError, RecordsError, RegistryError, OSError: reading failed.
        """
        wanted = WantedFields(keys=False, values=True, headers=False)
        with closing(self.read(self.source, offset_range, wanted, ReadMeter())) as records:
            passed = self.passed.get(offset_range.topic_partition, ())
            values = (without_values(each, passed).values for each in records)
            return ShownColumns.together(map(self._shown, values))

    def _shown(self, values: pa.BinaryArray) -> ShownColumns:
        shown = self.rows.columns_of(values)
        return ShownColumns(self.rows.good_columns_of(values, self.known, shown), shown)
