"""Declares the settings of the share coordinator, under Kafka's names with underscores for the dots."""

from kalda.common.config_def import at_least, between
from kalda.common.settings import HIGH, LOW, Settings, integer, short


class ShareCoordinatorConfig(Settings):
    """The topic ``__share_group_state`` and its coordinator."""

    share_coordinator_cold_partition_snapshot_interval_ms = integer(
        300_000,
        "Interval between snapshots of share partitions that have no updates.",
        at_least(1),
        importance=LOW,
        internal=True,
    )
    share_coordinator_load_buffer_size = integer(
        5_242_880, "Batch size when share state is read back into memory.", at_least(1), importance=HIGH
    )
    share_coordinator_snapshot_update_records_per_snapshot = integer(
        500, "Updates of a share partition that are written between two snapshots.", between(0, 500)
    )
    share_coordinator_state_topic_compression_codec = integer(
        0, "Codec of the share state topic by number; 0 is none.", importance=HIGH
    )
    share_coordinator_state_topic_min_isr = short(
        2, "`min.insync.replicas` of the share state topic.", at_least(1), importance=HIGH
    )
    share_coordinator_state_topic_num_partitions = integer(
        50, "Partitions of the share state topic; do not change it later.", at_least(1), importance=HIGH
    )
    share_coordinator_state_topic_prune_interval_ms = integer(
        300_000,
        "Interval between deletions of records of the share state topic that later snapshots replace.",
        at_least(1),
        importance=LOW,
        internal=True,
    )
    share_coordinator_state_topic_replication_factor = short(
        3,
        "Replicas of the share state topic; its creation waits for that many brokers.",
        at_least(1),
        importance=HIGH,
    )
    share_coordinator_state_topic_segment_bytes = integer(
        104_857_600,
        "Segment size of the share state topic, kept small so that it loads fast.",
        at_least(1),
        importance=HIGH,
    )
    share_coordinator_write_timeout_ms = integer(
        5_000, "How long a write of share state waits for its replicas.", at_least(1), importance=HIGH
    )
