"""Writes the reference pages of the clients' settings from their declarations.

Run it as ``python -m kalda.clients.reference docs/reference``. The pages are committed, and a test
fails when one differs from the declarations.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.config.security_config import SecurityConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig as LegacyConsumerConfig
from kalda.clients.legacy.legacy_config import LegacyConfig
from kalda.clients.legacy.producer.producer_config import ProducerConfig as LegacyProducerConfig
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.share.share_config import ShareConsumerConfig
from kalda.common.config_def import ConfigKey
from kalda.common.config_tables import config_table
from kalda.common.settings import Settings

CLIENT_PAGE: Final = "client-configs.md"
LEGACY_PAGE: Final = "legacy-client-configs.md"

_INTRODUCTION: Final = """\
# Client settings

Names, defaults and bounds are those of Apache Kafka's clients 4.x, except for the defaults of
`receive.buffer.bytes` and `max.partition.fetch.bytes`, which suit fast networks. Give them as keyword
arguments with underscores (`Producer(linger_ms=5)`), or with Kafka's names
(`Producer.from_config({"linger.ms": "5"})`), so that a `client.properties` file works. The command-line tools
read such a file with `--command-config`. A name that is not in these tables is an error, and the message has
the nearest name.

Serializers, deserializers, partitioners, interceptors and listeners are Python objects; they are arguments of
the [classes](python.md), not settings.
"""

_COMMON: Final = """\
Where the table of one client above has another default, that one counts.
"""

_SECURITY: Final = """\
Some settings of TLS and SASL have no effect. Their defaults are accepted; a value that asks for protection is
refused, so that a connection never seems protected when it is not.
"""

_LEGACY: Final = """\
# Settings of old clients

The settings of the [classes of Kafka 0.7 and 0.8](python-legacy.md), with the names and defaults of 0.8.2.
Give them as a mapping or the path of a properties file (`ProducerConfig({"zk.connect": "127.0.0.1:2181"})`),
or as keyword arguments with underscores (`ProducerConfig(zk_connect="127.0.0.1:2181")`). Where 0.7 had
another name, that one is taken, too. A name that is not here is an error, and the message has the nearest
name.

A setting that takes the name of a class takes one of Kafka's (`kafka.serializer.StringEncoder`),
`package.module.Class`, or in a program the class, an object or a function.
"""


def client_page() -> str:
    """Return the page of the settings of producer, consumers and admin client."""
    security = _declared(SecurityConfig, ())
    common = _declared(CommonClientConfig, (SecurityConfig,))
    parts = [_INTRODUCTION]
    clients: dict[str, type[Settings]] = {
        "Producer": ProducerConfig,
        "Consumer": ConsumerConfig,
        "Share consumer": ShareConsumerConfig,
        "Admin": AdminConfig,
    }
    for title, config in clients.items():
        parts.append(f"## {title}\n\n{config_table(_declared(config, (CommonClientConfig,)), {})}")
    parts.append(f"## All clients\n\n{_COMMON}\n{config_table(common, {})}")
    parts.append(f"## Security\n\n{_SECURITY}\n{config_table(security, {})}")
    return "\n".join(parts)


def legacy_page() -> str:
    """Return the page of the settings of old clients."""
    parts = [_LEGACY]
    configs: dict[str, type[LegacyConfig]] = {
        "Producer": LegacyProducerConfig,
        "ConsumerConnector": LegacyConsumerConfig,
    }
    for title, config in configs.items():
        renamed = "\n".join(f"| `{old}` | `{new}` |" for old, new in config.RENAMED.items())
        parts.append(f"## {title}\n\n{config_table(config.definitions().values(), {})}")
        parts.append(f"| Name in 0.7 | Setting |\n| --- | --- |\n{renamed}\n")
    return "\n".join(parts)


def write_pages(directory: Path) -> None:
    """Write the pages.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CLIENT_PAGE).write_text(client_page(), encoding="utf-8")
    (directory / LEGACY_PAGE).write_text(legacy_page(), encoding="utf-8")


def _declared(config: type[Settings], bases: Iterable[type[Settings]]) -> list[ConfigKey]:
    """Return the settings that a class declares beyond some of its bases, or with another default."""
    known = {name: key for base in bases for name, key in base.definitions().items()}
    return [
        key
        for name, key in config.definitions().items()
        if name not in known or known[name].default != key.default
    ]


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
