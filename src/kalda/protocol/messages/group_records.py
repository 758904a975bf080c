"""Records of ``__consumer_offsets`` that every version of Kafka writes: committed offsets and classic groups.

The version of a key is the kind of record: 0 and 1 are offsets, 2 is a group.
"""

from kalda.protocol.schema import BYTES, INT32, INT64, STRING, Message, Struct, array, wire


class OffsetCommitKey(Message, versions="0-1"):
    """The group and the partition of a committed offset."""

    group: str = wire(STRING, "0-1")
    topic: str = wire(STRING, "0-1")
    partition: int = wire(INT32, "0-1")


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A position.

    v1 had a time of expiry of its own. v3 adds the leader epoch (KIP-320). v4 is flexible.
    """

    offset: int = wire(INT64, "0+")
    leader_epoch: int = wire(INT32, "3+", default=-1, ignorable=True)
    metadata: str = wire(STRING, "0+")
    commit_timestamp: int = wire(INT64, "0+")
    expire_timestamp: int = wire(INT64, "1", default=-1, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """The group."""

    group: str = wire(STRING, "2")


class MemberMetadata(Struct):
    """One member of the generation."""

    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    rebalance_timeout: int = wire(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = wire(INT32, "0+")
    subscription: bytes = wire(BYTES, "0+")
    assignment: bytes = wire(BYTES, "0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """The generation that was last complete, with its members; without members the group is empty.

    v1 adds the rebalance timeout. v2 adds the time of the state. v3 adds static members. v4 is flexible.
    """

    protocol_type: str = wire(STRING, "0+")
    generation: int = wire(INT32, "0+")
    protocol: str | None = wire(STRING, "0+", nullable="0+")
    leader: str | None = wire(STRING, "0+", nullable="0+")
    current_state_timestamp: int = wire(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = wire(array(MemberMetadata), "0+")
