"""Creates ``__cluster_history``, at the first change that a broker notes.

Its one partition is on brokers of Kalda only: Apache Kafka's can hold it, but do not record. A cluster that
starts with one broker after the other has most of them by then.
"""

import logging
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.cluster.history.changes import TOPIC
from kalda.cluster.history.subjects import NOTES
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import NoNodeError
from kalda.zookeeper.port import ZooKeeperClient

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A znode may have 1 MB; its JSON within that of a record has more."""

_SEGMENT_BYTES: Final = 32 * 1024 * 1024
_DAY_MS: Final = 24 * 60 * 60 * 1000

logger: Final = logging.getLogger(__name__)


class HistoryTopic:
    """The topic of the cluster's history, as the brokers create it."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        cache: MetadataCache,
        topic_admin: TopicAdmin,
        zookeeper: ZooKeeperClient,
    ) -> None:
        self._broker_id: Final = broker_id
        self._config: Final = config
        self._cache: Final = cache
        self._topic_admin: Final = topic_admin
        self._zookeeper: Final = zookeeper

    async def create_if_needed(self) -> None:
        """Create the topic if a note waits and there is none.

        Raises:
            ApiError: it was not created; the next attempt may succeed.
            ZooKeeperError: ZooKeeper did not answer.
        """
        if TOPIC in self._cache:
            return
        try:
            if not await self._zookeeper.children(NOTES):
                return
        except NoNodeError:
            return
        outcome = (await self._topic_admin.create_topics([self._creatable()], timeout_ms=0)).get(TOPIC)
        if isinstance(outcome, ApiError) and outcome.code not in (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.REQUEST_TIMED_OUT,
        ):
            raise outcome

    def _creatable(self) -> CreatableTopic:
        config = self._config
        live = [each.id for each in self._cache.brokers.values() if each.is_kalda and not each.is_cordoned]
        own = live.index(self._broker_id) if self._broker_id in live else 0
        chosen = (live[own:] + live[:own])[: config.kalda_cluster_history_replication_factor]
        settings = {
            "cleanup.policy": "delete",
            "max.message.bytes": MESSAGE_BYTES_MAX,
            "min.insync.replicas": 1,
            # A reader begins at a copy of the state, and there is one a day.
            "retention.ms": config.kalda_cluster_history_retention_ms + _DAY_MS,
            "retention.bytes": config.kalda_cluster_history_retention_bytes,
            "segment.bytes": _SEGMENT_BYTES,
            "segment.ms": _DAY_MS,
            "unclean.leader.election.enable": "false",
        }
        return CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=0, broker_ids=chosen or [self._broker_id])
            ],
            configs=[CreatableTopicConfig(name=key, value=str(value)) for key, value in settings.items()],
        )
