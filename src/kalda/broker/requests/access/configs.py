"""Checks of requests about settings, each of which belongs to a topic, a group or the cluster."""

from typing import Any, Final

from kalda.broker.requests.access.check import Call, Check, without
from kalda.common.errors import ErrorCode
from kalda.security.acl.model import CLUSTER_NAME, AclOperation, ResourceType

_TOPIC, _GROUP = 2, 32
"""The types of resources with settings; all others belong to the cluster."""

_OWNERS: Final = {
    _TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    _GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def of_resources(operation: AclOperation, results: str) -> Check:
    """Return a check of each resource whose settings a request reads or changes."""

    def check(call: Call) -> Any:
        denied: dict[ErrorCode, list[Any]] = {}
        for resource in call.request.resources:
            kind, code = _OWNERS.get(
                resource.resource_type, (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            )
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
            if not call.allows(operation, kind, name):
                denied.setdefault(code, []).append(resource)
        refused: Any = None
        for code, resources in denied.items():
            earlier = refused
            refused = without(call, "resources", results, resources, code)
            if earlier is not None and refused is not None:
                getattr(refused, results).extend(getattr(earlier, results))
        if refused is not None:
            for amend in call.amends:
                amend(refused)
        return refused

    return check
