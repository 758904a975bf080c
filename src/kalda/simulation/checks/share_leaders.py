"""Reads the state of a share group's partitions on their leaders: `ShareLeaders`."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from kalda.broker.share.led_share_partition import LedSharePartition
from kalda.broker.share.share_partitions import SharePartitions
from kalda.broker.share.share_sessions import SessionKey, ShareSession, ShareSessions
from kalda.clients.share.acknowledgements import SharePartition
from kalda.common.types import TopicPartition
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.simulation.checks.deliveries import Grant, Place
from kalda.simulation.cluster import SimulatedCluster


@dataclass(frozen=True, slots=True)
class Term:
    """One leader of a share partition, and a session of a member there."""

    led: LedSharePartition
    member: str
    sessions: ShareSessions
    session: ShareSession

    def grant(self, offset: int) -> Grant | None:
        """Return how the member holds a record; None if it does not, by now."""
        found = None if self.led.core is None else self.led.core.holder(offset)
        if found is None or found[0] != self.member:
            return None
        is_open = partial(self.sessions.is_open, self.session)
        return Grant(self.led, self.led.leader_epoch, found[1], is_open, partial(self._is_held, offset))

    def _is_held(self, offset: int) -> bool:
        if self.led.core is None or not self.led.is_current:
            return True
        found = self.led.core.holder(offset)
        return found is not None and found[0] == self.member


class ShareLeaders:
    """Looks at the share partitions of one group of one topic."""

    def __init__(self, cluster: SimulatedCluster, group_id: str) -> None:
        self._cluster: Final = cluster
        self._group_id: Final = group_id
        self._sources: Final[dict[int, SharePartition]] = {}

    @property
    def has_any_clock_jumped(self) -> bool:
        """Whether the clock of a broker was ever wrong."""
        return any(self._cluster.machine(each).clock.has_jumped for each in self._cluster.brokers)

    def term(self, node: int, source: SharePartition, member: str) -> Term | None:
        """Return the leader that a broker is, with the session of a member; None without both."""
        self._sources[source.partition.partition] = source
        share = self._share(node)
        if share is None:
            return None
        led = share.present(SharePartitionKey(self._group_id, source.topic_id, source.partition.partition))
        session = share.sessions.get(SessionKey(self._group_id, member))
        if led is None or session is None or not led.is_current:
            return None
        return Term(led, member, share.sessions, session)

    def newest_epoch(self, name: TopicPartition) -> int:
        """Return the highest leader epoch of a partition that a serving broker knows."""
        found = [
            hosted[name].leader_epoch for hosted in self._cluster.partitions().values() if name in hosted
        ]
        return max(found, default=0)

    def is_done(self, place: Place) -> bool:
        """Return whether a leader says that a record is not delivered again, or no leader is known."""
        cores = [each.core for each in self._leaders(place[0]) if each.core is not None]
        return not cores or any(core.is_done(place[1]) for core in cores)

    def forgotten_by(self, place: Place, epoch: int) -> str | None:
        """Return a leader in a later epoch that would deliver a record, None without one.

        One that was replaced does not count: the acknowledgement may have been stored by the next one.
        """
        source = self._sources.get(place[0])
        newest = 0 if source is None else self.newest_epoch(source.partition)
        for led in self._leaders(place[0]):
            is_later = epoch < led.leader_epoch >= newest
            if is_later and led.core is not None and not led.core.is_done(place[1]):
                return f"the leader in epoch {led.leader_epoch}"
        return None

    def _leaders(self, number: int) -> list[LedSharePartition]:
        source = self._sources.get(number)
        if source is None:
            return []
        key = SharePartitionKey(self._group_id, source.topic_id, number)
        shares = [self._share(each) for each in self._cluster.brokers]
        return [led for share in shares if share is not None and (led := share.present(key)) is not None]

    def _share(self, node: int) -> SharePartitions | None:
        if not self._cluster.is_serving(node):
            return None
        made = self._cluster.servers[node].services.lazy_share.made
        return None if made is None else made.partitions
