"""Implements the network of an in-process cluster: listeners, and members that a test has cut off."""

from collections.abc import Collection, Sequence
from typing import Final

from kalda.broker.process.faulty_links import Endpoint, Links, Member
from kalda.common.overriding import override


class Network(Links):
    """The members' addresses, the current partition and the faults of links; safe to use from any thread.

    Members talk over real loopback sockets, which they open through an `Endpoint`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._members: Final[dict[int, Member]] = {}
        self._cuts: Final[set[frozenset[Member]]] = set()
        self._endpoints: Final[dict[int, Endpoint]] = {}

    def add(self, member: Member, port: int) -> None:
        """Register the port of a member."""
        self._members[port] = member

    def endpoint(self, broker_id: int) -> Endpoint:
        """Return a new endpoint for a broker that starts."""
        endpoint = Endpoint(self, broker_id)
        self._endpoints[broker_id] = endpoint
        return endpoint

    @override
    def member_at(self, host: str, port: int) -> Member | None:
        return self._members.get(port)

    def partition(self, groups: Sequence[Collection[Member]]) -> None:
        """Cut each pair of members in different groups, and heal all earlier cuts.

        A member in no group reaches all others.
        """
        with self._lock:
            self._cuts.clear()
            for index, group in enumerate(groups):
                for others in groups[index + 1 :]:
                    self._cuts.update(frozenset((one, other)) for one in group for other in others)
        self.close_cut()

    def heal(self) -> None:
        """End the partition."""
        with self._lock:
            self._cuts.clear()

    @override
    def is_cut(self, one: Member, other: Member) -> bool:
        with self._lock:
            is_parted = frozenset((one, other)) in self._cuts
        return is_parted or super().is_cut(one, other)

    @override
    def close_cut(self) -> None:
        for endpoint in list(self._endpoints.values()):
            endpoint.close_cut()
