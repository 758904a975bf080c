"""Defines a member of a classic group, and the subscription in a consumer's metadata."""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from kalda.common.pending import Pending
from kalda.coordinator.group.member_memory import ENTRY_BYTES, MEMBER_BYTES
from kalda.protocol.codec import decode
from kalda.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse
from kalda.protocol.protocol_errors import ProtocolError

NO_ASSIGNMENT: Final = b""

_VERSION: Final = Struct(">h")
_HEAD: Final = Struct(">hi")
"""The version, and the number of topics."""

NAMES_READ_MAX: Final = 200_000
"""Names of topics that are read at the start of a generation, in some 50 ms. The subscriptions of a group may
have 32 MB, of names of one letter."""


class ClassicMember:
    """A member and the responses it waits for; only `ClassicGroup` and `Rebalance` change it."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Mapping[str, bytes],
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id: Final = member_id
        self.instance_id: Final = instance_id
        """The `group.instance.id` of a static member, which may return with another member id (KIP-345)."""
        self.client_id: Final = client_id
        self.client_host: Final = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type: Final = protocol_type
        self.protocols = dict(protocols)
        """Metadata by name, in the member's order of preference."""
        self.assignment = assignment
        self.awaiting_join: Pending[JoinGroupResponse] | None = None
        self.awaiting_sync: Pending[SyncGroupResponse] | None = None
        self.is_new = False
        """Whether it has no response to its first JoinGroup yet: it cannot send heartbeats."""

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id."""
        return self.instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member may omit heartbeats: a member that waits for a response sends none.

        A new member may not: it may have failed, which would go unnoticed while its join waits.
        """
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    @property
    def held_bytes(self) -> int:
        """The memory that the member takes, apart from its assignment, which one record bounds."""
        return held_by(self.member_id, self.instance_id, self.client_id, self.protocols)

    def matches(self, protocols: Mapping[str, bytes]) -> bool:
        """Return whether the member supports exactly these protocols, in this order."""
        return list(self.protocols.items()) == list(protocols.items())

    def metadata(self, protocol_name: str) -> bytes:
        """Return the metadata for a protocol, which every member supports."""
        return self.protocols[protocol_name]

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the protocol that the member prefers among those that all members support."""
        return next(name for name in self.protocols if name in candidates)

    def __repr__(self) -> str:
        return f"ClassicMember({self.member_id!r}, instance_id={self.instance_id!r})"


def held_by(member_id: str, instance_id: str | None, client_id: str, protocols: Mapping[str, bytes]) -> int:
    """Return the memory that a member with these protocols takes."""
    names = len(member_id) + len(instance_id or "") + len(client_id)
    metadata = sum(ENTRY_BYTES + len(name) + len(data) for name, data in protocols.items())
    return MEMBER_BYTES + names + metadata


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None if one cannot be read: the bytes are the clients' own.

    None also if they name more than `NAMES_READ_MAX` topics together. Members mostly have equal
    subscriptions, which count once.
    """
    topics: set[str] = set()
    left = NAMES_READ_MAX
    for subscription in dict.fromkeys(subscriptions):
        try:
            if len(subscription) < _HEAD.size:
                return None
            version, count = _HEAD.unpack_from(subscription)
            left -= count
            if version < 0 or left < 0:
                return None
            # Every version begins with the fields of version 0, future versions included.
            found = decode(ConsumerProtocolSubscription, 0, subscription, _VERSION.size, allow_excess=True)
        except ProtocolError:
            return None
        topics.update(found.topics)
    return frozenset(topics)
