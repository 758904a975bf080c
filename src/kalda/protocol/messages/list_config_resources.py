"""ListConfigResources (key 74): list the resources that may have settings (KIP-1142).

v0 was ListClientMetricsResources (KIP-714), which lists the subscriptions to clients' metrics only. v1 asks
for types of resources and returns the type of each.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire

CLIENT_METRICS_TYPE = 16
"""The type of the resources in a response without types."""


class ListConfigResourcesRequest(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"
):
    """The types of resources to list; none means all that the broker supports."""

    resource_types: list[int] = wire(array(INT8), "1+")


class ConfigResource(Struct):
    """A resource: a topic, a broker's id as text, a subscription and so on."""

    resource_name: str = wire(STRING, "0+")
    resource_type: int = wire(INT8, "1+", default=CLIENT_METRICS_TYPE, ignorable=True)


class ListConfigResourcesResponse(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"
):
    """The resources."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    config_resources: list[ConfigResource] = wire(array(ConfigResource), "0+")
