"""What `@pytest.mark.kafka` may say, and what is said about a wrong one."""

from collections.abc import Mapping

import pytest

from kalda.testing import Security
from kalda.testing.kafka_mark import ClusterSpec, KafkaMark, KafkaMarkError, mark_of, read_marks


def test_without_a_mark_a_test_has_one_open_broker() -> None:
    assert KafkaMark(ClusterSpec()) == read_marks([])


def test_a_nearer_mark_replaces_options_of_a_farther_one() -> None:
    """A class's mark holds for its tests, and a test's own mark changes some of it."""
    mark = read_marks([((), {"brokers": 3}), ((), {"brokers": 5, "as_version": "2.8"})])

    assert ClusterSpec(brokers=3, as_version="2.8") == mark.cluster


def test_settings_are_texts_and_equal_ones_share_a_cluster() -> None:
    one = mark_of({"settings": {"num.partitions": 4, "auto.create.topics.enable": False}}).cluster
    other = mark_of({"settings": {"auto.create.topics.enable": "false", "num.partitions": "4"}}).cluster

    assert {"num.partitions": "4", "auto.create.topics.enable": "false"} == one.broker_settings
    assert (one, hash(one)) == (other, hash(other))


def test_a_release_is_a_setting_that_the_others_may_replace() -> None:
    assert {"kalda.as.version": "2.8"} == mark_of({"as_version": "2.8"}).cluster.broker_settings


def test_security_is_a_protocol_or_an_object() -> None:
    security = Security(users=["alice"])

    assert "SASL_SSL" == mark_of({"security": "sasl_ssl"}).cluster.protocol
    assert None is mark_of({"security": "plaintext"}).cluster.protocol
    assert security == mark_of({"security": security}).cluster.security
    assert hash(mark_of({"security": security}).cluster) == hash(
        mark_of({"security": Security(users=["alice"])}).cluster
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brokres": 3}, "no option 'brokres'.*did you mean 'brokers'"),
        ({"brokers": 0}, "brokers=0: a test has 1 to 16 brokers"),
        ({"brokers": True}, "brokers=True"),
        ({"settings": ["num.partitions"]}, "settings=.*a mapping of Kafka's names"),
        ({"settings": {"num.partitions": None}}, "num.partitions=None is neither"),
        ({"settings": {1: 2}}, "the name 1 is not a text"),
        ({"security": "tls"}, "security='tls': it takes 'plaintext', 'ssl'"),
        ({"security": 1}, "security=1: it takes .*Security"),
        ({"as_version": 2.8}, 'as_version="2.8"'),
        ({"faults": ["fetch:delay=1s", 7]}, 'faults=.*write faults as texts, such as "produce:NOT_LEADER'),
    ],
)
def test_an_error_names_the_option_the_value_and_what_is_allowed(
    options: Mapping[str, object], message: str
) -> None:
    with pytest.raises(KafkaMarkError, match=message):
        read_marks([((), options)])


def test_faults_are_handed_on_and_share_no_cluster_spec() -> None:
    mark = mark_of({"faults": "produce:NOT_LEADER*2"})

    assert ("produce:NOT_LEADER*2", ClusterSpec()) == (mark.faults, mark.cluster)


def test_options_are_given_by_name() -> None:
    with pytest.raises(KafkaMarkError, match=r"kafka\(3\): options are given by name"):
        read_marks([((3,), {})])


def test_a_spec_reads_as_a_mark_does() -> None:
    """Messages about a cluster name it so."""
    spec = mark_of({"brokers": 3, "settings": {"a": 1}, "security": "ssl", "as_version": "2.8"}).cluster

    assert "brokers=3, settings={'a': '1'}, security='ssl', as_version='2.8'" == str(spec)
