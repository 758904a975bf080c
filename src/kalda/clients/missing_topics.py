"""Warns once about a topic or partition that a client asks for and no broker has, with the name meant.

Where brokers create topics on use, a mistyped one is warned of when it appears.

The client goes on waiting, as Kafka's clients do: it may be created later. Without the warning a mistyped
name looks like a topic without records.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kalda.clients.errors import ClientError
from kalda.clients.metadata import ClusterMetadata
from kalda.common.errors import ErrorCode
from kalda.common.log_text import counted
from kalda.common.nearest import DATA_CUTOFF, did_you_mean
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

CREATION_SECONDS: Final = 0.5
"""How long a topic may be missing without a warning: a broker that creates topics on use needs a moment."""

_CREATED_MAX: Final = 3
"""How many topics that appear are compared with the names of all topics.

A person mistypes the first ones, and a program that creates thousands must not read all names for each.
"""
_ABSENT: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
"""The first responses about a topic that brokers create on use."""

FetchNames = Callable[[], Awaitable[Iterable[str]]]
"""Asks a broker for the names of all topics that the client may see."""


class MissingTopics:
    """The topics that a client asked for and that did not exist at the last update."""

    def __init__(self, fetch_names: FetchNames) -> None:
        self._fetch_names: Final = fetch_names
        self._since: dict[str, float] = {}
        """When each was first found missing, in the loop's seconds."""
        self._hints: dict[str, str] = {}
        """What was said about each that was warned of."""
        self._absent: set[str] = set()
        """Those that did not exist, or had just been created, at the last update."""
        self._created_count = 0

    def hint(self, topic: str) -> str:
        """Return ``; did you mean `orders`?`` for a topic that was warned of; the empty text otherwise."""
        return self._hints.get(topic, "")

    async def updated(self, snapshot: ClusterMetadata, now: float) -> None:
        """Take new metadata; warn of the topics that are missing for too long."""
        missing = [
            name
            for name, topic in snapshot.topics.items()
            if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        described = {name for name, topic in snapshot.topics.items() if topic.error == ErrorCode.NONE}
        created = sorted((self._absent & described) - self._hints.keys())
        self._absent = {name for name, topic in snapshot.topics.items() if topic.error in _ABSENT}
        if created and self._created_count < _CREATED_MAX:
            self._created_count += len(created)
            await self._warn_of_created(created)
        self._since = {name: self._since.get(name, now) for name in missing}
        self._hints = {name: hint for name, hint in self._hints.items() if name in self._since}
        due = [
            name
            for name, since in self._since.items()
            if name not in self._hints and now - since >= CREATION_SECONDS
        ]
        if not due:
            return
        names = await self._names()
        for name in due:
            self._hints[name] = did_you_mean(name, names, DATA_CUTOFF)
            logger.warning("Topic %s does not exist%s Waiting for %s.", name, self._hints[name] or ".", name)

    async def _warn_of_created(self, created: list[str]) -> None:
        names = set(await self._names()) - {*created}
        for name in created:
            hint = did_you_mean(name, names, DATA_CUTOFF)
            if hint:
                logger.warning("Topic %s did not exist; the brokers have created it%s", name, hint)

    async def _names(self) -> list[str]:
        try:
            return list(await self._fetch_names())
        except ClientError as error:
            logger.debug("The names of the topics are not known: %s", error)
            return []


class MissingPartitions:
    """The partitions that a consumer was assigned and that their topics do not have."""

    def __init__(self) -> None:
        self._warned: set[TopicPartition] = set()

    def updated(self, snapshot: ClusterMetadata, assigned: Iterable[TopicPartition]) -> None:
        """Take new metadata; warn once of each assigned partition that is missing."""
        missing = {each: text for each in assigned if (text := absent_partition(snapshot, each)) is not None}
        for partition in sorted(missing.keys() - self._warned):
            logger.warning("Partition %s does not exist: %s. Waiting for it.", partition, missing[partition])
        self._warned = set(missing)


def absent_partition(snapshot: ClusterMetadata, partition: TopicPartition) -> str | None:
    """Return how many partitions a topic has that lacks this one; None where that is not known."""
    topic = snapshot.topics.get(partition.topic)
    if topic is None or not topic.partitions or partition.partition in topic.partitions:
        return None
    count = len(topic.partitions)
    return f"the topic has {counted(count, 'partition')}, 0 to {count - 1}"
