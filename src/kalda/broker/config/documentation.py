"""Writes the reference pages of all settings from their declarations.

Run it as ``python -m kalda.broker.config.documentation docs/reference``. The pages are committed, and a test
fails when they differ from the declarations.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kalda.broker.config.definitions import BROKER_CONFIG, TOPIC_CONFIG, TOPIC_SYNONYMS
from kalda.common.config_def import ConfigDef, ConfigKey

BROKER_PAGE: Final = "broker-configs.md"
TOPIC_PAGE: Final = "topic-configs.md"

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


def broker_page() -> str:
    """Return the page of the broker's settings."""
    return f"{_BROKER_INTRODUCTION}\n{_table(BROKER_CONFIG, 'Update', _update_mode)}"


def topic_page() -> str:
    """Return the page of topics' settings."""
    return f"{_TOPIC_INTRODUCTION}\n{_table(TOPIC_CONFIG, 'Broker setting', _synonyms)}"


def write_pages(directory: Path) -> None:
    """Write both pages.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / BROKER_PAGE).write_text(broker_page(), encoding="utf-8")
    (directory / TOPIC_PAGE).write_text(topic_page(), encoding="utf-8")


def _table(definitions: ConfigDef, title: str, extra: Callable[[ConfigKey], str]) -> str:
    lines = [
        f"| Setting | Default | Takes | {title} | Effect | What it does |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for key in sorted(definitions, key=lambda key: key.name):
        if key.internal:
            continue
        cells = (
            f"`{key.name}`",
            _default(key),
            key.allowed,
            extra(key),
            _effect(key),
            key.documentation,
        )
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _effect(key: ConfigKey) -> str:
    if key.without_effect is None:
        return "**yes**"
    return f"refused: {key.requires.name}" if key.requires is not None else f"no: {key.without_effect}"


def _default(key: ConfigKey) -> str:
    text = key.format(key.default)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _update_mode(key: ConfigKey) -> str:
    return key.update_mode.value


def _synonyms(key: ConfigKey) -> str:
    return ", ".join(f"`{name}`" for name, _ in TOPIC_SYNONYMS.get(key.name, ())) or "none"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
