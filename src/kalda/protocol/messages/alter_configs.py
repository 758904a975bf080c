"""AlterConfigs (key 33): replace all settings of a resource.

Old; IncrementalAlterConfigs is what tools use now.

v1 throttles after the response. v2 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class AlterableConfig(Struct):
    """One setting."""

    name: str = wire(STRING, "0+")
    value: str | None = wire(STRING, "0+", nullable="0+")


class AlterConfigsResource(Struct):
    """One resource and all the settings it shall have."""

    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    configs: list[AlterableConfig] = wire(array(AlterableConfig), "0+")


class AlterConfigsRequest(Message, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """New settings by resource; settings that are not named go back to their defaults."""

    resources: list[AlterConfigsResource] = wire(array(AlterConfigsResource), "0+")
    validate_only: bool = wire(BOOL, "0+")


class AlterConfigsResourceResponse(Struct):
    """One resource."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")


class AlterConfigsResponse(Message, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """The result for each resource."""

    throttle_time_ms: int = wire(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse), "0+")
