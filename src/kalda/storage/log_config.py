"""Declares the settings of one log, typed and with Kafka's defaults; the broker parses and validates them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1


class CleanupPolicy(StrEnum):
    """The values of ``cleanup.policy``."""

    DELETE = "delete"
    COMPACT = "compact"


class TimestampTypeConfig(StrEnum):
    """The values of ``message.timestamp.type``."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's log settings, named as Kafka's topic configs with underscores; -1 means "no limit".

    `UnifiedLog.update_config` replaces the object.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    max_message_bytes: int = 1024 * 1024 + 12
    index_interval_bytes: int = 4096
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: TimestampTypeConfig = TimestampTypeConfig.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    message_downconversion_enable: bool = True
    message_magic: int = 2
    """The format that records are stored in, from ``message.format.version``."""
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    preallocate: bool = False
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    errors_deadletterqueue_group_enable: bool = False
    kalda_schema_validation_key: str = "off"
    kalda_schema_validation_value: str = "off"
    kalda_schema_key_subject_name_strategy: str = "topic"
    kalda_schema_value_subject_name_strategy: str = "topic"

    @property
    def max_segment_ms(self) -> int:
        """The longest a segment stays active; compaction never cleans the active segment (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_compacted(self) -> bool:
        """Whether the topic keeps the last record of each key."""
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention deletes old segments by age and size."""
        return CleanupPolicy.DELETE in self.cleanup_policy
