"""Creates the topics and the share group behind a task queue of Celery or taskiq.

Tasks with a time are in a topic of their own, ``<queue>.delayed``: records that wait count as in flight, so
in the queue's topic they would hold up those behind them.
"""

from collections.abc import Mapping
from typing import Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode

DELIVERY_AT: Final = "kalda.delivery.at"
"""The header of a record that is delivered at a time, in milliseconds since 1970."""
DELAYED: Final = ".delayed"
"""The end of the name of the topic for a queue's tasks with a time."""
GROUP_CONFIG: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "10",
    "kalda.share.delivery.at.enable": "true",
}
"""10 is the largest limit that brokers allow by default: a kill of a worker counts as a delivery."""


class TaskTopics:
    """Creates topics.

    Args:
        partitions: How many partitions they have; the brokers' default if None.
        replication_factor: How many replicas, likewise.
        config: Settings of the topics.
        group_config: Settings of the groups, besides `GROUP_CONFIG`.
    """

    def __init__(
        self,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, str],
        group_config: Mapping[str, str],
    ) -> None:
        self._partitions: Final = partitions
        self._replication_factor: Final = replication_factor
        self._config: Final = dict(config)
        self._group_config: Final = {**GROUP_CONFIG, **group_config}

    async def create_queue(self, admin: AsyncAdmin, name: str, group: str) -> None:
        """Create the topics of a queue that are missing, and set up its group before.

        Raises:
            ClientError: the cluster refuses a topic or a setting.
        """
        topics = [name, f"{name}{DELAYED}"]
        described = await admin.describe_topics(topics, outcomes=True)
        missing = [topic for topic in topics if topic not in described.results]
        if missing:
            # Where the topics exist, the settings are the operator's.
            changes = [AlterConfigOp.set(key, value) for key, value in self._group_config.items()]
            await admin.incremental_alter_configs({ConfigResource.group(group): changes})
            await self.create(admin, missing, {})

    async def create(self, admin: AsyncAdmin, names: list[str], config: Mapping[str, str]) -> None:
        """Create topics that may be there already.

        Raises:
            ClientError: the cluster refuses a topic.
        """
        topics = [
            NewTopic(
                name,
                partitions=self._partitions,
                replication_factor=self._replication_factor,
                config={**config, **self._config},
            )
            for name in names
        ]
        for error in (await admin.create_topics(topics, outcomes=True)).errors.values():
            # Another process may have been first.
            if not isinstance(error, BrokerResponseError) or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error
