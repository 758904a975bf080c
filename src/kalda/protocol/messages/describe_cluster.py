"""DescribeCluster (key 60): the cluster's id, controller and brokers (KIP-700).

Flexible from the start. v1 adds the type of endpoint, broker or controller (KIP-919). v2 includes
fenced brokers on request (KIP-1073), which KRaft alone has.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class DescribeClusterRequest(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    """Asks for the cluster; `endpoint_type` is 1 for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = wire(BOOL, "0+")
    endpoint_type: int = wire(INT8, "1+", default=1)
    include_fenced_brokers: bool = wire(BOOL, "2+")


class DescribeClusterBroker(Struct):
    """Where one live broker can be reached on the listener of the request."""

    broker_id: int = wire(INT32, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    rack: str | None = wire(STRING, "0+", nullable="0+", default=None)
    is_fenced: bool = wire(BOOL, "2+")


class DescribeClusterResponse(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    """The cluster."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    endpoint_type: int = wire(INT8, "1+", default=1)
    cluster_id: str = wire(STRING, "0+")
    controller_id: int = wire(INT32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = wire(array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = wire(INT32, "0+", default=AUTHORIZED_OPERATIONS_UNKNOWN)
