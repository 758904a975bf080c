"""DeleteAcls (key 31): delete the ACLs that match filters (KIP-140).

v1 adds the pattern type (KIP-290). v2 is flexible. v3 adds the resource type USER (KIP-373).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire


class DeleteAclsFilter(Struct):
    """A filter; null and the number of ANY match everything."""

    resource_type_filter: int = wire(INT8, "0+")
    resource_name_filter: str | None = wire(STRING, "0+", nullable="0+")
    pattern_type_filter: int = wire(INT8, "1+", default=3)
    principal_filter: str | None = wire(STRING, "0+", nullable="0+")
    host_filter: str | None = wire(STRING, "0+", nullable="0+")
    operation: int = wire(INT8, "0+")
    permission_type: int = wire(INT8, "0+")


class DeleteAclsRequest(Message, api_key=ApiKey.DELETE_ACLS, versions="0-3", flexible="2+"):
    """The filters."""

    filters: list[DeleteAclsFilter] = wire(array(DeleteAclsFilter), "0+")


class DeleteAclsMatchingAcl(Struct):
    """An ACL that matched, and whether it was deleted."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    pattern_type: int = wire(INT8, "1+", default=3)
    principal: str = wire(STRING, "0+")
    host: str = wire(STRING, "0+")
    operation: int = wire(INT8, "0+")
    permission_type: int = wire(INT8, "0+")


class DeleteAclsFilterResult(Struct):
    """The ACLs that one filter matched."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = wire(array(DeleteAclsMatchingAcl), "0+")


class DeleteAclsResponse(Message, api_key=ApiKey.DELETE_ACLS, versions="0-3", flexible="2+"):
    """One entry per filter, in the order of the request."""

    throttle_time_ms: int = wire(INT32, "0+")
    filter_results: list[DeleteAclsFilterResult] = wire(array(DeleteAclsFilterResult), "0+")
