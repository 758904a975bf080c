"""DescribeCluster (key 60), versions 0-2: returns the cluster id, the brokers and the controller.

v1 adds the endpoint type (KIP-919); a broker rejects the type of controllers. v2 may ask
for fenced brokers (KIP-1073); with ZooKeeper a broker is registered and alive, or unknown, so none is fenced.
"""

from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import ALL_CLUSTER_OPERATIONS
from kalda.broker.requests.checks import topics as topic_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(
    cache: MetadataCache, cluster_id: str, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Return the live brokers that have the client's listener."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=_wrong_endpoint(request.endpoint_type),
            error_message=f"This is a broker; endpoint type {request.endpoint_type} is not served here.",
        )
    brokers = [
        DescribeClusterBroker(broker_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in cache.endpoints(context.listener)
    ]
    # A controller without the client's listener is not in the list, so the client could not connect to it.
    known = any(broker.broker_id == cache.controller_id for broker in brokers)
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=cache.controller_id if known else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else AUTHORIZED_OPERATIONS_UNKNOWN
        ),
    )


def error_response(request: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    """Return a response with the error."""
    return DescribeClusterResponse(error_code=code, error_message=code.message)


def _wrong_endpoint(endpoint_type: int) -> ErrorCode:
    if endpoint_type == _CONTROLLERS:
        return ErrorCode.MISMATCHED_ENDPOINT_TYPE
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    build=lambda services: partial(handle, services.metadata_cache, services.cluster_id),
    error_response=error_response,
    access=topic_checks.describe_cluster,
)
