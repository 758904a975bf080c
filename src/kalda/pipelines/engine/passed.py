"""Remembers the records that an operator lets a pipeline pass over, because they stop it.

A task neither decodes nor writes such a record; it counts in the account as `dlq` and as `passed`, and goes
to the dead-letter queue if there is one. The file is read when each batch begins, and a record that was
passed stays passed, so that a batch which is repeated has the same rows.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.engine.batch_log import BatchLogError
from kalda.pipelines.tables.storage import TableStorage

_PASSED: Final = "passed.json"

Passed = Mapping[TopicPartition, Mapping[int, str]]
"""The reason for each record, by partition and offset."""


class PassedRecords:
    """The passed records of one pipeline, in its storage."""

    def __init__(self, storage: str, pipeline: str) -> None:
        self._storage: Final = TableStorage(f"{storage}/batches/{pipeline}")

    def read(self) -> Passed:
        """Return all of them.

        Raises:
            BatchLogError: the file is damaged.
        """
        content = self._storage.read(_PASSED)
        if content is None:
            return {}
        found: dict[TopicPartition, dict[int, str]] = {}
        try:
            for topic, partition, offset, reason in json.loads(content):
                found.setdefault(TopicPartition(str(topic), int(partition)), {})[int(offset)] = str(reason)
        except (ValueError, TypeError) as error:
            raise BatchLogError(f"{self._storage.full_path(_PASSED)} is damaged: {error}") from error
        return found

    def add(self, records: Iterable[tuple[TopicPartition, int]], reason: str) -> None:
        """Add records; a pipeline that runs reads them with its next batch."""
        known = {place: dict(offsets) for place, offsets in self.read().items()}
        for place, offset in records:
            known.setdefault(place, {})[offset] = reason
        rows = [
            [*place, offset, why] for place in sorted(known) for offset, why in sorted(known[place].items())
        ]
        self._storage.replace(_PASSED, json.dumps(rows).encode())
