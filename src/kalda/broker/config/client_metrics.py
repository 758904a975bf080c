"""Reads a subscription to clients' metrics: ``interval.ms``, ``metrics`` and ``match`` (KIP-714).

The rules and error codes are those of Kafka's ``ClientMetricsConfigs``, but for two: an interval that is no
number is INVALID_REQUEST, where Kafka answers UNKNOWN_SERVER_ERROR, and patterns have RE2's syntax, so that
matching a client takes linear time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.common.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kalda.common.regex import Pattern

ENTITY_TYPE: Final = "client-metrics"
"""The name of subscriptions in paths: ``/config/client-metrics/<name>``."""

INTERVAL_MS: Final = "interval.ms"
METRICS: Final = "metrics"
MATCH: Final = "match"

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
_INTERVAL_MS_MIN: Final = 100
_INTERVAL_MS_MAX: Final = 3_600_000

CLIENT_INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
CLIENT_SOFTWARE_NAME: Final = "client_software_name"
CLIENT_SOFTWARE_VERSION: Final = "client_software_version"
CLIENT_SOURCE_ADDRESS: Final = "client_source_address"
CLIENT_SOURCE_PORT: Final = "client_source_port"

SELECTORS: Final = frozenset(
    {
        CLIENT_INSTANCE_ID,
        CLIENT_ID,
        CLIENT_SOFTWARE_NAME,
        CLIENT_SOFTWARE_VERSION,
        CLIENT_SOURCE_ADDRESS,
        CLIENT_SOURCE_PORT,
    }
)
"""What `match` may look at."""


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """One subscription: which clients push which metrics how often."""

    interval_ms: int
    metrics: frozenset[str]
    """Prefixes of names; ``*`` for all. None means that nothing is asked for."""
    match: "Mapping[str, Pattern]"
    """Patterns by selector, all of which must match; none matches every client."""

    @classmethod
    def parse(cls, name: str, settings: Mapping[str, str]) -> "ClientMetricsConfig":
        """Read the settings of the subscription `name`.

        Raises:
            ApiError: INVALID_REQUEST or INVALID_CONFIG, they are not allowed.
        """
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        for setting in settings:
            if setting not in (INTERVAL_MS, METRICS, MATCH):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {setting}")
        return cls(
            _interval_ms(settings.get(INTERVAL_MS)),
            frozenset(each.strip() for each in settings.get(METRICS, "").split(",") if each.strip()),
            _patterns(settings.get(MATCH)),
        )

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the subscription is for the client with these attributes."""
        return all(
            selector in attributes and pattern.fullmatch(attributes[selector]) is not None
            for selector, pattern in self.match.items()
        )


def _interval_ms(text: str | None) -> int:
    if text is None:
        return INTERVAL_MS_DEFAULT
    digits = text.strip()
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < len(str(1 << 31)) else -1
    if not _INTERVAL_MS_MIN <= number <= _INTERVAL_MS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {text} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)",
        )
    return number


def _patterns(text: str | None) -> "dict[str, Pattern]":
    if text is None:
        return {}
    # Imported only when needed: a broker without subscriptions starts faster.
    from kalda.common.regex import RegexError, compile_regex

    patterns = {}
    for part in text.split(","):
        selector, separator, pattern = (each.strip() for each in part.partition("="))
        if not separator or not pattern or "=" in pattern or selector not in SELECTORS:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part}")
        try:
            patterns[selector] = compile_regex(pattern)
        except RegexError as error:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part} ({error})"
            ) from None
    return patterns
