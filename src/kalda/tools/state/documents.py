"""The forms of the files in a state folder: topic, group, brokers and environment, from and to YAML.

What must not break: writing a value and reading it back gives an equal value, so that a pull after a push
changes no file.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from kalda.command.option_types import INT64_MAX
from kalda.common.types import TopicPartition
from kalda.tools.state.model import CLUSTER_DEFAULT, Configs, SubjectState, TopicState
from kalda.tools.state.yaml_nodes import Node, Tree, write

TOPICS: Final = "topics"
GROUPS: Final = "groups"
SUBJECTS: Final = "subjects"
BROKERS_FILE: Final = "brokers.yml"
ENVIRONMENT_FILE: Final = "environment.yml"
SUFFIX: Final = ".yml"

_ALL_BROKERS: Final = "all"
_SCHEMA_TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FILE_NAME_MAX: Final = 200
"""Bytes of a file's name without suffix; file systems take 255."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a folder says about itself; the patterns name topics and groups that are not part of it."""

    bootstrap_servers: str | None = None
    ignored_topics: re.Pattern[str] | None = None
    ignored_groups: re.Pattern[str] | None = None
    registry: str | None = None
    """Addresses of the schema registry that has the subjects."""


def topic_file(name: str) -> str:
    """Return the path of a topic's file inside the folder."""
    return f"{TOPICS}/{_file_name(name)}{SUFFIX}"


def group_file(group: str) -> str:
    """Return the path of a group's file inside the folder."""
    return f"{GROUPS}/{_file_name(group)}{SUFFIX}"


def subject_file(name: str) -> str:
    """Return the path of a subject's file inside the folder."""
    return f"{SUBJECTS}/{_file_name(name)}{SUFFIX}"


def _file_name(name: str) -> str:
    """Return a name that every file system takes; long ones end in a digest so that they stay distinct."""
    quoted = quote(name, safe="")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _FILE_NAME_MAX:
        return quoted
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{quoted[: _FILE_NAME_MAX - 17]}-{digest}"


def topic_text(topic: TopicState) -> str:
    """Return the text of a topic's file."""
    tree: dict[str, Tree | str | int] = {
        "topic": topic.name,
        "partitions": topic.partitions,
        "replication-factor": topic.replication_factor,
    }
    if topic.configs:
        tree["configs"] = dict(sorted(topic.configs.items()))
    return write(tree)


def read_topic(node: Node) -> TopicState:
    """Read a topic's file; raises `StateFileError`."""
    entries = _entries(node, "a topic's file", ("topic", "partitions", "replication-factor"), ("configs",))
    name = entries["topic"].text("topic")
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise entries["topic"].error(
            f"topic={name} is not allowed: it takes up to 249 letters, digits, dots, underscores and dashes"
        )
    return TopicState(
        name,
        entries["partitions"].number("partitions", 1),
        entries["replication-factor"].number("replication-factor", 1),
        _configs(entries.get("configs"), "configs"),
    )


def subject_text(subject: SubjectState) -> str:
    """Return the text of a subject's file."""
    tree: dict[str, Tree | str | int] = {"subject": subject.name, "type": subject.type}
    if subject.compatibility is not None:
        tree["compatibility"] = subject.compatibility
    if subject.references:
        tree["references"] = dict(sorted(subject.references.items()))
    tree["schema"] = subject.schema
    return write(tree)


def read_subject(node: Node) -> SubjectState:
    """Read a subject's file; raises `StateFileError`."""
    entries = _entries(
        node, "a subject's file", ("subject", "type", "schema"), ("compatibility", "references")
    )
    kind = entries["type"].text("type")
    if kind not in _SCHEMA_TYPES:
        raise entries["type"].error(f"type={kind} is not one of {', '.join(_SCHEMA_TYPES)}")
    level = entries.get("compatibility")
    references = _configs(entries.get("references"), "references")
    for name, place in references.items():
        if not re.fullmatch(r".+:\d+", place):
            raise entries["references"].error(f"{name}: {place} is no reference; it takes SUBJECT:VERSION")
    return SubjectState(
        entries["subject"].text("subject"),
        kind,
        entries["schema"].text("schema"),
        references,
        None if level is None else level.text("compatibility"),
    )


def group_text(group: str, offsets: Mapping[TopicPartition, int]) -> str:
    """Return the text of a group's file."""
    by_topic: dict[str, dict[str, Tree | str | int]] = {}
    for each in sorted(offsets):
        by_topic.setdefault(each.topic, {})[str(each.partition)] = offsets[each]
    return write({"group": group, "offsets": by_topic})


def read_group(node: Node) -> tuple[str, dict[TopicPartition, int]]:
    """Read a group's file; raises `StateFileError`."""
    entries = _entries(node, "a group's file", ("group", "offsets"), ())
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in entries["offsets"].mapping("offsets").items():
        for partition, offset in partitions.mapping(f"the offsets of {topic}").items():
            if not (partition.isascii() and partition.isdecimal()):
                raise offset.error(f"{partition} is no partition of {topic}: it takes an int, at least 0")
            offsets[TopicPartition(topic, int(partition))] = offset.number(
                f"the offset of {topic}", 0, INT64_MAX
            )
    return entries["group"].text("group"), offsets


def brokers_text(configs: Mapping[int | None, Configs]) -> str:
    """Return the text of the file of the brokers' dynamic settings."""
    ordered = sorted(configs.items(), key=lambda item: -1 if item[0] is None else item[0])
    return write(
        {
            _ALL_BROKERS if broker is CLUSTER_DEFAULT else str(broker): dict(sorted(settings.items()))
            for broker, settings in ordered
        }
    )


def read_brokers(node: Node) -> dict[int | None, dict[str, str]]:
    """Read the file of the brokers' settings; raises `StateFileError`."""
    found: dict[int | None, dict[str, str]] = {}
    for name, settings in node.mapping("the brokers' settings").items():
        if name == _ALL_BROKERS:
            found[CLUSTER_DEFAULT] = _configs(settings, name)
        elif name.isascii() and name.isdecimal():
            found[int(name)] = _configs(settings, f"broker {name}")
        else:
            raise settings.error(f"{name} is no broker: it takes `{_ALL_BROKERS}` or a broker's id")
    return found


def environment_text(bootstrap_servers: str, registry: str | None = None) -> str:
    """Return the text of the file that the first pull writes."""
    tree: dict[str, Tree | str | int] = {"bootstrap.servers": bootstrap_servers}
    return write(tree if registry is None else {**tree, "schema.registry.url": registry})


def read_environment(node: Node) -> Environment:
    """Read the file about the folder itself; raises `StateFileError`."""
    optional = ("bootstrap.servers", "ignore.topics", "ignore.groups", "schema.registry.url")
    entries = _entries(node, ENVIRONMENT_FILE, (), optional)
    servers, registry = entries.get("bootstrap.servers"), entries.get("schema.registry.url")
    return Environment(
        None if servers is None else servers.text("bootstrap.servers"),
        _pattern(entries.get("ignore.topics")),
        _pattern(entries.get("ignore.groups")),
        None if registry is None else registry.text("schema.registry.url"),
    )


def _pattern(node: Node | None) -> re.Pattern[str] | None:
    if node is None:
        return None
    text = node.text("a pattern")
    try:
        return re.compile(text)
    except re.error as error:
        raise node.error(f"{text} is no regular expression: {error}") from None


def _configs(node: Node | None, what: str) -> dict[str, str]:
    if node is None:
        return {}
    return {name: value.text(name) for name, value in node.mapping(what).items()}


def _entries(node: Node, what: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Node]:
    entries = node.mapping(what)
    for name, value in entries.items():
        if name not in required and name not in optional:
            raise value.error(f"{name} is unknown in {what}; known are {', '.join((*required, *optional))}")
    for name in required:
        if name not in entries:
            raise node.error(f"{name} is missing in {what}")
    return entries
