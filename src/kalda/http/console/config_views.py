"""Computes the rows that pages show of settings: value, source, and secrets masked. No I/O."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.configs import ConfigEntry
from kalda.clients.admin.configs import ConfigSource as Source

_ORIGINS: Final = {
    Source.DYNAMIC_TOPIC_CONFIG: "this topic",
    Source.DYNAMIC_BROKER_CONFIG: "this broker",
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    Source.STATIC_BROKER_CONFIG: "server.properties",
    Source.DEFAULT_CONFIG: "default",
}

_SECRET: Final = re.compile(
    r"password|secret|jaas|token|credential|private|(^|\.)key$|keystore\.key", re.IGNORECASE
)
_SECRET_VALUE: Final = re.compile(r"password\s*=|BEGIN [A-Z ]*PRIVATE KEY", re.IGNORECASE)
"""What a plug-in's setting may hold that its broker does not know to be sensitive."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting in a table."""

    name: str
    value: str | None
    is_masked: bool
    """Whether it is a secret; `value` is None then."""
    is_own: bool
    """Whether it was set, at the topic, a broker or in a file."""
    is_read_only: bool
    origin: str
    synonyms: str
    """Where else a value comes from, by precedence."""
    documentation: str


def is_secret(entry: ConfigEntry) -> bool:
    """Return whether a value must not be shown: the broker marks it, or its name or value looks secret."""
    if entry.is_sensitive or _SECRET.search(entry.name):
        return True
    return entry.value is not None and _SECRET_VALUE.search(entry.value) is not None


def setting_rows(entries: Iterable[ConfigEntry]) -> list[SettingRow]:
    """Return a row for each setting: those that were set first, then by name."""
    rows = []
    for each in entries:
        is_masked = is_secret(each)
        others = [
            f"{_origin(synonym.source)}: {synonym.value}"
            for synonym in each.synonyms
            if synonym.source is not each.source and synonym.value is not None
        ]
        rows.append(
            SettingRow(
                each.name,
                None if is_masked else each.value,
                is_masked,
                each.source not in (Source.DEFAULT_CONFIG, Source.UNKNOWN),
                each.is_read_only,
                _origin(each.source),
                "" if is_masked else "; ".join(others),
                each.documentation or "",
            )
        )
    return sorted(rows, key=lambda row: (not row.is_own, row.name))


def _origin(source: Source) -> str:
    return _ORIGINS.get(source) or source.name.lower().replace("_", " ")
