"""The settings that the group coordinator reads, under Kafka's names with underscores for the dots."""

from dataclasses import dataclass

__all__ = ["GroupConfig"]

_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of classic groups and of offsets."""

    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = _INT_MAX
    group_min_session_timeout_ms: int = 6000
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10080

    @property
    def offsets_retention_ms(self) -> int:
        """`offsets.retention.minutes` in milliseconds."""
        return self.offsets_retention_minutes * 60_000
