"""Applies `failOnDataLoss` when records that a query should read no longer exist."""

import logging
from typing import Final

logger: Final = logging.getLogger(__name__)


class DataLossError(Exception):
    """Records may be missing from what a query read, and `failOnDataLoss` is true."""


def report_data_loss(message: str, *, fail: bool) -> None:
    """Fail, or log a warning and let the query go on without the records.

    Raises:
        DataLossError: `fail` is true.
    """
    if fail:
        raise DataLossError(
            f"{message}. The records may have been removed by retention or DeleteRecords, or their topic "
            "deleted, before this query read them. To go on without them, set `failOnDataLoss` to false."
        )
    logger.warning("%s; going on without the records, as failOnDataLoss is false", message)
