"""Declares the broker's settings of logs and of log compaction, many of them defaults of topics' settings."""

from kalda.common.config_def import UpdateMode, at_least, between, list_of, one_of
from kalda.common.settings import (
    HIGH,
    LONG_MAX,
    LOW,
    Settings,
    boolean,
    double,
    integer,
    long,
    string,
    string_list,
)
from kalda.settings.definitions.validators import DOUBLE_MAX, GZIP_LEVEL, KAFKA_VERSION


class ServerLogConfig(Settings):
    """Logs, their directories and their compaction."""

    compression_gzip_level = integer(
        -1,
        "Compression level where the broker compresses with gzip; -1 is zlib's own default.",
        GZIP_LEVEL,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    compression_lz4_level = integer(
        9,
        "Compression level where the broker compresses with lz4.",
        between(1, 17),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    compression_type = string(
        "producer",
        "The codec in which the topic's batches are kept; `producer` keeps each as the producer sent it.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    compression_zstd_level = integer(
        3,
        "Compression level where the broker compresses with zstd.",
        between(-131_072, 22),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    cordoned_log_dirs = string_list(
        (),
        "Log directories that get no new replicas, or * for all; a broker with nothing else gets none "
        "(KIP-1066).",
        update_mode=UpdateMode.PER_BROKER,
    )
    log_cleaner_backoff_ms = long(
        15000,
        "Pause of the cleaner when there is nothing to clean.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size = long(
        134_217_728,
        "Memory for the cleaner's table of keys, over all its threads.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms = long(
        86_400_000,
        "How long tombstones stay readable in compacted topics.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_enable = boolean(True, "Whether compacted topics are cleaned.")
    log_cleaner_io_buffer_load_factor = double(
        0.9, "How full the cleaner's table of keys may get.", update_mode=UpdateMode.CLUSTER_WIDE
    )
    log_cleaner_io_buffer_size = integer(
        524_288,
        "Memory for the cleaner's reads and writes, over all its threads.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second = double(
        DOUBLE_MAX,
        "Throttle of the cleaner's reads and writes together.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_max_compaction_lag_ms = long(
        LONG_MAX,
        "A record becomes due for compaction after this time at the latest.",
        at_least(1),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_min_cleanable_ratio = double(
        0.5,
        "Share of a compacted log that must be uncleaned before it is cleaned.",
        between(0, 1),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        0,
        "A record stays uncompacted for at least this time.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_threads = integer(
        1, "Threads that clean logs.", at_least(0), update_mode=UpdateMode.CLUSTER_WIDE
    )
    log_cleanup_policy = string_list(
        ("delete",),
        "What happens to old segments: deletion by time and size, compaction by key, both, or nothing.",
        list_of("compact", "delete"),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_dir = string(
        "/tmp/kafka-logs", "The directory of the data where `log.dirs` is not set.", importance=HIGH
    )
    log_dirs = string(
        None, "The directories of the data, separated by commas; `log.dir` where not set.", importance=HIGH
    ).computed_as(tuple[str, ...])
    log_flush_interval_messages = long(
        LONG_MAX,
        "Messages that may gather in a partition before they are forced to disk.",
        at_least(1),
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_flush_interval_ms = long(
        None,
        "Time that messages may stay unforced; `log.flush.scheduler.interval.ms` where not set.",
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        60000, "Pause between writes of the recovery points.", at_least(0), importance=HIGH
    )
    log_flush_scheduler_interval_ms = long(
        LONG_MAX, "Interval between checks for logs that are due to be forced to disk.", importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        60000, "Pause between writes of the log start offsets.", at_least(0), importance=HIGH
    )
    log_index_interval_bytes = integer(
        4096,
        "Bytes of log between two entries of the offset index.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_index_size_max_bytes = integer(
        10_485_760,
        "The size at which an index is full and its segment is rolled.",
        at_least(4),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_message_downconversion_enable = boolean(
        True,
        "Whether records are converted to the older format that an old consumer knows.",
        importance=LOW,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_message_format_version = string(
        "3.0-IV1",
        "The release whose message format is stored: below 0.10 without times, below 0.11 without headers.",
        KAFKA_VERSION,
    )
    log_message_timestamp_after_max_ms = long(
        LONG_MAX,
        "How far a record's timestamp may lie after the broker's clock.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms = long(
        LONG_MAX,
        "How far a record's timestamp may lie before the broker's clock.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_message_timestamp_difference_max_ms = long(
        LONG_MAX,
        "How far a record's timestamp may differ from the broker's clock; the older form of the two above.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_message_timestamp_type = string(
        "CreateTime",
        "Whether a record keeps its creation time or gets the time of its append.",
        one_of("CreateTime", "LogAppendTime"),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_preallocate = boolean(
        False, "Whether a new segment's file gets its full size at once.", update_mode=UpdateMode.CLUSTER_WIDE
    )
    log_retention_bytes = long(
        -1,
        "Size above which a partition's oldest segments are deleted; -1 is no bound.",
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_retention_check_interval_ms = long(
        300_000, "Interval between checks for segments that are due to be deleted.", at_least(1)
    )
    log_retention_hours = integer(
        168, "Hours that segments are kept, where neither minutes nor milliseconds are set.", importance=HIGH
    )
    log_retention_minutes = integer(
        None, "Minutes that segments are kept, where milliseconds are not set.", importance=HIGH
    )
    log_retention_ms = long(
        None,
        "Milliseconds that segments are kept; -1 is for ever.",
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_roll_hours = integer(
        168,
        "Hours after which a segment is rolled, where milliseconds are not set.",
        at_least(1),
        importance=HIGH,
    )
    log_roll_jitter_hours = integer(
        0,
        "Random hours taken off the roll time, where milliseconds are not set.",
        at_least(0),
        importance=HIGH,
    )
    log_roll_jitter_ms = long(
        None,
        "Random milliseconds taken off the roll time, so that segments do not roll all at once.",
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_roll_ms = long(
        None,
        "Milliseconds after which a segment is rolled even if it is not full.",
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_segment_bytes = integer(
        1_073_741_824,
        "The size at which a segment is full and the next one begins.",
        at_least(14),
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms = long(
        60000,
        "How long the files of a deleted segment stay on disk.",
        at_least(0),
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    message_max_bytes = integer(
        1_048_588,
        "The largest record batch, after compression, that topics take.",
        at_least(0),
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    min_insync_replicas = integer(
        1,
        "Replicas that must be in sync before a write with acks=all is accepted.",
        at_least(1),
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    num_partitions = integer(1, "Partitions of topics that are created without saying how many.", at_least(1))
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost data.",
        importance=HIGH,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
