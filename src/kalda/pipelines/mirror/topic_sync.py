"""Creates the copies of topics and keeps their partitions and settings like the originals."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigText
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import ClientError
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.policy import SYNCS_TOPIC, MirrorError, MirrorNames, copied_configs

logger: Final = logging.getLogger(__name__)

_SYNCS_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""How far back a group's offset can be translated; a group behind that goes on at the copy's beginning."""


@dataclass(frozen=True, slots=True)
class TopicSync:
    """Brings the topics of the target in line with those of the source."""

    source: Admin
    target: Admin
    names: MirrorNames
    sync_configs: bool

    def find_topics(self) -> list[str]:
        """Return the topics of the source that the mirror copies.

        Raises:
            ClientError: the source cannot be reached.
        """
        return self.names.selected(self.source.list_topics())

    def bring_in_line(self, topics: Iterable[str]) -> dict[TopicPartition, TopicPartition]:
        """Create what is missing in the target; return the partition that each of the source is copied to.

        Raises:
            ClientError: a topic cannot be described, created or altered.
            MirrorError: a copy has fewer partitions and cannot get more.
        """
        topics = list(topics)
        described = self.source.describe_topics(topics)
        counts = {str(name): len(each.partitions) for name, each in described.results.items()}
        configs = self._configs(counts)
        targets = {name: self.names.target_topic(name) for name in counts}
        existing = self._existing(targets.values())
        missing = [name for name in counts if targets[name] not in existing]
        self._create(missing, targets, counts, configs)
        self._grow({name: counts[name] for name in counts if name not in missing}, targets, existing)
        if self.sync_configs:
            self._alter([name for name in counts if name not in missing], targets, configs)
        return {
            TopicPartition(name, number): TopicPartition(targets[name], number)
            for name, count in counts.items()
            for number in range(count)
        }

    def create_syncs_topic(self) -> None:
        """Create the topic of offset syncs in the target if it does not exist.

        Raises:
            ClientError: the target refuses it.
        """
        config: dict[str, ConfigText] = {"cleanup.policy": "delete", "retention.ms": _SYNCS_RETENTION_MS}
        made = self.target.create_topics([NewTopic(SYNCS_TOPIC, partitions=1, config=config)])
        _raise_unless_exists(made.errors.get(SYNCS_TOPIC))

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics in the source that are not defaults."""
        if not self.sync_configs:
            return {}
        resources = {ConfigResource.topic(name): name for name in topics}
        if not resources:
            return {}
        described = self.source.describe_configs(list(resources))
        described.raise_for_errors()
        return {
            resources[resource]: copied_configs(
                {
                    name: entry.value
                    for name, entry in entries.items()
                    if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
                }
            )
            for resource, entries in described.results.items()
        }

    def _existing(self, names: Iterable[str]) -> dict[str, int]:
        described = self.target.describe_topics(list(names))
        for error in described.errors.values():
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
        return {str(name): len(each.partitions) for name, each in described.results.items()}

    def _create(
        self,
        topics: list[str],
        targets: Mapping[str, str],
        counts: Mapping[str, int],
        configs: Mapping[str, Mapping[str, str]],
    ) -> None:
        if not topics:
            return
        made = self.target.create_topics(
            [
                NewTopic(targets[name], partitions=counts[name], config=configs.get(name, {}))
                for name in topics
            ]
        )
        for name in topics:
            _raise_unless_exists(made.errors.get(targets[name]))
            logger.info("mirror created %s with %d partitions", targets[name], counts[name])

    def _grow(
        self, counts: Mapping[str, int], targets: Mapping[str, str], existing: Mapping[str, int]
    ) -> None:
        grown = {targets[name]: count for name, count in counts.items() if existing[targets[name]] < count}
        for name, error in (self.target.create_partitions(grown).errors if grown else {}).items():
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
        described = self.target.describe_configs(list(resources))
        described.raise_for_errors()
        changes = {}
        for resource, entries in described.results.items():
            wanted = configs.get(resources[resource], {})
            present = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
            }
            operations = [AlterConfigOp.set(k, v) for k, v in wanted.items() if present.get(k) != v]
            operations += [AlterConfigOp.delete(k) for k in copied_configs(present) if k not in wanted]
            if operations:
                changes[resource] = operations
        if changes:
            self.target.incremental_alter_configs(changes).raise_for_errors()


def _raise_unless_exists(error: ClientError | None) -> None:
    if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error
