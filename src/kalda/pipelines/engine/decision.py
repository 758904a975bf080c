"""Notes the last decided batch in a file, for targets that cannot always hold the decision themselves.

A topic has no place for it beside the records, and a table does not exist before a batch shows its columns.
"""

import json
from typing import Final

from kalda.pipelines.engine.batch_log import BatchLogError
from kalda.pipelines.tables.storage import TableStorage

_DECIDED: Final = "decided.json"


class DecisionFile:
    """The last decided batch of one pipeline, in its storage."""

    def __init__(self, storage: str, pipeline: str) -> None:
        self._storage: Final = TableStorage(f"{storage}/batches/{pipeline}")

    def note(self, query_id: str, batch_id: int) -> None:
        """Replace the decision; durable when the method returns, as far as the file system is."""
        document = {"query_id": query_id, "batch_id": batch_id}
        self._storage.replace(_DECIDED, json.dumps(document).encode())

    def batch(self, query_id: str) -> int | None:
        """Return the last decided batch of a query; None for none.

        Raises:
            BatchLogError: the file holds something else.
        """
        content = self._storage.read(_DECIDED)
        if content is None:
            return None
        try:
            document = json.loads(content)
            return int(document["batch_id"]) if document["query_id"] == query_id else None
        except (ValueError, KeyError, TypeError) as error:
            raise BatchLogError(f"{self._storage.full_path(_DECIDED)} is damaged: {error}") from error
