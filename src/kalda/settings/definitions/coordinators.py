"""Declares the settings of the coordinators' topics, of producer ids and of transactions.

The settings of groups are declared where they are read, in `kalda.coordinator.group`.
"""

from kalda.common.config_def import UpdateMode, at_least, list_of
from kalda.common.settings import HIGH, LOW, Settings, boolean, integer, short, string_list


class CoordinatorConfig(Settings):
    """The topics of the coordinators, producer ids and transactions."""

    group_coordinator_rebalance_protocols = string_list(
        ("classic", "consumer"),
        "The rebalance protocols that groups may use.",
        list_of("consumer", "classic", "share", "unknown"),
    )
    offsets_load_buffer_size = integer(
        5_242_880,
        "Batch size when committed offsets are read back into memory.",
        at_least(1),
        importance=HIGH,
    )
    offsets_topic_compression_codec = integer(
        0, "Codec of the offsets topic by number; 0 is none.", importance=HIGH
    )
    offsets_topic_num_partitions = integer(
        50, "Partitions of the offsets topic; do not change it later.", at_least(1), importance=HIGH
    )
    offsets_topic_replication_factor = short(
        3,
        "Replicas of the offsets topic; its creation waits for that many brokers.",
        at_least(1),
        importance=HIGH,
    )
    offsets_topic_segment_bytes = integer(
        104_857_600,
        "Segment size of the offsets topic, kept small so that it compacts soon and loads fast.",
        at_least(1),
        importance=HIGH,
    )
    producer_id_expiration_check_interval_ms = integer(
        600_000,
        "Interval between checks for producer ids that expired.",
        at_least(1),
        importance=LOW,
        internal=True,
    )
    producer_id_expiration_ms = integer(
        86_400_000,
        "How long an idle producer's sequence state is kept.",
        at_least(1),
        importance=LOW,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10000, "Interval between checks for transactions that timed out.", at_least(1), importance=LOW
    )
    transaction_max_timeout_ms = integer(
        900_000, "The longest transaction timeout that a producer may ask for.", at_least(1), importance=HIGH
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Whether a leader checks that the partition was added to the transaction before it appends.",
        importance=LOW,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3_600_000, "Interval between checks for transactional ids that expired.", at_least(1), importance=LOW
    )
    transaction_state_log_load_buffer_size = integer(
        5_242_880, "Batch size when transactions are read back into memory.", at_least(1), importance=HIGH
    )
    transaction_state_log_min_isr = integer(
        2, "`min.insync.replicas` of the transactions topic.", at_least(1), importance=HIGH
    )
    transaction_state_log_num_partitions = integer(
        50, "Partitions of the transactions topic; do not change it later.", at_least(1), importance=HIGH
    )
    transaction_state_log_replication_factor = short(
        3,
        "Replicas of the transactions topic; its creation waits for that many brokers.",
        at_least(1),
        importance=HIGH,
    )
    transaction_state_log_segment_bytes = integer(
        104_857_600,
        "Segment size of the transactions topic, kept small so that it compacts soon and loads fast.",
        at_least(1),
        importance=HIGH,
    )
    transaction_two_phase_commit_enable = boolean(
        False,
        "Whether producers may take part in a two-phase commit: their transactions never time out.",
        importance=LOW,
    )
    transactional_id_expiration_ms = integer(
        604_800_000, "How long an idle transactional id is remembered.", at_least(1), importance=HIGH
    )
