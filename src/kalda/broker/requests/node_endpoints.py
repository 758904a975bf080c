"""Looks up the addresses of new leaders for Produce and Fetch responses (KIP-951)."""

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.protocol.fast.wire import NodeEndpoint


def node_endpoints(cache: MetadataCache, listener: str, leaders: set[int]) -> tuple[NodeEndpoint, ...]:
    """Return the endpoints of brokers on a client's listener; brokers without it are left out."""
    found = (cache.endpoint(broker_id, listener) for broker_id in sorted(leaders))
    return tuple(NodeEndpoint(each.id, each.host, each.port, each.rack) for each in found if each is not None)
