"""Reads the checkpoint of a Structured Streaming query (its id, each batch's offsets), or creates a lost one.

A checkpoint has a file `metadata` with the query's id, and a file for each batch in `offsets` (written before
the batch runs) and in `commits` (written after it). Spark writes the checkpoint; only a lost one is made
here. This module knows neither state stores nor Spark's classes, and never changes a file that exists.

The offsets of a batch come from the log that Spark writes before the batch runs, so a replay of the batch
finds the same there. The texts are Spark's, and the offsets are written as Python's `json` writes them,
because Spark compares them as text with what the source returns.
"""

import json
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from kalda.common.types import TopicPartition
from kalda.pipelines.tables.storage import TableStorage
from kalda.spark.source.offsets import (
    OffsetFormatError,
    PartitionOffsets,
    SparkOffset,
    from_spark_offset,
    is_anchor,
    to_spark_offset,
    topic_ids_of,
)

_VERSION_LINE: Final = "v1"


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or must not be written; the message names it and says what to do."""


class Checkpoint:
    """The checkpoint at a URI or path; it need not exist."""

    def __init__(self, location: str) -> None:
        self.location: Final = location
        self._storage: Final = TableStorage(location)

    def query_id(self) -> str | None:
        """Return the query's id, which is the same after each restart; None for a query never started.

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

    def check(self) -> None:
        """Check that Spark can go on from here; a query never started has nothing to check.

        Spark notices the same, each time the query starts, and says "assertion failed" or less.

        Raises:
            CheckpointError: a part is missing or damaged.
        """
        planned, committed = self._batch_ids("offsets"), self._batch_ids("commits")
        if not planned:
            if committed:
                raise CheckpointError(f"{self.location} has commits of batches, but offsets of none")
            return
        if self.query_id() is None:
            raise CheckpointError(f"{self.location} has batches, but lacks the file metadata")
        last = max(planned)
        for batch_id in range(max(last - 1, 0), last + 1):
            if batch_id not in planned:
                raise CheckpointError(f"{self.location}/offsets has batch {last}, but lacks batch {batch_id}")
            self.offsets(batch_id)
        for batch_id in committed & {last - 1, last}:
            text = self._storage.read(f"commits/{batch_id}")
            if text is not None and not text.startswith(b"v"):
                raise CheckpointError(f"{self.location}/commits/{batch_id} is damaged: {text[:50]!r}")

    def last_planned(self) -> int | None:
        """Return the last batch that was planned; None for none."""
        return max(self._batch_ids("offsets"), default=None)

    def last_committed(self) -> int | None:
        """Return the last batch that was finished; None for none."""
        return max(self._batch_ids("offsets") & self._batch_ids("commits"), default=None)

    def offsets(self, batch_id: int) -> dict[TopicPartition, int] | None:
        """Return where a batch ends; None where the log has no such batch or the batch fixes the start.

        Raises:
            CheckpointError: the entry holds something else, e.g. several sources.
        """
        offset = self._offset(batch_id)
        if offset is None or is_anchor(offset):
            return None
        try:
            return from_spark_offset(offset)
        except OffsetFormatError:
            raise CheckpointError(
                f"{self.location}/offsets/{batch_id} has no offsets of topics: {json.dumps(offset)[:200]}"
            ) from None

    def topic_ids(self, batch_id: int) -> dict[str, UUID]:
        """Return the ids of the topics of a batch, as far as the log has them; raises as `offsets`."""
        return topic_ids_of(self._offset(batch_id) or {})

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return where the last finished batch ends.

        Raises:
            CheckpointError: there is none, or its entry holds something else.
        """
        last = self.last_committed()
        if last is None:
            raise CheckpointError(f"{self.location} has no complete batch")
        offsets = self.offsets(last)
        if offsets is None:
            raise CheckpointError(f"{self.location}/offsets/{last} has no offsets of topics")
        return offsets

    def create(
        self,
        offsets: PartitionOffsets,
        topic_ids: Mapping[str, UUID] | None = None,
        *,
        query_id: UUID,
        now_ms: int,
    ) -> None:
        """Write a checkpoint whose batch 0 is complete and ends at the offsets.

        Args:
            offsets: The next offset to read of each partition.
            topic_ids: The ids of the topics that the offsets belong to, as far as they are known.
            query_id: The id of the query; a new one, unless nothing was written under the former one.
            now_ms: The time of batch 0, in milliseconds since the epoch.

        Raises:
            CheckpointError: there is a checkpoint with batches.
        """
        if self.last_planned() is not None:
            raise CheckpointError(
                f"{self.location} has a checkpoint with batches, so it is not lost; move it away first"
            )
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}}
        lines = [
            _VERSION_LINE,
            json.dumps(metadata, separators=(",", ":")),
            json.dumps(to_spark_offset(offsets, topic_ids)),
        ]
        # `commits` comes last: without it, Spark would plan batch 0 again.
        self._write("metadata", json.dumps({"id": str(query_id)}, separators=(",", ":")))
        self._write("offsets/0", "\n".join(lines))
        self._write("commits/0", f'{_VERSION_LINE}\n{{"nextBatchWatermarkMs":0}}')

    def _offset(self, batch_id: int) -> SparkOffset | None:
        text = self._storage.read(f"offsets/{batch_id}")
        if text is None:
            return None
        place = f"{self.location}/offsets/{batch_id}"
        # The version, a line about the batch, then a line for each source.
        lines = text.decode(errors="replace").splitlines()
        if len(lines) != 3 or lines[0] != _VERSION_LINE:
            raise CheckpointError(
                f"{place} is not the log of a query with one source (version {_VERSION_LINE})"
            )
        try:
            offset = json.loads(lines[2])
        except ValueError:
            offset = None
        if not isinstance(offset, dict):
            raise CheckpointError(f"{place} has no offsets of topics: {lines[2][:200]}")
        return offset

    def _write(self, path: str, text: str) -> None:
        # Hadoop's checksum of a former file would make Spark refuse the new one.
        directory, _, name = path.rpartition("/")
        self._storage.delete(f"{directory}/.{name}.crc" if directory else f".{name}.crc")
        self._storage.replace(path, text.encode())

    def _batch_ids(self, directory: str) -> set[int]:
        names = (found.path.rpartition("/")[2] for found in self._storage.list(directory))
        return {int(name) for name in names if name.isascii() and name.isdigit()}
