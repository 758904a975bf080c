"""Declares the settings of replication, of leadership and of the controller."""

from kalda.common.config_def import UpdateMode, at_least
from kalda.common.settings import HIGH, LONG_MAX, LOW, Settings, boolean, integer, long, string


class ReplicationConfig(Settings):
    """Replication, leadership and the controller."""

    alter_log_dirs_replication_quota_window_num = integer(
        11, "Samples kept for the quota on moves between log directories.", at_least(1), importance=LOW
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        1, "Length of one sample of the quota on moves between log directories.", at_least(1), importance=LOW
    )
    auto_leader_rebalance_enable = boolean(
        True, "Whether the controller moves leadership back to preferred replicas by itself.", importance=HIGH
    )
    controlled_shutdown_enable = boolean(True, "Whether leadership is moved away before a broker stops.")
    controlled_shutdown_max_retries = integer(3, "How often a controlled shutdown is tried again.")
    controlled_shutdown_retry_backoff_ms = long(5000, "Pause before a controlled shutdown is tried again.")
    controller_socket_timeout_ms = integer(30000, "How long the controller waits on its channel to a broker.")
    default_replication_factor = integer(
        1, "Replicas of topics that are created without a replication factor."
    )
    leader_imbalance_check_interval_seconds = long(
        300,
        "Pause between checks of how many leaders are not the preferred ones.",
        at_least(1),
        importance=HIGH,
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "Share of non-preferred leaders, in percent, above which a broker's leaders are moved back.",
        importance=HIGH,
    )
    num_replica_fetchers = integer(
        1, "Threads that fetch from each leader.", importance=HIGH, update_mode=UpdateMode.CLUSTER_WIDE
    )
    num_replica_alter_log_dirs_threads = integer(
        None,
        "Replicas that are copied to other log directories at the same time; by default one for each "
        "log directory.",
        importance=HIGH,
    )
    replica_fetch_backoff_ms = integer(1000, "Pause of a follower after a fetch that failed.", at_least(0))
    replica_fetch_max_bytes = integer(
        1_048_576,
        "Bytes per partition that a follower asks for; the first batch comes however large it is.",
        at_least(0),
    )
    replica_fetch_min_bytes = integer(
        1, "Bytes that a leader gathers before it answers a follower, within the wait time.", importance=HIGH
    )
    replica_fetch_response_max_bytes = integer(
        10_485_760, "Bytes in all that a follower asks for in one fetch.", at_least(0)
    )
    replica_fetch_wait_max_ms = integer(
        500,
        "The longest that a leader holds a follower's fetch; keep it below `replica.lag.time.max.ms`.",
        importance=HIGH,
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        5000, "Pause between writes of the high watermarks.", importance=HIGH
    )
    replica_lag_time_max_ms = long(
        30000, "A follower that has not caught up for this long leaves the in-sync replicas.", importance=HIGH
    )
    replica_selector_class = string(None, "The class that picks the replica a consumer should read from.")
    replica_socket_receive_buffer_bytes = integer(
        65536, "Socket receive buffer of a follower's fetches.", importance=HIGH
    )
    replica_socket_timeout_ms = integer(30000, "Socket timeout of a follower's fetches.", importance=HIGH)
    replication_quota_window_num = integer(
        11, "Samples kept for the replication throttle.", at_least(1), importance=LOW
    )
    replication_quota_window_size_seconds = integer(
        1, "Length of one sample of the replication throttle.", at_least(1), importance=LOW
    )
    follower_replication_throttled_rate = long(
        LONG_MAX,
        "Bytes a second that throttled replicas fetch; set by tools that move replicas.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
        internal=True,
    )
    leader_replication_throttled_rate = long(
        LONG_MAX,
        "Bytes a second that throttled replicas are served; set by tools that move replicas.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
        internal=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        LONG_MAX,
        "Bytes a second that move between log directories; set by tools that move replicas.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
        internal=True,
    )
