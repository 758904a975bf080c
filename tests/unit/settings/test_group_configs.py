"""A group's settings override the broker's, within the broker's bounds."""

from collections.abc import Mapping

import pytest

from kalda.broker.config import ConfigStore
from kalda.broker.config.describe import describe_group
from kalda.broker.groups.stored_group_times import StoredGroupTimes
from kalda.common.config_def import ConfigError
from kalda.common.config_values import ConfigSource
from kalda.settings import BrokerConfig

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig.from_properties({"group.consumer.heartbeat.interval.ms": "6000"})


def test_a_group_without_settings_has_the_brokers(config: BrokerConfig) -> None:
    assert [45_000, 6_000, 1_000] == [
        config.groups.value(name, {}) for name in (SESSION, HEARTBEAT, INTERVAL)
    ]
    assert 50_000 == config.groups.value(SESSION, {SESSION: "50000"})


def test_bounds_that_changed_hold_for_settings_that_are_stored(config: BrokerConfig) -> None:
    assert 60_000 == config.groups.value(SESSION, {SESSION: "90000"})
    assert 45_000 == config.groups.value(SESSION, {SESSION: "1000"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({SESSION: "44999"}, "`consumer.session.timeout.ms`=44999 is not between "),
        ({SESSION: "60001"}, "group.consumer.max.session.timeout.ms=60000"),
        ({HEARTBEAT: "4999"}, "group.consumer.min.heartbeat.interval.ms=5000"),
        ({INTERVAL: "15001"}, "group.consumer.max.assignment.interval.ms=15000"),
        ({SESSION: "soon"}, "soon"),
        ({"consumer.session.timeout": "50000"}, "is not a setting"),
        ({"retention.ms": "1"}, "is not a setting"),
    ],
)
def test_what_a_group_may_not_have_is_refused(
    config: BrokerConfig, overrides: Mapping[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config.groups.validate(overrides)


def test_the_heartbeat_interval_is_below_the_session_timeout() -> None:
    bounds = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    config = BrokerConfig.from_properties(bounds)
    config.groups.validate({SESSION: "5001"})
    with pytest.raises(ConfigError, match=r"`consumer\.heartbeat\.interval\.ms`=5000 must be below"):
        config.groups.validate({SESSION: "5000"})


def test_the_description_names_every_source(config: BrokerConfig) -> None:
    (entry,) = describe_group(config, {HEARTBEAT: "7000"}, [HEARTBEAT])
    assert ("7000", ConfigSource.DYNAMIC_GROUP_CONFIG) == (entry.value, entry.source)
    assert [
        (HEARTBEAT, "7000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        (f"group.{HEARTBEAT}", "6000", ConfigSource.STATIC_BROKER_CONFIG),
        (f"group.{HEARTBEAT}", "5000", ConfigSource.DEFAULT_CONFIG),
    ] == [(each.name, each.value, each.source) for each in entry.synonyms]
    assert {SESSION, HEARTBEAT, INTERVAL} == {
        each.name for each in describe_group(config, {}) if each.name.startswith("consumer.")
    }


def test_settings_of_share_groups_have_bounds_of_the_broker_or_values_of_their_own(
    config: BrokerConfig,
) -> None:
    (reset,) = describe_group(config, {}, ["share.auto.offset.reset"])
    assert ("latest", ConfigSource.DEFAULT_CONFIG, []) == (reset.value, reset.source, list(reset.synonyms))
    config.groups.validate({"share.auto.offset.reset": "by_duration:PT1H"})
    assert "earliest" == config.groups.value(
        "share.auto.offset.reset", {"share.auto.offset.reset": "earliest"}
    )
    for name, value in (
        ("share.auto.offset.reset", "none"),
        ("share.isolation.level", "serializable"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.delivery.count.limit", "11"),
        ("share.heartbeat.interval.ms", "50000"),
    ):
        with pytest.raises(ConfigError):
            config.groups.validate({name: value})


def test_times_follow_what_is_stored(config: BrokerConfig) -> None:
    store = ConfigStore(config)
    store.set_entity("groups", "team%2Fa", {SESSION: "50000", INTERVAL: "0"})
    times = StoredGroupTimes(config, store)
    assert (50_000, 6_000, 0) == all_times(times, "team/a")
    assert (45_000, 6_000, 1_000) == all_times(times, "b")

    store.set_entity("groups", "b", {HEARTBEAT: "8000"})
    store.set_entity("groups", "team%2Fa", {})
    assert (45_000, 8_000, 1_000) == all_times(times, "b")
    assert (45_000, 6_000, 1_000) == all_times(times, "team/a")


def test_a_value_that_was_written_by_hand_and_is_no_number_does_not_count(config: BrokerConfig) -> None:
    store = ConfigStore(config)
    times = StoredGroupTimes(config, store)
    store.set_entity("groups", "g", {SESSION: "soon", HEARTBEAT: "7000"})
    assert (45_000, 7_000, 1_000) == all_times(times, "g")


def all_times(times: StoredGroupTimes, group_id: str) -> tuple[int, int, int]:
    return (
        times.session_timeout_ms(group_id),
        times.heartbeat_interval_ms(group_id),
        times.assignment_interval_ms(group_id),
    )
