"""What the commands make of their options, a file and single settings."""

from pathlib import Path

import pytest

from kalda.broker.process.config import broker_config, started_config
from kalda.common.config_def import ConfigError

DIRECTORY = Path("/data")


def test_one_broker_can_hold_one_replica() -> None:
    config = started_config(DIRECTORY, 9092, {})
    assert (0, 1, 1) == (
        config.broker_id,
        config.offsets_topic_replication_factor,
        config.transaction_state_log_min_isr,
    )
    assert ("/data/broker-0",) == config.log_dirs


def test_several_brokers_share_settings_and_a_rack_but_no_port() -> None:
    settings = {"num.partitions": "7", "metrics.port": "9400"}
    configs = [started_config(DIRECTORY, 9092, settings, broker_id=each, brokers=4) for each in range(4)]
    assert [9092, 9093, 9094, 9095] == [config.listeners[0].port for config in configs]
    assert [9400, 9401, 9402, 9403] == [config.metrics_port for config in configs]
    assert {7} == {config.num_partitions for config in configs}
    assert {3} == {config.offsets_topic_replication_factor for config in configs}
    assert {1} == {config.default_replication_factor for config in configs}
    assert 1 == len({config.broker_rack for config in configs})
    assert configs[0].broker_rack


def test_a_free_port_is_free_for_each() -> None:
    configs = [started_config(DIRECTORY, 0, {}, broker_id=each, brokers=2) for each in range(2)]
    assert [0, 0] == [config.listeners[0].port for config in configs]


@pytest.mark.parametrize("name", ["broker.id", "listeners", "log.dirs"])
def test_what_only_one_broker_can_have_is_refused_for_several(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}`.*kalda broker"):
        started_config(DIRECTORY, 9092, {name: "1"}, brokers=2)


def test_options_of_kalda_broker_win_over_the_file_and_its_settings_over_defaults() -> None:
    in_file = {"broker.id": "5", "zookeeper.connect": "zk:2181/kafka", "log.dirs": "/a,/b"}
    config = broker_config(DIRECTORY, in_file, broker_id=None, port=None, zookeeper=None)
    assert (5, "zk:2181/kafka", ("/a", "/b")) == (
        config.broker_id,
        config.zookeeper_connect,
        config.log_dirs,
    )
    config = broker_config(DIRECTORY, in_file, broker_id=7, port=1234, zookeeper="other:2181")
    assert (7, "other:2181", 1234) == (
        config.broker_id,
        config.zookeeper_connect,
        config.listeners[0].port,
    )


def test_kalda_broker_without_an_id_is_given_one() -> None:
    config = broker_config(DIRECTORY, {}, broker_id=None, port=None, zookeeper=None)
    assert (-1, "127.0.0.1:2181", ("/data",)) == (
        config.broker_id,
        config.zookeeper_connect,
        config.log_dirs,
    )
