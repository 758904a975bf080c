"""The request handlers: one module per API key, which exports its `HANDLER`.

A handler turns one request message into its response and keeps no state of its own: it calls the parts in
`BrokerServices`. It does not decode, encode or count; the dispatcher does. The broker serves the APIs listed
here and returns the same list for ApiVersions, but for Kalda's own APIs, which only Kalda's clients see. A
request of any other API closes the connection.
"""

from kalda.broker.requests.api import ApiHandler
from kalda.broker.requests.handlers import (
    acquire_read_lease,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    release_read_lease,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from kalda.protocol.messages.api_versions import ApiVersion

HANDLERS: tuple[ApiHandler, ...] = (
    produce.HANDLER,
    fetch.HANDLER,
    list_offsets.HANDLER,
    metadata.HANDLER,
    leader_and_isr.HANDLER,
    stop_replica.HANDLER,
    update_metadata.HANDLER,
    controlled_shutdown.HANDLER,
    offset_commit.HANDLER,
    offset_fetch.HANDLER,
    find_coordinator.HANDLER,
    join_group.HANDLER,
    heartbeat.HANDLER,
    leave_group.HANDLER,
    sync_group.HANDLER,
    describe_groups.HANDLER,
    list_groups.HANDLER,
    api_versions.HANDLER,
    create_topics.HANDLER,
    delete_topics.HANDLER,
    delete_records.HANDLER,
    init_producer_id.HANDLER,
    offset_for_leader_epoch.HANDLER,
    add_partitions_to_txn.HANDLER,
    add_offsets_to_txn.HANDLER,
    end_txn.HANDLER,
    write_txn_markers.HANDLER,
    txn_offset_commit.HANDLER,
    describe_configs.HANDLER,
    alter_configs.HANDLER,
    describe_log_dirs.HANDLER,
    create_partitions.HANDLER,
    delete_groups.HANDLER,
    elect_leaders.HANDLER,
    incremental_alter_configs.HANDLER,
    alter_partition_reassignments.HANDLER,
    list_partition_reassignments.HANDLER,
    offset_delete.HANDLER,
    update_features.HANDLER,
    describe_cluster.HANDLER,
    describe_producers.HANDLER,
    describe_transactions.HANDLER,
    list_transactions.HANDLER,
    consumer_group_heartbeat.HANDLER,
    consumer_group_describe.HANDLER,
    list_config_resources.HANDLER,
    describe_topic_partitions.HANDLER,
    acquire_read_lease.HANDLER,
    release_read_lease.HANDLER,
)
"""Every handler of this broker, by ascending API key."""


def advertised_versions() -> tuple[ApiVersion, ...]:
    """Return each API with the versions that ApiVersions advertises, by ascending key.

    Kalda's own APIs come last; `api_versions` leaves them out for other software.
    """
    ranges = sorted((handler.key, handler.versions_advertised) for handler in HANDLERS)
    return tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges)
