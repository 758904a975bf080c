"""CreateAcls (key 30): add ACLs (KIP-140).

v1 adds the pattern type (KIP-290). v2 is flexible. v3 adds the resource type USER (KIP-373).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire


class AclCreation(Struct):
    """An ACL to add."""

    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    resource_pattern_type: int = wire(INT8, "1+", default=3)
    principal: str = wire(STRING, "0+")
    host: str = wire(STRING, "0+")
    operation: int = wire(INT8, "0+")
    permission_type: int = wire(INT8, "0+")


class CreateAclsRequest(Message, api_key=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    """The ACLs to add."""

    creations: list[AclCreation] = wire(array(AclCreation), "0+")


class AclCreationResult(Struct):
    """The result for one ACL."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")


class CreateAclsResponse(Message, api_key=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    """One entry per ACL, in the order of the request."""

    throttle_time_ms: int = wire(INT32, "0+")
    results: list[AclCreationResult] = wire(array(AclCreationResult), "0+")
