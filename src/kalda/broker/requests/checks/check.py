"""Defines what a check of requests is, and the two kinds that most APIs need.

A check of many names, or what it does with the response, is steps (`kalda.common.turns`): `in_steps` has the
first turn done at once, which is all of it for a usual request.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.refusals import refused_in_steps
from kalda.broker.security.authorizer import Authorizer
from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.schema import Message
from kalda.security.acl.model import CLUSTER_NAME, AclOperation, ResourceType
from kalda.settings import BrokerConfig

T = TypeVar("T")
Request = TypeVar("Request")

Amend = Callable[[Any], Steps[None] | None]
"""Adds to a response what the handler was not asked for, or takes out what the client must not see.

Returns the steps that are left, if there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckParts:
    """The parts of a broker that checks need."""

    authorizer: Authorizer
    cache: MetadataCache
    config: BrokerConfig
    tokens: DelegationTokens


@dataclass(slots=True)
class Call(Generic[Request]):
    """One request while it is checked. A check may replace `request` and add to `amends`, or refuse."""

    parts: CheckParts
    context: RequestContext
    request: Request
    amends: list[Amend]

    def allows(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, is_noted: bool = True
    ) -> bool:
        """Whether the client may do an operation on a resource."""
        return self.parts.authorizer.allows(
            self.context.connection, operation, resource_type, name, is_noted=is_noted
        )

    def allows_cluster(self, operation: AclOperation, *, is_noted: bool = True) -> bool:
        """Whether the client may do an operation on the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_noted=is_noted)

    def refusal(self, code: ErrorCode, request: object = None) -> Steps[Message | None]:
        """Return the response that has `code` for everything in a request, or in this one."""
        context = self.context
        refused = self.request if request is None else request
        return refused_in_steps(context.api.handler, refused, code, context.api_version)

    def amend_in_steps(self, amend: Callable[[Any], Steps[None]]) -> None:
        """Have the response amended in steps."""
        self.amends.append(lambda response: first_turn(amend(response)))


Refusal: TypeAlias = Message | Steps[Message | None] | None
"""The response if the whole request is refused, else None; or the steps that are left and return it."""

Check: TypeAlias = Callable[[Call[Any]], Refusal]
"""Checks one request."""


def in_steps(check: Callable[[Call[Request]], Steps[Message | None]]) -> Callable[[Call[Request]], Refusal]:
    """Return a check whose first turn is done at once."""
    return lambda call: first_turn(check(call))


def with_changes(message: T, **changes: object) -> T:
    """Return a shallow copy of a message with other values of some fields."""
    changed = copy.copy(message)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def cluster(operation: AclOperation, code: ErrorCode = ErrorCode.CLUSTER_AUTHORIZATION_FAILED) -> Check:
    """Return a check that the whole request needs an operation on the cluster."""

    def check(call: Call[Any]) -> Refusal:
        return None if call.allows_cluster(operation) else first_turn(call.refusal(code))

    return check


def whole(
    operation: AclOperation,
    resource_type: ResourceType,
    name_of: Callable[[Any], str],
    code: ErrorCode,
) -> Check:
    """Return a check that the whole request needs an operation on the resource that it names."""

    def check(call: Call[Any]) -> Refusal:
        if call.allows(operation, resource_type, name_of(call.request)):
            return None
        return first_turn(call.refusal(code))

    return check


def each(
    operation: AclOperation,
    resource_type: ResourceType,
    code: ErrorCode,
    *,
    items: str,
    results: str,
    name_of: Callable[[Any], str],
) -> Check:
    """Return a check of each item of a request: those that are denied get `code`, the others are handled.

    Args:
        operation, resource_type: What each item needs.
        code: The error of a denied item.
        items: The field of the request that lists the items.
        results: The field of the response that lists their results.
        name_of: Returns the name of an item's resource.
    """

    @in_steps
    def check(call: Call[Any]) -> Steps[Message | None]:
        denied: list[Any] = []
        left: list[Any] = []
        for item in getattr(call.request, items) or ():
            (left if call.allows(operation, resource_type, name_of(item)) else denied).append(item)
            yield
        return (yield from without(call, items, results, code, denied=denied, left=left))

    return check


def without(
    call: Call[Any], items: str, results: str, code: ErrorCode, *, denied: list[Any], left: list[Any]
) -> Steps[Message | None]:
    """Take denied items out of a request, and have their results in the response carry `code`.

    Returns the response if nothing is left of the request.
    """
    if not denied:
        return None
    refused = yield from call.refusal(code, with_changes(call.request, **{items: denied}))
    if not left:
        return refused
    call.request = with_changes(call.request, **{items: left})
    call.amends.append(lambda response: getattr(response, results).extend(getattr(refused, results)))
    return None


def in_turn(*checks: Check) -> Check:
    """Return a check that is several, one after the other."""

    def check(call: Call[Any]) -> Refusal:
        for done, one in enumerate(checks, 1):
            refused = one(call)
            if isinstance(refused, GeneratorType):
                return _go_on(call, refused, checks[done:])
            if refused is not None:
                return refused
        return None

    return check


def _go_on(call: Call[Any], steps: Steps[Message | None], checks: Sequence[Check]) -> Steps[Message | None]:
    refused = yield from steps
    for one in checks:
        if refused is not None:
            break
        result = one(call)
        if isinstance(result, GeneratorType):
            result = yield from result
        assert result is None or isinstance(result, Message), f"a check returned {result!r:.200}"
        refused = result
    return refused


CLUSTER_ACTION: Final = cluster(AclOperation.CLUSTER_ACTION)
"""Of requests that brokers make."""
DESCRIBE_CLUSTER: Final = cluster(AclOperation.DESCRIBE)
ALTER_CLUSTER: Final = cluster(AclOperation.ALTER)
