"""A consumer's settings: Kafka's names and defaults, and the rules between them."""

import re
from datetime import timedelta

import pytest

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_setup import ConsumerSetup
from kalda.clients.consumer.offset_reset import OffsetReset, ResetKind
from kalda.clients.errors import ClientConfigError


def config(**options: object) -> ConsumerConfig:
    return ConsumerConfig.from_options({"bootstrap_servers": "127.0.0.1:9092", **options})


def test_defaults_are_those_of_kafka() -> None:
    defaults = config(group_id="g")
    assert 500 == defaults.max_poll_records
    assert 45_000 == defaults.session_timeout_ms
    assert ("range", "cooperative-sticky") == defaults.partition_assignment_strategy
    assert 52_428_800 == defaults.fetch_max_bytes
    assert IsolationLevel.READ_UNCOMMITTED is defaults.isolation
    assert OffsetReset(ResetKind.LATEST) == defaults.offset_reset
    assert defaults.has_auto_commit


def test_without_a_group_nothing_is_committed_by_default() -> None:
    assert not config().has_auto_commit
    with pytest.raises(ClientConfigError, match=r"enable\.auto\.commit.*needs `group\.id`"):
        config(enable_auto_commit=True)


def test_the_isolation_level_may_be_a_member_of_the_enumeration() -> None:
    config = ConsumerConfig.from_options(
        {"bootstrap_servers": "a:1", "isolation_level": IsolationLevel.READ_COMMITTED}
    )
    assert config.isolation is IsolationLevel.READ_COMMITTED


def test_a_reset_to_records_of_an_age_may_be_a_timedelta() -> None:
    options = {"bootstrap_servers": "a:1", "auto_offset_reset": timedelta(days=40, milliseconds=1500)}
    found = ConsumerSetup.from_options(options).config.offset_reset
    assert OffsetReset(ResetKind.BY_DURATION, 40 * 86_400_000 + 1_500) == found


def test_dotted_names_and_texts_are_accepted() -> None:
    """A client.properties file works."""
    properties = {"bootstrap.servers": "127.0.0.1:9092", "isolation.level": "read_committed", "group.id": "g"}
    found = ConsumerConfig.from_properties({**properties, "auto.offset.reset": "by_duration:PT1H"})
    assert IsolationLevel.READ_COMMITTED is found.isolation
    assert OffsetReset(ResetKind.BY_DURATION, 3_600_000) == found.offset_reset


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"auto_offset_rest": "earliest"}, "did you mean `auto_offset_reset`"),
        ({"auto_offset_reset": "smallest"}, "it takes a string, earliest, latest, none"),
        ({"isolation_level": "committed"}, "one of read_uncommitted, read_committed"),
        ({"group_protocol": "share"}, "one of classic, consumer"),
        ({"group_id": " "}, "`group.id` is empty"),
        ({"group_remote_assignor": "uniform"}, "needs `group.protocol`=consumer"),
        ({"heartbeat_interval_ms": 45_000}, "must be below `session.timeout.ms`=45000"),
        ({"group_protocol": "consumer", "group_id": "g", "session_timeout_ms": 1}, "the broker decides"),
        ({"group_protocol": "consumer"}, "needs `group.id`"),
        ({"partition_assignment_strategy": ""}, "`partition.assignment.strategy` is empty"),
        ({"interceptor_classes": ["com.example.Audit"]}, "keyword argument interceptors"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "needs `sasl.jaas.config`"),
    ],
)
def test_bad_settings_are_refused_with_the_fix(options: dict[str, object], message: str) -> None:
    with pytest.raises(ClientConfigError, match=re.escape(message)):
        config(**options)


def test_a_client_id_names_the_group_and_the_instance() -> None:
    """Brokers' logs and quotas tell consumers apart by it."""
    assert "consumer-g-instance" == config(group_id="g", group_instance_id="instance").client_id
    first, second = config(group_id="g").client_id, config(group_id="g").client_id
    assert first != second
    assert "mine" == config(client_id="mine").client_id
