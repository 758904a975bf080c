"""Reads the checkpoint of a Structured Streaming query: its id, and which offsets each batch reads.

Spark writes the checkpoint, and nothing here changes it. What a maintainer must not break: the offsets of a
batch come from the log that Spark writes before the batch runs; a replay of the batch finds the same there.
"""

import json
from typing import Any, Final

from pyarrow import fs

from kalda.common.types import TopicPartition
from kalda.spark.source.offsets import from_spark_offset, is_anchor

_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""An entry of the offset log has some 20 bytes for each partition."""


class CheckpointError(ValueError):
    """A checkpoint lacks what Spark should have written, or holds something else."""


class Checkpoint:
    """The checkpoint of one query."""

    def __init__(self, uri: str) -> None:
        self.uri: Final = uri
        self._files, self._path = fs.FileSystem.from_uri(uri)

    def query_id(self) -> str | None:
        """Return the query's id, which is the same after each restart; None for a query never started.

        Raises:
            CheckpointError: the file with the id holds something else.
        """
        text = self._read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.uri}/metadata is not the metadata of a Spark query") from error

    def last_planned(self) -> int | None:
        """Return the last batch that was planned; None for none."""
        return self._last("offsets")

    def last_committed(self) -> int | None:
        """Return the last batch that was finished; None for none."""
        return self._last("commits")

    def offsets(self, batch_id: int) -> dict[TopicPartition, int] | None:
        """Return where a batch ends; None where the log has no such batch or the batch fixes the start.

        Raises:
            CheckpointError: the entry holds something else, e.g. several sources.
        """
        document = self._entry(batch_id)
        return None if document is None or is_anchor(document) else from_spark_offset(document)

    def _entry(self, batch_id: int) -> dict[str, Any] | None:
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            return None
        lines = text.splitlines()
        # The version, a line about the batch, then a line for each source.
        if len(lines) != 3 or not lines[0].startswith("v"):
            raise CheckpointError(
                f"{self.uri}/offsets/{batch_id} has {len(lines)} lines; a pipeline's batch has 3"
            )
        try:
            document = json.loads(lines[2])
        except ValueError as error:
            raise CheckpointError(f"{self.uri}/offsets/{batch_id} holds no offsets: {lines[2]}") from error
        if not isinstance(document, dict):
            raise CheckpointError(f"{self.uri}/offsets/{batch_id} holds no offsets: {lines[2]}")
        return document

    def _last(self, directory: str) -> int | None:
        selector = fs.FileSelector(f"{self._path}/{directory}", allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _read(self, name: str) -> str | None:
        path = f"{self._path}/{name}"
        try:
            with self._files.open_input_stream(path) as stream:
                content: bytes = stream.read(_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        return content.decode()
