"""What the documentation marks as in effect is read by code: else it would promise what nothing keeps."""

import re
import typing
from pathlib import Path

import kalda
from kalda.broker.config import BrokerConfig
from kalda.broker.config.topic_config import TOPIC_SETTINGS_READ

SOURCE = Path(kalda.__file__).parent


def sources(folder: str, *, but: str) -> str:
    paths = [
        path for path in (SOURCE / folder).rglob("*.py") if but not in path.relative_to(SOURCE).as_posix()
    ]
    assert paths
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_every_attribute_of_the_brokers_settings_is_read() -> None:
    code = sources("broker", but="broker/config/")

    unread = [
        attribute
        for attribute in typing.get_type_hints(BrokerConfig)
        if not re.search(rf"config\.{attribute}\b", code)
    ]

    assert [] == unread


def test_every_topic_setting_in_effect_is_read() -> None:
    code = sources("", but="config") + sources("controller", but="-") + sources("records", but="-")
    settings = {name.replace(".", "_") for name in TOPIC_SETTINGS_READ}
    # Read through LogConfig's properties, through coordination, folded into the newer two, and by quotas.
    elsewhere = {
        "follower_replication_throttled_replicas",
        "leader_replication_throttled_replicas",
        "cleanup_policy",
        "segment_ms",
        "unclean_leader_election_enable",
        "message_timestamp_difference_max_ms",
    }

    assert [] == [name for name in sorted(settings - elsewhere) if not re.search(rf"\.{name}\b", code)]
