"""Creates the copies of topics and keeps their partitions and settings like the originals."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigText
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import ClientError
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.policy import (
    CLUSTER_CONFIGS,
    SYNCS_TOPIC,
    MirrorError,
    MirrorNames,
    copied_configs,
)

logger: Final = logging.getLogger(__name__)

_SYNCS_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""How far back a group's offset can be translated; a group behind that goes on at the copy's beginning."""


@dataclass(frozen=True, slots=True)
class MirroredTopics:
    """The topics that are copied, as of one look."""

    targets: Mapping[TopicPartition, TopicPartition]
    """The partition that each of the source is copied to."""
    ids: Mapping[str, UUID | None]
    """The ids of the topics in the source; None from brokers before 2.8."""
    refused: Mapping[str, ClientError]
    """Topics of the source that are not copied because the target refuses their copies."""


@dataclass(frozen=True, slots=True)
class TopicSync:
    """Brings the topics of the target in line with those of the source."""

    source: Admin
    target: Admin
    names: MirrorNames
    sync_configs: bool
    configs_excluded: re.Pattern[str] = CLUSTER_CONFIGS
    replication_factor: int | None = None
    """Of topics that are created; None takes the target's default, which brokers before 2.4 do not have."""

    def find_topics(self) -> list[str]:
        """Return the topics of the source that the mirror copies.

        Raises:
            ClientError: the source cannot be reached.
        """
        return self.names.selected(self.source.list_topics())

    def bring_in_line(self, topics: Iterable[str]) -> MirroredTopics:
        """Create what is missing in the target; return what is copied where.

        A copy that the target refuses, for example because of its name, does not keep the others away.

        Raises:
            ClientError: a cluster cannot be reached, or a topic cannot be described or altered.
            MirrorError: a copy has fewer partitions and cannot get more.
        """
        topics = list(topics)
        described = self.source.describe_topics(topics, outcomes=True)
        counts = {str(name): len(each.partitions) for name, each in described.results.items()}
        configs = self._configs(counts)
        if self.sync_configs:
            counts = {name: count for name, count in counts.items() if name in configs}
        targets = {name: self.names.target_topic(name) for name in counts}
        existing, errors = self._existing(targets.values())
        missing = [name for name in counts if targets[name] not in existing and targets[name] not in errors]
        errors |= self._create(missing, targets, counts, configs)
        refused = {name: errors[targets[name]] for name in counts if targets[name] in errors}
        counts = {name: count for name, count in counts.items() if name not in refused}
        self._grow({name: counts[name] for name in counts if name not in missing}, targets, existing)
        if self.sync_configs:
            self._alter([name for name in counts if name not in missing], targets, configs)
        return MirroredTopics(
            {
                TopicPartition(name, number): TopicPartition(targets[name], number)
                for name, count in counts.items()
                for number in range(count)
            },
            {name: described[name].topic_id for name in counts},
            refused,
        )

    def create_syncs_topic(self, replication_factor: int | None = None) -> None:
        """Create the topic of offset syncs in the target if it does not exist.

        Raises:
            ClientError: the target refuses it.
        """
        # The last record of each partition stays: it has the position when the group's offsets have expired.
        config: dict[str, ConfigText] = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": _SYNCS_RETENTION_MS,
        }
        create_if_missing(self.target, NewTopic(SYNCS_TOPIC, 1, replication_factor, config=config))

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics in the source that are not defaults; without topics that are gone."""
        if not self.sync_configs:
            return {}
        resources = {ConfigResource.topic(name): name for name in topics}
        if not resources:
            return {}
        described = self.source.describe_configs(list(resources), outcomes=True)
        _raise_unless_deleted(described.errors)
        return {
            resources[resource]: copied_configs(
                {
                    name: entry.value
                    for name, entry in entries.items()
                    if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
                },
                self.configs_excluded,
            )
            for resource, entries in described.results.items()
        }

    def _existing(self, names: Iterable[str]) -> tuple[dict[str, int], dict[str, ClientError]]:
        """Return the partitions of the topics that the target has, and why it refuses others."""
        described = self.target.describe_topics(list(names), outcomes=True)
        errors = _refusals(described.errors, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {str(name): len(each.partitions) for name, each in described.results.items()}, errors

    def _create(
        self,
        topics: list[str],
        targets: Mapping[str, str],
        counts: Mapping[str, int],
        configs: Mapping[str, Mapping[str, str]],
    ) -> dict[str, ClientError]:
        """Create the copies of topics; return why the target refuses some."""
        if not topics:
            return {}
        made = self.target.create_topics(
            [
                NewTopic(targets[name], counts[name], self.replication_factor, config=configs.get(name, {}))
                for name in topics
            ],
            outcomes=True,
        )
        errors = _refusals(made.errors, ErrorCode.TOPIC_ALREADY_EXISTS)
        for name in topics:
            if targets[name] not in errors:
                logger.info("mirror created %s with %d partitions", targets[name], counts[name])
        return errors

    def _grow(
        self, counts: Mapping[str, int], targets: Mapping[str, str], existing: Mapping[str, int]
    ) -> None:
        grown = {targets[name]: count for name, count in counts.items() if existing[targets[name]] < count}
        for name, error in (
            self.target.create_partitions(grown, outcomes=True).errors if grown else {}
        ).items():
            if error.is_retriable:
                raise error
            raise MirrorError(
                f"{name} has {existing[name]} partitions in {self.names.target} and its original has "
                f"{grown[name]}, but more could not be added: {error}"
            ) from error

    def _alter(
        self, topics: list[str], targets: Mapping[str, str], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        resources = {ConfigResource.topic(targets[name]): name for name in topics}
        if not resources:
            return
        described = self.target.describe_configs(list(resources), outcomes=True)
        _raise_unless_deleted(described.errors)
        changes = {}
        for resource, entries in described.results.items():
            wanted = configs.get(resources[resource], {})
            present = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
            }
            operations = [AlterConfigOp.set(k, v) for k, v in wanted.items() if present.get(k) != v]
            operations += [
                AlterConfigOp.delete(k)
                for k in copied_configs(present, self.configs_excluded)
                if k not in wanted
            ]
            if operations:
                changes[resource] = operations
        if changes:
            _raise_unless_deleted(self.target.incremental_alter_configs(changes, outcomes=True).errors)


def create_if_missing(admin: Admin, topic: NewTopic) -> None:
    """Create a topic if it does not exist.

    Raises:
        ClientError: the cluster refuses it.
    """
    error = admin.create_topics([topic], outcomes=True).errors.get(topic.name)
    if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error


def _raise_unless_deleted(errors: Mapping[ConfigResource, ClientError]) -> None:
    """Pass over topics that were deleted since they were described; the next look does not find them.

    Raises:
        ClientError: the first other error.
    """
    for error in errors.values():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error


def _refusals(
    errors: Mapping[str, ClientError] | Mapping[str | UUID, ClientError], expected: ErrorCode
) -> dict[str, ClientError]:
    """Return the errors of topics that another try repeats, without those that have the expected code.

    Raises:
        ClientError: the first one that another try may not have.
    """
    refusals: dict[str, ClientError] = {}
    for name, error in errors.items():
        if error.code is expected:
            continue
        if error.is_retriable:
            raise error
        refusals[str(name)] = error
    return refusals
