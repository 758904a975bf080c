"""Names what a task writes: the query, the batch and the part of the batch.

A streaming task reads them from Spark's `TaskContext`. Their names there are internal to Spark, so a task
that does not find them fails instead of writing without a guarantee. The driver gets them from its tasks;
if none of them returned, it reads the query's id from the checkpoint.
"""

import json
from dataclasses import dataclass
from typing import Final, Protocol

from pyarrow import fs

from kalda.spark.sink.options import SinkOptions

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"


class MissingIdentityError(RuntimeError):
    """Spark does not say which batch a task belongs to, so that no repetition could be recognised."""


class TaskProperties(Protocol):
    """The part of Spark's `TaskContext` that is used."""

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802  # Spark's name
        """Return a property of the job."""
        ...

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        """Return the number of the task in its stage."""
        ...


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One part of one batch of one sink; the same for every attempt."""

    scope: str
    """``<query id>-<sink id>``."""
    batch_id: int
    part: int

    @property
    def transactional_id(self) -> str:
        """The transactional id of the part in mode exactly-once."""
        return f"kalda-{self.scope}-{self.part}"


def task_identity(options: SinkOptions, task: TaskProperties | None) -> TaskIdentity:
    """Return the part that the running task writes; `task` is ``TaskContext.get()``.

    Raises:
        MissingIdentityError: Spark does not name the query or the batch.
    """
    if task is None:
        raise MissingIdentityError("`delivery`=exactly-once works in a Spark task only; there is none here")
    if options.txn_id is not None and options.txn_version is not None:
        scope = f"{options.txn_id}-{options.sink_id}"
        return TaskIdentity(scope, options.txn_version, task.partitionId())
    query_id, batch_id = task.getLocalProperty(QUERY_ID_PROPERTY), task.getLocalProperty(BATCH_ID_PROPERTY)
    if not query_id or batch_id is None or not batch_id.isdigit():
        raise MissingIdentityError(
            f"this Spark sets {QUERY_ID_PROPERTY}={query_id!r}, {BATCH_ID_PROPERTY}={batch_id!r} in tasks; "
            "both are needed to recognise a repeated batch; use `delivery`=at-least-once, or `foreachBatch` "
            "with `txn.id` and `txn.version`"
        )
    return TaskIdentity(f"{query_id}-{options.sink_id}", int(batch_id), task.partitionId())


def scope_of_query(options: SinkOptions) -> str | None:
    """Return the scope that the tasks of a query have; None if nothing in the driver names the query."""
    if options.txn_id is not None:
        return f"{options.txn_id}-{options.sink_id}"
    query_id = None if options.checkpoint is None else _query_id(options.checkpoint)
    return None if query_id is None else f"{query_id}-{options.sink_id}"


def _query_id(checkpoint: str) -> str | None:
    """Read the id that Spark writes before the first batch; None on a file system that pyarrow lacks."""
    try:
        files, path = fs.FileSystem.from_uri(checkpoint)
        with files.open_input_stream(f"{path}/metadata") as stream:
            return str(json.loads(stream.read())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        # pyarrow's own errors are of these types.
        return None
