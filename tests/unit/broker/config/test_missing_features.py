"""Settings that ask for what Kalda does not have are refused by name; others without effect are listed."""

import re

import pytest

from kalda.common.config_def import ConfigError, ConfigType, MissingFeatureError
from kalda.common.properties import parse_properties
from kalda.settings import BrokerConfig
from kalda.settings.broker_config import has_effect
from kalda.settings.definitions import BROKER_CONFIG, TOPIC_CONFIG
from kalda.settings.summary import differing_settings, settings_without_effect

STOCK_3_9 = """\
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
"""The settings of config/server.properties in Apache Kafka 3.x with ZooKeeper."""

STOCK_4 = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
"""Of config/server.properties in Apache Kafka 4.x."""


def refusal(**settings: str) -> str:
    with pytest.raises(MissingFeatureError) as caught:
        BrokerConfig.from_properties({name.replace("_", "."): value for name, value in settings.items()})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("principal.builder.class", "com.example.Builder", "principal builder classes"),
        ("security.providers", "com.example.Provider", "the JVM's TLS"),
        ("ssl.engine.factory.class", "com.example.Factory", "the JVM's TLS"),
        ("sasl.login.class", "com.example.Login", "classes of logins"),
        ("zookeeper.ssl.ocsp.enable", "true", "OCSP"),
        ("client.quota.callback.class", "com.example.Quotas", "quota callbacks"),
        ("listener.name.inside.max.connections.per.ip", "10", "limits for single listeners"),
        ("create.topic.policy.class.name", "com.example.Policy", "policies"),
    ],
)
def test_a_value_that_asks_for_protection_is_refused(name: str, value: str, feature: str) -> None:
    """An open broker that its operator takes for a protected one is worse than none."""
    with pytest.raises(MissingFeatureError) as caught:
        BrokerConfig.from_properties({name: value})
    assert f"`{name}`=" in str(caught.value)
    assert f"needs {feature}, which Kalda does not have: " in str(caught.value)


def test_all_such_settings_are_named_at_once() -> None:
    message = refusal(ssl_provider="BC", zookeeper_ssl_ocsp_enable="true")
    assert "`ssl.provider`=BC" in message
    assert "`zookeeper.ssl.ocsp.enable`=true" in message
    assert "(allowed: false, or leave it out)" in message


def test_every_default_and_every_empty_value_is_accepted() -> None:
    """Files that spell out defaults mean nothing by them."""
    skipped = {"listeners", "sasl.enabled.mechanisms"} | {
        key.name for key in BROKER_CONFIG if key.harmless is not None
    }
    properties = {
        key.name: text
        for key in BROKER_CONFIG
        if (text := key.format(key.default)) is not None and key.name not in skipped
    }
    assert len(BrokerConfig.from_properties(properties).static) > 250
    empty = ("authorizer.class.name", "ssl.keystore.location", "ssl.cipher.suites", "process.roles")
    BrokerConfig.from_properties(dict.fromkeys(empty, ""))


def test_what_relaxes_or_shapes_tls_protects_nothing() -> None:
    BrokerConfig.from_properties(
        {
            "ssl.endpoint.identification.algorithm": "",
            "ssl.keystore.type": "PKCS12",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
        }
    )


def test_only_settings_without_effect_are_marked_but_for_limits_of_listeners() -> None:
    """A mark on a setting that is enforced would be forgotten when its feature comes."""
    marked = {key.name for key in BROKER_CONFIG if key.requires is not None and has_effect(key.name)}
    assert {"max.connections.per.ip", "max.connections.per.ip.overrides"} == marked
    assert [] == [key.name for key in TOPIC_CONFIG if key.requires is not None]


def test_credentials_without_effect_are_refused() -> None:
    """A new password setting must be thought of."""
    unmarked = {
        key.name
        for key in BROKER_CONFIG
        if key.type is ConfigType.PASSWORD and key.requires is None and not has_effect(key.name)
    }
    assert set() == unmarked


def test_the_file_that_kafka_3_ships_is_accepted() -> None:
    config = BrokerConfig.from_properties(parse_properties(STOCK_3_9))
    assert [
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
    ] == settings_without_effect(config)


def test_the_file_that_kafka_4_ships_is_refused_by_its_kraft_settings() -> None:
    """Before the names that only Kafka 4 has are complained about."""
    with pytest.raises(MissingFeatureError) as caught:
        BrokerConfig.from_properties(parse_properties(STOCK_4))
    message = str(caught.value)
    assert message.startswith(
        "`process.roles`, `node.id`, `controller.quorum.bootstrap.servers`, `controller.listener.names`: "
    )
    assert "ZooKeeper's protocol" in message
    assert "coming-from-kafka" in message


def test_a_controllers_or_a_migrating_brokers_file_is_refused_too() -> None:
    assert "`controller.quorum.voters`" in refusal(controller_quorum_voters="1@localhost:9093")
    assert "`zookeeper.metadata.migration.enable`" in refusal(zookeeper_metadata_migration_enable="true")
    BrokerConfig.from_properties({"process.roles": "", "zookeeper.metadata.migration.enable": "false"})
    BrokerConfig.from_properties({"node.id": "3", "broker.heartbeat.interval.ms": "1000"})


def test_what_differs_from_the_defaults_is_shown_without_secrets() -> None:
    config = BrokerConfig.from_properties(
        {
            "broker.id": "3",
            "num.partitions": "1",
            "log.cleanup.policy": "compact,delete",
            "password.encoder.secret": "hunter2",
            "rsm.config.key": "hunter2",
            "listener.name.inside.num.network.threads": "5",
        }
    )
    assert [
        "broker.id=3",
        "listener.name.inside.num.network.threads=5",
        "log.cleanup.policy=compact,delete",
        "password.encoder.secret=[hidden]",
        "rsm.config.key=[hidden]",
    ] == differing_settings(config)
    assert [
        "listener.name.inside.num.network.threads",
        "rsm.config.key",
    ] == settings_without_effect(config)


@pytest.mark.parametrize(
    "settings",
    [
        *({key.name: "\x00"} for key in BROKER_CONFIG),
        {"log.dirs": "/a,/a"},
        {"advertised.listeners": "SSL://host:1"},
        {"inter.broker.listener.name": "X"},
        {"max.connections.per.ip.overrides": "x"},
        {"process.roles": "broker,controller"},
        {"sasl.kerberos.principal.to.local.rules": "A,B"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_no_message_shows_a_value_as_python_spells_it(settings: dict[str, str]) -> None:
    message = ""
    try:
        BrokerConfig.from_properties(settings)
    except ConfigError as error:
        message = str(error)
    assert not re.search(r"\('|'\)|',|\bNone\b|\bTrue\b|\bFalse\b|\[\]", message)
