"""Finds the columns of a batch whose format declares none, before its rows are written.

Each task looks at all records of one range; the driver merges what they find. So a column counts wherever in
the batch its first record is, and the tasks that write decode all ranges to the same columns.
"""

from dataclasses import dataclass

import pyarrow as pa

from kalda.formats.merging import merged_all
from kalda.pipelines.direct.range_records import ReadMeter, read_columns
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import pooled_reader, prepare_worker


@dataclass(frozen=True, slots=True)
class ColumnsJob:
    """What every task of a batch does with its range to find columns."""

    batch_id: int
    source: SourceOptions
    rows: RowPlan

    def run(self, offset_range: OffsetRange, part: int) -> pa.StructType:
        """Return the columns that the values of a range have.

        Raises:
            DataLossError: records of the range are gone, and `failOnDataLoss` is true.
            ClientError, RecordsError, RegistryError, OSError: reading failed.
        """
        prepare_worker()
        with pooled_reader(self.source.client) as reader:
            records = read_columns(
                reader, self.source, offset_range, want_headers=False, want_keys=False, meter=ReadMeter()
            )
            return merged_all(self.rows.columns_of(each.values) for each in records)
