"""What the commands make of their options, a file and single settings."""

from pathlib import Path

import pytest

from kalda.broker.process.config import (
    broker_config,
    started_config,
    without_effect_in_start,
    zookeeper_config,
)
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


def test_listeners_of_several_brokers_move_by_the_brokers_id() -> None:
    """So that a file with a listener of the control plane starts several brokers, too."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092, CONTROL://[::1]:9192,OTHER://:0",
        "advertised.listeners": "PLAINTEXT://a:9092,CONTROL://a:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT,OTHER:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }
    configs = [started_config(DIRECTORY, None, settings, broker_id=each, brokers=3) for each in range(3)]
    assert [[9092, 9192, 0], [9093, 9193, 0], [9094, 9194, 0]] == [
        [listener.port for listener in config.listeners] for config in configs
    ]
    assert [[9092, 1], [9093, 2], [9094, 3]] == [
        [listener.port for listener in config.advertised_listeners] for config in configs
    ]
    assert ["PLAINTEXT://127.0.0.1:9093", "CONTROL://[::1]:9193", "OTHER://:0"] == [
        str(listener) for listener in configs[1].listeners
    ]


def test_listeners_whose_ports_would_meet_are_refused() -> None:
    settings = {"listeners": "PLAINTEXT://:9092,SSL://:9094"}
    with pytest.raises(ConfigError, match="ports 9092 and 9094 are too close for 3 brokers"):
        started_config(DIRECTORY, None, settings, brokers=3)


@pytest.mark.parametrize("name", ["broker.id", "log.dirs"])
def test_what_only_one_broker_can_have_is_refused_for_several(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}`.*kalda broker"):
        started_config(DIRECTORY, 9092, {name: "1"}, brokers=2)


def test_settings_of_kalda_broker_win_over_defaults_of_the_command() -> None:
    in_file = {"broker.id": "5", "zookeeper.connect": "zk:2181/kafka", "log.dirs": "/a,/b"}
    config = broker_config(DIRECTORY, in_file, broker_id=None, port=None, zookeeper=None)
    assert (5, "zk:2181/kafka", ("/a", "/b")) == (
        config.broker_id,
        config.zookeeper_connect,
        config.log_dirs,
    )


def test_options_of_kalda_broker_say_what_no_setting_says() -> None:
    config = broker_config(DIRECTORY, {}, broker_id=7, port=1234, zookeeper="other:2181")
    assert (7, 7, "other:2181", 1234) == (
        config.broker_id,
        config.value("node.id"),
        config.zookeeper_connect,
        config.listeners[0].port,
    )


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"broker.id": "5"}, "--id=7 and `broker.id`=5 contradict each other"),
        ({"node.id": "5"}, "--id=7 and `node.id`=5 contradict each other"),
        ({"listeners": "PLAINTEXT://:9092"}, "--port=1234 and `listeners`=PLAINTEXT://:9092"),
        ({"listeners": "PLAINTEXT://:1234,EXTERNAL://:5"}, "--port=1234 and `listeners`"),
        ({"zookeeper.connect": "zk:2181"}, "--zookeeper=other:2181 and `zookeeper.connect`=zk:2181"),
    ],
)
def test_an_option_and_a_setting_that_disagree_are_refused(properties: dict[str, str], problem: str) -> None:
    """One of them would be ignored, and nobody would know which."""
    properties = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT", **properties}
    with pytest.raises(ConfigError) as caught:
        broker_config(DIRECTORY, properties, broker_id=7, port=1234, zookeeper="other:2181")
    assert problem in str(caught.value)


def test_an_option_and_a_setting_may_say_the_same() -> None:
    same = {"broker.id": "7", "zookeeper.connect": "zk:1", "listeners": "PLAINTEXT://10.0.0.1:1234"}
    config = broker_config(DIRECTORY, same, broker_id=7, port=1234, zookeeper="zk:1")
    assert "10.0.0.1" == config.listeners[0].host


def test_the_port_of_kalda_start_and_listeners_must_agree() -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:9093"}
    with pytest.raises(ConfigError, match="--port=9092 and `listeners`"):
        started_config(DIRECTORY, 9092, listeners)
    assert 9093 == started_config(DIRECTORY, 9093, listeners).listeners[0].port
    assert 9093 == started_config(DIRECTORY, None, listeners).listeners[0].port
    assert 9092 == started_config(DIRECTORY, None, {}).listeners[0].port


def test_a_kraft_file_is_named_as_such_before_its_listeners_disagree() -> None:
    in_file = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    with pytest.raises(ConfigError, match="KRaft"):
        started_config(DIRECTORY, 9095, in_file)


def test_groups_do_not_wait_for_members_with_kalda_start_but_with_kalda_broker() -> None:
    """As with the server.properties that Kafka ships, and as Kafka's own default; what is set wins."""
    delay = "group.initial.rebalance.delay.ms"
    assert 0 == started_config(DIRECTORY, None, {}).group_initial_rebalance_delay_ms
    assert 9 == started_config(DIRECTORY, None, {delay: "9"}).group_initial_rebalance_delay_ms
    in_cluster = broker_config(DIRECTORY, {}, broker_id=None, port=None, zookeeper=None)
    assert 3000 == in_cluster.group_initial_rebalance_delay_ms


def test_the_coordination_of_kalda_start_is_its_own() -> None:
    config = started_config(DIRECTORY, None, {"zookeeper.connect": "zk:2181", "num.io.threads": "8"})
    threads, connect = without_effect_in_start(config)
    assert "num.io.threads" == threads
    assert connect.startswith("zookeeper.connect (")


def test_kalda_zookeeper_takes_options_where_no_setting_disagrees() -> None:
    config = zookeeper_config({"tickTime": "2000"}, directory=Path("/z"), host="::1", port=0)
    assert ("/z", "::1", 0) == (config.data_dir, config.client_port_address, config.client_port)
    config = zookeeper_config({"clientPort": "1", "dataDir": "/z"}, directory=None, host=None, port=1)
    assert ("/z", None, 1) == (config.data_dir, config.client_port_address, config.client_port)
    for properties in ({"clientPort": "2"}, {"dataDir": "/y"}, {"clientPortAddress": "h"}):
        with pytest.raises(ConfigError, match="contradict each other"):
            zookeeper_config(properties, directory=Path("/z"), host="::1", port=1)


def test_kalda_broker_without_an_id_is_given_one() -> None:
    config = broker_config(DIRECTORY, {}, broker_id=None, port=None, zookeeper=None)
    assert (-1, "127.0.0.1:2181", ("/data",)) == (
        config.broker_id,
        config.zookeeper_connect,
        config.log_dirs,
    )
