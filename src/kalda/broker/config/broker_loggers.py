"""The levels of this broker's loggers, read and changed while it runs (KIP-412). They do not survive a
restart.

Levels have log4j's names, which is what Kafka's tools send; Python's are mapped to them.
"""

import logging
from collections.abc import Sequence
from typing import Final

from kalda.broker.config.describe import ConfigEntry, ConfigSource
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
    """Describe every logger with the level in force, or those named that exist."""
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
    """Check a new level for a logger; None takes its own level away, so that its parent's counts.

    Raises:
        ApiError: the logger or the level does not exist, or the root is to lose its level.
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
    """Put a level in force that `check_level` let pass."""
    _logger(name).setLevel(_LEVELS[level] if level is not None else logging.NOTSET)


def _names() -> list[str]:
    loggers = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name, logger in loggers.items() if isinstance(logger, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """Return the name of the highest level that is not above the given one."""
    return max((value, name) for name, value in _LEVELS.items() if value <= max(level, _LEVELS["TRACE"]))[1]
