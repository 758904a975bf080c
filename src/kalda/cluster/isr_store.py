"""Writes the ISRs of partitions on behalf of their leaders, by compare-and-set on the state znode.

A write names the znode version that the leader knows, so it fails after any other write, above all that of a
controller that has elected another leader. A response that was lost with the connection is no failure: the
caller retries, and a stored state that equals the wanted one counts as written.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.cluster import paths, schema
from kalda.cluster.schema import LogDirEvent, PartitionState
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import BadVersionError, NoNodeError, ZooKeeperError
from kalda.zookeeper.port import SetData, Stat, ZooKeeperClient

PARTITIONS_PER_NOTIFICATION: Final = 3000
"""With at most some 280 bytes each (a topic's name has up to 249), below ZooKeeper's 1 MB for one znode."""


@dataclass(frozen=True, slots=True)
class IsrWritten:
    """The znode holds the wanted state in this version."""

    version: int


@dataclass(frozen=True, slots=True)
class IsrConflict:
    """Another client wrote first; `state` is the stored state, or None if the znode is gone."""

    state: PartitionState | None


IsrOutcome = IsrWritten | IsrConflict | ZooKeeperError
"""After an error the outcome is unknown: the caller must retry."""


class IsrStore:
    """Reads and writes partition states for leaders, and notifies the controller."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper: Final = zookeeper

    async def write(self, wanted: Sequence[tuple[TopicPartition, PartitionState]]) -> list[IsrOutcome]:
        """Write each state over the version that it names, pipelined; return the outcomes in order.

        Raises:
            ZooKeeperError: the outcome of all writes is unknown.
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
                outcomes[at] = _conflict_outcome(wanted[at][1], found.get(wanted[at][0]))
        return outcomes

    async def states(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Read states; missing and malformed ones are left out."""
        names = list(partitions)
        entries = await self._zookeeper.get_many([paths.partition_state(name) for name in names])
        return schema.decode_partition_states(names, entries)

    async def announce(self, partitions: Collection[TopicPartition]) -> None:
        """Notify the controller that the ISRs of these partitions changed."""
        names = sorted(partitions)
        for start in range(0, len(names), PARTITIONS_PER_NOTIFICATION):
            await self._zookeeper.create(
                f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}",
                schema.encode_isr_change(names[start : start + PARTITIONS_PER_NOTIFICATION]),
                sequential=True,
            )

    async def announce_log_dir_failure(self, event: LogDirEvent) -> None:
        """Notify the controller that replicas of a broker went offline with a log directory."""
        await self._zookeeper.create(
            f"{paths.LOG_DIR_EVENTS}/{paths.LOG_DIR_EVENT_PREFIX}",
            schema.encode_log_dir_event(event),
            sequential=True,
        )


def _conflict_outcome(wanted: PartitionState, found: PartitionState | None) -> IsrWritten | IsrConflict:
    if found is not None and replace(found, version=wanted.version) == wanted:
        return IsrWritten(found.version)
    return IsrConflict(found)
