"""Reads what pages show of the cluster, with the visitor's permissions and through the cached snapshots."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from kalda.clients.admin.clusters import BrokerApiVersions
from kalda.clients.admin.partitions import OffsetSpec
from kalda.clients.admin.topics import TopicDescription
from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.console.cluster_views import ClusterView, Ends, LogDirs, cluster_view
from kalda.http.console.snapshots import Snapshots
from kalda.inspection.cluster_health import RESPONSE_TIMEOUT_MS

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.groups import GroupListing

T = TypeVar("T")

_FORMER_ENDS_MAX: Final = 2_000
_GROUPS_MAX: Final = 1_000
"""Groups whose offsets are read at once to find those of a topic."""
_COMMITTED: Final = "committed offsets"
_FORMER_SECONDS: Final = 10.0
"""A rate is that of at least so long, if the pages were looked at for that long."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offsets of groups."""

    offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
    is_cut: bool
    """Whether there are more groups than were read."""


class Reading:
    """Reads the cluster for all visitors."""

    def __init__(self) -> None:
        self.snapshots: Final = Snapshots()
        self._former: Final[OrderedDict[tuple[str, str], tuple[Ends, Ends]]] = OrderedDict()

    async def topics(self, caller: Caller) -> Sequence[TopicDescription]:
        """Return all topics that a caller may see, sorted by name."""

        async def read() -> list[TopicDescription]:
            admin = await caller.admin()
            listed = await admin.list_topics(include_internal=True)
            described = await admin.describe_topics(listed, outcomes=True)
            return sorted(described.results.values(), key=lambda each: each.name)

        return await self.snapshots.get(caller, "topics", read)

    async def log_dirs(self, caller: Caller) -> LogDirs:
        """Return the log directories of the brokers that respond and let the caller see them."""

        async def read() -> LogDirs:
            admin = await caller.admin()
            cluster = await admin.describe_cluster()
            ids = [node.id for node in cluster.nodes]
            found = await admin.describe_log_dirs(ids, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
            return found.results

        return await self.snapshots.get(caller, "log directories", read)

    async def cluster(self, caller: Caller) -> ClusterView:
        """Return the cluster at a glance."""

        async def read() -> ClusterView:
            admin = await caller.admin()
            described, topics, dirs = await asyncio.gather(
                admin.describe_cluster(), self.topics(caller), self.log_dirs(caller)
            )
            ids = [node.id for node in described.nodes]
            versions = await admin.describe_api_versions(ids, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
            found: Mapping[int, BrokerApiVersions] = versions.results
            # Thousands of partitions are counted: a thread leaves the loop to others.
            return await asyncio.to_thread(cluster_view, described, topics, dirs, found)

        return await self.snapshots.get(caller, "cluster", read)

    async def groups(self, caller: Caller) -> "Sequence[GroupListing]":
        """Return the groups that a caller may see, sorted by id."""

        async def read() -> "Sequence[GroupListing]":
            return (await (await caller.admin()).list_groups()).results

        return await self.snapshots.get(caller, "groups", read)

    async def committed(self, caller: Caller) -> Committed:
        """Return the committed offsets of the groups that a caller may see."""

        async def read() -> Committed:
            admin = await caller.admin()
            groups = [each.group_id for each in await self.groups(caller)]
            found = await admin.list_consumer_group_offsets(groups[:_GROUPS_MAX], outcomes=True)
            offsets = {
                group: {partition: each for partition, each in of_group.items() if each is not None}
                for group, of_group in found.results.items()
            }
            return Committed(offsets, len(groups) > _GROUPS_MAX)

        return await self.snapshots.get(caller, _COMMITTED, read)

    def known_committed(self, caller: Caller) -> Committed | None:
        """Return the committed offsets of groups if they were read in the last minute."""
        known: Committed | None = self.snapshots.known(caller, _COMMITTED)
        return known

    async def ends(
        self, caller: Caller, name: str, partitions: Iterable[TopicPartition]
    ) -> tuple[Ends, Ends | None]:
        """Return first offsets and ends of partitions now, and former ones under the same name for a rate."""
        wanted = list(partitions)
        admin = await caller.admin()
        starts, ends = await asyncio.gather(
            admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.earliest()), outcomes=True),
            admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.latest()), outcomes=True),
        )
        present = Ends(
            {each: found.offset for each, found in starts.results.items()},
            {each: found.offset for each, found in ends.results.items()},
            monotonic(),
        )
        key = (caller.principal, name)
        older, newer = self._former.pop(key, (present, present))
        # The older one stays until the newer one is old enough, so that a page that is loaded again and again
        # does not show the rate of the last moment.
        self._former[key] = (newer, present) if present.at - newer.at > _FORMER_SECONDS else (older, newer)
        while len(self._former) > _FORMER_ENDS_MAX:
            self._former.popitem(last=False)
        return present, older if older is not present else None


async def partitions_of(admin: "AsyncAdmin", topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic.

    Raises:
        ClientError: it does not exist, or cannot be described.
    """
    described = (await admin.describe_topics([topic]))[topic]
    return [TopicPartition(topic, each.partition) for each in described.partitions]


async def allowed(call: Awaitable[T], default: T) -> T:
    """Return a call's result, or `default` if the cluster refuses it or cannot be reached."""
    try:
        return await call
    except ClientError:
        return default
