"""Remembers what a batch was about to commit, so that a crash after the table's commit loses nothing.

Before the table's commit, which is the decision, the driver writes the batch's account and its dead letters'
files here. After a crash, the table says whether the batch was decided, and this file says what there is left
to complete. The file is written before the commit, and replaced only by a later attempt that saw no commit.

Where tasks have transactions (a topic), a batch that is repeated must give each task the same offsets: what a
task committed is not written again. So the ranges are written down before the tasks run.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import AccountError, BatchAccount
from kalda.pipelines.tables.storage import TableStorage
from kalda.spark.source.plan import OffsetRange

_LAST: Final = "last.json"
_PLANNED: Final = "planned.json"
_COLUMNS: Final = "columns.json"
_RecordT = TypeVar("_RecordT")


class BatchLogError(ValueError):
    """The file of the last batch is damaged."""


@dataclass(frozen=True, slots=True)
class BatchIntent:
    """The commit that a batch was about to make."""

    account: BatchAccount
    dead_letters: tuple[str, ...] = ()
    """The staged files of dead letters."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The ranges that the tasks of a batch read, one each."""

    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]


class BatchLog:
    """The intents of one pipeline; only the last one is kept."""

    def __init__(self, storage: str, pipeline: str) -> None:
        self._storage: Final = TableStorage(f"{storage}/batches/{pipeline}")

    def write(self, intent: BatchIntent) -> None:
        """Replace the intent; durable when the method returns, as far as the file system is."""
        document = {"account": intent.account.to_json(), "dead_letters": intent.dead_letters}
        self._storage.replace(_LAST, json.dumps(document).encode())

    def read(self) -> BatchIntent | None:
        """Return the last intent; None if there is none.

        Raises:
            BatchLogError: the file holds something else.
        """
        return self._read(_LAST, _intent)

    def write_plan(self, planned: PlannedBatch) -> None:
        """Replace the plan; durable as an intent is."""
        ranges = [[*each.topic_partition, each.start, each.end] for each in planned.ranges]
        document = {"query_id": planned.query_id, "batch_id": planned.batch_id, "ranges": ranges}
        self._storage.replace(_PLANNED, json.dumps(document).encode())

    def read_plan(self) -> PlannedBatch | None:
        """Return the last plan; None if there is none.

        Raises:
            BatchLogError: the file holds something else.
        """
        return self._read(_PLANNED, _planned)

    def write_columns(self, columns: pa.StructType) -> None:
        """Replace the columns that the values of committed batches have shown."""
        content = pa.schema(list(columns)).serialize().to_pybytes()
        document = {"columns": base64.b64encode(content).decode()}
        self._storage.replace(_COLUMNS, json.dumps(document).encode())

    def read_columns(self) -> pa.StructType:
        """Return the columns that the values of committed batches have shown.

        Raises:
            BatchLogError: the file holds something else.
        """
        found = self._read(_COLUMNS, _columns)
        return pa.struct([]) if found is None else found

    def clear(self) -> None:
        """Forget the last batch: its target does not exist any more."""
        self._storage.delete(_COLUMNS)
        self._storage.delete(_PLANNED)
        self._storage.delete(_LAST)

    def _read(self, name: str, parse: Callable[[Any], _RecordT]) -> _RecordT | None:
        content = self._storage.read(name)
        if content is None:
            return None
        try:
            return parse(json.loads(content))
        except (ValueError, KeyError, TypeError, AccountError, pa.ArrowException) as error:
            raise BatchLogError(f"{self._storage.full_path(name)} is damaged: {error}") from error


def _intent(document: Any) -> BatchIntent:
    return BatchIntent(BatchAccount.from_json(document["account"]), tuple(document["dead_letters"]))


def _columns(document: Any) -> pa.StructType:
    content = base64.b64decode(document["columns"], validate=True)
    return pa.struct(list(pa.ipc.read_schema(pa.py_buffer(content))))


def _planned(document: Any) -> PlannedBatch:
    ranges = tuple(
        OffsetRange(TopicPartition(str(topic), int(partition)), int(start), int(end))
        for topic, partition, start, end in document["ranges"]
    )
    return PlannedBatch(str(document["query_id"]), int(document["batch_id"]), ranges)
