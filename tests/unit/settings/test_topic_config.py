import pytest

from kalda.common.config_def import ConfigError
from kalda.settings import BrokerConfig
from kalda.storage.log_config import CleanupPolicy, LogConfig, TimestampTypeConfig

HOUR_MS = 3_600_000
INT64_MAX = 2**63 - 1


def log_config(broker: dict[str, str], **overrides: str) -> LogConfig:
    config = BrokerConfig.from_properties(broker)
    return config.log_config({name.replace("_", "."): value for name, value in overrides.items()})


def test_without_settings_a_log_has_the_storages_defaults() -> None:
    """Two places hold Kafka's defaults: the storage's, for who uses it alone, and these definitions."""
    assert LogConfig() == log_config({})


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * 60_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_wins(broker: dict[str, str], retention_ms: int) -> None:
    assert retention_ms == log_config(broker).retention_ms


def test_a_topics_defaults_come_from_the_broker() -> None:
    config = log_config(
        {
            "log.segment.bytes": "1000",
            "log.roll.hours": "1",
            "log.roll.jitter.hours": "2",
            "log.flush.scheduler.interval.ms": "77",
            "message.max.bytes": "555",
            "log.cleanup.policy": "compact,delete",
            "min.insync.replicas": "2",
            "log.message.timestamp.type": "LogAppendTime",
            "producer.id.expiration.ms": "9",
        }
    )

    assert (1000, HOUR_MS, 2 * HOUR_MS, 77, 555, 2, 9) == (
        config.segment_bytes,
        config.segment_ms,
        config.segment_jitter_ms,
        config.flush_ms,
        config.max_message_bytes,
        config.min_insync_replicas,
        config.producer_id_expiration_ms,
    )
    assert frozenset({CleanupPolicy.COMPACT, CleanupPolicy.DELETE}) == config.cleanup_policy
    assert TimestampTypeConfig.LOG_APPEND_TIME is config.message_timestamp_type


def test_a_topics_own_setting_wins() -> None:
    config = log_config({"log.segment.bytes": "1000"}, segment_bytes="2000", retention_ms="5")

    assert (2000, 5) == (config.segment_bytes, config.retention_ms)


def test_an_empty_cleanup_policy_keeps_every_segment() -> None:
    """KIP-1161."""
    config = log_config({}, cleanup_policy="")
    assert (False, False) == (config.is_deleted, config.is_compacted)


def test_the_older_timestamp_bound_counts_where_the_newer_ones_are_untouched() -> None:
    older = log_config({}, message_timestamp_difference_max_ms="10")
    assert (10, 10) == (older.message_timestamp_before_max_ms, older.message_timestamp_after_max_ms)

    both = log_config({}, message_timestamp_difference_max_ms="10", message_timestamp_after_max_ms="20")
    assert (10, 20) == (both.message_timestamp_before_max_ms, both.message_timestamp_after_max_ms)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"no.such": "1"}, "`no.such` is not a setting"),
        ({"retention.m": "1"}, "did you mean `retention.ms`?"),
        ({"segment.bytes": "13"}, "`segment.bytes`=13 is not allowed: it takes an int, at least 14"),
        ({"cleanup.policy": "shrink"}, "a list of compact, delete"),
        ({"compression.type": "none"}, "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "a double, 0 to 1"),
        ({"compression.gzip.level": "0"}, "-1 or 1 to 9"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker pairs"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "is above `max.compaction.lag.ms`=4"),
        ({"remote.storage.enable": "true"}, "tiered storage is not available"),
        ({"remote.log.copy.disable": "true"}, "not allowed in a cluster that ZooKeeper coordinates"),
    ],
)
def test_what_a_topic_may_not_have(overrides: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties({}).topics.validate(overrides)

    assert problem in str(caught.value)
