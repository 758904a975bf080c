"""Runs a mirror: finds topics, copies their records, keeps topics and groups of the target in line.

One thread drives it; `stop` may be called from another. It knows neither Spark nor pipeline files, so that a
command of its own can run it. What a maintainer must not break: progress is read from the target after the
producer has fenced its predecessor, never before; a transaction of that one could otherwise still be
committed.
"""

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from kalda.clients.admin.admin import Admin
from kalda.clients.log_reader.log_reader import LogReader
from kalda.clients.log_reader.log_reader_config import LogReaderConfig
from kalda.clients.producer.producer import Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.topic import read_compacted
from kalda.pipelines.mirror.copier import Copier
from kalda.pipelines.mirror.group_sync import GroupSync
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs, SyncError, read_sync
from kalda.pipelines.mirror.policy import (
    GROUP_PREFIX,
    SYNCS_TOPIC,
    MirrorError,
    MirrorNames,
    RenameRule,
    ReverseCopy,
    check_clusters,
    check_reverse,
)
from kalda.pipelines.mirror.topic_sync import TopicSync

logger: Final = logging.getLogger(__name__)

_FETCH_BYTES: Final = "4194304"
_DEFAULTS_OF_PRODUCER: Final = {"linger.ms": "20", "compression.type": "zstd", "batch.size": "262144"}
STARTS: Final = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """What a mirror does.

    Args:
        name: distinguishes the mirror from others with the same target; it names its group, and its
            transactions fence an earlier process of the same name.
        source: settings of the source cluster with Kafka's dotted names.
        target: settings of the target cluster.
        names: the topics and what their copies are called.
        start: where a partition begins that the mirror sees in its first run: ``earliest`` or ``latest``.
            Partitions found later begin at the earliest offset.
    """

    name: str
    source: Mapping[str, str]
    target: Mapping[str, str]
    names: MirrorNames
    sync_configs: bool = True
    sync_groups: bool = False
    start: str = "earliest"

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
        self._targets: dict[TopicPartition, TopicPartition] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._syncs: dict[TopicPartition, OffsetSyncs] = {}

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
        """Return what was done so far."""
        return self._statistics

    def run_once(self) -> None:
        """Copy what the source holds at the time of the call, and carry groups over.

        Raises:
            MirrorError: see the class.
            ClientError, RecordsError: reading or writing failed; what was committed stays.
        """
        self._look_for_topics()
        ends = self._ends()
        while not self._stop.is_set() and self._copy(ends):
            pass
        if self._options.sync_groups:
            self._carry_groups()

    def _open(self) -> None:
        options = self._options
        enter = self._resources.enter_context
        self._source_admin = enter(Admin.from_config(_for(options.source, options)))
        self._target_admin = enter(Admin.from_config(_for(options.target, options)))
        reader_settings = {**_for(options.source, options), "isolation.level": "read_committed"}
        reader_settings.setdefault("max.partition.fetch.bytes", _FETCH_BYTES)
        self._reader = enter(LogReader(LogReaderConfig.from_properties(reader_settings)))
        self._source_id = self._source_admin.describe_cluster().cluster_id or ""
        self._target_id = self._target_admin.describe_cluster().cluster_id or ""
        check_clusters(options.names, self._source_id, self._target_id)
        self._topics = TopicSync(self._source_admin, self._target_admin, options.names, options.sync_configs)
        self._topics.create_syncs_topic()
        producer = enter(
            Producer.from_config(
                {
                    **_DEFAULTS_OF_PRODUCER,
                    **_for(options.target, options),
                    "transactional.id": options.group,
                    "enable.idempotence": "true",
                }
            )
        )
        producer.init_transactions()
        self._copier = Copier(options.name, self._reader, producer, options.group, self._progress_metadata)
        self._groups = GroupSync(self._source_admin, self._target_admin)
        self._load_syncs()

    def _look_for_topics(self) -> None:
        topics = self._topics.find_topics()
        if self._options.names.rule is RenameRule.IDENTITY:
            check_reverse(self._options.names, topics, self._reverse_copies())
        self._targets = self._topics.bring_in_line(topics)
        new = self._targets.keys() - self._positions.keys()
        if new:
            self._find_positions(sorted(new))
        for gone in self._positions.keys() - self._targets.keys():
            del self._positions[gone]
        self._statistics = replace(self._statistics, topics=len(topics))

    def _find_positions(self, new: list[TopicPartition]) -> None:
        committed = self._target_admin.list_consumer_group_offsets(
            [self._options.group], require_stable=True
        )[self._options.group]
        is_first_run = not committed.results and not self._positions
        known = {
            source: answer.offset
            for source in new
            if (answer := committed.get(self._targets[source])) is not None
        }
        unknown = [source for source in new if source not in known]
        at_end = is_first_run and self._options.start == "latest"
        found = (self._reader.end_offsets if at_end else self._reader.beginning_offsets)(unknown)
        self._positions |= known | found
        if at_end and found:
            # Committed at once: after a restart these partitions must not count as found later.
            self._copier.copy({source: (offset, offset) for source, offset in found.items()}, self._targets)

    def _ends(self) -> dict[TopicPartition, int]:
        ends = self._reader.end_offsets(self._positions)
        lag = sum(max(end - self._positions[each], 0) for each, end in ends.items())
        self._statistics = replace(self._statistics, lag=lag)
        return ends

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
        copied = self._copier.copy(ranges, self._targets)
        self._positions |= copied.positions
        for source, runs in copied.runs.items():
            self._syncs.setdefault(source, OffsetSyncs()).add(runs)
        before = self._statistics
        self._statistics = replace(
            before,
            records=before.records + copied.records,
            read_bytes=before.read_bytes + copied.read_bytes,
            transactions=before.transactions + 1,
            lost=before.lost + copied.lost,
        )
        return True

    def _carry_groups(self) -> None:
        moved = self._groups.run(self._targets, self._syncs)
        self._statistics = replace(self._statistics, groups=self._statistics.groups + moved)

    def _load_syncs(self) -> None:
        for key, value in read_compacted(self._options.target, SYNCS_TOPIC):
            if value is None:
                continue
            try:
                mirror, source, runs = read_sync(key, value)
            except SyncError as error:
                logger.warning("%s", error)
                continue
            if mirror == self._options.name:
                self._syncs.setdefault(source, OffsetSyncs()).add(runs)

    def _progress_metadata(self, source: TopicPartition) -> str:
        return json.dumps({"mirror": self._options.name, "source": self._source_id, "topic": source.topic})

    def _reverse_copies(self) -> list[ReverseCopy]:
        """Return what mirrors of the target have written in the source; their groups there show it."""
        groups = [
            each.group_id
            for each in self._source_admin.list_consumer_groups().all()
            if each.group_id.startswith(GROUP_PREFIX)
        ]
        found = []
        if not groups:
            return []
        # Reading a failed answer raises its error: an offset behind it could be that of a copy.
        for group, offsets in self._source_admin.list_consumer_group_offsets(groups).items():
            for partition, answer in offsets.items():
                if answer is not None and _source_of(answer.metadata) == self._target_id:
                    found.append(ReverseCopy(group.removeprefix(GROUP_PREFIX), partition.topic))
        return found


def _source_of(metadata: str) -> str | None:
    try:
        document = json.loads(metadata)
        return str(document["source"])
    except (ValueError, KeyError, TypeError):
        return None


def _for(properties: Mapping[str, str], options: MirrorOptions) -> dict[str, str]:
    return {**properties, "client.id": options.group}
