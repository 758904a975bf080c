import os

import pytest

from kalda.common.config_def import ConfigError, ConfigType
from kalda.settings import BrokerConfig, ListenerConfig
from kalda.settings.definitions import BROKER_CONFIG

PYTHON_TYPES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple,
}
COMPUTED = {
    "advertised.listeners",
    "inter.broker.listener.name",
    "kalda.as.version",
    "listeners",
    "log.dirs",
    "max.connections.per.ip.overrides",
}


def read(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): value for name, value in settings.items()})


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(**settings)
    return str(caught.value)


def test_without_settings_all_is_kafkas_default() -> None:
    config = read()

    assert (-1, 1, 1, True, True) == (
        config.broker_id,
        config.num_partitions,
        config.default_replication_factor,
        config.auto_create_topics_enable,
        config.delete_topic_enable,
    )
    assert (ListenerConfig("PLAINTEXT", "", 9092),) == config.listeners == config.advertised_listeners
    assert ("/tmp/kafka-logs",) == config.log_dirs
    assert 104857600 == config.socket_request_max_bytes
    assert config.metrics_port is None


def test_cordoned_directories_are_some_of_the_log_directories() -> None:
    assert () == read().cordoned_log_dirs
    assert ("/b",) == read(log_dirs="/a,/b", cordoned_log_dirs="/b").cordoned_log_dirs
    assert ("/a", "/b") == read(log_dirs="/a,/b", cordoned_log_dirs="*").cordoned_log_dirs
    here = os.path.abspath("data")
    for written in ("data", here):
        assert (here,) == read(log_dir="data", cordoned_log_dirs=written).cordoned_log_dirs
    assert "`cordoned.log.dirs`: /c is not among the log directories, which are /a, /b" in refusal(
        log_dirs="/a,/b", cordoned_log_dirs="/a,/c"
    )


def test_attributes_hold_values_of_their_definitions_types() -> None:
    """An attribute that mypy takes for an int must not hold a string."""
    config = read()
    for attribute, key in BrokerConfig.definitions().items():
        if key.name not in COMPUTED:
            assert key.default == getattr(config, attribute), attribute
        assert key.default is None or isinstance(key.default, PYTHON_TYPES[key.type]), attribute
    assert COMPUTED <= BROKER_CONFIG.keys.keys()


def test_a_value_is_had_as_attribute_by_name_and_as_text() -> None:
    config = read(num_partitions="7", log_cleanup_policy="compact, delete")

    assert 7 == config.num_partitions == config.value("num.partitions")
    assert "7" == config.text("num.partitions")
    assert ("compact", "delete") == config.value("log.cleanup.policy")
    assert "compact,delete" == config.text("log.cleanup.policy")
    assert "168" == config.text("log.retention.hours")


def test_broker_id_and_node_id_are_one() -> None:
    assert 3 == read(node_id="3").broker_id
    assert 3 == read(broker_id="3").value("node.id")
    assert 3 == read(broker_id="3", node_id="3").broker_id
    assert "differ" in refusal(broker_id="3", node_id="4")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"num.partitons": "3"}, "`num.partitons` is not a setting; did you mean `num.partitions`?"),
        ({"num.partitions": "0"}, "`num.partitions`=0 is not allowed: it takes an int, at least 1"),
        ({"log.retention.ms": "0"}, "`log.retention.ms`=0 is not allowed: -1 (for ever) or at least 1"),
        ({"log.roll.ms": "0"}, "`log.roll.ms`=0 is not allowed: at least 1"),
        ({"broker.id": "1001"}, "at most `reserved.broker.max.id`=1000"),
        ({"kalda.nats.subjects": "a:b,orders.*:orders"}, "wildcard 1 of the subject is in neither"),
        ({"broker.id": "-2"}, "`broker.id`=-2 is not allowed"),
        ({"queued.max.request.bytes": "100"}, "at least `socket.request.max.bytes`=104857600"),
        ({"replica.fetch.wait.max.ms": "40000"}, "at most `replica.lag.time.max.ms`=30000"),
        ({"max.connections.per.ip": "0"}, "only together with `max.connections.per.ip.overrides`"),
        ({"max.connections.per.ip.overrides": "host"}, "host is not host:count"),
        ({"log.dirs": "/a,,/b"}, "directories separated by commas"),
        ({"log.dirs": "/a,/a"}, "each once"),
        ({"listeners": ""}, "a broker needs at least one"),
        ({"listeners": "localhost:9092"}, "localhost:9092 is not a listener; write NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999"}, "with a port of 0 to 65535"),
        ({"listeners": "INSIDE://:1"}, "no security protocol for listener INSIDE"),
        ({"listeners": "SSL://:9093"}, "matches no advertised listener; those are SSL"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "name PLAINTEXT comes twice"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "is not NAME:PROTOCOL"),
        ({"advertised.listeners": "SSL://host:1"}, "is not among `listeners`"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect"),
        ({"inter.broker.listener.name": "INSIDE"}, "matches no advertised listener; those are PLAINTEXT"),
        ({"control.plane.listener.name": "CONTROL"}, "matches no advertised listener; those are PLAINTEXT"),
        ({"control.plane.listener.name": "plaintext"}, "PLAINTEXT is the inter-broker listener"),
        ({"metrics.port": "-1"}, "an int, 0 to 65535"),
        ({"metrics.login": ":secret"}, "NAME:PASSWORD"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(settings)

    assert problem in str(caught.value)
    assert f"`{next(iter(settings))}`" in str(caught.value) or "listener" in str(caught.value)


def test_listeners_with_names_of_their_own() -> None:
    config = BrokerConfig.from_properties(
        {
            "listeners": "INSIDE://127.0.0.1:9092, OUTSIDE://[::1]:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "advertised.listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://broker.example:19092",
            "inter.broker.listener.name": "inside",
        }
    )

    assert ["INSIDE://127.0.0.1:9092", "OUTSIDE://[::1]:0"] == [str(one) for one in config.listeners]
    assert ListenerConfig("OUTSIDE", "broker.example", 19092) == config.advertised_listeners[1]


def test_two_listeners_may_not_share_a_port() -> None:
    settings = {
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    for listeners in ("A://:9092,B://:9092", "A://127.0.0.1:9092,B://:9092", "A://[::1]:9092,B://[::]:9092"):
        with pytest.raises(ConfigError, match=r"port 9092 is that of A.*each listener needs its own port"):
            BrokerConfig.from_properties({**settings, "listeners": listeners})
    BrokerConfig.from_properties({**settings, "listeners": "A://:0,B://:0"})


def test_an_ipv4_and_an_ipv6_address_may_share_a_port() -> None:
    """As in Kafka, which refuses a third listener there."""
    settings = {
        "listeners": "A://127.0.0.1:9092,B://[::1]:9092",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }

    config = BrokerConfig.from_properties(settings)

    assert ["127.0.0.1", "::1"] == [each.host for each in config.listeners]
    with pytest.raises(ConfigError, match="port 9092"):
        BrokerConfig.from_properties({**settings, "listeners": settings["listeners"] + ",C://[::1]:9092"})


def test_a_listeners_own_setting_is_checked_by_what_it_overrides() -> None:
    config = BrokerConfig.from_properties(
        {
            "listener.name.inside.num.network.threads": "10",
            "listener.name.inside.scram-sha-256.sasl.login.refresh.window.factor": "0.5",
            "rsm.config.bucket": "anything",
        }
    )

    assert 10 == config.value("listener.name.inside.num.network.threads")
    with pytest.raises(ConfigError, match=r"listener\.name\.inside\.num\.network\.threads`=ten"):
        BrokerConfig.from_properties({"listener.name.inside.num.network.threads": "ten"})
    with pytest.raises(ConfigError, match="is not a setting"):
        BrokerConfig.from_properties({"listener.name.inside.no.such": "1"})


def test_dynamic_settings_lie_over_static_ones_in_place() -> None:
    config = read(log_retention_hours="1", max_connections="4")

    changed = config.apply_dynamic(
        {"max.connections": "6"}, {"max.connections": "5", "fetch.max.bytes": "2000"}
    )

    assert {"max.connections", "fetch.max.bytes"} == changed
    assert (6, 2000) == (config.max_connections, config.fetch_max_bytes)
    assert {"max.connections"} == config.apply_dynamic({}, config.dynamic_default)
    assert 5 == config.max_connections
    config.apply_dynamic({}, {})
    assert (4, 57671680) == (config.max_connections, config.fetch_max_bytes)


def test_dynamic_settings_that_are_not_allowed_change_nothing() -> None:
    config = read()
    config.apply_dynamic({"max.connections": "6"}, {})

    with pytest.raises(ConfigError):
        config.apply_dynamic({"max.connections": "7", "log.retention.ms": "0"}, {})

    assert 6 == config.max_connections
    assert {"max.connections": "6"} == config.dynamic_broker


def test_listeners_of_nats_are_apart_from_kafkas() -> None:
    """What registers or advertises listeners must not see them: Kafka's brokers know no such protocol."""
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://:9092,NATS://:4222,EVENTS://:4223",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EVENTS:SASL_NATS",
        }
    )
    assert ["PLAINTEXT"] == [each.name for each in config.listeners]
    assert ["PLAINTEXT"] == [each.name for each in config.advertised_listeners]
    nats, events = config.nats_listeners
    assert ("NATS", False, False) == (nats.name, nats.uses_tls, nats.uses_sasl)
    assert ("EVENTS", False, True) == (events.name, events.uses_tls, events.uses_sasl)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"listeners": "NATS://:4222"}, "has no listener of Kafka"),
        ({"listeners": "PLAINTEXT://:9092,NATS://:9092"}, "port 9092 is that of"),
        (
            {
                "listeners": "PLAINTEXT://:9092,NATS://:4222",
                "advertised.listeners": "PLAINTEXT://a:9092,NATS://a:4222",
            },
            "NATS://a:4222 is not among",
        ),
        (
            {"listeners": "PLAINTEXT://:9092,NATS://:4222", "inter.broker.listener.name": "NATS"},
            "matches no advertised listener",
        ),
    ],
)
def test_listener_of_nats_is_none_of_kafkas(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties(properties)
