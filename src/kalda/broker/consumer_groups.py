"""Puts the consumer protocol (KIP-848) into the shards of the group coordinator, with its settings."""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from kalda.broker.config import BrokerConfig
from kalda.broker.topics_view import CachedTopics
from kalda.common.config_def import ConfigError
from kalda.common.types import uuid_to_text
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig
from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from kalda.coordinator.group.consumer.protocol import ConsumerProtocol
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.group.partition import GroupPartition

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

__all__ = ["build_consumer_groups", "consumer_group_config", "consumer_protocol_maker"]


def consumer_group_config(config: BrokerConfig) -> ConsumerGroupConfig:
    """Read and check the settings of consumer groups.

    Raises:
        ConfigError: they contradict each other, or name an assignor that there is not.
    """
    try:
        return config.part(ConsumerGroupConfig)
    except ValueError as error:
        raise ConfigError("group.consumer", str(error)) from None


def consumer_protocol_maker(services: "BrokerServices") -> Callable[[GroupPartition], None]:
    """What gives a new shard its consumer protocol."""
    config = consumer_group_config(services.config)
    topics = CachedTopics(services.metadata_cache)

    def add(shard: GroupPartition) -> None:
        # Ids of members are random in Kafka, too; who knows one can speak for the member.
        shard.consumer = ConsumerProtocol(
            shard, config, topics, lambda: uuid_to_text(uuid.uuid4()), shard.classic
        )

    return add


def build_consumer_groups(services: "BrokerServices", groups: GroupCoordinator) -> ConsumerGroupCoordinator:
    """What handlers call; refuses everything where `group.coordinator.rebalance.protocols` says so."""
    protocols = services.config.group_coordinator_rebalance_protocols
    return ConsumerGroupCoordinator(groups.run_consumer, is_enabled="consumer" in protocols)
