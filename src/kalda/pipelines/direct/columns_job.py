"""Finds the columns of a batch whose format declares none, before its rows are written.

Each task looks at all records of one range; the driver merges what they find. So a column counts wherever in
the batch its first record is, and the tasks that write decode all ranges to the same columns.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.formats.merging import merged_all
from kalda.pipelines.direct.range_records import RangeReader, ReadMeter, read_range, without_values
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange


@dataclass(frozen=True, slots=True)
class ColumnsJob:
    """What every task of a batch does with its range to find columns."""

    batch_id: int
    source: SourceOptions
    rows: RowPlan
    passed: Mapping[TopicPartition, Collection[int]] = field(default_factory=dict)
    """The offsets of records that are passed over; what their values show does not count."""
    known: pa.StructType = field(default_factory=lambda: pa.struct([]))
    """The columns of earlier batches; what values show that do not fit them does not count."""
    read: RangeReader = read_range

    def run(self, offset_range: OffsetRange, part: int) -> pa.StructType:
        """Return the columns that the values of a range have.

        Raises:
            DataLossError: records of the range are gone, and `failOnDataLoss` is true.
            ClientError, RecordsError, RegistryError, OSError: reading failed.
        """
        wanted = WantedFields(keys=False, values=True, headers=False)
        with closing(self.read(self.source, offset_range, wanted, ReadMeter())) as records:
            passed = self.passed.get(offset_range.topic_partition, ())
            values = (without_values(each, passed).values for each in records)
            return merged_all(self.rows.columns_of(each, self.known) for each in values)
