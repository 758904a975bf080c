"""Reads and writes the files of a Spark checkpoint that say how far a query is.

A checkpoint has a file `metadata` with the query's id, and a file for each batch in `offsets` (written before
the batch runs) and in `commits` (written after it). This module knows neither state stores nor Spark's
classes, and never changes a file that exists.

What a maintainer must not break: the texts are Spark's, with the line ``v1`` first; and the offsets are
written as Python's `json` writes them, because Spark compares them as text with what the source returns.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.tables.storage import TableStorage
from kalda.spark.source.offsets import (
    OffsetFormatError,
    PartitionOffsets,
    from_spark_offset,
    is_anchor,
    to_spark_offset,
)

_VERSION_LINE: Final = "v1"


class CheckpointError(Exception):
    """A checkpoint cannot be read, or must not be written; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Where a batch of a query ends."""

    batch_id: int
    offsets: dict[TopicPartition, int]


class CheckpointFiles:
    """The checkpoint at a URI or path; it need not exist."""

    def __init__(self, location: str) -> None:
        self.location: Final = location
        self._storage: Final = TableStorage(location)

    @property
    def query_id(self) -> str | None:
        """The id of the query; None if there is no checkpoint.

        Raises:
            CheckpointError: the file `metadata` is not Spark's.
        """
        text = self._storage.read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{self.location}/metadata is not that of a Spark query") from None

    @property
    def has_batches(self) -> bool:
        """Whether a batch was ever planned."""
        return bool(self._batch_ids("offsets"))

    def last_committed(self) -> BatchOffsets | None:
        """Return the last batch that is complete, with its end; None if there is none.

        Raises:
            CheckpointError: the log of offsets has another form, e.g. that of a query with several sources.
        """
        complete = self._batch_ids("offsets") & self._batch_ids("commits")
        if not complete:
            return None
        batch_id = max(complete)
        return BatchOffsets(batch_id, self._read_offsets(batch_id))

    def create(self, offsets: PartitionOffsets, *, query_id: uuid.UUID, now_ms: int) -> None:
        """Write a checkpoint whose batch 0 is complete and ends at the offsets.

        Args:
            offsets: The next offset to read of each partition.
            query_id: The id of the query; a new one, unless nothing was written under the former one.
            now_ms: The time of batch 0, in milliseconds since the epoch.

        Raises:
            CheckpointError: there is a checkpoint with batches.
        """
        if self.has_batches:
            raise CheckpointError(
                f"{self.location} has a checkpoint with batches, so it is not lost; move it away first"
            )
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}}
        lines = [
            _VERSION_LINE,
            json.dumps(metadata, separators=(",", ":")),
            json.dumps(to_spark_offset(offsets)),
        ]
        # `commits` comes last: without it, Spark would plan batch 0 again.
        self._write("metadata", json.dumps({"id": str(query_id)}, separators=(",", ":")))
        self._write("offsets/0", "\n".join(lines))
        self._write("commits/0", f'{_VERSION_LINE}\n{{"nextBatchWatermarkMs":0}}')

    def _write(self, path: str, text: str) -> None:
        # Hadoop's checksum of a former file would make Spark refuse the new one.
        directory, _, name = path.rpartition("/")
        self._storage.delete(f"{directory}/.{name}.crc" if directory else f".{name}.crc")
        self._storage.replace(path, text.encode())

    def _batch_ids(self, directory: str) -> set[int]:
        names = (found.path.rpartition("/")[2] for found in self._storage.list(directory))
        return {int(name) for name in names if name.isascii() and name.isdigit()}

    def _read_offsets(self, batch_id: int) -> dict[TopicPartition, int]:
        place = f"{self.location}/offsets/{batch_id}"
        text = self._storage.read(f"offsets/{batch_id}") or b""
        lines = text.decode(errors="replace").splitlines()
        if len(lines) != 3 or lines[0] != _VERSION_LINE:
            raise CheckpointError(
                f"{place} is not the log of a query with one source (version {_VERSION_LINE}); queries that "
                "read several sources cannot be repaired"
            )
        try:
            offset = json.loads(lines[2])
            if not isinstance(offset, dict) or is_anchor(offset):
                raise CheckpointError(f"{place} has no offsets of topics")
            return from_spark_offset(offset)
        except (ValueError, OffsetFormatError):
            raise CheckpointError(f"{place} has no offsets of topics: {lines[2][:200]}") from None
