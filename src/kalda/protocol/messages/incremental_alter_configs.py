"""IncrementalAlterConfigs (key 44): change single settings and leave the others alone (KIP-339).

v1 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class AlterableConfig(Struct):
    """One change: operation 0 sets, 1 deletes, 2 appends to a list, 3 subtracts from a list."""

    name: str = wire(STRING, "0+")
    config_operation: int = wire(INT8, "0+")
    value: str | None = wire(STRING, "0+", nullable="0+")


class AlterConfigsResource(Struct):
    """One resource and its changes."""

    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    configs: list[AlterableConfig] = wire(array(AlterableConfig), "0+")


class IncrementalAlterConfigsRequest(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """Changes by resource; with `validate_only` they are only checked."""

    resources: list[AlterConfigsResource] = wire(array(AlterConfigsResource), "0+")
    validate_only: bool = wire(BOOL, "0+")


class AlterConfigsResourceResponse(Struct):
    """One resource."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")


class IncrementalAlterConfigsResponse(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """The result for each resource."""

    throttle_time_ms: int = wire(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse), "0+")
