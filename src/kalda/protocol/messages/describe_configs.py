"""DescribeConfigs (key 32): the settings of topics, brokers and loggers, and where each value comes from.

v1 replaces the flag for defaults by the source of the value, and adds synonyms on request (KIP-226). v2
throttles after the response. v3 adds types and documentation (KIP-569). v4 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class DescribeConfigsResource(Struct):
    """One resource; `configuration_keys` None means every setting."""

    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    configuration_keys: list[str] | None = wire(array(STRING), "0+", nullable="0+")


class DescribeConfigsRequest(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    """Resources to describe."""

    resources: list[DescribeConfigsResource] = wire(array(DescribeConfigsResource), "0+")
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")


class DescribeConfigsSynonym(Struct):
    """A setting that would supply the value, in order of precedence."""

    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="0+")
    source: int = wire(INT8, "1+")


class DescribeConfigsResourceResult(Struct):
    """One setting.

    The value is None when it is sensitive or not set. `is_default` exists only in v0, `config_source` from
    v1.
    """

    name: str = wire(STRING, "0+")
    value: str | None = wire(STRING, "0+", nullable="0+")
    read_only: bool = wire(BOOL, "0+")
    is_default: bool = wire(BOOL, "0")
    config_source: int = wire(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, "0+")
    synonyms: list[DescribeConfigsSynonym] = wire(array(DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(STRING, "3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    """One resource."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    configs: list[DescribeConfigsResourceResult] = wire(array(DescribeConfigsResourceResult), "0+")


class DescribeConfigsResponse(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    """The settings of each resource."""

    throttle_time_ms: int = wire(INT32, "0+")
    results: list[DescribeConfigsResult] = wire(array(DescribeConfigsResult), "0+")
