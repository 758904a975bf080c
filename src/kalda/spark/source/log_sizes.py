"""Estimates how many bytes the records of a partition take in its log, for options that count bytes.

No request of Kafka's protocol says how many bytes lie between two offsets. The estimate is the size of the
whole log over the offsets it spans: right on average, wrong where the sizes of records change over time.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.spark.source.offsets import PartitionOffsets

if TYPE_CHECKING:
    from kalda.clients.admin.admin import Admin

logger: Final = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 60.0
"""How long an estimate is used: it changes slowly, and the request goes to every broker."""
CALL_TIMEOUT_MS: Final = 10_000


class LogSizes:
    """The estimates for the partitions of one query."""

    def __init__(
        self,
        connection: Mapping[str, str],
        option: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            connection: Settings of an admin client by Kafka's names.
            option: The name of the option, for warnings.
            monotonic: The clock.
        """
        self._option: Final = option
        self._connection: Final = connection
        self._monotonic: Final = monotonic
        self._admin: Admin | None = None
        self._asked_at: float | None = None
        self._known: dict[TopicPartition, float] = {}

    def bytes_per_offset(
        self, beginnings: PartitionOffsets, ends: PartitionOffsets
    ) -> Mapping[TopicPartition, float]:
        """Return the estimates; a partition whose size no broker returns is missing.

        Args:
            beginnings: Where the logs begin.
            ends: Where they end.
        """
        now = self._monotonic()
        if (
            self._asked_at is None
            or now - self._asked_at > REFRESH_SECONDS
            or ends.keys() - self._known.keys()
        ):
            self._asked_at = now
            sizes = self._ask(ends)
            self._known |= {
                each: sizes[each] / (end - beginnings[each])
                for each, end in ends.items()
                if each in sizes and each in beginnings and end > beginnings[each]
            }
        return self._known

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _ask(self, partitions: PartitionOffsets) -> dict[TopicPartition, int]:
        if self._admin is None:
            # Imported here: few queries limit bytes.
            from kalda.clients.admin.admin import Admin

            self._admin = Admin.from_config(dict(self._connection))
        try:
            answer = self._admin.describe_log_dirs(
                partitions=list(partitions), timeout_ms=CALL_TIMEOUT_MS, outcomes=True
            )
        except ClientError as error:
            logger.warning("%s has no effect: the brokers return no log sizes: %s", self._option, error)
            return {}
        sizes: dict[TopicPartition, int] = {}
        for directories in answer.results.values():
            for directory in directories.values():
                for each, replica in directory.replica_infos.items():
                    # A replica that lags behind, or is being moved, has less than its leader.
                    if not replica.is_future:
                        sizes[each] = max(sizes.get(each, 0), replica.size)
        for broker_id, failure in answer.errors.items():
            logger.warning("%s: broker %d returns no log sizes: %s", self._option, broker_id, failure)
        return sizes
