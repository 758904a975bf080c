"""Opens what a cut-over needs of its two clusters, and answers its questions about partitions."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Final
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

RUNS_MAX: Final = 200_000
"""Runs that are kept of a partition: about 20 MB. A place before them is found by counting records."""
TIMESTAMP_CONFIGS: Final = "message.timestamp."
_TIMEOUT_MS: Final = "15000"
"""Of one call; a cut-over has its own time limit and tries again."""


class Side:
    """One of the two clusters."""

    def __init__(self, settings: ClusterSettings, client_id: str, resources: ExitStack) -> None:
        """Open clients, which `resources` closes."""
        named = {"client.id": client_id}
        defaults = {"default.api.timeout.ms": _TIMEOUT_MS}
        self.settings: Final = settings
        self.admin: Final = resources.enter_context(
            Admin.from_config({**defaults, **settings.for_admin(), **named})
        )
        config = {**defaults, **settings.for_reader(), **named, "isolation.level": "read_committed"}
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
