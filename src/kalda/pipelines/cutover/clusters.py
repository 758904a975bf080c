"""Opens the clients of a cut-over's two clusters, and reads partitions, offsets and transactions."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, TypeVar
from uuid import UUID

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.partitions import OffsetSpec
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.compare import Begins
from kalda.pipelines.cutover.log_rows import LogRows
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs
from kalda.pipelines.mirror.policy import SYNCS_TOPIC
from kalda.pipelines.mirror.progress import is_other
from kalda.pipelines.mirror.syncs_topic import read_syncs

K = TypeVar("K")
V = TypeVar("V")

RUNS_MAX: Final = 200_000
"""Runs that are kept of a partition: about 20 MB. A place before them is found by counting records."""
TIMESTAMP_CONFIGS: Final = "message.timestamp."
_WORKERS: Final = 8
_SHORT_WAITS: Final = {"default.api.timeout.ms": "15000", "max.block.ms": "15000"}
_SHORT_DELIVERY: Final = {"delivery.timeout.ms": "15000", "request.timeout.ms": "10000"}
"""A cut-over has its own time limit and tries again: writers are held while a call waits."""


def with_short_waits(settings: ClusterSettings) -> ClusterSettings:
    """Return the settings of a cluster's clients with shorter waits, unless they are set."""
    producer = {**settings.common, **settings.producer}
    # The two depend on each other, so that one alone could be refused.
    delivery = {} if producer.keys() & {*_SHORT_DELIVERY, "linger.ms"} else _SHORT_DELIVERY
    return replace(
        settings,
        common={**_SHORT_WAITS, **settings.common},
        producer={**delivery, **settings.producer},
    )


def in_parallel(function: Callable[[K], V], items: Iterable[K]) -> list[V]:
    """Return what a function returns for each item; most of its time is waiting for a cluster.

    Raises the first error of an item, when the others have ended.
    """
    with ThreadPoolExecutor(_WORKERS, "cutover") as pool:
        return list(pool.map(function, items))


class Side:
    """One of the two clusters."""

    def __init__(self, settings: ClusterSettings, client_id: str, resources: ExitStack) -> None:
        """Open clients, which `resources` closes."""
        named = {"client.id": client_id}
        self.settings: Final = settings
        self.admin: Final = resources.enter_context(Admin.from_config({**settings.for_admin(), **named}))
        config = {**settings.for_reader(), **named, "isolation.level": "read_committed"}
        self.reader: Final = resources.enter_context(LogReader(LogReaderConfig.from_properties(config)))
        self.rows: Final = LogRows(self.reader)

    def cluster_id(self) -> str:
        """Return the id of the cluster; empty from brokers before 0.10.1."""
        return self.admin.describe_cluster().cluster_id or ""

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs begin."""
        return self.reader.beginning_offsets(partitions)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs end; open transactions count."""
        specs = dict.fromkeys(partitions, OffsetSpec.latest())
        return {each: found.offset for each, found in self.admin.list_offsets(specs).items()} if specs else {}

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return up to where logs have no open transaction."""
        return self.reader.end_offsets(partitions)

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Return a line for each open transaction of partitions."""
        ids = {each.producer_id: each.transactional_id for each in self.admin.list_transactions().results}
        found = self.admin.describe_producers(partitions, outcomes=True).results
        return [
            f"{partition} from offset {producer.current_transaction_start_offset} by "
            f"{ids.get(producer.producer_id, f'producer {producer.producer_id}, which no coordinator knows')}"
            for partition, producers in sorted(found.items())
            for producer in producers
            if producer.current_transaction_start_offset is not None
        ]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID | None]:
        """Return the ids of topics that exist; None from brokers before 2.8."""
        described = self.admin.describe_topics(sorted(topics), outcomes=True).results
        return {str(name): each.topic_id for name, each in described.items()}

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that topics have of their own."""
        resources = {ConfigResource.topic(each): each for each in topics}
        if not resources:
            return {}
        described = self.admin.describe_configs(list(resources), outcomes=True)
        for error in described.errors.values():
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
        return {
            resources[resource]: {
                name: entry.value
                for name, entry in entries.items()
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
            }
            for resource, entries in described.results.items()
        }

    def compacted_topics(self, topics: Iterable[str]) -> set[str]:
        """Return those of the topics that are compacted."""
        resources = [ConfigResource.topic(each) for each in topics]
        described = self.admin.describe_configs(resources, outcomes=True).results if resources else {}
        return {
            resource.name
            for resource, entries in described.items()
            if "cleanup.policy" in entries and "compact" in (entries["cleanup.policy"].value or "")
        }

    def alter_topics(self, changes: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
        """Set and remove settings of topics, where None removes one; return why topics were refused."""
        operations = {
            ConfigResource.topic(topic): [
                AlterConfigOp.delete(name) if value is None else AlterConfigOp.set(name, value)
                for name, value in settings.items()
            ]
            for topic, settings in changes.items()
            if settings
        }
        if not operations:
            return {}
        errors = self.admin.incremental_alter_configs(operations, outcomes=True).errors
        for error in errors.values():
            if error.is_retriable:
                raise error
        return {resource.name: str(error) for resource, error in errors.items()}


def both_begins(
    source: Side, target: Side, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Begins]:
    """Return where the logs of partitions begin on both sides."""
    wanted = list(partitions)
    there, here = source.begins(wanted), target.begins(wanted)
    return {each: Begins(there[each], here[each]) for each in wanted}


def recorded_syncs(
    target: ClusterSettings, mirror: str, ids: Mapping[str, object]
) -> dict[TopicPartition, OffsetSyncs]:
    """Return what a mirror recorded in its target of topics that still have the same id.

    Args:
        ids: by topic of the source, its id as `Admin.describe_topics` has it.

    Raises:
        ClientError: the topic of syncs cannot be read.
    """
    found: dict[TopicPartition, OffsetSyncs] = {}
    with Admin.from_config(target.for_admin()) as admin:
        if SYNCS_TOPIC not in admin.list_topics(include_internal=True):
            return {}
    for partition, sync in read_syncs(target, mirror):
        topic_id = ids.get(partition.topic)
        if topic_id is not None and is_other(sync.topic_id, str(topic_id)):
            continue
        found.setdefault(partition, OffsetSyncs(kept_max=RUNS_MAX)).add(sync.runs)
    return found
