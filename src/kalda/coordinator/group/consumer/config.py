"""The settings of consumer groups, under Kafka's names with underscores for the dots."""

from dataclasses import dataclass
from enum import Enum

from kalda.coordinator.group.consumer.assignors import Assignor, assignor_named

__all__ = ["ConsumerGroupConfig", "MigrationPolicy"]

_INT_MAX = 2**31 - 1


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: whether a live group may change its protocol."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in {MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL}

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in {MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """Settings of consumer groups."""

    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = _INT_MAX
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def __post_init__(self) -> None:
        """Check what Kafka checks when it starts.

        Raises:
            ValueError: a setting is out of its bounds, or bounds are crossed.
        """
        for name in ("session_timeout_ms", "heartbeat_interval_ms"):
            value = getattr(self, f"group_consumer_{name}")
            low = getattr(self, f"group_consumer_min_{name}")
            high = getattr(self, f"group_consumer_max_{name}")
            setting, dotted = f"group.consumer.{name.replace('_', '.')}", name.replace("_", ".")
            if not low <= value <= high:
                raise ValueError(
                    f"{setting}={value} is not between group.consumer.min.{dotted}={low} and "
                    f"group.consumer.max.{dotted}={high}"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ValueError(
                f"group.consumer.heartbeat.interval.ms={self.group_consumer_heartbeat_interval_ms} must be "
                f"below group.consumer.session.timeout.ms={self.group_consumer_session_timeout_ms}"
            )
        if not self.group_consumer_assignors:
            raise ValueError("group.consumer.assignors is empty; it needs one assignor at least")
        for name in self.group_consumer_assignors:
            assignor_named(name)

    def assignors(self) -> dict[str, Assignor]:
        """The assignors by name, the default first."""
        found = [assignor_named(name) for name in self.group_consumer_assignors]
        return {assignor.name: assignor for assignor in found}
