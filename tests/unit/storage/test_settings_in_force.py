"""Each setting of a topic's log counts from the moment it is changed, without a restart."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kalda.records.compression import Compression
from kalda.records.errors import InvalidRecordError, InvalidTimestampError
from kalda.storage.errors import MessageTooLargeError
from kalda.storage.log_config import CleanupPolicy, LogConfig, TimestampTypeConfig
from tests.unit.storage.cleaning_fixtures import COMPACT, CompactedBroker, compacted
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION, Broker, batch

DELETE = frozenset({CleanupPolicy.DELETE})


def put(broker: Broker, value: bytes, timestamp: int = NOW_MS) -> None:
    """Append a record with a key, which any topic takes, and make it visible."""
    broker.log.append_as_leader(batch(value, timestamp=timestamp, key=b"key"), 0)
    broker.log.advance_high_watermark(broker.log.log_end_offset)


class Case(NamedTuple):
    """A setting with two values, and an observation that differs between them."""

    setting: str
    before: object
    after: object
    observe: Callable[[Broker], object]
    others: dict[str, object]


def segments_after_append(broker: Broker) -> int:
    count = len(broker.log.segments)
    put(broker, b"x" * 50, timestamp=broker.clock.time_ms())
    return len(broker.log.segments) - count


def later(seconds: float) -> Callable[[Broker], int]:
    def observe(broker: Broker) -> int:
        put(broker, b"x", timestamp=broker.clock.time_ms())
        broker.clock.advance(seconds)
        return segments_after_append(broker)

    return observe


def refused(error: type[Exception], *values: bytes, **fields: int) -> Callable[[Broker], bool]:
    def observe(broker: Broker) -> bool:
        try:
            broker.log.append_as_leader(batch(*values, **fields), 0)  # type: ignore[arg-type]
        except error:
            return True
        return False

    return observe


def dropped(broker: Broker) -> bool:
    put(broker, b"x" * 100)
    broker.log.roll()
    broker.clock.advance(10)
    put(broker, b"x", timestamp=broker.clock.time_ms())
    return broker.log.delete_old_segments() > 0


def is_flushed(broker: Broker) -> bool:
    put(broker, b"x")
    broker.clock.advance(10)
    broker.manager.flush_step()
    return broker.log.recovery_point == broker.log.log_end_offset


def index_entries(broker: Broker) -> bool:
    for _ in range(5):
        put(broker, b"x" * 50)
    return broker.log.segments[-1].offset_index.entries > 0


def file_bytes(broker: Broker) -> int:
    broker.log.roll()
    return broker.log.segments[-1].records.file().size()


def deleted_after_ten_seconds(broker: Broker) -> bool:
    broker.manager.delete(PARTITION)
    broker.clock.advance(10)
    broker.manager.deletion_step()
    gone = not [path for path in broker.file_system.nodes if "-delete" in path]
    broker.log = broker.manager.get_or_create(PARTITION)
    return gone


def codec(broker: Broker) -> Compression:
    put(broker, b"x" * 100)
    *_, header = [header for _, header in broker.log.segments[-1].records.iter_headers()]
    return header.compression


def has_append_time(broker: Broker) -> bool:
    return broker.log.append_as_leader(batch(b"x", key=b"key"), 0).log_append_time_ms >= 0


CASES = (
    Case("segment_bytes", 10_000, 150, segments_after_append, {}),
    Case("segment_ms", 10_000, 1000, later(5), {}),
    Case("max_compaction_lag_ms", 10_000, 1000, later(5), {"cleanup_policy": COMPACT}),
    Case("segment_index_bytes", 1000, 8, segments_after_append, {"index_interval_bytes": 0}),
    Case("max_message_bytes", 1000, 100, refused(MessageTooLargeError, b"x" * 100), {}),
    Case("index_interval_bytes", 4096, 100, index_entries, {}),
    Case("retention_ms", -1, 5000, dropped, {}),
    Case("retention_bytes", -1, 10, dropped, {"retention_ms": -1}),
    Case("cleanup_policy", COMPACT, DELETE, dropped, {"retention_ms": 5000}),
    Case("cleanup_policy", DELETE, COMPACT, refused(InvalidRecordError, b"no key"), {}),
    Case("flush_messages", 100, 1, is_flushed, {}),
    Case("flush_ms", 60_000, 1000, is_flushed, {}),
    Case("preallocate", False, True, file_bytes, {"segment_bytes": 5000}),
    Case("file_delete_delay_ms", 60_000, 1000, deleted_after_ten_seconds, {}),
    Case("compression_type", "producer", "lz4", codec, {}),
    Case(
        "message_timestamp_type",
        TimestampTypeConfig.CREATE_TIME,
        TimestampTypeConfig.LOG_APPEND_TIME,
        has_append_time,
        {},
    ),
    Case(
        "message_timestamp_before_max_ms",
        10**12,
        1000,
        refused(InvalidTimestampError, timestamp=NOW_MS - 5000),
        {},
    ),
    Case(
        "message_timestamp_after_max_ms",
        10**12,
        1000,
        refused(InvalidTimestampError, timestamp=NOW_MS + 5000),
        {},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_a_change_counts_at_once(case: Case) -> None:
    """The same log, asked before and after the change, answers as logs do that were made with the values."""

    def config(value: object) -> LogConfig:
        return LogConfig(**{**case.others, case.setting: value})  # type: ignore[arg-type]

    def fresh(value: object) -> Broker:
        broker = Broker(config(value))
        put(broker, b"first")
        return broker

    expected = [case.observe(fresh(value)) for value in (case.before, case.after)]
    assert expected[0] != expected[1], "the case shows nothing"
    broker = fresh(case.before)
    broker.config = config(case.after)
    broker.manager.update_topic_config(PARTITION.topic, broker.config)
    assert expected[1] == case.observe(broker)


@pytest.mark.parametrize(
    ("setting", "before", "after"),
    [
        ("min_cleanable_dirty_ratio", 1.0, 0.1),
        ("min_compaction_lag_ms", 60_000, 0),
        ("cleanup_policy", DELETE, COMPACT),
    ],
)
def test_the_cleaner_goes_by_the_settings_in_force(setting: str, before: object, after: object) -> None:
    """What was not due is due after the change."""
    broker = CompactedBroker(compacted(**{setting: before}))
    for number in range(20):
        broker.put((b"k", b"%d" % number))
    broker.roll()
    assert not broker.clean()
    broker.manager.update_topic_config(PARTITION.topic, compacted(**{setting: after}))
    assert broker.clean()


def test_the_delete_horizon_follows_its_setting() -> None:
    """`delete.retention.ms` counts when a tombstone is first cleaned."""
    broker = CompactedBroker(compacted(delete_retention_ms=60_000))
    broker.manager.update_topic_config(PARTITION.topic, compacted(delete_retention_ms=5))
    broker.put((b"k", None))
    broker.roll()
    assert broker.clean()
    [(_, header)] = broker.log.segments[0].records.iter_headers()
    assert NOW_MS + 5 == header.delete_horizon_ms


def test_logs_do_not_roll_all_at_once() -> None:
    """`segment.jitter.ms` takes its part of `segment.ms`, from the first segment on."""
    for fraction, expected in ((0.0, 0), (0.9, 1)):
        broker = Broker(LogConfig(segment_ms=10_000, segment_jitter_ms=5_000))
        object.__setattr__(broker.manager.resources, "random_fraction", lambda fraction=fraction: fraction)
        broker.manager.delete(PARTITION)
        broker.log = broker.manager.get_or_create(PARTITION)
        assert expected == later(7)(broker)
