"""Implements `ShareGroupTimes` and the limits of share groups with the settings in force (KIP-1240)."""

from typing import Final

from kalda.broker.config.dynamic_config import ConfigStore
from kalda.broker.config.stored_group_settings import StoredGroupSettings
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.settings import BrokerConfig

_GROUPS_MAX: Final = 1000
"""Groups whose limits are kept."""


class StoredShareSettings(StoredGroupSettings):
    """The settings of share groups."""

    def __init__(self, config: BrokerConfig, store: ConfigStore) -> None:
        self._limits: Final[dict[str, PartitionLimits]] = {}
        """Each fetch of a partition looks at them, so those in force are kept until some setting changes."""
        super().__init__(config, store)
        store.on_entity_change(lambda *_: self._limits.clear())
        store.on_broker_change(lambda _: self._limits.clear())

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long a member stays in a group without a heartbeat, in milliseconds."""
        return self.integer("share.session.timeout.ms", group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that the members of a group are given, in milliseconds."""
        return self.integer("share.heartbeat.interval.ms", group_id)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the least time between two target assignments of a group, in milliseconds."""
        return self.integer("share.assignment.interval.ms", group_id)

    def limits(self, group_id: str) -> PartitionLimits:
        """Return the limits of a group's share partitions."""
        limits = self._limits.get(group_id)
        if limits is None:
            if len(self._limits) >= _GROUPS_MAX:
                self._limits.clear()
            limits = self._limits[group_id] = self._read_limits(group_id)
        return limits

    def _read_limits(self, group_id: str) -> PartitionLimits:
        return PartitionLimits(
            self.integer("share.delivery.count.limit", group_id),
            self.integer("share.record.lock.duration.ms", group_id),
            self.integer("share.partition.max.record.locks", group_id),
            bool(self.value("share.renew.acknowledge.enable", group_id)),
            bool(self.dead_letter_topic(group_id)),
            self.integer("kalda.share.redelivery.backoff.ms", group_id),
            self.integer("kalda.share.redelivery.backoff.max.ms", group_id),
            self.integer("kalda.share.delivery.delay.ms", group_id),
            bool(self.value("kalda.share.delivery.at.enable", group_id)),
            bool(self.value("kalda.share.key.order.enable", group_id)),
        )

    def dead_letter_topic(self, group_id: str) -> str:
        """Return the topic for the group's dead letters, empty if it has none."""
        return str(self.value("errors.deadletterqueue.topic.name", group_id))

    def copies_dead_letters(self, group_id: str) -> bool:
        """Return whether dead letters have the key, the value and the headers of their records."""
        return bool(self.value("errors.deadletterqueue.copy.record.enable", group_id))

    def offset_reset(self, group_id: str) -> str:
        """Return where a partition begins that the group has not read: latest, earliest or by_duration:…"""
        return str(self.value("share.auto.offset.reset", group_id))

    def reads_committed(self, group_id: str) -> bool:
        """Return whether the group gets only committed records."""
        return self.value("share.isolation.level", group_id) == "read_committed"
