"""Opens, closes and removes namespaces by requests: the handler of AlterNamespaces.

A broker has it only where ``kalda.namespaces.api.enable`` is set: that of a cluster of processes, whose tests
cannot call `BrokerNamespaces` themselves.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial

from kalda.broker.namespaces.broker_namespaces import BrokerNamespaces
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.cluster.schema import ListenerEndpoint
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults import FaultPlan
from kalda.net.frame_filters import FrameFilter
from kalda.protocol.messages.alter_namespaces import (
    AlterNamespacesRequest,
    AlterNamespacesResponse,
    NamespaceEndpoint,
)
from kalda.zookeeper.errors import ZooKeeperError


class NamespaceOperation(IntEnum):
    """The operations that a request can name."""

    OPEN = 0
    ANNOUNCE = 1
    CLOSE = 2
    REMOVE_COORDINATED = 3
    REMOVE_SHARED = 4


async def alter_namespaces(
    namespaces: BrokerNamespaces,
    new_filter: Callable[[FaultPlan], FrameFilter],
    broker_id: int,
    request: AlterNamespacesRequest,
    context: RequestContext,
) -> AlterNamespacesResponse:
    """Perform one operation; `new_filter` returns a filter that applies the faults of a plan."""
    opened: list[NamespaceEndpoint] = []
    try:
        operation = NamespaceOperation(request.operation)
        if operation is NamespaceOperation.OPEN:
            (name,) = request.names
            outer = [] if request.faults is None else [new_filter(FaultPlan.parse(request.faults))]
            found = await namespaces.open(name, request.port, outer=outer)
            opened.append(
                NamespaceEndpoint(
                    broker_id=broker_id,
                    listener=found.listener,
                    host=found.host,
                    port=found.port,
                    security_protocol=found.security_protocol,
                )
            )
        elif operation is NamespaceOperation.ANNOUNCE:
            (name,) = request.names
            if name in namespaces.names:
                namespaces.announce(name, {each.broker_id: _endpoint(each) for each in request.endpoints})
        elif operation is NamespaceOperation.CLOSE:
            for name in request.names:
                namespaces.close(name)
        elif operation is NamespaceOperation.REMOVE_COORDINATED:
            await namespaces.remove_coordinated(request.names)
        else:
            await namespaces.remove_shared(request.names)
    except ValueError as error:
        return AlterNamespacesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    except (OSError, ZooKeeperError) as error:
        return AlterNamespacesResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error))
    return AlterNamespacesResponse(endpoint=opened, names=sorted(namespaces.names))


def namespace_handler(
    namespaces: BrokerNamespaces, new_filter: Callable[[FaultPlan], FrameFilter], broker_id: int
) -> ApiHandler:
    """Return the handler of AlterNamespaces, which is not among those that every broker has."""
    return ApiHandler(
        key=ApiKey.ALTER_NAMESPACES,
        versions=(0, 0),
        build=lambda services: partial(alter_namespaces, namespaces, new_filter, broker_id),
        error_response=lambda request, code: AlterNamespacesResponse(error_code=code),
        access=ALTER_CLUSTER,
        is_throttled=False,
        audit=lambda request: tuple(request.names),
    )


def _endpoint(sent: NamespaceEndpoint) -> ListenerEndpoint:
    return ListenerEndpoint(sent.listener, sent.host, sent.port, sent.security_protocol)
