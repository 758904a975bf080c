"""What the documentation marks as in effect is read by code: else it would promise what nothing keeps."""

import re
from pathlib import Path

import kalda
from kalda.common.config_def import ConfigKey
from kalda.security.zookeeper.client_security import SETTINGS as CLIENT_SETTINGS
from kalda.security.zookeeper.login_file import LOGIN_FILE
from kalda.settings import BrokerConfig
from kalda.settings.definitions import GROUP_SYNONYMS, TOPIC_CONFIG, TOPIC_SYNONYMS
from kalda.settings.definitions.etcd import CoordinationConfig
from kalda.settings.definitions.passwords import PasswordEncoderConfig
from kalda.settings.definitions.sasl import SaslConfig
from kalda.settings.definitions.tls import TlsConfig

SOURCE = Path(kalda.__file__).parent


SHARE_SETTINGS = (
    "assignment.interval.ms",
    "delivery.count.limit",
    "heartbeat.interval.ms",
    "partition.max.record.locks",
    "record.lock.duration.ms",
    "session.timeout.ms",
)
"""The settings of share groups that have bounds."""


def has_effect(key: ConfigKey) -> bool:
    return key.without_effect is None


OF_THE_BROKER = (
    "connection.failed.authentication.delay.ms",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.server.max.receive.size",
)
"""Settings of SASL that are read as attributes."""


def sources(folder: str, *, but: str) -> str:
    paths = [
        path for path in (SOURCE / folder).rglob("*.py") if but not in path.relative_to(SOURCE).as_posix()
    ]
    assert paths
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_every_attribute_of_the_brokers_settings_is_read() -> None:
    """By name, as the default of a topic's or a group's setting, or by `BrokerConfig` itself."""
    code = sources("broker", but="broker/config/") + sources("coordinator", but="config.py")
    code += (SOURCE / "coordinator/group/consumer/consumer_group_config.py").read_text(encoding="utf-8")
    defaults = {
        name for key in TOPIC_CONFIG if has_effect(key) for name, _ in TOPIC_SYNONYMS.get(key.name, ())
    }
    defaults |= set(GROUP_SYNONYMS.values())
    elsewhere = {
        *(f"group.consumer.{bound}.assignment.interval.ms" for bound in ("min", "max")),
        *(f"group.consumer.{bound}.heartbeat.interval.ms" for bound in ("min", "max")),
        *(f"group.consumer.{bound}.session.timeout.ms" for bound in ("min", "max")),
        # There is one assignor.
        "group.share.assignors",
        *(f"group.share.{bound}.{name}" for bound in ("min", "max") for name in SHARE_SETTINGS),
        # Read by `BrokerConfig.controller_eligible`.
        "kalda.controller.eligible",
        "listener.security.protocol.map",
        "log.dir",
        "node.id",
        "producer.id.expiration.ms",
        "security.inter.broker.protocol",
        # Read by `BrokerConfig.metrics_address`.
        "metrics.host",
        # Read by `StoredPasswords`.
        *(key.name for key in PasswordEncoderConfig.definitions().values()),
        # Read by `read_etcd_security`, by name.
        *(key.name for key in CoordinationConfig.definitions().values() if key.name.startswith("etcd.")),
        # Read for each listener, by name.
        *(key.name for key in TlsConfig.definitions().values()),
        *(CLIENT_SETTINGS - {LOGIN_FILE}),
        *(key.name for key in SaslConfig.definitions().values() if key.name not in OF_THE_BROKER),
    }

    unread = [
        key.name
        for attribute, key in BrokerConfig.definitions().items()
        if not re.search(rf"(config|self)\.{attribute}\b", code)
    ]

    assert sorted(elsewhere) == sorted(set(unread) - defaults)


def test_every_topic_setting_in_effect_is_read() -> None:
    code = sources("", but="config") + sources("controller", but="-") + sources("records", but="-")
    settings = {key.name.replace(".", "_") for key in TOPIC_CONFIG if has_effect(key)}
    # Read through LogConfig's properties, through coordination, folded into the newer two, and by quotas.
    elsewhere = {
        "follower_replication_throttled_replicas",
        "leader_replication_throttled_replicas",
        "cleanup_policy",
        "segment_ms",
        "unclean_leader_election_enable",
        "message_format_version",
        "message_timestamp_difference_max_ms",
    }

    assert [] == [name for name in sorted(settings - elsewhere) if not re.search(rf"\.{name}\b", code)]
