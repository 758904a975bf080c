"""Computes a group's settings from its overrides and the broker's settings, whose bounds hold for both.

Bounds are the broker's `group.consumer.min.*` and `group.consumer.max.*`, and those of `group.share`.
`GroupConfigs` does not store overrides; callers pass them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kalda.common.config_def import ConfigError, ConfigValue
from kalda.settings.definitions import GROUP_CONFIG, GROUP_SYNONYMS

_PROTOCOLS: Final = ("consumer", "share")


class GroupConfigs:
    """Resolves groups' settings against one broker's. `broker_value` looks up a broker setting in force."""

    def __init__(self, broker_value: Callable[[str], ConfigValue]) -> None:
        self._broker_value: Final = broker_value

    def validate(self, overrides: Mapping[str, str]) -> None:
        """Check the overrides that a client wants to store for a group.

        Raises:
            ConfigError: an override is unknown, not a number, outside the broker's bounds, or the heartbeat
                interval is not below the session timeout.
        """
        own = GROUP_CONFIG.parse(overrides)
        for name, value in own.items():
            if name not in GROUP_SYNONYMS:
                continue
            low, high = self._bounds(name)
            if not low <= _integer(value) <= high:
                raise ConfigError(
                    name,
                    f"`{name}`={value} is not between {_bound(name, 'min')}={low} and "
                    f"{_bound(name, 'max')}={high}",
                )
        for protocol in _PROTOCOLS:
            self._check_heartbeat(protocol, overrides)

    def _check_heartbeat(self, protocol: str, overrides: Mapping[str, str]) -> None:
        heartbeat_name, session_name = f"{protocol}.heartbeat.interval.ms", f"{protocol}.session.timeout.ms"
        heartbeat, session = self.integer(heartbeat_name, overrides), self.integer(session_name, overrides)
        if heartbeat >= session:
            raise ConfigError(
                heartbeat_name,
                f"`{heartbeat_name}`={heartbeat} must be below `{session_name}`={session} of the group",
            )

    def integer(self, name: str, overrides: Mapping[str, str]) -> int:
        """Return the value in force of a group's setting that is a number; raises as `value`."""
        return _integer(self.value(name, overrides))

    def value(self, name: str, overrides: Mapping[str, str]) -> ConfigValue:
        """Return the value in force of a group's setting.

        An override that was stored under other bounds counts as the nearest value that the bounds allow
        (KIP-1240).

        Raises:
            ConfigError: the override is not allowed.
        """
        text, key = overrides.get(name), GROUP_CONFIG.keys[name]
        if name not in GROUP_SYNONYMS:
            # The group's alone.
            return key.default if text is None else key.parse(text)
        if text is None:
            return _integer(self._broker_value(GROUP_SYNONYMS[name]))
        low, high = self._bounds(name)
        return max(low, min(_integer(key.parse(text)), high))

    def _bounds(self, name: str) -> tuple[int, int]:
        return _integer(self._broker_value(_bound(name, "min"))), _integer(
            self._broker_value(_bound(name, "max"))
        )


def _bound(name: str, which: str) -> str:
    """Return the broker's setting that bounds a group's: `group.consumer.min.session.timeout.ms`."""
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.{which}.{rest}"


def _integer(value: ConfigValue) -> int:
    assert isinstance(value, int), value
    return value
