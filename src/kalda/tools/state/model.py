"""The state of a cluster as values: what the files of a folder say, and what a cluster has.

None in place of a collection means that the side does not speak of it: a folder without ``groups`` leaves the
groups of the cluster alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kalda.common.types import TopicPartition

Configs: TypeAlias = Mapping[str, str]
"""Settings by name, as text; only what was set, no defaults."""

_INTERNAL_TOPICS: Final = frozenset(
    {
        "__cluster_history",
        "__cluster_metadata",
        "__consumer_offsets",
        "__share_group_state",
        "__transaction_state",
    }
)
_OWN_PREFIX: Final = "__kalda_"
"""What the topics of pipelines and mirrors begin with."""


def is_internal_topic(name: str) -> bool:
    """Return whether brokers or Kalda's pipelines create and own a topic; it is no part of the state."""
    return name in _INTERNAL_TOPICS or name.startswith(_OWN_PREFIX)


CLUSTER_DEFAULT: Final = None
"""The key of the settings that hold for all brokers without a setting of their own."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic: its shape and its own settings."""

    name: str
    partitions: int
    replication_factor: int
    configs: Configs


@dataclass(frozen=True, slots=True)
class SubjectState:
    """A subject of a schema registry: its latest schema, and its own compatibility level if it has one."""

    name: str
    type: str
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    schema: str
    references: Mapping[str, str]
    """``subject:version`` by the name that the schema uses."""
    compatibility: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Topics by name, committed offsets by group, dynamic settings by broker id, subjects by name.

    The settings of all brokers are under `CLUSTER_DEFAULT`.
    """

    topics: Mapping[str, TopicState] | None = None
    groups: Mapping[str, Mapping[TopicPartition, int]] | None = None
    broker_configs: Mapping[int | None, Configs] | None = None
    subjects: Mapping[str, SubjectState] | None = None


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values that settings have where nothing is set, to judge what removing a setting means."""

    topic: Configs
    broker: Configs


NO_DEFAULTS: Final = Defaults({}, {})


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts of the state a command is about."""

    topics: bool = True
    groups: bool = True
    brokers: bool = True
    subjects: bool = True
