"""Sends records that became no rows to the dead-letter queue, as part of the batch's commit.

Tasks stage them as files beside the checkpoint; after the table's commit the driver publishes them in one
transaction that also says which batch they belong to. The original key, value, timestamp and headers stay as
they are, and headers that begin with ``dlq.`` say where the record was and what is wrong. A dead letter is
published once if its batch was committed, and never otherwise.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kalda.common.types import TopicPartition
from kalda.pipelines.direct.row_plan import DecodeFailure
from kalda.pipelines.direct.rows_target import DeadLetters, Written
from kalda.pipelines.dlq.letters import (
    OMITTED,
    TIMESTAMP,
    Letter,
    Origin,
    letters_of,
    read_letter,
    with_present_times,
    without_record,
)
from kalda.pipelines.dlq.replay import REQUEST_BYTES_MAX, create_topics
from kalda.pipelines.engine.exactly_once_publish import publish_once
from kalda.pipelines.engine.topic_fit import read_limits, record_sizes
from kalda.pipelines.spec.model import Cluster, retry_topic
from kalda.pipelines.tables.storage import errors_that_name
from kalda.records.columnar import ColumnarBatch

logger: Final = logging.getLogger(__name__)

_OMITTED_BYTES: Final = len(OMITTED) + 32 + len(TIMESTAMP) + 32
"""The headers that a letter without its record or its timestamp has in addition, at most."""


@dataclass(frozen=True, slots=True)
class DeadLetterOutput:
    """The dead-letter queue of one pipeline; picklable, used by tasks and by the driver."""

    pipeline: str
    topic: str
    group_id: str
    cluster: Cluster
    storage: str
    """The URI of the pipelines' storage."""

    def open(self, query_id: str, batch_id: int, part: int) -> DeadLetters:
        """Return the way of one task to the queue."""
        return _TaskLetters(self, batch_id, part)

    def create_topics(self) -> None:
        """Create the queue's topic, and that of replayed records, if they do not exist.

        Raises:
            ClientError: the cluster refuses it or cannot be reached.
        """
        create_topics({**self.cluster.properties, "client.id": self.group_id}, self.topic)

    def publish(self, query_id: str, batch_id: int, files: Sequence[str]) -> None:
        """Publish what the tasks of a decided batch staged; again after a crash.

        Raises:
            ClientError: the cluster did not take them; nothing is visible.
        """
        if not files:
            return
        publish_once(
            self.cluster.properties,
            topic=self.topic,
            name=f"{self.group_id}-dlq",
            query_id=query_id,
            batch_id=batch_id,
            batches=self._fitting(files),
        )

    def first(self, files: Sequence[str]) -> Letter | None:
        """Return the first letter that is staged in the files; None if there is none."""
        for letters in self._staged(files):
            for headers in letters.column("headers").to_pylist():
                return read_letter((each["key"], each["value"]) for each in headers)
        return None

    def clean(self) -> None:
        """Delete what is staged: it is published, or belongs to an attempt without a decision."""
        files, directory = self.directory()
        files.delete_dir_contents(directory, missing_dir_ok=True)

    def directory(self) -> tuple[fs.FileSystem, str]:
        """Return the directory of the staged files."""
        files, root = fs.FileSystem.from_uri(self.storage)
        return files, f"{root}/dead-letters/{self.pipeline}"

    def _fitting(self, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the letters as the topic takes them.

        Those that the topic has no room for come without their record's value, and those whose timestamp it
        refuses with the present time. The batch is decided, so that a letter which cannot be written would
        stop the pipeline for good.
        """
        limits = read_limits(self.topic, self.cluster, {"max.request.size": REQUEST_BYTES_MAX})
        limit = limits.record_bytes_max or int(REQUEST_BYTES_MAX)
        now_ms = time.time_ns() // 1_000_000
        for letters in self._staged(files):
            # As numbers: Python has no times beyond the year 9999.
            times = letters.column("timestamp").cast(pa.int64())
            letters = letters.set_column(letters.schema.get_field_index("timestamp"), "timestamp", times)
            refused = limits.refused_times(times, now_ms)
            letters = with_present_times(letters, refused) if refused else letters
            sizes = record_sizes(letters)
            if sizes.max(initial=0) <= limit:
                yield letters
                continue
            bare = record_sizes(letters.set_column(1, "value", pa.nulls(len(sizes), pa.binary())))
            rows = [
                row if size <= limit else without_record(row, int(size), keep=least <= limit - _OMITTED_BYTES)
                for row, size, least in zip(letters.to_pylist(), sizes, bare, strict=True)
            ]
            logger.warning(
                "%s: %d dead letters are without their records, which have up to %d bytes; %s takes %d: "
                "raise its `max.message.bytes` to keep such records whole",
                self.pipeline,
                int((sizes > limit).sum()),
                int(sizes.max()),
                self.topic,
                limit,
            )
            yield pa.RecordBatch.from_pylist(rows, letters.schema)

    def _staged(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        files, directory = self.directory()
        for name in names:
            with files.open_input_file(f"{directory}/{name}") as file:
                yield from pq.ParquetFile(file).iter_batches()


class _TaskLetters:
    """The dead letters of one task."""

    def __init__(self, output: DeadLetterOutput, batch_id: int, part: int) -> None:
        self._output: Final = output
        now_ms = time.time_ns() // 1_000_000
        self._origin: Final = Origin(output.pipeline, batch_id, now_ms, retry_topic(output.topic))
        # A retried or speculative attempt writes a file of its own.
        self._name: Final = f"{batch_id}-{part}-{secrets.token_hex(4)}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._count = 0

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        """Take the records that the failures name by their row."""
        letters = letters_of(records, topic_partition, failures, self._origin, stage)
        with errors_that_name(self._output.storage):
            self._opened(letters.schema).write_batch(letters)
        self._count += len(failures)

    def finish(self) -> Written:
        """Complete the file; without a letter there is none."""
        if self._writer is None:
            return Written(0)
        with errors_that_name(self._output.storage):
            self._writer.close()
        return Written(self._count, (self._name,))

    def abandon(self) -> None:
        """Leave the file; the driver deletes files that no decision names."""
        if self._writer is not None:
            self._writer.close()

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        if self._writer is None:
            files, directory = self._output.directory()
            files.create_dir(directory, recursive=True)
            self._writer = pq.ParquetWriter(f"{directory}/{self._name}", schema, filesystem=files)
        return self._writer
