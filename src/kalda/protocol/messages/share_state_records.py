"""Records of ``__share_group_state``: snapshots of share partitions and updates (KIP-932)."""

from kalda.common.types import UUID
from kalda.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class ShareSnapshotKey(Message, versions="0"):
    """A share partition."""

    group_id: str = wire(STRING, "0")
    topic_id: UUID = wire(UUID_KIND, "0")
    partition: int = wire(INT32, "0")


class StateBatch(Struct):
    """A range of offsets in one delivery state, delivered equally often.

    State 0 is available, 2 acknowledged and 4 archived.
    """

    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")
    delivery_state: int = wire(INT8, "0+")
    delivery_count: int = wire(INT16, "0+")


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    snapshot_epoch: int = wire(INT32, "0+")
    state_epoch: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")
    delivery_complete_count: int = wire(INT32, "0+", default=-1, tag=0)
    create_timestamp: int = wire(INT64, "0+")
    write_timestamp: int = wire(INT64, "0+")
    state_batches: list[StateBatch] = wire(array(StateBatch), "0+")


class ShareUpdateKey(Message, versions="1"):
    """A share partition."""

    group_id: str = wire(STRING, "1")
    topic_id: UUID = wire(UUID_KIND, "1")
    partition: int = wire(INT32, "1")


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    """What has changed since the last snapshot or update."""

    snapshot_epoch: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")
    delivery_complete_count: int = wire(INT32, "0+", default=-1, tag=0)
    state_batches: list[StateBatch] = wire(array(StateBatch), "0+")
