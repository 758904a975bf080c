"""The request handlers: one module per API key, each of which exports its `HANDLER`.

A broker answers what is listed here and says so in ApiVersions; what is not listed does not exist for
clients.
"""

from kalda.broker.api import ApiHandler
from kalda.broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    leader_and_isr,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    update_metadata,
)

HANDLERS: tuple[ApiHandler, ...] = (
    produce.HANDLER,
    fetch.HANDLER,
    list_offsets.HANDLER,
    metadata.HANDLER,
    leader_and_isr.HANDLER,
    stop_replica.HANDLER,
    update_metadata.HANDLER,
    controlled_shutdown.HANDLER,
    find_coordinator.HANDLER,
    api_versions.HANDLER,
    create_topics.HANDLER,
    delete_topics.HANDLER,
    delete_records.HANDLER,
    init_producer_id.HANDLER,
    offset_for_leader_epoch.HANDLER,
    describe_configs.HANDLER,
    alter_configs.HANDLER,
    describe_log_dirs.HANDLER,
    create_partitions.HANDLER,
    elect_leaders.HANDLER,
    incremental_alter_configs.HANDLER,
    alter_partition_reassignments.HANDLER,
    list_partition_reassignments.HANDLER,
    describe_cluster.HANDLER,
    describe_topic_partitions.HANDLER,
)
"""Every handler of this broker, by ascending API key."""
