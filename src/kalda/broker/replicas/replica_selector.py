"""Selects the replica that a consumer should read from (KIP-392): the leader, or one in the consumer's rack.

``replica.selector.class`` names Kafka's class; of those, only the rack-aware selector exists here. It sends a
consumer with a ``client.rack`` to the most advanced in-sync replica of that rack, and to the leader if there
is none.
"""

from collections.abc import Callable
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.common.config_def import ConfigError
from kalda.common.types import BrokerEndpoint

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
SETTING: Final = "replica.selector.class"

EndpointOf = Callable[[int, str], BrokerEndpoint | None]
"""Returns the endpoint of a live broker on a listener, or None."""


class RackAwareReplicaSelector:
    """Prefers replicas in the consumer's rack."""

    def __init__(self, endpoint_of: EndpointOf) -> None:
        self._endpoint_of: Final = endpoint_of

    def select(self, partition: Partition, rack: str, listener: str, offset: int) -> int | None:
        """Return the follower that should serve a fetch from `offset`; None for this broker, the leader.

        It must be in the ISR and have the offset: any other would send the consumer back.
        """
        own = self._endpoint_of(partition.broker_id, listener)
        if not rack or (own is not None and own.rack == rack):
            return None
        candidates = [
            (state.log_end_offset, state.last_caught_up, replica)
            for replica, state in partition.followers.items()
            if replica in partition.isr and state.log_start_offset <= offset <= state.log_end_offset
            if (endpoint := self._endpoint_of(replica, listener)) is not None and endpoint.rack == rack
        ]
        return max(candidates)[2] if candidates else None


def make_replica_selector(class_name: str | None, endpoint_of: EndpointOf) -> RackAwareReplicaSelector | None:
    """Return the selector that `replica.selector.class` names; None if every consumer reads from the leader.

    Raises:
        ConfigError: this broker does not have the class.
    """
    if class_name in (None, "", LEADER_ONLY):
        return None
    if class_name == RACK_AWARE:
        return RackAwareReplicaSelector(endpoint_of)
    raise ConfigError(
        SETTING,
        f"`{SETTING}`={class_name} is not a class that this broker has; leave it out to read from leaders, "
        f"or set it to {RACK_AWARE}",
    )
