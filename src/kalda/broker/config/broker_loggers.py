"""Reads and changes the levels of this broker's loggers while it runs (KIP-412); a restart resets them.

Levels have the names of log4j, which Kafka's tools use; they are mapped to Python's.
"""

import logging
from collections.abc import Sequence
from typing import Final

from kalda.broker.config.describe import ConfigEntry
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ApiError, ErrorCode

ROOT: Final = "root"

_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_TYPE_UNKNOWN: Final = 0


def describe_loggers(names: Sequence[str] | None = None) -> list[ConfigEntry]:
    """Return every logger, or those of `names` that exist, with its effective level."""
    wanted = frozenset(names) if names else None
    return [
        ConfigEntry(
            name=name,
            value=_level_name(_logger(name).getEffectiveLevel()),
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_read_only=False,
            is_sensitive=False,
            config_type=_TYPE_UNKNOWN,
            synonyms=(),
            documentation="",
        )
        for name in _names()
        if wanted is None or name in wanted
    ]


def check_level(name: str, level: str | None) -> None:
    """Check a new level for a logger; None resets it to the level of its parent.

    Raises:
        ApiError: the logger or the level does not exist, or the root logger would have no level.
    """
    if name not in _names():
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist.")
    if level is None and name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "The root logger must have a level.")
    if level is not None and level not in _LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{level} is not a level of logger {name}; use {', '.join(_LEVELS)}."
        )


def set_level(name: str, level: str | None) -> None:
    """Set a level that `check_level` accepted."""
    _logger(name).setLevel(_LEVELS[level] if level is not None else logging.NOTSET)


def _names() -> list[str]:
    loggers = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name, logger in loggers.items() if isinstance(logger, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """Return the name of the highest level that is not above `level`."""
    return max((value, name) for name, value in _LEVELS.items() if value <= max(level, _LEVELS["TRACE"]))[1]
