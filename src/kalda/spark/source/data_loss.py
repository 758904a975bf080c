"""Applies `failOnDataLoss` when records that a query should read no longer exist."""

import logging
from typing import Final

logger: Final = logging.getLogger(__name__)


class DataLossError(Exception):
    """Records may be missing from what a query read, and `failOnDataLoss` is true."""


class RecordsGoneError(DataLossError):
    """No further try can find the records: they were removed, or the log is another one."""


_USUAL_CAUSE: Final = (
    "The records may have been removed by retention or DeleteRecords, or their topic deleted, before this "
    "query read them"
)


def report_data_loss(
    message: str, *, fail: bool, cause: str = _USUAL_CAUSE, error: type[DataLossError] = DataLossError
) -> None:
    """Fail, or log a warning and let the query go on without the records.

    Args:
        message: What is missing.
        fail: `failOnDataLoss`.
        cause: A sentence on why, and on what to do about that cause.
        error: What to raise.

    Raises:
        DataLossError: `fail` is true.
    """
    if fail:
        raise error(f"{message}. {cause}. To go on without the records, set `failOnDataLoss` to false.")
    logger.warning("%s; going on without the records, as failOnDataLoss is false", message)
