"""Reads and writes offsets of consumer groups in ZooKeeper, for OffsetCommit and OffsetFetch version 0.

Consumers of Kafka 0.8 use the same znodes, ``/consumers/<group>/offsets/<topic>/<partition>``, whose data is
the offset in digits. Offsets of later versions are in the ``__consumer_offsets`` topic, not here.
"""

from typing import Final

from kalda.cluster.paths import CONSUMERS
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import NodeExistsError, NoNodeError
from kalda.zookeeper.port import Create, ZooKeeperClient

_OFFSET_MAX: Final = 2**63 - 1


def offset_path(group_id: str, partition: TopicPartition) -> str:
    """Return the path of one offset."""
    return f"{CONSUMERS}/{group_id}/offsets/{partition.topic}/{partition.partition}"


async def read_offset(zookeeper: ZooKeeperClient, group_id: str, partition: TopicPartition) -> int | None:
    """Return the offset, or None if there is none or the data is no 64-bit number.

    Raises:
        ZooKeeperError: the znode could not be read.
    """
    try:
        data, _ = await zookeeper.get(offset_path(group_id, partition))
    except NoNodeError:
        return None
    try:
        offset = int(data.decode("ascii"))
    except ValueError:
        return None
    return offset if offset <= _OFFSET_MAX else None


async def write_offset(
    zookeeper: ZooKeeperClient, group_id: str, partition: TopicPartition, offset: int
) -> None:
    """Write the offset, and create missing parents.

    Raises:
        ZooKeeperError: the offset was not written.
    """
    path = offset_path(group_id, partition)
    data = str(offset).encode("ascii")
    try:
        await zookeeper.set(path, data)
        return
    except NoNodeError:
        pass
    parts = path.split("/")
    for end in range(2, len(parts)):
        try:
            await zookeeper.multi([Create("/".join(parts[:end]))])
        except NodeExistsError:
            continue
    try:
        await zookeeper.multi([Create(path, data)])
    except NodeExistsError:
        # Another client created it meanwhile; the last write wins, as for any two commits.
        await zookeeper.set(path, data)
