"""Decides the partitions and settings of topics that the broker creates by itself.

An ordinary topic gets the broker's defaults. An internal topic gets what its coordinators need: those of
groups and transactions are compacted, because they keep state by key, and segments are small, so that topics
load fast.
"""

from typing import Final

from kalda.broker.topics.topic_names import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from kalda.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from kalda.settings import BrokerConfig

BROKER_DEFAULT: Final = -1
"""The number of partitions or replicas that stands for the broker's default (KIP-464)."""


def auto_created_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    """Return the request that creates the topic."""
    partitions = replicas = BROKER_DEFAULT
    settings: dict[str, str] = {}
    if name == GROUP_METADATA_TOPIC:
        partitions = config.offsets_topic_num_partitions
        replicas = config.offsets_topic_replication_factor
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    elif name == TRANSACTION_STATE_TOPIC:
        partitions = config.transaction_state_log_num_partitions
        replicas = config.transaction_state_log_replication_factor
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    elif name == SHARE_GROUP_STATE_TOPIC:
        partitions = config.share_coordinator_state_topic_num_partitions
        replicas = config.share_coordinator_state_topic_replication_factor
        settings = {
            # An update has the key of the updates before it, which compaction would delete with it; the share
            # coordinator deletes what later snapshots replace.
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        }
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
