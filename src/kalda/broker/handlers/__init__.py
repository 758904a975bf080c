"""The request handlers: one module per API key, each of which exports its `HANDLER`.

A broker answers what is listed here and says so in ApiVersions; what is not listed does not exist for
clients.
"""

from kalda.broker.api import ApiHandler
from kalda.broker.handlers import api_versions, describe_cluster, metadata

HANDLERS: tuple[ApiHandler, ...] = (
    metadata.HANDLER,
    api_versions.HANDLER,
    describe_cluster.HANDLER,
)
"""Every handler of this broker, by ascending API key."""
