"""The steps of a plan, and what each of them may lose.

A step with a risk is refused unless the command line allows that risk by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.tools.state.model import SubjectState, TopicState


class Risk(Enum):
    """What a step may lose; the value is the option of `kalda state push` that allows it."""

    DELETE_TOPICS = "--allow-delete-topics"
    SHORTER_RETENTION = "--allow-shorter-retention"
    LESS_DURABILITY = "--allow-less-durability"
    OFFSET_SKIP = "--allow-offset-skip"
    OFFSET_REWIND = "--allow-offset-rewind"
    DELETE_OFFSETS = "--allow-delete-offsets"
    DELETE_SUBJECTS = "--allow-delete-subjects"

    @property
    def consequence(self) -> str:
        """What the user loses."""
        return _CONSEQUENCES[self]


_CONSEQUENCES = {
    Risk.DELETE_TOPICS: "the records of the topic are gone",
    Risk.SHORTER_RETENTION: "records are deleted that are kept now",
    Risk.LESS_DURABILITY: "acknowledged records may be lost when brokers fail",
    Risk.OFFSET_SKIP: "the group does not read the records in between",
    Risk.OFFSET_REWIND: "the group reads records again",
    Risk.DELETE_OFFSETS: "the group starts again where auto.offset.reset says",
    Risk.DELETE_SUBJECTS: "producers no longer find its schemas; values stay readable",
}


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic with its settings."""

    topic: TopicState


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic."""

    name: str


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Raise the number of a topic's partitions."""

    topic: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting: None is "not set"."""

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.name}={self.after}"
        if self.after is None:
            return f"{self.name}: {self.before} -> default"
        return f"{self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs:
    """Change settings of a topic."""

    topic: str
    changes: Sequence[ConfigChange]


@dataclass(frozen=True, slots=True)
class AlterBrokerConfigs:
    """Change dynamic settings of a broker, or the default of all brokers (None)."""

    broker: int | None
    changes: Sequence[ConfigChange]


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Set committed offsets of a group."""

    group: str
    offsets: Mapping[TopicPartition, int]
    before: Mapping[TopicPartition, int]
    """The offsets that are replaced; partitions without one are absent."""


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Remove committed offsets of a group for some partitions."""

    group: str
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group with all its offsets."""

    group: str


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    """Register the latest schema of a subject."""

    subject: SubjectState
    is_new: bool
    """Whether the registry does not have the subject."""


@dataclass(frozen=True, slots=True)
class AlterCompatibility:
    """Change the compatibility level of a subject; None is that of the registry."""

    subject: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """Delete a subject; its ids stay taken."""

    name: str


RegistryStep: TypeAlias = RegisterSchema | AlterCompatibility | DeleteSubject

Step: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | AlterTopicConfigs
    | AlterBrokerConfigs
    | CommitOffsets
    | DeleteOffsets
    | DeleteGroup
    | RegisterSchema
    | AlterCompatibility
    | DeleteSubject
)


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step and what it may lose; None if nothing."""

    step: Step
    risk: Risk | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in their order, and the differences that no step can remove."""

    steps: Sequence[PlannedStep] = ()
    impossible: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the cluster is as wanted."""
        return not self.steps and not self.impossible

    def refused(self, allowed: frozenset[Risk]) -> list[PlannedStep]:
        """Return the steps whose risk is not allowed."""
        return [planned for planned in self.steps if planned.risk is not None and planned.risk not in allowed]


def step_text(step: Step) -> str:
    """Return the line of a plan that describes a step; its first character is the kind of change."""
    match step:
        case CreateTopic(topic):
            settings = "".join(f", {name}={value}" for name, value in sorted(topic.configs.items()))
            return (
                f"+ topic {topic.name}: {counted(topic.partitions, 'partition')}, "
                f"replication factor {topic.replication_factor}{settings}"
            )
        case DeleteTopic(name):
            return f"- topic {name}"
        case AddPartitions(topic, before, after):
            return f"~ topic {topic}: {before} -> {after} partitions"
        case AlterTopicConfigs(topic, changes):
            return f"~ topic {topic}: {', '.join(map(str, changes))}"
        case AlterBrokerConfigs(broker, changes):
            return f"~ {broker_text(broker)}: {', '.join(map(str, changes))}"
        case CommitOffsets(group, offsets, replaced):
            shown = (
                f"{each}={offsets[each]}"
                if each not in replaced
                else f"{each}: {replaced[each]} -> {offsets[each]}"
                for each in sorted(offsets)
            )
            return f"{'~' if replaced else '+'} group {group}: {', '.join(shown)}"
        case DeleteOffsets(group, partitions):
            return f"- group {group}: {', '.join(map(str, sorted(partitions)))}"
        case DeleteGroup(group):
            return f"- group {group}"
        case RegisterSchema(subject, is_new):
            return f"{'+' if is_new else '~'} subject {subject.name}: a schema of type {subject.type}"
        case AlterCompatibility(name, before, after):
            return f"~ subject {name}: compatibility {before or 'default'} -> {after or 'default'}"
        case DeleteSubject(name):
            return f"- subject {name}"
    assert_never(step)


def broker_text(broker: int | None) -> str:
    """Return how a plan names a broker, or all of them."""
    return "all brokers" if broker is None else f"broker {broker}"
