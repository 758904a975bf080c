"""Checks a folder without a cluster: what the files say, and whether brokers would accept it."""

import json
from collections.abc import Iterator

from kalda.common.config_def import ConfigDef, ConfigError, MissingFeatureError
from kalda.common.log_text import counted
from kalda.schemas.compatibility import CompatibilityLevel
from kalda.settings.definitions import BROKER_CONFIG, TOPIC_CONFIG
from kalda.tools.state import documents
from kalda.tools.state.folder import Folder
from kalda.tools.state.model import Configs, is_internal_topic
from kalda.tools.state.steps import broker_text


def faults(folder: Folder) -> list[str]:
    """Return the faults of a folder, each with its file; empty if a push may begin."""
    return [
        *folder.faults,
        *_topic_faults(folder),
        *_group_faults(folder),
        *_broker_faults(folder),
        *_subject_faults(folder),
    ]


def _subject_faults(folder: Folder) -> Iterator[str]:
    for name, subject in (folder.subjects or {}).items():
        path = folder.paths[documents.SUBJECTS, name]
        if subject.type != "PROTOBUF":
            try:
                json.loads(subject.schema)
            except (ValueError, RecursionError) as error:
                yield f"{path}: the schema of type {subject.type} is no JSON: {error}"
        if subject.compatibility is not None and subject.compatibility not in CompatibilityLevel.__members__:
            yield (
                f"{path}: compatibility={subject.compatibility} is not one of "
                f"{', '.join(CompatibilityLevel.__members__)}"
            )


def _topic_faults(folder: Folder) -> Iterator[str]:
    for name, topic in (folder.topics or {}).items():
        path = folder.paths[documents.TOPICS, name]
        for fault in _config_faults(TOPIC_CONFIG, topic.configs):
            yield f"{path}: {fault}"
        replicas = topic.configs.get("min.insync.replicas", "")
        if replicas.isdecimal() and int(replicas) > topic.replication_factor:
            yield (
                f"{path}: min.insync.replicas={replicas} is above replication-factor="
                f"{topic.replication_factor}: producers with acks=all could never write"
            )
        if is_internal_topic(name):
            yield f"{path}: topic {name} belongs to the brokers or to Kalda's pipelines; remove the file"


def _group_faults(folder: Folder) -> Iterator[str]:
    topics = folder.topics
    if topics is None:
        return
    for group, offsets in (folder.groups or {}).items():
        path = folder.paths[documents.GROUPS, group]
        for each in offsets:
            topic = topics.get(each.topic)
            if topic is not None and each.partition >= topic.partitions:
                yield (
                    f"{path}: {each} has an offset, but the file of topic {each.topic} has "
                    f"{counted(topic.partitions, 'partition')}"
                )


def _broker_faults(folder: Folder) -> Iterator[str]:
    for broker, configs in (folder.broker_configs or {}).items():
        for fault in _config_faults(BROKER_CONFIG, configs):
            yield f"{documents.BROKERS_FILE}: {broker_text(broker)}: {fault}"


def _config_faults(definitions: ConfigDef, configs: Configs) -> Iterator[str]:
    for name, value in configs.items():
        try:
            definitions.parse({name: value})
        except MissingFeatureError:
            continue  # another broker than ours may have the feature
        except ConfigError as error:
            yield str(error)
