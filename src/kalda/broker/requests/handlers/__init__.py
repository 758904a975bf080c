"""The request handlers: one module per API key, which exports its `HANDLER`.

A handler turns one request message into its response and keeps no state of its own: it calls the parts in
`BrokerServices`. It does not decode, encode or count; the dispatcher does. The broker serves the APIs listed
here and returns the same list for ApiVersions, but for Kalda's own APIs, which only Kalda's clients see. A
request of any other API closes the connection.
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler
from kalda.broker.requests.handlers import (
    acquire_read_lease,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
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
    push_telemetry,
    release_read_lease,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from kalda.common.api_keys import ApiKey
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
    sasl_handshake.HANDLER,
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
    describe_acls.HANDLER,
    create_acls.HANDLER,
    delete_acls.HANDLER,
    describe_configs.HANDLER,
    alter_configs.HANDLER,
    alter_replica_log_dirs.HANDLER,
    describe_log_dirs.HANDLER,
    sasl_authenticate.HANDLER,
    create_partitions.HANDLER,
    create_delegation_token.HANDLER,
    renew_delegation_token.HANDLER,
    expire_delegation_token.HANDLER,
    describe_delegation_token.HANDLER,
    delete_groups.HANDLER,
    elect_leaders.HANDLER,
    incremental_alter_configs.HANDLER,
    alter_partition_reassignments.HANDLER,
    list_partition_reassignments.HANDLER,
    offset_delete.HANDLER,
    describe_client_quotas.HANDLER,
    alter_client_quotas.HANDLER,
    describe_user_scram_credentials.HANDLER,
    alter_user_scram_credentials.HANDLER,
    alter_partition.HANDLER,
    update_features.HANDLER,
    describe_cluster.HANDLER,
    describe_producers.HANDLER,
    describe_transactions.HANDLER,
    list_transactions.HANDLER,
    consumer_group_heartbeat.HANDLER,
    consumer_group_describe.HANDLER,
    get_telemetry_subscriptions.HANDLER,
    push_telemetry.HANDLER,
    list_config_resources.HANDLER,
    describe_topic_partitions.HANDLER,
    acquire_read_lease.HANDLER,
    release_read_lease.HANDLER,
)
"""Every handler of this broker, by ascending API key."""


_TELEMETRY: Final = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))


def advertised_versions(*, shows_metrics: bool = True) -> tuple[ApiVersion, ...]:
    """Return each API with the versions that ApiVersions advertises, by ascending key.

    Kalda's own APIs come last; `api_versions` leaves them out for other software. A broker that shows its
    metrics nowhere does not ask clients for theirs, as a broker of Kafka without a telemetry receiver.
    """
    left_out = frozenset() if shows_metrics else _TELEMETRY
    ranges = sorted(
        (handler.key, handler.versions_advertised) for handler in HANDLERS if handler.key not in left_out
    )
    return tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges)
