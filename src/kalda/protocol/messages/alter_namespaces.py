"""AlterNamespaces (key 20011): opens and closes namespaces on a broker, and removes what they had.

Kalda's own; Apache Kafka has no such API. A broker offers it only with ``kalda.namespaces.api.enable``.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, array, wire


class NamespaceEndpoint(Message, versions="0", flexible="0+"):
    """The address of a namespace on one broker."""

    broker_id: int = wire(INT32, "0+")
    listener: str = wire(STRING, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    security_protocol: str = wire(STRING, "0+")


class AlterNamespacesRequest(Message, api_key=ApiKey.ALTER_NAMESPACES, versions="0", flexible="0+"):
    """One operation: 0 opens, 1 announces, 2 closes, 3 removes what the broker coordinates, 4 the rest.

    Opening and announcing take one name. `port` is where to open it, 0 for a free one; `faults` is the plan
    of faults of its clients; `endpoints` are the addresses to announce.
    """

    operation: int = wire(INT8, "0+")
    names: list[str] = wire(array(STRING), "0+")
    port: int = wire(INT32, "0+", default=0)
    faults: str | None = wire(STRING, "0+", nullable="0+", default=None)
    endpoints: list[NamespaceEndpoint] = wire(array(NamespaceEndpoint), "0+")


class AlterNamespacesResponse(Message, api_key=ApiKey.ALTER_NAMESPACES, versions="0", flexible="0+"):
    """The address that was opened, if one was, and the names that are open after the request."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    endpoint: list[NamespaceEndpoint] = wire(array(NamespaceEndpoint), "0+")
    names: list[str] = wire(array(STRING), "0+")
