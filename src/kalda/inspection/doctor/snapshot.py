"""Defines the facts about a cluster that `kalda doctor` judges; a reader gathers them. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.inspection.hanging_transactions import OpenTransaction

if TYPE_CHECKING:
    from kalda.clients.admin.clusters import BrokerApiVersions
    from kalda.clients.admin.configs import ConfigEntry
    from kalda.clients.admin.log_dirs import LogDirDescription
    from kalda.clients.admin.partitions import PartitionReassignment
    from kalda.clients.admin.topics import TopicDescription, TopicPartitionInfo

MIN_ISR_DEFAULT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group with committed offsets."""

    group_id: str
    state: str
    """The protocol's word, for example ``Stable`` or ``Empty``."""
    committed: Mapping[TopicPartition, int]
    assigned: frozenset[TopicPartition] = frozenset()
    """The partitions that its members have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """A transaction that is open."""

    transactional_id: str
    start_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """The certificate that a listener shows."""

    place: str
    """The listener's address and its broker."""
    subject: str
    not_after_s: float
    """The end of its validity, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """How far a broker's wall clock is ahead of this machine's, as one request shows."""

    offset_ms: float
    error_ms: float
    """The offset is wrong by this at most: half of the time between request and response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What a broker of Kalda says of its process."""

    version: str
    is_compiled: bool
    clock: ClockReading
    open_files: int
    """Open descriptors; -1 where the system does not say."""
    open_files_max: int
    """The limit of the process; -1 where there is none or the system does not say."""


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """A cluster as its brokers describe it; what could not be read is in `unread` and empty here."""

    brokers: Sequence[BrokerEndpoint] = ()
    """The brokers that the cluster lists, sorted by id."""
    running: frozenset[int] = frozenset()
    """Those of them that respond."""
    controller_id: int | None = None
    topics: "Mapping[str, TopicDescription]" = field(default_factory=dict)
    """All topics, the internal ones included."""
    versions: "Mapping[int, BrokerApiVersions]" = field(default_factory=dict)
    broker_settings: "Mapping[int, Mapping[str, ConfigEntry]]" = field(default_factory=dict)
    topic_settings: "Mapping[str, Mapping[str, ConfigEntry]]" = field(default_factory=dict)
    log_dirs: "Mapping[int, Mapping[str, LogDirDescription]]" = field(default_factory=dict)
    reassignments: "Mapping[TopicPartition, PartitionReassignment]" = field(default_factory=dict)
    stalled_moves: frozenset[TopicPartition] = frozenset()
    """Partitions whose new replicas did not grow while they were watched."""
    groups: "Sequence[GroupFacts]" = ()
    ends: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The first and the next offset of partitions that groups committed offsets of."""
    transactions: "Sequence[TransactionFacts]" = ()
    """Those that are open."""
    hanging: Sequence[OpenTransaction] = ()
    """Those that no coordinator will end."""
    certificates: "Sequence[CertificateFacts]" = ()
    processes: "Mapping[int, ProcessFacts]" = field(default_factory=dict)
    """The processes of brokers that describe them, which only those of Kalda do."""
    open_znodes: Sequence[str] = ()
    """Znodes that everybody may change; empty unless ZooKeeper was read."""
    now_s: float = 0.0
    """The wall clock of the machine that gathered the facts, in seconds."""
    unread: Sequence[str] = ()
    """What could not be read, each with the reason."""

    @cached_property
    def partitions(self) -> "Mapping[TopicPartition, TopicPartitionInfo]":
        """All partitions in order."""
        return {
            TopicPartition(name, each.partition): each
            for name, topic in sorted(self.topics.items())
            for each in topic.partitions
        }

    @cached_property
    def known_brokers(self) -> frozenset[int]:
        """The ids of the brokers that the cluster lists or that have replicas."""
        listed = {each.id for each in self.brokers}
        return frozenset(listed.union(*(info.replicas for info in self.partitions.values())))

    def broker_setting(self, broker_id: int, name: str) -> str | None:
        """Return the value in force of a broker's setting; None if it is not known."""
        entry = self.broker_settings.get(broker_id, {}).get(name)
        return None if entry is None else entry.value

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return the value in force of a topic's setting; None if it is not known."""
        entry = self.topic_settings.get(topic, {}).get(name)
        return None if entry is None else entry.value

    def topic_number(self, topic: str, name: str) -> int | None:
        """Return a topic's setting as a number; None if it is not known or no integer."""
        return number_of(self.topic_setting(topic, name))

    def broker_number(self, broker_id: int, name: str) -> int | None:
        """Return a broker's setting as a number; None if it is not known or no integer."""
        return number_of(self.broker_setting(broker_id, name))

    def min_isr(self, topic: str) -> int:
        """Return `min.insync.replicas` of a topic; 1, the default, where it is not known."""
        found = self.topic_number(topic, "min.insync.replicas")
        return MIN_ISR_DEFAULT if found is None else found

    def settings_with_value(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the id and the value of each broker that describes a setting with a value."""
        for broker_id in sorted(self.broker_settings):
            value = self.broker_setting(broker_id, name)
            if value is not None:
                yield broker_id, value


def number_of(text: str | None) -> int | None:
    """Return the integer that a setting has; None for no value and for other text."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
