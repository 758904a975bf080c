"""Runs a mirror: finds topics, copies their records, keeps topics and groups of the target in line.

One thread drives it; `stop` may be called from another. It knows neither Spark nor files: pipelines and
`kalda mirror` run it. Progress is read from the target after the producer has fenced its predecessor, never
before; a transaction of that one could otherwise still be committed.
"""

import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from kalda.clients.admin.acls import AclOperation
from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import ProducerFencedError, UnsupportedApiError
from kalda.clients.producer.producer import Producer
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.acl_sync import OPERATIONS, AclSync
from kalda.pipelines.mirror.checkpoints import CheckpointTopic
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.copier import Copier
from kalda.pipelines.mirror.delivery import (
    AtLeastOnce,
    Delivery,
    DeliveryMode,
    ExactlyOnce,
    check_transactions,
)
from kalda.pipelines.mirror.group_sync import GroupSync
from kalda.pipelines.mirror.offset_syncs import RUNS_KEPT_MAX, OffsetSyncs
from kalda.pipelines.mirror.policy import (
    CLUSTER_CONFIGS,
    GROUP_PREFIX,
    MirrorError,
    MirrorNames,
    NameFilter,
    RenameRule,
    ReverseCopy,
    check_clusters,
    check_reverse,
)
from kalda.pipelines.mirror.progress import (
    Origin,
    Progress,
    id_text,
    is_other,
    progress_metadata,
    read_origin,
    resumption_of,
)
from kalda.pipelines.mirror.syncs_topic import read_syncs
from kalda.pipelines.mirror.topic_sync import MirroredTopics, TopicSync, create_if_missing

logger: Final = logging.getLogger(__name__)

_FETCH_BYTES: Final = "4194304"
_DEFAULTS_OF_PRODUCER: Final = {"linger.ms": "20", "compression.type": "zstd", "batch.size": "262144"}
STARTS: Final = ("earliest", "latest")


class MirrorFencedError(MirrorError):
    """Another process runs a mirror of the same name."""


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The topic of checkpoints in the target."""

    topic: str
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """What a mirror does.

    Args:
        name: distinguishes the mirror from others with the same target; it names its group, and its
            transactions fence an earlier process of the same name.
        source: settings of the source cluster.
        target: settings of the target cluster.
        names: the topics and what their copies are called.
        sync_acls: whether ACLs of topics are copied.
        acl_operations: the operations that copied ACLs allow or deny.
        configs_excluded: settings of topics that copies do not get.
        sync_groups: whether offsets of groups are written to the target.
        groups: which groups; None for all.
        checkpoints: the topic that shows where groups go on; None writes none.
        start: where a partition begins that the mirror sees in its first run: ``earliest`` or ``latest``.
            Partitions found later begin at the earliest offset.
        replication_factor: of copies; None takes the default of the target, which brokers before 2.4 lack.
        syncs_replication_factor: of the topic of offset syncs, in the same way.
        begins: where partitions begin that have no progress yet; it wins over `start`.
        returns: the mirror in the other direction whose copies this one brings back. It must have ended, and
            `begins` must lie behind what it wrote.
        runs_kept_max: runs of offsets that are kept in memory for a partition.
    """

    name: str
    source: ClusterSettings
    target: ClusterSettings
    names: MirrorNames
    sync_configs: bool = True
    sync_acls: bool = False
    acl_operations: Sequence[AclOperation] = OPERATIONS
    configs_excluded: re.Pattern[str] = CLUSTER_CONFIGS
    sync_groups: bool = False
    groups: NameFilter | None = None
    checkpoints: CheckpointOptions | None = None
    start: str = "earliest"
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
    replication_factor: int | None = None
    syncs_replication_factor: int | None = None
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    returns: str = ""
    runs_kept_max: int = RUNS_KEPT_MAX

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise MirrorError(f"start={self.start!r} of a mirror is neither earliest nor latest")

    @property
    def group(self) -> str:
        """The group in the target that holds the progress."""
        return GROUP_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class MirrorStatistics:
    """What a mirror has done since it was opened."""

    records: int = 0
    read_bytes: int = 0
    transactions: int = 0
    lost: int = 0
    """Offsets that the source deleted before they were copied."""
    groups: int = 0
    """How often a group's progress was carried over."""
    topics: int = 0
    lag: int = 0
    """Offsets of the source that are not copied yet, as of the last look."""
    refused: tuple[str, ...] = ()
    """Why the target refuses the copies of topics, which are therefore not copied."""


class Mirror:
    """A running mirror; used in a ``with`` block, by one thread.

    Raises:
        MirrorError: the copy would run in a circle, or is asked for what clusters do not have.
        ClientError: a cluster cannot be reached or refuses the mirror.
    """

    def __init__(self, options: MirrorOptions) -> None:
        self._options: Final = options
        self._stop: Final = threading.Event()
        self._resources: Final = ExitStack()
        self._statistics = MirrorStatistics()
        self._producer: Producer | None = None
        self._topics = MirroredTopics({}, {}, {})
        self._positions: dict[TopicPartition, int] = {}
        self._recorded: Final[dict[TopicPartition, Progress]] = {}
        """What the topic of syncs has of each partition."""
        self._syncs: Final[dict[TopicPartition, OffsetSyncs]] = {}
        self._passed: Mapping[str, tuple[str, ...]] = {}
        """The clusters that the records of topics passed before they came to the source."""

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def stop(self) -> None:
        """Make `run_once` return behind the transaction under way; callable from any thread."""
        self._stop.set()

    def statistics(self) -> MirrorStatistics:
        """Return the figures of the work so far."""
        return self._statistics

    def abandon(self) -> None:
        """Close without waiting for the transaction under way; the next mirror of the name aborts it."""
        if self._producer is not None:
            self._producer.close(0)
        self._resources.close()

    @property
    def topics(self) -> MirroredTopics:
        """The topics that are copied, as of the last look."""
        return self._topics

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Where each partition of the source goes on; between two transactions all before it is copied."""
        return self._positions

    @property
    def syncs(self) -> Mapping[TopicPartition, OffsetSyncs]:
        """Which offsets of the source became which of the target."""
        return self._syncs

    def run_once(self) -> None:
        """Copy what the source holds at the time of the call, and carry groups over.

        Raises:
            MirrorError: see the class.
            ClientError, RecordsError: reading or writing failed; what was committed stays.
        """
        self.look_for_topics()
        ends = self._ends()
        while not self._stop.is_set() and self._copy(ends):
            pass
        self.carry_groups()

    def look_for_topics(self) -> None:
        """Find the topics of the source, create and alter their copies.

        Raises:
            MirrorError: see the class.
            ClientError: a cluster cannot be reached or refuses it.
        """
        topics = self._topic_sync.find_topics()
        if self._options.names.rule is RenameRule.IDENTITY:
            copies = self._copies_in_source()
            check_reverse(
                self._options.names,
                topics,
                [
                    ReverseCopy(mirror, topic)
                    for mirror, topic, origin in copies
                    if mirror != self._options.returns
                    and self._target_id in (origin.cluster_id, *origin.passed)
                ],
            )
            self._passed = _passed(copies)
        before, self._topics = self._topics, self._topic_sync.bring_in_line(topics)
        if self._acl_sync is not None:
            self._acl_sync.bring_in_line(self._topics.ids)
        for name, error in self._topics.refused.items():
            if name not in before.refused:
                logger.warning("mirror %s does not copy topic %s: %s", self._options.name, name, error)
        for each in list(self._positions):
            if each not in self._topics.targets:
                del self._positions[each]
            elif self._topics.ids[each.topic] != before.ids.get(each.topic):
                # The topic was deleted and created again since the last look.
                del self._positions[each]
        new = self._topics.targets.keys() - self._positions.keys()
        if new:
            self._find_positions(sorted(new))
        self._statistics = replace(
            self._statistics,
            topics=len(self._topics.ids),
            refused=tuple(map(str, self._topics.refused.values())),
        )

    def copy_next(self) -> bool:
        """Copy one transaction; return False if there was nothing to copy.

        Raises:
            ClientError, RecordsError: reading or writing failed; what was committed stays.
            MirrorFencedError: another process has taken the mirror over.
        """
        return self._copy(self._ends())

    def carry_groups(self) -> None:
        """Translate the offsets of groups, and write them to the target as the options say.

        Raises:
            ClientError: a cluster cannot be reached.
        """
        options = self._options
        if not options.sync_groups and self._checkpoints is None:
            return
        checkpoints = self._groups.translate(self._topics.targets, self._syncs)
        if self._checkpoints is not None:
            self._checkpoints.write(checkpoints)
        if options.sync_groups:
            moved = self._groups.write(checkpoints)
            self._statistics = replace(self._statistics, groups=self._statistics.groups + moved)

    def _open(self) -> None:
        options = self._options
        enter = self._resources.enter_context
        named = {"client.id": options.group}
        self._source_admin = enter(Admin.from_config(options.source.for_admin() | named))
        self._target_admin = enter(Admin.from_config(options.target.for_admin() | named))
        reader_settings = {
            "max.partition.fetch.bytes": _FETCH_BYTES,
            **options.source.for_reader(),
            **named,
            "isolation.level": "read_committed",
        }
        self._reader = enter(LogReader(LogReaderConfig.from_properties(reader_settings)))
        self._source_id = self._source_admin.describe_cluster().cluster_id or ""
        self._target_id = self._target_admin.describe_cluster().cluster_id or ""
        check_clusters(options.names, self._source_id, self._target_id)
        self._topic_sync = TopicSync(
            self._source_admin,
            self._target_admin,
            options.names,
            options.sync_configs,
            options.configs_excluded,
            options.replication_factor,
        )
        self._acl_sync = (
            AclSync(self._source_admin, self._target_admin, options.names, options.acl_operations)
            if options.sync_acls
            else None
        )
        self._topic_sync.create_syncs_topic(options.syncs_replication_factor)
        producer, self._delivery = self._open_producer()
        self._copier = Copier(
            options.name,
            self._reader,
            producer,
            self._delivery,
            lambda topic: self._topics.ids[topic],
            self._progress_metadata,
        )
        self._groups = GroupSync(self._source_admin, self._target_admin, options.groups)
        self._checkpoints = self._open_checkpoints(producer)
        self._load_syncs()

    def _open_producer(self) -> tuple[Producer, Delivery]:
        options = self._options
        settings = {**_DEFAULTS_OF_PRODUCER, **options.target.for_producer(), "client.id": options.group}
        is_transactional = self._has_transactions()
        if is_transactional:
            settings |= {"transactional.id": options.group, "enable.idempotence": "true"}
        producer = self._producer = self._resources.enter_context(Producer.from_config(settings))
        if not is_transactional:
            return producer, AtLeastOnce(producer, options.group, self._target_admin)
        timeout_ms = ProducerConfig.from_properties(settings).transaction_timeout_ms
        self._transaction_timeout_s = timeout_ms / 1000
        producer.init_transactions()
        return producer, ExactlyOnce(producer, options.group)

    def _has_transactions(self) -> bool:
        """Return whether the mirror copies exactly once.

        Raises:
            MirrorError: it has to, and the target cannot.
        """
        mode = self._options.delivery
        if mode is DeliveryMode.AT_LEAST_ONCE:
            return False
        try:
            check_transactions(self._target_admin, self._options.group)
        except UnsupportedApiError as error:
            if mode is DeliveryMode.EXACTLY_ONCE:
                raise MirrorError(
                    f"mirror {self._options.name} has to copy exactly once, and brokers of "
                    f"{self._options.names.target} cannot: they are older than 2.5"
                ) from error
            logger.warning(
                "mirror %s copies at least once, not exactly once: brokers of %s are older than 2.5 (%s)",
                self._options.name,
                self._options.names.target,
                error,
            )
            return False
        return True

    def _open_checkpoints(self, producer: Producer) -> CheckpointTopic | None:
        options = self._options.checkpoints
        if options is None:
            return None
        config = {"cleanup.policy": "compact"}
        create_if_missing(
            self._target_admin, NewTopic(options.topic, 1, options.replication_factor, config=config)
        )
        checkpoints = CheckpointTopic(options.topic, producer, self._delivery)
        checkpoints.load(self._options.target.for_consumer())
        return checkpoints

    def _find_positions(self, new: list[TopicPartition]) -> None:
        committed = self._target_admin.list_consumer_group_offsets(
            [self._options.group], require_stable=isinstance(self._delivery, ExactlyOnce), outcomes=True
        )[self._options.group]
        is_first_run = not committed.results and not self._recorded and not self._positions
        known: dict[TopicPartition, int] = {}
        for source in new:
            position = self._known_position(source, committed.get(self._topics.targets[source]))
            if position is not None:
                known[source] = position
            elif source in self._syncs:
                # Those of a topic that was deleted; offsets of groups are not those of the new one.
                del self._syncs[source]
        unknown = [source for source in new if source not in known]
        at_end = is_first_run and self._options.start == "latest"
        found = (self._reader.end_offsets if at_end else self._reader.beginning_offsets)(unknown)
        found |= {each: offset for each, offset in self._options.begins.items() if each in found}
        self._positions |= known | found
        if at_end and found:
            # Committed at once: after a restart these partitions must not count as found later.
            ranges = {each: (offset, offset) for each, offset in found.items()}
            self._copier.copy(ranges, self._topics.targets)

    def _known_position(self, source: TopicPartition, committed: OffsetAndMetadata | None) -> int | None:
        """Return where a partition goes on; None if the mirror has not seen it yet.

        Raises:
            MirrorError: the progress is that of another source cluster.
        """
        options = self._options
        origin = None if committed is None else read_origin(committed.metadata)
        if origin is not None and is_other(origin.cluster_id, self._source_id):
            raise MirrorError(
                f"the progress of mirror {options.name} in {options.names.target} is that of the cluster "
                f"{origin.cluster_id}, and {options.names.source} is {self._source_id}; give the mirror "
                f"another name, or delete the group {options.group} in {options.names.target} to copy all"
            )
        topic_id = id_text(self._topics.ids[source.topic])
        resumption = resumption_of(committed, self._recorded.get(source), topic_id)
        if resumption.is_created_again:
            logger.warning(
                "mirror %s: topic %s was deleted and created again in %s; it is copied from its beginning",
                options.name,
                source.topic,
                options.names.source,
            )
        return resumption.position

    def _ends(self) -> dict[TopicPartition, int]:
        ends = self._reader.end_offsets(self._positions)
        self._statistics = replace(self._statistics, lag=self._lag(ends))
        return ends

    def _lag(self, ends: Mapping[TopicPartition, int]) -> int:
        return sum(max(end - self._positions.get(each, end), 0) for each, end in ends.items())

    def _copy(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Copy one transaction towards the ends; return False when they are reached."""
        # The partition that lags most goes first, so that none waits behind a busy one for ever.
        ranges = {
            each: (self._positions[each], ends[each])
            for each in sorted(ends, key=lambda each: self._positions.get(each, 0) - ends[each])
            if each in self._positions and self._positions[each] < ends[each]
        }
        if not ranges:
            return False
        try:
            copied = self._copier.copy(ranges, self._topics.targets)
        except ProducerFencedError as error:
            self._check_fenced(error)
            raise
        self._positions |= copied.positions
        for source, runs in copied.runs.items():
            self._syncs_of(source).add(runs)
        before = self._statistics
        self._statistics = replace(
            before,
            records=before.records + copied.records,
            read_bytes=before.read_bytes + copied.read_bytes,
            transactions=before.transactions + 1,
            lost=before.lost + copied.lost,
            lag=self._lag(ends),
        )
        return True

    def _check_fenced(self, error: ProducerFencedError) -> None:
        """Distinguish a transaction that took too long from another process that has taken over.

        Raises:
            MirrorFencedError: it is the latter.
        """
        open_seconds = self._delivery.open_seconds() or 0.0
        if open_seconds < self._transaction_timeout_s:
            raise MirrorFencedError(
                f"another process runs mirror {self._options.name}; only one can, so this one ends"
            ) from error

    def _load_syncs(self) -> None:
        for source, sync in read_syncs(self._options.target, self._options.name):
            before = self._recorded.get(source)
            if before is not None and is_other(before.topic_id, sync.topic_id):
                self._syncs.pop(source, None)
            self._syncs_of(source).add(sync.runs)
            if isinstance(self._delivery, ExactlyOnce):
                # Without transactions, the records before the position may be missing.
                self._recorded[source] = Progress(sync.topic_id, sync.position)

    def _syncs_of(self, source: TopicPartition) -> OffsetSyncs:
        return self._syncs.setdefault(source, OffsetSyncs(kept_max=self._options.runs_kept_max))

    def _progress_metadata(self, source: TopicPartition) -> str:
        topic = source.topic
        origin = Origin(self._source_id, id_text(self._topics.ids[topic]), self._passed.get(topic, ()))
        return progress_metadata(self._options.name, source.topic, origin)

    def _copies_in_source(self) -> list[tuple[str, str, Origin]]:
        """Return the topics that mirrors have written in the source: mirror, topic and origin.

        Their groups there show it. With what those mirrors found in their own sources, it is the whole way.
        """
        groups = [
            each.group_id
            for each in self._source_admin.list_consumer_groups().all()
            if each.group_id.startswith(GROUP_PREFIX)
        ]
        found = []
        if not groups:
            return []
        # Reading a failed answer raises its error: an offset behind it could be that of a copy.
        for group, offsets in self._source_admin.list_consumer_group_offsets(groups, outcomes=True).items():
            for partition, answer in offsets.items():
                origin = None if answer is None else read_origin(answer.metadata)
                if origin is not None:
                    found.append((group.removeprefix(GROUP_PREFIX), partition.topic, origin))
        return found


def _passed(copies: Iterable[tuple[str, str, Origin]]) -> dict[str, tuple[str, ...]]:
    clusters: dict[str, set[str]] = {}
    for _, topic, origin in copies:
        clusters.setdefault(topic, set()).update((origin.cluster_id, *origin.passed))
    return {topic: tuple(sorted(found - {""})) for topic, found in clusters.items()}
