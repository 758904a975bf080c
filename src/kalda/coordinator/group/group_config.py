"""Declares the settings of the group coordinator, under Kafka's names with underscores for the dots."""

from kalda.common.config_def import at_least
from kalda.common.settings import HIGH, INT_MAX, Settings, integer, long


class GroupConfig(Settings):
    """Settings of classic groups and of offsets."""

    group_initial_rebalance_delay_ms = integer(
        3000, "How long an empty group waits for more members before its first rebalance."
    )
    group_max_session_timeout_ms = integer(
        1_800_000, "The longest session timeout that a classic member may ask for."
    )
    group_max_size = integer(INT_MAX, "The most members of one classic group.", at_least(1))
    group_min_session_timeout_ms = integer(
        6000, "The shortest session timeout that a classic member may ask for."
    )
    kalda_group_members_max_bytes = integer(
        32 * 1024 * 1024,
        "The most memory that the members of one group take: their metadata for each protocol, topics, ids. "
        "A member beyond it gets GROUP_MAX_SIZE_REACHED. Kalda's own.",
        at_least(1),
    )
    kalda_groups_members_max_bytes = long(
        192 * 1024 * 1024,
        "The most memory that the members of all groups of a broker take. A member beyond it gets "
        "COORDINATOR_NOT_AVAILABLE and tries again. Kalda's own.",
        at_least(1),
    )
    offset_metadata_max_bytes = integer(
        4096, "The longest metadata text of an offset commit.", importance=HIGH
    )
    offsets_commit_timeout_ms = integer(
        5000, "How long an offset commit waits for its replicas.", at_least(1), importance=HIGH
    )
    offsets_retention_check_interval_ms = long(
        600_000, "Interval between checks for committed offsets that expired.", at_least(1), importance=HIGH
    )
    offsets_retention_minutes = integer(
        10080, "How long committed offsets outlive their group's last activity.", at_least(1), importance=HIGH
    )

    @property
    def offsets_retention_ms(self) -> int:
        """`offsets.retention.minutes` in milliseconds."""
        return self.offsets_retention_minutes * 60_000
