"""Plans of `kalda state`: applied to a model they give the wanted state, and the next plan is empty."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kalda.common.types import TopicPartition
from kalda.tools.state import documents
from kalda.tools.state.folder import Folder, pulled_files
from kalda.tools.state.model import ClusterState, Configs, TopicState
from kalda.tools.state.planner import plan
from kalda.tools.state.steps import (
    AddPartitions,
    AlterBrokerConfigs,
    AlterTopicConfigs,
    CommitOffsets,
    ConfigChange,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteTopic,
    Step,
)
from kalda.tools.state.yaml_nodes import StateFileError, read

NAMES = st.sampled_from(["a", "b", "c"])
CONFIGS = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy", "min.insync.replicas", "segment.bytes"]),
    st.sampled_from(["-1", "1", "1000", "compact", "delete"]),
)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, NAMES, st.integers(0, 3)), st.integers(0, 2**63 - 1), min_size=1
)


def topic_states(partitions: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, TopicState]]:
    drawn = st.dictionaries(NAMES, st.tuples(partitions, CONFIGS))
    return drawn.map(lambda found: {name: TopicState(name, n, 1, c) for name, (n, c) in found.items()})


def broker_configs() -> st.SearchStrategy[dict[int | None, dict[str, str]]]:
    return st.dictionaries(st.sampled_from([None, 0, 1]), CONFIGS.filter(bool))


def states(partitions: st.SearchStrategy[int]) -> st.SearchStrategy[ClusterState]:
    return st.builds(
        ClusterState, topic_states(partitions), st.dictionaries(NAMES, OFFSETS), broker_configs()
    )


def changed(configs: Configs, changes: tuple[ConfigChange, ...] | list[ConfigChange]) -> dict[str, str]:
    result = dict(configs)
    for change in changes:
        assert configs.get(change.name) == change.before
        if change.after is None:
            del result[change.name]
        else:
            result[change.name] = change.after
    return result


class Model:
    """A cluster that does what a broker does with each step, and refuses what a broker refuses."""

    def __init__(self, state: ClusterState) -> None:
        self.topics = dict(state.topics or {})
        self.groups = {group: dict(offsets) for group, offsets in (state.groups or {}).items()}
        self.brokers = {broker: dict(configs) for broker, configs in (state.broker_configs or {}).items()}

    @property
    def state(self) -> ClusterState:
        brokers: Mapping[int | None, Configs] = {each: found for each, found in self.brokers.items() if found}
        return ClusterState(self.topics, self.groups, brokers)

    def apply(self, step: Step) -> None:
        match step:
            case CreateTopic(topic):
                assert topic.name not in self.topics
                self.topics[topic.name] = topic
            case DeleteTopic(name):
                del self.topics[name]
            case AddPartitions(name, before, after):
                assert (before, True) == (self.topics[name].partitions, after > before)
                self.topics[name] = replace(self.topics[name], partitions=after)
            case AlterTopicConfigs(name, changes):
                topic = self.topics[name]
                self.topics[name] = replace(topic, configs=changed(topic.configs, list(changes)))
            case AlterBrokerConfigs(broker, changes):
                self.brokers[broker] = changed(self.brokers.get(broker, {}), list(changes))
            case CommitOffsets(group, offsets, before):
                committed = self.groups.setdefault(group, {})
                assert before == {each: committed[each] for each in offsets if each in committed}
                committed.update(offsets)
            case DeleteOffsets(group, partitions):
                for each in partitions:
                    del self.groups[group][each]
            case DeleteGroup(group):
                del self.groups[group]


@given(states(st.integers(1, 3)), states(st.integers(3, 5)))
def test_applying_a_plan_gives_the_wanted_state_and_the_next_plan_is_empty(
    current: ClusterState, wanted: ClusterState
) -> None:
    """This is what makes a push idempotent."""
    model = Model(current)
    found = plan(current, wanted, deletes_offsets=True)
    assert () == found.impossible
    for planned in found.steps:
        model.apply(planned.step)

    assert wanted == model.state
    assert plan(model.state, wanted, deletes_offsets=True).is_empty


@given(states(st.integers(1, 3)))
def test_a_plan_for_the_current_state_is_empty(state: ClusterState) -> None:
    assert plan(state, state, deletes_offsets=True).is_empty


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(
    st.from_regex(re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII), fullmatch=True).filter(
        lambda name: name not in (".", "..")
    ),
    st.integers(1, 10_000),
    st.dictionaries(TEXT, st.text(st.characters(exclude_categories=["Cs"]), max_size=30)),
)
def test_a_topic_file_reads_back_as_it_was(name: str, partitions: int, configs: dict[str, str]) -> None:
    """Settings are free text: quotes, hashes, colons and blanks must survive."""
    topic = TopicState(name, partitions, 3, configs)

    assert topic == documents.read_topic(read("file", documents.topic_text(topic)))


@given(TEXT, OFFSETS)
def test_a_group_file_reads_back_as_it_was(group: str, offsets: dict[TopicPartition, int]) -> None:
    assert (group, offsets) == documents.read_group(read("file", documents.group_text(group, offsets)))
    name = documents.group_file(group).removeprefix("groups/")
    assert "/" not in name
    assert len(name.encode()) <= 255


@given(broker_configs())
def test_the_brokers_file_reads_back_as_it_was(configs: dict[int | None, dict[str, str]]) -> None:
    if configs:
        assert configs == documents.read_brokers(read("file", documents.brokers_text(configs)))


@given(states(st.integers(1, 3)), states(st.integers(1, 3)))
def test_a_pull_writes_what_differs_and_nothing_else(before: ClusterState, after: ClusterState) -> None:
    topics, groups, brokers = before.topics or {}, before.groups or {}, before.broker_configs or {}
    paths = {("topics", name): documents.topic_file(name) for name in topics}
    paths |= {("groups", name): documents.group_file(name) for name in groups}
    folder = Folder(
        topics=dict(topics),
        groups={group: dict(offsets) for group, offsets in groups.items()},
        broker_configs={each: dict(configs) for each, configs in brokers.items()} or None,
        paths=paths,
    )

    assert {} == pulled_files(folder, before)
    changes = pulled_files(folder, after)
    for name in topics.keys() | (after.topics or {}).keys():
        differs = topics.get(name) != (after.topics or {}).get(name)
        assert differs == (documents.topic_file(name) in changes)
        if differs:
            assert (name not in (after.topics or {})) == (changes[documents.topic_file(name)] is None)


@given(st.text())
def test_junk_is_refused_with_our_error(text: str) -> None:
    """A file that was edited by hand can hold anything."""
    for reader in (documents.read_topic, documents.read_group, documents.read_environment):
        with contextlib.suppress(StateFileError):
            reader(read("file", text))
