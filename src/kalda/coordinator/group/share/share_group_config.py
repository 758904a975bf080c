"""Declares the settings of share groups, under Kafka's names with underscores for the dots."""

from typing import Final, Protocol

from kalda.common.config_def import UpdateMode, at_least, between, list_of
from kalda.common.settings import Settings, boolean, integer, string, string_list

ASSIGNOR: Final = "simple"


class ShareGroupTimes(Protocol):
    """The times that a share group may have of its own. All are milliseconds and may change at any time."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long a member stays in a group without a heartbeat."""
        ...

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that the members of a group are given."""
        ...

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the least time between two target assignments of a group."""
        ...


class ShareGroupConfig(Settings):
    """Settings of share groups."""

    errors_deadletterqueue_auto_create_topics_enable = boolean(
        False,
        "Whether the topic that a share group names for its dead letters is created if it is missing "
        "(KIP-1191).",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix = string(
        "dlq.",
        "With what the names of topics for dead letters begin; empty: with anything (KIP-1191).",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    group_share_assignment_interval_ms = integer(
        1000,
        "The least time between two target assignments of a share group; 0: each change of the group is "
        "assigned at once.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    group_share_assignors = string_list(
        (ASSIGNOR,), "Server-side assignors of share groups; there is one.", list_of(ASSIGNOR)
    )
    group_share_delivery_count_limit = integer(
        5, "How often a record of a share group is delivered before it is given up.", between(2, 10)
    )
    group_share_heartbeat_interval_ms = integer(
        5000, "Heartbeat interval that members of share groups are given.", at_least(1)
    )
    group_share_initialize_retry_interval_ms = integer(
        30_000,
        "How long a share group waits for the state of a new partition before it is created again.",
        at_least(1),
        internal=True,
    )
    group_share_max_assignment_interval_ms = integer(
        15000, "Upper bound of a share group's assignment interval.", at_least(0)
    )
    group_share_max_delivery_count_limit = integer(
        10, "Upper bound of a share group's delivery count limit.", between(5, 25)
    )
    group_share_max_heartbeat_interval_ms = integer(
        15000, "Upper bound of a share group's heartbeat interval.", at_least(1)
    )
    group_share_max_partition_max_record_locks = integer(
        4000, "Upper bound of a share group's limit of locked records.", between(2000, 10000)
    )
    group_share_max_record_lock_duration_ms = integer(
        60000,
        "Upper bound of the time that a record stays locked by a share consumer.",
        between(30000, 3_600_000),
    )
    group_share_max_session_timeout_ms = integer(
        60000, "Upper bound of a share group's session timeout.", at_least(1)
    )
    group_share_max_share_sessions = integer(2000, "The most share sessions of a broker.", at_least(1))
    group_share_max_size = integer(200, "The most members of one share group.", between(1, 1000))
    group_share_min_assignment_interval_ms = integer(
        0, "Lower bound of a share group's assignment interval.", at_least(0)
    )
    group_share_min_delivery_count_limit = integer(
        2, "Lower bound of a share group's delivery count limit.", between(2, 5)
    )
    group_share_min_heartbeat_interval_ms = integer(
        5000, "Lower bound of a share group's heartbeat interval.", at_least(1)
    )
    group_share_min_partition_max_record_locks = integer(
        100, "Lower bound of a share group's limit of locked records.", between(100, 2000)
    )
    group_share_min_record_lock_duration_ms = integer(
        15000, "Lower bound of the time that a record stays locked by a share consumer.", between(1000, 30000)
    )
    group_share_min_session_timeout_ms = integer(
        45000, "Lower bound of a share group's session timeout.", at_least(1)
    )
    group_share_partition_max_record_locks = integer(
        2000, "The most records of a partition that are in flight to a share group.", between(100, 10000)
    )
    group_share_record_lock_duration_ms = integer(
        30000, "How long a record stays locked by a share consumer.", between(1000, 3_600_000)
    )
    group_share_session_timeout_ms = integer(
        45000, "Session timeout that members of share groups are given.", at_least(1)
    )

    def __init__(self, **values: object) -> None:
        """Check what Kafka checks when it starts.

        Raises:
            ValueError: a setting is out of its bounds, or bounds are crossed.
        """
        super().__init__(**values)
        for name in (
            "assignment_interval_ms",
            "delivery_count_limit",
            "heartbeat_interval_ms",
            "partition_max_record_locks",
            "record_lock_duration_ms",
            "session_timeout_ms",
        ):
            value = getattr(self, f"group_share_{name}")
            low = getattr(self, f"group_share_min_{name}")
            high = getattr(self, f"group_share_max_{name}")
            dotted = name.replace("_", ".")
            if not low <= value <= high:
                raise ValueError(
                    f"group.share.{dotted}={value} is not between group.share.min.{dotted}={low} and "
                    f"group.share.max.{dotted}={high}"
                )
        if self.group_share_heartbeat_interval_ms >= self.group_share_session_timeout_ms:
            raise ValueError(
                f"group.share.heartbeat.interval.ms={self.group_share_heartbeat_interval_ms} must be below "
                f"group.share.session.timeout.ms={self.group_share_session_timeout_ms}"
            )
