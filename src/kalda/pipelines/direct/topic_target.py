"""Writes a task's rows into a prepared transaction of a topic, for pipelines from topic to topic.

The transaction stays invisible to readers of committed records until the driver completes it by its decision.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.topic_rows import TopicRows

if TYPE_CHECKING:
    from kalda.spark.sink.prepared import PreparedOutput


@dataclass(frozen=True, slots=True)
class PreparedTopicTarget:
    """Makes records of rows and prepares them.

    Args:
        output: the topic, with the scope of the query.
        rows: how rows become records.
    """

    output: "PreparedOutput"
    rows: TopicRows

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        """Produce the rows in one transaction and prepare it.

        Raises:
            TopicRowError, EncodeError, RowError: a row cannot become a record.
            ClientError: the cluster did not take a record, or allows no two-phase commit.
        """
        handle = self.output.write(self._records(batches), batch_id)
        return Written(0) if handle is None else Written(handle.row_count, prepared=handle)

    def _records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            yield self.rows.records(each)
