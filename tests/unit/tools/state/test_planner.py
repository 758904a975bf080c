"""Planning a push: which steps, in which order, and what each may lose."""

import pytest

from kalda.common.types import TopicPartition
from kalda.tools.state.command import ALLOW_OPTIONS
from kalda.tools.state.model import ClusterState, Defaults, TopicState
from kalda.tools.state.planner import plan
from kalda.tools.state.steps import Plan, Risk, step_text

DEFAULTS = Defaults({"retention.ms": "604800000", "cleanup.policy": "delete"}, {"log.retention.hours": "168"})


def topic(name: str = "t", partitions: int = 3, replication: int = 1, **configs: str) -> TopicState:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicState(name, partitions, replication, named)


def topics(*states: TopicState) -> ClusterState:
    return ClusterState(topics={each.name: each for each in states})


def lines(found: Plan) -> list[tuple[str, Risk | None]]:
    return [(step_text(planned.step), planned.risk) for planned in found.steps]


def test_a_new_topic_is_created_with_its_settings() -> None:
    wanted = topics(topic(retention_ms="1000", cleanup_policy="compact"))

    assert [
        ("+ topic t: 3 partitions, replication factor 1, cleanup.policy=compact, retention.ms=1000", None)
    ] == lines(plan(topics(), wanted))


def test_a_topic_without_a_file_is_planned_to_be_deleted_at_a_risk() -> None:
    assert [("- topic t", Risk.DELETE_TOPICS)] == lines(plan(topics(topic()), topics()))


def test_a_folder_without_topics_leaves_them_alone() -> None:
    """A folder that only has groups must not delete every topic."""
    assert plan(topics(topic()), ClusterState()).is_empty


def test_partitions_are_added_and_never_removed() -> None:
    assert [("~ topic t: 3 -> 5 partitions", None)] == lines(
        plan(topics(topic()), topics(topic(partitions=5)))
    )
    found = plan(topics(topic()), topics(topic(partitions=2)))
    assert () == found.steps
    (reason,) = found.impossible
    assert reason.startswith("topic t has 3 partitions and the file wants 2: partitions cannot be removed")


def test_another_replication_factor_is_named_as_impossible() -> None:
    (reason,) = plan(topics(topic()), topics(topic(replication=3))).impossible

    assert "kalda reassign" in reason


@pytest.mark.parametrize(
    ("name", "before", "after", "risk"),
    [
        ("retention.ms", "1000", "2000", None),
        ("retention.ms", "1000", "-1", None),
        ("retention.ms", "2000", "1000", Risk.SHORTER_RETENTION),
        ("retention.ms", "-1", "1000", Risk.SHORTER_RETENTION),
        ("retention.ms", None, "604800001", None),
        ("retention.ms", None, "604799999", Risk.SHORTER_RETENTION),
        ("retention.ms", "1000", None, None),
        ("retention.ms", "-1", None, Risk.SHORTER_RETENTION),
        ("retention.bytes", None, "1000", Risk.SHORTER_RETENTION),
        ("retention.bytes", "1000", None, Risk.SHORTER_RETENTION),
        ("cleanup.policy", "compact", "compact,delete", Risk.SHORTER_RETENTION),
        ("cleanup.policy", "compact,delete", "compact", None),
        ("cleanup.policy", None, "compact", Risk.SHORTER_RETENTION),
        ("unclean.leader.election.enable", None, "true", Risk.LESS_DURABILITY),
        ("unclean.leader.election.enable", "true", "false", None),
        ("min.insync.replicas", "2", "1", Risk.LESS_DURABILITY),
        ("min.insync.replicas", "2", None, Risk.LESS_DURABILITY),
        ("min.insync.replicas", "1", "2", None),
        ("segment.bytes", "1000", "10", None),
    ],
)
def test_risks_of_settings(name: str, before: str | None, after: str | None, risk: Risk | None) -> None:
    """Removing a setting counts as setting its default, and an unknown default as the worst."""

    def state(value: str | None) -> ClusterState:
        return topics(TopicState("t", 1, 1, {} if value is None else {name: value}))

    (planned,) = plan(state(before), state(after), DEFAULTS).steps
    assert risk is planned.risk


def test_settings_of_one_topic_are_split_by_their_risk() -> None:
    """What loses nothing can be done although the rest is refused."""
    current = topics(topic(retention_ms="2000", segment_bytes="1000"))
    wanted = topics(topic(retention_ms="1000", max_message_bytes="500"))

    assert [
        ("~ topic t: max.message.bytes=500, segment.bytes: 1000 -> default", None),
        ("~ topic t: retention.ms: 2000 -> 1000", Risk.SHORTER_RETENTION),
    ] == lines(plan(current, wanted, DEFAULTS))


def test_settings_of_brokers_come_first_and_those_of_all_brokers_before_those_of_one() -> None:
    current = ClusterState({}, None, {1: {"log.cleaner.threads": "2"}})
    wanted = ClusterState(
        {"t": topic()},
        None,
        {None: {"log.retention.hours": "200"}, 0: {"log.retention.hours": "1"}},
    )

    assert [
        ("~ all brokers: log.retention.hours=200", None),
        ("~ broker 0: log.retention.hours=1", Risk.SHORTER_RETENTION),
        ("~ broker 1: log.cleaner.threads: 2 -> default", None),
        ("+ topic t: 3 partitions, replication factor 1", None),
    ] == lines(plan(current, wanted, DEFAULTS))


def test_settings_of_a_broker_that_the_cluster_does_not_have_are_impossible() -> None:
    """A folder of another cluster names its brokers."""
    wanted = ClusterState(None, None, {0: {"log.cleaner.threads": "2"}, 7: {"log.cleaner.threads": "2"}})

    found = plan(ClusterState(), wanted, brokers=[0, 1])
    assert [("~ broker 0: log.cleaner.threads=2", None)] == lines(found)
    (reason,) = found.impossible
    assert reason.startswith("broker 7 has settings in the file and is not in the cluster, which has 0, 1: ")


def group(**offsets: int) -> ClusterState:
    return ClusterState(
        groups={"g": {TopicPartition("t", int(name[1:])): at for name, at in offsets.items()}}
    )


def test_offsets_are_set_and_moves_are_risks() -> None:
    """Moving forwards skips records, moving backwards reads some again: neither happens by itself."""
    current = group(p0=10, p1=10, p2=10)
    wanted = group(p0=10, p1=20, p2=5, p3=7)

    assert [
        ("+ group g: t-3=7", None),
        ("~ group g: t-1: 10 -> 20", Risk.OFFSET_SKIP),
        ("~ group g: t-2: 10 -> 5", Risk.OFFSET_REWIND),
    ] == lines(plan(current, wanted))


def test_offsets_without_a_file_stay_unless_asked() -> None:
    """Groups come and go without an operator; a push of the topics must not reset them."""
    current = ClusterState(groups={"g": {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}, "h": {}})
    wanted = group(p0=1)

    assert plan(current, wanted).is_empty
    assert [
        ("- group g: t-1", Risk.DELETE_OFFSETS),
        ("- group h", Risk.DELETE_OFFSETS),
    ] == lines(plan(current, wanted, deletes_offsets=True))


def test_refused_steps_are_those_whose_risk_is_not_allowed() -> None:
    found = plan(topics(topic()), topics(topic("u")))

    assert ["- topic t"] == [step_text(each.step) for each in found.refused(frozenset())]
    assert [] == found.refused(frozenset({Risk.DELETE_TOPICS}))


def test_every_risk_has_its_option() -> None:
    """The help must not load the planner, so the command has the list a second time."""
    assert [risk.value for risk in Risk] == list(ALLOW_OPTIONS)
