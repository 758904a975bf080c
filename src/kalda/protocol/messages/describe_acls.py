"""DescribeAcls (key 29): list the ACLs that match a filter (KIP-140).

v1 adds the pattern type (KIP-290). v2 is flexible. v3 adds the resource type USER (KIP-373).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire


class DescribeAclsRequest(Message, api_key=ApiKey.DESCRIBE_ACLS, versions="0-3", flexible="2+"):
    """The filter; null and the number of ANY match everything."""

    resource_type_filter: int = wire(INT8, "0+")
    resource_name_filter: str | None = wire(STRING, "0+", nullable="0+")
    pattern_type_filter: int = wire(INT8, "1+", default=3)
    principal_filter: str | None = wire(STRING, "0+", nullable="0+")
    host_filter: str | None = wire(STRING, "0+", nullable="0+")
    operation: int = wire(INT8, "0+")
    permission_type: int = wire(INT8, "0+")


class AclDescription(Struct):
    """One entry of a resource."""

    principal: str = wire(STRING, "0+")
    host: str = wire(STRING, "0+")
    operation: int = wire(INT8, "0+")
    permission_type: int = wire(INT8, "0+")


class DescribeAclsResource(Struct):
    """A resource pattern and its entries."""

    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    pattern_type: int = wire(INT8, "1+", default=3)
    acls: list[AclDescription] = wire(array(AclDescription), "0+")


class DescribeAclsResponse(Message, api_key=ApiKey.DESCRIBE_ACLS, versions="0-3", flexible="2+"):
    """The resource patterns with matching entries."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    resources: list[DescribeAclsResource] = wire(array(DescribeAclsResource), "0+")
