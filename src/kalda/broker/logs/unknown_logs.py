"""Finds the logs of a broker whose partitions the cluster's metadata does not have.

Their files stay and nobody is served from them, so a restart over older data of ZooKeeper, such as a restored
backup, would hide acknowledged records without a word.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.layout import ATTEMPTS_MAX
from kalda.cluster.schema import TopicAssignment
from kalda.common.backoff import jittered
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import ConnectionLossError, SessionExpiredError

_NAMED_MAX: Final = 50
"""Topics that the log line names."""

_RETRY_SECONDS: Final = 1.0
"""A new session is opened within milliseconds, or as soon as a server answers."""

logger: Final = logging.getLogger(__name__)


async def warn_of_unknown_logs(
    store: ClusterStore, logs: Collection[TopicPartition], log_dirs: Iterable[str]
) -> None:
    """Log one warning that names the topics of `logs` of which ZooKeeper lacks all or some partitions.

    Raises:
        ZooKeeperError: ZooKeeper cannot be read.
    """
    topics = sorted({partition.topic for partition in logs})
    if not topics:
        return
    existing, assignments = await _read_topics(store, topics)
    unknown = [
        partition
        for partition in logs
        if partition.topic not in existing
        # A malformed assignment is logged where it is read.
        or (
            partition.topic in assignments
            and partition.partition not in assignments[partition.topic].partitions
        )
    ]
    if not unknown:
        return
    names = sorted({partition.topic for partition in unknown})
    more = len(names) - _NAMED_MAX
    logger.warning(
        "%s does not have %d partitions whose records are in %s, of these topics: %s%s. They are not "
        "served; their files stay. If its data is an older copy, stop all brokers and restore a "
        "newer one before topics of these names are created again. If the topics were deleted while this "
        "broker was down, remove their directories",
        store.zookeeper.engine_name,
        len(unknown),
        ", ".join(log_dirs),
        ", ".join(names[:_NAMED_MAX]),
        f" and {more} more" if more > 0 else "",
    )


async def _read_topics(
    store: ClusterStore, topics: Iterable[str]
) -> tuple[set[str], dict[str, TopicAssignment]]:
    """Return the topics that exist, and the assignments of those of `topics`.

    The logs were opened just before: nothing was sent to ZooKeeper for as long as that took, so the session
    may be over. It is opened again, and the reads are repeated.
    """
    attempt = 1
    while True:
        try:
            existing = set(await store.topics())
            return existing, await store.topic_assignments([each for each in topics if each in existing])
        except (ConnectionLossError, SessionExpiredError):
            if attempt == ATTEMPTS_MAX:
                raise
            attempt += 1
            await asyncio.sleep(jittered(_RETRY_SECONDS, store.random))
