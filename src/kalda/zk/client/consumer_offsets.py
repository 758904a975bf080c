"""Offsets of consumer groups in ZooKeeper, where they lay before Kafka 0.9: versions 0 of OffsetCommit and
OffsetFetch, and consumers of Kafka 0.8, use ``/consumers/<group>/offsets/<topic>/<partition>``.

The data of a znode is the offset in digits. Nobody else writes there on behalf of brokers.
"""

from kalda.common.types import TopicPartition
from kalda.zk.client.paths import CONSUMERS
from kalda.zk.client.port import Create, ZooKeeperClient
from kalda.zk.client.zookeeper_errors import NodeExistsError, NoNodeError

__all__ = ["offset_path", "read_offset", "write_offset"]


def offset_path(group_id: str, partition: TopicPartition) -> str:
    """The znode of one offset."""
    return f"{CONSUMERS}/{group_id}/offsets/{partition.topic}/{partition.partition}"


async def read_offset(zookeeper: ZooKeeperClient, group_id: str, partition: TopicPartition) -> int | None:
    """Return the offset, or None if there is none, or nothing that is a number.

    Raises:
        ZooKeeperError: it cannot be known.
    """
    try:
        data, _ = await zookeeper.get(offset_path(group_id, partition))
    except NoNodeError:
        return None
    try:
        return int(data.decode("ascii"))
    except ValueError:
        return None


async def write_offset(
    zookeeper: ZooKeeperClient, group_id: str, partition: TopicPartition, offset: int
) -> None:
    """Write the offset, with the znodes above it if they are missing.

    Raises:
        ZooKeeperError: it is not written.
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
        # Somebody else created it between; the last one to write counts, as for any two commits.
        await zookeeper.set(path, data)
