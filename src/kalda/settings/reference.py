"""Writes the reference pages of all settings from their declarations.

Run it as ``python -m kalda.settings.reference docs/reference``. The pages are committed, and a test
fails when they differ from the declarations.
"""

import sys
from pathlib import Path
from typing import Final

from kalda.common.config_def import ConfigKey
from kalda.common.config_tables import config_table, effect
from kalda.settings.definitions import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    GROUP_SYNONYMS,
    TOPIC_CONFIG,
    TOPIC_SYNONYMS,
)

BROKER_PAGE: Final = "broker-configs.md"
TOPIC_PAGE: Final = "topic-configs.md"
GROUP_PAGE: Final = "group-configs.md"

_BROKER_INTRODUCTION: Final = """\
# Broker settings

Names, defaults and bounds are those of Apache Kafka 3.9 with ZooKeeper. Give them to `kalda start` in a file
(`--config server.properties`) or one by one (`--set name=value`, which wins).

The column *Effect*: a setting marked **yes** has an effect. One marked *no* belongs to the named
feature, which Kalda does not have. It is accepted and listed by DescribeConfigs, so that files and tools
made for Kafka work; a broker that starts logs one warning that lists such settings. One marked *refused*
belongs to a feature whose silent absence would be dangerous: a value that asks for the feature is an
error, in a file as in a request. *Update* shows whether the setting can be changed while the broker
runs: for the whole cluster, for one broker, or not at all.
"""

_TOPIC_INTRODUCTION: Final = """\
# Topic settings

Names, defaults and bounds are those of Apache Kafka 3.9. A topic that does not set one takes it from the
broker setting beside it. All can be changed at any time.

A setting marked **yes** has an effect. The others belong to the named features, which Kalda does not have;
they are accepted and listed.
"""

_GROUP_INTRODUCTION: Final = """\
# Group settings

Names, defaults and bounds are those of Apache Kafka 4.4; they concern groups of the consumer protocol
(KIP-848). A group that does not set one takes it from the broker setting beside it, whose bounds
(`group.consumer.min…`, `group.consumer.max…`) hold for groups too. All can be changed at any time:
`kalda configs alter --group readers --add-config consumer.session.timeout.ms=60000`.
"""


def broker_page() -> str:
    """Return the page of the broker's settings."""
    return (
        f"{_BROKER_INTRODUCTION}\n{config_table(BROKER_CONFIG, {'Update': _update_mode, 'Effect': effect})}"
    )


def topic_page() -> str:
    """Return the page of topics' settings."""
    columns = {"Broker setting": _synonyms, "Effect": effect}
    return f"{_TOPIC_INTRODUCTION}\n{config_table(TOPIC_CONFIG, columns)}"


def group_page() -> str:
    """Return the page of groups' settings."""
    return f"{_GROUP_INTRODUCTION}\n{config_table(GROUP_CONFIG, {'Broker setting': _of_broker})}"


def write_pages(directory: Path) -> None:
    """Write the pages.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / BROKER_PAGE).write_text(broker_page(), encoding="utf-8")
    (directory / TOPIC_PAGE).write_text(topic_page(), encoding="utf-8")
    (directory / GROUP_PAGE).write_text(group_page(), encoding="utf-8")


def _update_mode(key: ConfigKey) -> str:
    return key.update_mode.value


def _synonyms(key: ConfigKey) -> str:
    return ", ".join(f"`{name}`" for name, _ in TOPIC_SYNONYMS.get(key.name, ())) or "none"


def _of_broker(key: ConfigKey) -> str:
    return f"`{GROUP_SYNONYMS[key.name]}`" if key.name in GROUP_SYNONYMS else ""


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
