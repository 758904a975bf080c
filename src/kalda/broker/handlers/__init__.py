"""The request handlers: one module per API key, each of which exports its `HANDLER`.

A broker answers what is listed here and says so in ApiVersions; what is not listed does not exist for
clients.
"""

from kalda.broker.api import ApiHandler
from kalda.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    incremental_alter_configs,
    metadata,
)

HANDLERS: tuple[ApiHandler, ...] = (
    metadata.HANDLER,
    api_versions.HANDLER,
    create_topics.HANDLER,
    delete_topics.HANDLER,
    describe_configs.HANDLER,
    alter_configs.HANDLER,
    create_partitions.HANDLER,
    incremental_alter_configs.HANDLER,
    describe_cluster.HANDLER,
    describe_topic_partitions.HANDLER,
)
"""Every handler of this broker, by ascending API key."""
