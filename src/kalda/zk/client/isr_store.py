"""The one thing that leaders write to a partition's state: its in-sync replicas, by compare-and-set.

The write names the version of the znode that the leader knows, so it fails once anybody else wrote: the
controller when it elects another leader, above all. An answer that was lost with the connection is no
failure: the write is tried again, and a state that is exactly the wanted one is taken for ours.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.common.types import TopicPartition
from kalda.zk.client import paths, schema
from kalda.zk.client.port import SetData, Stat, ZooKeeperClient
from kalda.zk.client.schema import PartitionState
from kalda.zk.client.zookeeper_errors import BadVersionError, NoNodeError, ZooKeeperError

PARTITIONS_PER_NOTIFICATION: Final = 3000
"""At most some 280 bytes each (a topic's name has 249): below ZooKeeper's limit of 1 MB for one znode."""


@dataclass(frozen=True, slots=True)
class IsrWritten:
    """The znode holds what was wanted, in this version."""

    version: int


@dataclass(frozen=True, slots=True)
class IsrConflict:
    """Somebody else wrote first; `state` is what the znode holds, None where it is gone."""

    state: PartitionState | None


IsrOutcome = IsrWritten | IsrConflict | ZooKeeperError
"""An error means that nothing is known: ask again."""


class IsrStore:
    """Partition states as leaders change them."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper: Final = zookeeper

    async def write(self, wanted: Sequence[tuple[TopicPartition, PartitionState]]) -> list[IsrOutcome]:
        """Write each state over the version that it names, all pipelined; return the outcomes in order.

        Raises:
            ZooKeeperError: nothing is known of any of them.
        """
        answers = await self._zookeeper.multi_many(
            [
                [SetData(paths.partition_state(name), schema.encode_partition_state(state), state.version)]
                for name, state in wanted
            ]
        )
        outcomes: list[IsrOutcome] = []
        conflicts: list[int] = []
        for at, answer in enumerate(answers):
            if isinstance(answer, BadVersionError):
                conflicts.append(at)
                outcomes.append(answer)
            elif isinstance(answer, NoNodeError):
                outcomes.append(IsrConflict(None))
            elif isinstance(answer, ZooKeeperError):
                outcomes.append(answer)
            else:
                stat = answer[0]
                assert isinstance(stat, Stat), f"a write answers with the new stat, not {stat!r}"
                outcomes.append(IsrWritten(stat.version))
        if conflicts:
            found = await self.states([wanted[at][0] for at in conflicts])
            for at in conflicts:
                outcomes[at] = _judge(wanted[at][1], found.get(wanted[at][0]))
        return outcomes

    async def states(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Read states; those that are gone or hold nonsense are left out."""
        names = list(partitions)
        entries = await self._zookeeper.get_many([paths.partition_state(name) for name in names])
        return schema.decode_partition_states(names, entries)

    async def announce(self, partitions: Collection[TopicPartition]) -> None:
        """Tell the controller that the ISR of these partitions changed."""
        names = sorted(partitions)
        for start in range(0, len(names), PARTITIONS_PER_NOTIFICATION):
            await self._zookeeper.create(
                f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}",
                schema.encode_isr_change(names[start : start + PARTITIONS_PER_NOTIFICATION]),
                sequential=True,
            )

    async def announce_log_dir_failure(self, broker_id: int) -> None:
        """Tell the controller to ask a broker which of its replicas went offline with a log directory."""
        await self._zookeeper.create(
            f"{paths.LOG_DIR_EVENTS}/{paths.LOG_DIR_EVENT_PREFIX}",
            schema.encode_log_dir_event(broker_id),
            sequential=True,
        )


def _judge(wanted: PartitionState, found: PartitionState | None) -> IsrWritten | IsrConflict:
    if found is not None and replace(found, version=wanted.version) == wanted:
        return IsrWritten(found.version)
    return IsrConflict(found)
