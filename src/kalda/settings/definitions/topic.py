"""Declares the settings of topics and the broker's settings that are their defaults."""

from typing import Final

from kalda.common.config_def import at_least, between, list_of, one_of
from kalda.common.settings import LONG_MAX, LOW, Settings, boolean, double, integer, long, string, string_list
from kalda.schemas.payloads.record_check import ValidationMode
from kalda.schemas.payloads.subjects import SubjectNameStrategy
from kalda.settings.definitions.validators import GZIP_LEVEL, KAFKA_VERSION, THROTTLED_REPLICAS


class TopicConfig(Settings):
    """The settings that a topic can override."""

    cleanup_policy = string_list(
        ("delete",),
        "What happens to old segments: `delete` by time and size, `compact` by key, both, or nothing.",
        list_of("compact", "delete"),
    )
    compression_gzip_level = integer(
        -1, "Compression level where the broker compresses with gzip; -1 is zlib's own default.", GZIP_LEVEL
    )
    compression_lz4_level = integer(
        9, "Compression level where the broker compresses with lz4.", between(1, 17)
    )
    compression_type = string(
        "producer",
        "The codec in which the topic's batches are kept; `producer` keeps each as the producer sent it.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_zstd_level = integer(
        3, "Compression level where the broker compresses with zstd.", between(-131_072, 22)
    )
    delete_retention_ms = long(
        86_400_000, "How long tombstones stay readable after compaction could drop them.", at_least(0)
    )
    errors_deadletterqueue_group_enable = boolean(
        False, "Whether groups may name the topic as the one for their dead letters (KIP-1191)."
    )
    file_delete_delay_ms = long(60000, "How long the files of a deleted segment stay on disk.", at_least(0))
    flush_messages = long(
        LONG_MAX, "Messages that may gather before they are forced to disk; 1 forces each batch.", at_least(1)
    )
    flush_ms = long(LONG_MAX, "Time that messages may stay unforced.", at_least(0))
    follower_replication_throttled_replicas = string_list(
        (), "Replicas whose fetching is throttled, as `partition:broker` pairs or `*`.", THROTTLED_REPLICAS
    )
    index_interval_bytes = integer(4096, "Bytes of log between two entries of the offset index.", at_least(0))
    kalda_schema_key_subject_name_strategy = string(
        "topic",
        "Under which subject the schema of a key must be registered where keys are checked: `topic` is "
        "`<topic>-key`, `record` the record's full name, `topic_record` `<topic>-<record>`.",
        one_of(*SubjectNameStrategy),
    )
    kalda_schema_validation_key = string(
        "off",
        "What the leader checks of the keys of produced records: `id`, that each is framed with the id of a "
        "schema of the subject; `full`, also that the key is of this schema. A null key passes.",
        one_of(*ValidationMode),
    )
    kalda_schema_validation_value = string(
        "off",
        "What the leader checks of the values of produced records: `off`, `id` or `full`, as for keys. A "
        "null value (tombstone) passes.",
        one_of(*ValidationMode),
    )
    kalda_schema_value_subject_name_strategy = string(
        "topic",
        "Under which subject the schema of a value must be registered where values are checked: `topic`, "
        "`record` or `topic_record`, as for keys.",
        one_of(*SubjectNameStrategy),
    )
    leader_replication_throttled_replicas = string_list(
        (), "Replicas whose serving is throttled, as `partition:broker` pairs or `*`.", THROTTLED_REPLICAS
    )
    local_retention_bytes = long(
        -2,
        "Size kept on local disk of a tiered topic; -2 means all that `retention.bytes` allows.",
        at_least(-2),
        without_effect="tiered storage",
    )
    local_retention_ms = long(
        -2,
        "Time that segments of a tiered topic stay on local disk; -2 means as long as `retention.ms`.",
        at_least(-2),
        without_effect="tiered storage",
    )
    max_compaction_lag_ms = long(
        LONG_MAX, "A record becomes due for compaction after this time at the latest.", at_least(1)
    )
    max_message_bytes = integer(
        1_048_588, "The largest record batch, after compression, that the topic takes.", at_least(0)
    )
    message_downconversion_enable = boolean(
        True,
        "Whether records are converted to the older format that an old consumer knows.",
        importance=LOW,
    )
    message_format_version = string(
        "3.0-IV1",
        "The release whose message format is stored: below 0.10 without times, below 0.11 without headers.",
        KAFKA_VERSION,
    )
    message_timestamp_after_max_ms = long(
        LONG_MAX, "How far a record's timestamp may lie after the broker's clock.", at_least(0)
    )
    message_timestamp_before_max_ms = long(
        LONG_MAX, "How far a record's timestamp may lie before the broker's clock.", at_least(0)
    )
    message_timestamp_difference_max_ms = long(
        LONG_MAX,
        "How far a record's timestamp may differ from the broker's clock; the older form of the two above.",
        at_least(0),
    )
    message_timestamp_type = string(
        "CreateTime",
        "Whether a record keeps its creation time or gets the time of its append.",
        one_of("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio = double(
        0.5, "Share of the log that must be uncleaned before it is compacted.", between(0, 1)
    )
    min_compaction_lag_ms = long(0, "A record stays uncompacted for at least this time.", at_least(0))
    min_insync_replicas = integer(
        1, "Replicas that must be in sync before a write with acks=all is accepted.", at_least(1)
    )
    preallocate = boolean(False, "Whether a new segment's file gets its full size at once.")
    remote_log_copy_disable = boolean(
        False, "Whether a tiered topic stops copying to tiered storage.", without_effect="tiered storage"
    )
    remote_log_delete_on_disable = boolean(
        False,
        "Whether tiered data is deleted when the topic stops being tiered.",
        without_effect="tiered storage",
    )
    remote_storage_enable = boolean(
        False, "Whether the topic is tiered (KIP-405).", without_effect="tiered storage"
    )
    retention_bytes = long(-1, "Size above which a partition's oldest segments are deleted; -1 is no bound.")
    retention_ms = long(604_800_000, "Time that segments are kept; -1 is for ever.", at_least(-1))
    segment_bytes = integer(
        1_073_741_824, "The size at which a segment is full and the next one begins.", at_least(14)
    )
    segment_index_bytes = integer(
        10_485_760, "The size at which an index is full and its segment is rolled.", at_least(4)
    )
    segment_jitter_ms = long(
        0, "Random time taken off `segment.ms`, so that segments do not roll all at once.", at_least(0)
    )
    segment_ms = long(
        604_800_000, "Time after which a segment is rolled even if it is not full.", at_least(1)
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost data.",
    )


_MS_PER_MINUTE: Final = 60_000
_MS_PER_HOUR: Final = 3_600_000

TOPIC_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (
        ("log.flush.interval.ms", 1),
        ("log.flush.scheduler.interval.ms", 1),
    ),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MS_PER_MINUTE),
        ("log.retention.hours", _MS_PER_HOUR),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (
        ("log.roll.jitter.ms", 1),
        ("log.roll.jitter.hours", _MS_PER_HOUR),
    ),
    "segment.ms": (
        ("log.roll.ms", 1),
        ("log.roll.hours", _MS_PER_HOUR),
    ),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""The broker's settings that a topic's default comes from, the winner first, with their unit's factor."""
