"""DescribeConfigs answers what Apache Kafka answers, setting by setting.

Tools and clients show these values and compare them; a default that is off by a digit is a silent difference
in behaviour.
"""

from pathlib import Path

import pytest

from kalda.broker.config.describe import ConfigEntry, describe_broker, describe_topic
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.settings import BrokerConfig
from kalda.settings.definitions import BROKER_CONFIG, TOPIC_CONFIG

GOLDEN = Path(__file__).with_name("kafka-3.9.1-described-configs.tsv")
STATIC = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:19092",
    "log.dirs": "/var/lib/kafka",
    "zookeeper.connect": "127.0.0.1:12181",
    "offsets.topic.replication.factor": "1",
    "log.retention.minutes": "100",
    "num.partitions": "2",
}
OVERRIDES = {"cleanup.policy": "compact, delete", "retention.bytes": " 5 "}
"""With blanks: a value is described as it was understood, not as it was written."""

READ_ONLY_HERE = {"advertised.listeners", "listener.security.protocol.map", "listeners"}
"""Kafka can change these while it runs; Kalda says that it cannot."""
OURS = {
    "metrics.port",
    "metrics.host",
    "metrics.login",
    "coordination.connect",
    *(key.name for key in BROKER_CONFIG if key.name.startswith(("kalda.", "etcd."))),
    *(key.name for key in TOPIC_CONFIG if key.name.startswith("kalda.")),
}
OF_KAFKA_4 = {
    "cordoned.log.dirs",
    "errors.deadletterqueue.group.enable",
    "group.consumer.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.coordinator.rebalance.protocols",
    "transaction.two.phase.commit.enable",
    *(
        key.name
        for config in (ShareGroupConfig, ShareCoordinatorConfig)
        for key in config.definitions().values()
    ),
}
"""Kafka 4 has another default than 3.9, or a new setting, and so has Kalda."""


def row(kind: str, entry: ConfigEntry) -> str:
    def text(value: str | None) -> str:
        return "<null>" if value is None else value

    read_only = entry.is_read_only and entry.name not in READ_ONLY_HERE
    synonyms = " ".join(f"{s.name}={text(s.value)}@{int(s.source)}" for s in entry.synonyms)
    return "\t".join(
        [
            kind,
            entry.name,
            text(entry.value),
            str(read_only).lower(),
            str(int(entry.source)),
            str(entry.is_sensitive).lower(),
            str(int(entry.config_type)),
            synonyms,
        ]
    )


@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_settings_are_described_as_kafka_does(kind: str) -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    expected = sorted(
        line for line in lines if line.startswith(f"{kind}\t") and line.split("\t")[1] not in OF_KAFKA_4
    )
    config = BrokerConfig.from_properties(STATIC)
    entries = describe_topic(config, OVERRIDES) if kind == "topic" else describe_broker(config)

    described = sorted(row(kind, entry) for entry in entries if entry.name not in OURS | OF_KAFKA_4)

    assert len(expected) > 30
    assert expected == described
