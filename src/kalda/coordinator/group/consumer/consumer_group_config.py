"""Declares the settings of consumer groups, under Kafka's names with underscores for the dots."""

from enum import Enum
from typing import Protocol

from kalda.common.config_def import UpdateMode, at_least, one_of
from kalda.common.settings import INT_MAX, Settings, integer, string, string_list
from kalda.coordinator.group.consumer.assignors import Assignor, assignor_named


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


class GroupTimes(Protocol):
    """The times that a group may have of its own. All are milliseconds and may change at any time."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long a member stays in a group without a heartbeat."""
        ...

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that the members of a group are given."""
        ...

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the least time between two target assignments of a group (KIP-1263)."""
        ...


class ConsumerGroupConfig(Settings):
    """Settings of consumer groups."""

    group_consumer_assignment_interval_ms = integer(
        1000,
        "The least time between two target assignments of a consumer group; 0: each change of the group is "
        "assigned at once (KIP-1263).",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    group_consumer_assignors = string_list(
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
        "Server-side assignors of consumer groups, the default first (KIP-848).",
    )
    group_consumer_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval that members of consumer groups are given.", at_least(1)
    )
    group_consumer_max_assignment_interval_ms = integer(
        15000, "Upper bound of a consumer group's assignment interval.", at_least(0)
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15000, "Upper bound of a consumer group's heartbeat interval.", at_least(1)
    )
    group_consumer_max_session_timeout_ms = integer(
        60000, "Upper bound of a consumer group's session timeout.", at_least(1)
    )
    group_consumer_max_size = integer(INT_MAX, "The most members of one consumer group.", at_least(1))
    group_consumer_migration_policy = string(
        "bidirectional",
        "Whether groups may change between the classic and the consumer protocol.",
        one_of(*(policy.value for policy in MigrationPolicy)),
        internal=True,
    )
    group_consumer_min_assignment_interval_ms = integer(
        0, "Lower bound of a consumer group's assignment interval.", at_least(0)
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000, "Lower bound of a consumer group's heartbeat interval.", at_least(1)
    )
    group_consumer_min_session_timeout_ms = integer(
        45000, "Lower bound of a consumer group's session timeout.", at_least(1)
    )
    group_consumer_session_timeout_ms = integer(
        45000, "Session timeout that members of consumer groups are given.", at_least(1)
    )

    def __init__(self, **values: object) -> None:
        """Check what Kafka checks when it starts.

        Raises:
            ValueError: a setting is out of its bounds, or bounds are crossed.
        """
        super().__init__(**values)
        for name in ("assignment_interval_ms", "session_timeout_ms", "heartbeat_interval_ms"):
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

    @property
    def migration_policy(self) -> MigrationPolicy:
        """`group.consumer.migration.policy` as an enumeration."""
        return MigrationPolicy(self.group_consumer_migration_policy)

    def assignors(self) -> dict[str, Assignor]:
        """The assignors by name, the default first."""
        found = [assignor_named(name) for name in self.group_consumer_assignors]
        return {assignor.name: assignor for assignor in found}
