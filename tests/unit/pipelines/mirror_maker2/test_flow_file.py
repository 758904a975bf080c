"""What a file of MirrorMaker 2 means, and what is wrong with one."""

from collections.abc import Mapping

import pytest

from kalda.pipelines.mirror.delivery import DeliveryMode
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.policy import MirrorError, RenameRule
from kalda.pipelines.mirror_maker2.flow_file import Flow, FlowFileError, parse_flows

CLUSTERS = {"clusters": "A, B", "A.bootstrap.servers": "a:9092", "B.bootstrap.servers": "b:9092"}
ONE_WAY = CLUSTERS | {"A->B.enabled": "true"}


def flows(properties: Mapping[str, str]) -> dict[str, Flow]:
    return {each.name: each for each in parse_flows(properties).flows}


def options(properties: Mapping[str, str], name: str = "A->B") -> MirrorOptions:
    found = flows({**ONE_WAY, **properties})[name].mirror
    assert found is not None
    return found


def test_the_sample_of_kafka_is_read() -> None:
    """config/connect-mirror-maker.properties of Kafka 4.0; what concerns Connect's own topics is named."""
    sample = CLUSTERS | {
        "A->B.enabled": "true",
        "A->B.topics": ".*",
        "B->A.enabled": "true",
        "B->A.topics": ".*",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
    }
    found = parse_flows(sample)

    assert ["A->B", "B->A"] == [each.name for each in found.flows]
    assert [f"{each}.storage.replication.factor" for each in ("config", "offset", "status")] == sorted(
        found.without_effect
    )
    mirror = found.flows[0].mirror
    assert mirror is not None
    assert (1, 1) == (mirror.replication_factor, mirror.syncs_replication_factor)
    assert mirror.checkpoints is not None
    assert ("A.checkpoints.internal", 1) == (mirror.checkpoints.topic, mirror.checkpoints.replication_factor)


def test_a_flow_that_is_not_enabled_writes_heartbeats_only() -> None:
    """A->B copies those that B->A writes to A; MirrorMaker does the same."""
    found = flows(ONE_WAY)
    assert found["B->A"].mirror is None
    assert found["B->A"].heartbeats is not None
    assert {"A->B"} == flows(ONE_WAY | {"emit.heartbeats.enabled": "false"}).keys()


def test_a_setting_of_a_flow_wins_over_that_of_all_flows() -> None:
    found = options({"topics": "a.*", "A->B.topics": "b.*, c", "topics.exclude": "bb"})

    assert ["b1", "c"] == found.names.selected(["a1", "b1", "bb", "c", "c1"])


def test_settings_of_clients_stand_behind_their_cluster_and_kind() -> None:
    properties = {
        "request.timeout.ms": "1000",
        "B.request.timeout.ms": "2000",
        "producer.linger.ms": "7",
        "A.consumer.fetch.max.wait.ms": "9",
        "A->B.producer.override.batch.size": "99",
        "A->B.target.admin.retries": "4",
    }
    found = options(properties)

    assert {"bootstrap.servers": "a:9092", "request.timeout.ms": "1000"} == found.source.for_admin()
    assert "9" == found.source.for_reader()["fetch.max.wait.ms"]
    assert {"bootstrap.servers", "request.timeout.ms", "linger.ms", "batch.size"} == (
        found.target.for_producer().keys()
    )
    assert ("2000", "4") == (
        found.target.for_producer()["request.timeout.ms"],
        found.target.for_admin()["retries"],
    )


def test_settings_of_flows_may_stand_behind_a_cluster() -> None:
    assert DeliveryMode.EXACTLY_ONCE_IF_POSSIBLE is options({}).delivery
    assert DeliveryMode.EXACTLY_ONCE is options({"B.exactly.once.source.support": "enabled"}).delivery
    assert DeliveryMode.AT_LEAST_ONCE is options({"exactly.once.source.support": "disabled"}).delivery
    assert (
        DeliveryMode.EXACTLY_ONCE_IF_POSSIBLE
        is options({"A.exactly.once.source.support": "enabled"}).delivery
    )
    assert "latest" == options({"A.consumer.auto.offset.reset": "latest"}).start


def test_policies_name_the_copies() -> None:
    package = "org.apache.kafka.connect.mirror."
    plain = options({"replication.policy.class": f"{package}IdentityReplicationPolicy"})
    assert (RenameRule.IDENTITY, "orders", "A.heartbeats") == (
        plain.names.rule,
        plain.names.target_topic("orders"),
        plain.names.target_topic("heartbeats"),
    )
    other = options({"replication.policy.separator": "_"})
    assert "A_orders" == other.names.target_topic("orders")
    assert other.checkpoints is not None
    assert "A_checkpoints_internal" == other.checkpoints.topic
    assert [] == other.names.selected(["A_checkpoints_internal", "B_orders", "x_B_orders"])


def test_heartbeats_are_copied_whatever_the_topics_are() -> None:
    assert ["heartbeats", "orders"] == options({"topics": "orders"}).names.selected(
        ["heartbeats", "B.heartbeats", "orders", "x"]
    )
    without = options({"topics": "orders", "heartbeats.replication.enabled": "false"})
    assert ["orders"] == without.names.selected(["heartbeats", "orders"])


@pytest.mark.parametrize("ways", [("A->B", "B->A"), ("A->B", "B->C", "C->A")])
def test_a_topic_that_would_come_back_under_its_name_is_refused(ways: tuple[str, ...]) -> None:
    properties = {
        **CLUSTERS,
        "clusters": "A,B,C",
        "C.bootstrap.servers": "c:9092",
        "replication.policy.class": "IdentityReplicationPolicy",
        **{f"{each}.enabled": "true" for each in ways},
        "A->B.topics": "orders, from-a",
        "B->A.topics": "orders, from-b",
        "C->A.topics": "orders, from-c",
        "B->C.topics": "orders, from-b",
    }
    found = flows(properties)["A->B"].mirror
    assert found is not None
    assert ["from-a"] == found.names.selected(["from-a", "from-b"])
    with pytest.raises(MirrorError, match="topic orders is copied from A to B and, by other mirrors"):
        found.names.selected(["orders"])


def test_ways_that_rename_or_end_elsewhere_are_no_circles() -> None:
    properties = {
        **CLUSTERS,
        "clusters": "A,B,C",
        "C.bootstrap.servers": "c:9092",
        "A->B.enabled": "true",
        "A->B.replication.policy.class": "IdentityReplicationPolicy",
        "B->A.enabled": "true",
        "B->C.enabled": "true",
        "B->C.replication.policy.class": "IdentityReplicationPolicy",
    }
    found = flows(properties)["A->B"].mirror
    assert found is not None
    assert ["orders"] == found.names.selected(["orders"])


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"clusters": "A"}, "`clusters`=A is not allowed: it takes the names of two clusters"),
        ({"clusters": "A, A"}, "`clusters`=A, A is not allowed"),
        ({"clusters": "A, B C"}, "`clusters` has 'B C'; a name has letters"),
        ({"B.bootstrap.servers": ""}, "`B.bootstrap.servers` is missing"),
        ({"A->C.enabled": "true"}, "`A->C.enabled` does not begin with two of the clusters A, B"),
        ({"A->A.enabled": "true"}, "`A->A.enabled` does not begin with two of"),
        ({"A->B.enabled": "false"}, "no flow is enabled; set for example `A->B.enabled`=true"),
        ({"A->B.enabled": "yes"}, "`A->B.enabled`=yes is not allowed: it takes true or false"),
        ({"A->B.topcs": "orders"}, "`A->B.topcs` is not a setting .* did you mean `A->B.topics`?"),
        ({"topics": "a(b"}, r"`topics`=a\(b is not allowed: not a valid regular expression"),
        ({"groups.exclude": "a(b"}, r"`groups.exclude`=a\(b is not allowed"),
        ({"replication.factor": "0"}, "`replication.factor`=0 is not allowed: it takes an int, at least 1"),
        (
            {"replication.policy.class": "com.acme.Own"},
            "`replication.policy.class`=com.acme.Own is not allowed",
        ),
        ({"topic.filter.class": "com.acme.Own"}, "`topic.filter.class`=com.acme.Own is not allowed"),
        ({"exactly.once.source.support": "maybe"}, "`exactly.once.source.support`=maybe is not allowed"),
        ({"A->B.transforms": "x"}, "`A->B.transforms` is not a setting"),
        ({"config.providers": "file"}, "`config.providers` is not a setting"),
        ({"A.consumer.fetch.max.wait.ms": "x"}, "cluster A: `fetch.max.wait.ms`=x is not allowed"),
        (
            {"B.producer.lingerms": "1"},
            "`B.producer.lingerms` is not .* did you mean `B.producer.linger.ms`?",
        ),
    ],
)
def test_what_is_wrong_is_named(properties: Mapping[str, str], message: str) -> None:
    with pytest.raises(FlowFileError, match=message):
        parse_flows({**ONE_WAY, **properties})


def test_old_names_and_classes_that_are_built_in_are_taken() -> None:
    found = options(
        {
            "topics.blacklist": "x.*",
            "topic.filter.class": "org.apache.kafka.connect.mirror.DefaultTopicFilter",
            "tasks.max": "4",
        }
    )
    assert ["y"] == found.names.selected(["x1", "y"])
    assert ["tasks.max"] == parse_flows(ONE_WAY | {"tasks.max": "4"}).without_effect
