"""Defines `Target`, the driver's port to the table or topic that batches are committed to.

A target gives tasks the object they write with, and decides that a batch counts. The rows of a batch become
part of the target in `commit` and at no other moment, and a second call for the same batch changes nothing.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.direct.upsert_marks import UpsertMarks
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.table_target import TableTarget
from kalda.pipelines.engine.topic_target import TopicOutput
from kalda.pipelines.spec.model import PipelineFile, PipelineSpec, TableSpec, TopicTarget


class OpenParts(Protocol):
    """The transactions that tasks commit or prepare by themselves, and leave when their driver dies."""

    def complete(self, query_id: str) -> None:
        """Make everything of the last batch that counts visible, after a crash in `commit`."""
        ...

    def abandon(self, query_id: str, batch_id: int) -> None:
        """End what an undecided batch has left open; its query will not run again."""
        ...


class Target(Protocol):
    """Where the batches of a pipeline go."""

    @property
    def parts(self) -> OpenParts | None:
        """The transactions that a batch's tasks prepare; None for a target without them."""
        ...

    @property
    def event_time(self) -> str | None:
        """The column of the rows whose bounds go into the account; None for none."""
        ...

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last batch that counts; None for none."""
        ...

    def holds(self, query_id: str) -> bool:
        """Return whether the target may hold rows that `query_id` wrote."""
        ...

    def rows_target(
        self, schema: pa.Schema, query_id: str, batch_id: int, *, is_inferred: bool = False
    ) -> RowsTarget:
        """Create or evolve the table, and return the object that tasks write with.

        Args:
            schema: the columns of the rows.
            is_inferred: whether the columns are those of this batch's records. A column that does not fit is
                then a matter of the records that have it; else of the pipeline, which is refused.
        """
        ...

    def upsert_marks(self, *, is_spark: bool) -> UpsertMarks | None:
        """Return the marks of upserted and deleted rows; None where rows are appended.

        With Spark, its SQL engine has evaluated `deletes` before."""
        ...

    def commit(self, account: BatchAccount, written: Sequence[Written]) -> None:
        """Commit the batch, which makes its rows visible."""
        ...

    def maintain(self) -> None:
        """Do what is due between two batches, such as merging small files. It fails no batch."""
        ...


def open_target(spec: PipelineSpec, file: PipelineFile) -> Target:
    """Return the target of a pipeline that reads topics."""
    decision = DecisionFile(file.storage, spec.name)
    if isinstance(spec.target, TableSpec):
        return TableTarget(spec.target, decision)
    assert isinstance(spec.target, TopicTarget), spec.kind
    return TopicOutput(spec.target, file.cluster(spec.target.cluster), decision)
