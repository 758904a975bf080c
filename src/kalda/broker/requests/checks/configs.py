"""Checks requests about settings against the ACLs of the topic, the group or the cluster they belong to."""

from typing import Any, Final

from kalda.broker.requests.checks.check import Call, Check, in_steps, without
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps
from kalda.protocol.schema import Message
from kalda.security.acl.model import CLUSTER_NAME, AclOperation, ResourceType

_TOPIC, _GROUP = 2, 32
"""The types of resources with settings; all others belong to the cluster."""

_OWNERS: Final = {
    _TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    _GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def of_resources(operation: AclOperation, results: str) -> Check:
    """Return a check of each resource whose settings a request reads or changes."""

    @in_steps
    def check(call: Call[Any]) -> Steps[Message | None]:
        denied: dict[ErrorCode, list[Any]] = {}
        left: list[Any] = []
        for resource in call.request.resources:
            yield
            kind, code = _OWNERS.get(
                resource.resource_type, (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            )
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
            (left if call.allows(operation, kind, name) else denied.setdefault(code, [])).append(resource)
        refused: Message | None = None
        for code, resources in denied.items():
            earlier = refused
            refused = yield from without(call, "resources", results, code, denied=resources, left=left)
            if earlier is not None:
                getattr(refused, results).extend(getattr(earlier, results))
        return refused

    return check
