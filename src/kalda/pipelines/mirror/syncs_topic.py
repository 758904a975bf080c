"""Reads what a mirror recorded in the topic of syncs of its target."""

import logging
from collections.abc import Iterator
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.topic import read_compacted
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.offset_syncs import Sync, SyncError, read_sync
from kalda.pipelines.mirror.policy import SYNCS_TOPIC

logger: Final = logging.getLogger(__name__)


def read_syncs(target: ClusterSettings, mirror: str) -> Iterator[tuple[TopicPartition, Sync]]:
    """Yield what each transaction of a mirror recorded, oldest first in each partition.

    Raises:
        ClientError: the topic cannot be read.
    """
    for key, value in read_compacted(target.for_consumer(), SYNCS_TOPIC):
        if value is None:
            continue
        try:
            name, source, sync = read_sync(key, value)
        except SyncError as error:
            logger.warning("%s", error)
            continue
        if name == mirror:
            yield source, sync
