"""Encodes what a commit to a table records about its batch, in the metadata of each table format."""

from collections.abc import Iterable
from typing import Final

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.tables.model import DataFile

QUERY: Final = "kalda.query-id"
BATCH: Final = "kalda.batch-id"
ACCOUNT: Final = "kalda.account"


def commit_metadata(batch: BatchAccount) -> dict[str, str]:
    """Return the query, the batch, and the account with its offset ranges as JSON, without totals."""
    return {QUERY: batch.query_id, BATCH: str(batch.batch_id), ACCOUNT: batch.without_totals().to_json()}


def event_time_max(files: Iterable[DataFile]) -> int | None:
    """Return the greatest event time of some files, in milliseconds; None without event times."""
    return max((file.event_time_max for file in files if file.event_time_max is not None), default=None)
