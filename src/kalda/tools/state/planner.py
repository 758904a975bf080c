"""Decides the steps that turn the state of a cluster into the wanted one. Pure: no file, no network.

Settings of brokers come first, because they decide what brokers accept; topics come before the offsets that
name them; subjects of a schema registry follow.

What must not break: applying the steps of a plan gives the wanted state, and a plan for that state is empty.
A property test applies plans to a model.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.tools.state.model import (
    NO_DEFAULTS,
    ClusterState,
    Configs,
    Defaults,
    SubjectState,
    TopicState,
)
from kalda.tools.state.risks import config_risk
from kalda.tools.state.steps import (
    AddPartitions,
    AlterBrokerConfigs,
    AlterCompatibility,
    AlterTopicConfigs,
    CommitOffsets,
    ConfigChange,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteSubject,
    DeleteTopic,
    Plan,
    PlannedStep,
    RegisterSchema,
    Risk,
)


def plan(
    current: ClusterState,
    wanted: ClusterState,
    defaults: Defaults = NO_DEFAULTS,
    *,
    deletes_offsets: bool = False,
    brokers: Collection[int] | None = None,
) -> Plan:
    """Return the steps from `current` to `wanted`.

    Groups come and go without an operator, so committed offsets that only the cluster has are left alone
    unless `deletes_offsets`. A topic that only the cluster has is a difference: it is planned to be deleted.

    Args:
        current: what the cluster has. A collection that is None there counts as empty.
        wanted: what the files say.
        defaults: the values that settings have where they are not set.
        deletes_offsets: whether offsets without a file are deleted.
        brokers: the brokers of the cluster; None if they are not known.
    """
    steps: list[PlannedStep] = []
    impossible: list[str] = []
    if wanted.broker_configs is not None:
        reachable = dict(wanted.broker_configs)
        for broker in sorted(each for each in reachable if each is not None):
            if brokers is not None and broker not in brokers:
                del reachable[broker]
                impossible.append(
                    f"broker {broker} has settings in the file and is not in the cluster, which has "
                    f"{', '.join(map(str, sorted(brokers)))}: start it, or remove its settings from the file"
                )
        steps += _broker_steps(current.broker_configs or {}, reachable, defaults.broker)
    if wanted.topics is not None:
        steps += _topic_steps(current.topics or {}, wanted.topics, defaults.topic, impossible)
    if wanted.groups is not None:
        steps += _group_steps(current.groups or {}, wanted.groups, deletes_offsets=deletes_offsets)
    if wanted.subjects is not None:
        steps += _subject_steps(current.subjects or {}, wanted.subjects)
    return Plan(tuple(steps), tuple(impossible))


def _subject_steps(
    current: Mapping[str, SubjectState], wanted: Mapping[str, SubjectState]
) -> Iterator[PlannedStep]:
    for name, subject in _by_reference(wanted):
        present = current.get(name)
        if present is None or replace(present, compatibility=None) != replace(subject, compatibility=None):
            yield PlannedStep(RegisterSchema(subject, is_new=present is None))
        before = None if present is None else present.compatibility
        if before != subject.compatibility:
            yield PlannedStep(AlterCompatibility(name, before, subject.compatibility))
    for name in sorted(current.keys() - wanted.keys()):
        yield PlannedStep(DeleteSubject(name), Risk.DELETE_SUBJECTS)


def _by_reference(wanted: Mapping[str, SubjectState]) -> Iterator[tuple[str, SubjectState]]:
    """Yield subjects by name, those that others refer to first; circles as they come."""
    left = dict(sorted(wanted.items()))
    while left:
        ready = [
            name
            for name, subject in left.items()
            if not any(
                place.rpartition(":")[0] in left and place.rpartition(":")[0] != name
                for place in subject.references.values()
            )
        ]
        for name in ready or list(left):
            yield name, left.pop(name)


def _broker_steps(
    current: Mapping[int | None, Configs], wanted: Mapping[int | None, Configs], defaults: Configs
) -> Iterator[PlannedStep]:
    # The settings of all brokers (None) come before those of single ones.
    for broker in sorted(current.keys() | wanted.keys(), key=lambda each: -1 if each is None else each):
        groups = _changes(current.get(broker, {}), wanted.get(broker, {}), defaults)
        for risk, changes in groups.items():
            yield PlannedStep(AlterBrokerConfigs(broker, changes), risk)


def _topic_steps(
    current: Mapping[str, TopicState],
    wanted: Mapping[str, TopicState],
    defaults: Configs,
    impossible: list[str],
) -> Iterator[PlannedStep]:
    for name in sorted(current.keys() - wanted.keys()):
        yield PlannedStep(DeleteTopic(name), Risk.DELETE_TOPICS)
    for name, topic in sorted(wanted.items()):
        present = current.get(name)
        if present is None:
            yield PlannedStep(CreateTopic(topic))
        else:
            yield from _altered_topic(present, topic, defaults, impossible)


def _altered_topic(
    present: TopicState, topic: TopicState, defaults: Configs, impossible: list[str]
) -> Iterator[PlannedStep]:
    name = topic.name
    if topic.partitions > present.partitions:
        yield PlannedStep(AddPartitions(name, present.partitions, topic.partitions))
    elif topic.partitions < present.partitions:
        impossible.append(
            f"topic {name} has {counted(present.partitions, 'partition')} and the file wants "
            f"{topic.partitions}: partitions cannot be removed; delete the topic and create it again, "
            "or change the file"
        )
    if topic.replication_factor != present.replication_factor:
        impossible.append(
            f"topic {name} has replication factor {present.replication_factor} and the file wants "
            f"{topic.replication_factor}: move its replicas with `kalda reassign`, or change the file"
        )
    for risk, changes in _changes(present.configs, topic.configs, defaults).items():
        yield PlannedStep(AlterTopicConfigs(name, changes), risk)


def _changes(
    current: Configs, wanted: Configs, defaults: Configs
) -> dict[Risk | None, tuple[ConfigChange, ...]]:
    """Return the changed settings by their risk, those without one first."""
    found: dict[Risk | None, list[ConfigChange]] = {None: []}
    for name in sorted(current.keys() | wanted.keys()):
        before, after = current.get(name), wanted.get(name)
        if before == after:
            continue
        default = defaults.get(name)
        risk = config_risk(name, default if before is None else before, default if after is None else after)
        found.setdefault(risk, []).append(ConfigChange(name, before, after))
    return {risk: tuple(changes) for risk, changes in found.items() if changes}


def _group_steps(
    current: Mapping[str, Mapping[TopicPartition, int]],
    wanted: Mapping[str, Mapping[TopicPartition, int]],
    *,
    deletes_offsets: bool,
) -> Iterator[PlannedStep]:
    for group, offsets in sorted(wanted.items()):
        committed = current.get(group, {})
        for risk, part in _moves(committed, offsets).items():
            replaced = {each: committed[each] for each in part if each in committed}
            yield PlannedStep(CommitOffsets(group, part, replaced), risk)
        surplus = sorted(committed.keys() - offsets.keys())
        if surplus and deletes_offsets and offsets:
            yield PlannedStep(DeleteOffsets(group, tuple(surplus)), Risk.DELETE_OFFSETS)
    if deletes_offsets:
        for group in sorted(current):
            if not wanted.get(group):
                yield PlannedStep(DeleteGroup(group), Risk.DELETE_OFFSETS)


def _moves(
    committed: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]
) -> dict[Risk | None, dict[TopicPartition, int]]:
    """Return the offsets that differ, by what the group loses through the move."""
    found: dict[Risk | None, dict[TopicPartition, int]] = {None: {}}
    for each, offset in sorted(wanted.items()):
        before = committed.get(each)
        if before == offset:
            continue
        risk = None
        if before is not None:
            risk = Risk.OFFSET_SKIP if offset > before else Risk.OFFSET_REWIND
        found.setdefault(risk, {})[each] = offset
    return {risk: offsets for risk, offsets in found.items() if offsets}
