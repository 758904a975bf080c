"""Defines settings by name, type, default, allowed values and documentation; parses and formats values.

It knows nothing about brokers or topics; they declare their settings with `kalda.common.settings`. Values are
parsed by Kafka's rules (trimmed, ``true`` and ``false`` in any case, lists split at commas), because the same
properties file must mean the same here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from kalda.common.nearest import did_you_mean
from kalda.common.public import public

ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""The parsed value of a setting; None means "not set" and is legal only where the default is None."""


HIDDEN: Final = "[hidden]"
"""The text that messages and logs show in place of the value of a password."""


@public
class ConfigType(IntEnum):
    """The type of a setting; the numbers are those of the DescribeConfigs response (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def is_sensitive(self) -> bool:
        """Whether values must never be shown."""
        return self is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """Read a value as it stands in a properties file.

        Raises:
            ValueError: `text` is not of this type.
        """
        return _PARSERS[self](text.strip())


class Importance(Enum):
    """How likely an operator is to need the setting."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a running broker takes a new value (KIP-226), in the words of Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class MissingFeature:
    """A feature of Kafka that Kalda does not have, and what its absence means."""

    name: str
    consequence: str
    """What this means for the user, e.g. "connections are plaintext"."""


class ConfigError(ValueError):
    """A setting is unknown or its value is not allowed.

    The message names the setting, the value and the allowed values; values of passwords are hidden.
    """

    def __init__(self, name: str, message: str) -> None:
        self.name: Final = name
        super().__init__(message)


class MissingFeatureError(ConfigError):
    """Settings ask for features that Kalda does not have, and that it must not seem to provide."""


@dataclass(frozen=True, slots=True)
class Validator:
    """A rule beyond the type: `accepts` decides, `allowed` describes the rule, e.g. "at least 1"."""

    allowed: str
    accepts: Callable[[ConfigValue], bool]


def at_least(low: float) -> Validator:
    """Allow numbers from `low` upwards."""
    return Validator(f"at least {low}", lambda value: isinstance(value, int | float) and value >= low)


def between(low: float, high: float) -> Validator:
    """Allow numbers from `low` to `high`, both included."""
    return Validator(
        f"{low} to {high}", lambda value: isinstance(value, int | float) and low <= value <= high
    )


def one_of(*allowed: str) -> Validator:
    """Allow the given words, written exactly so."""
    return Validator(f"one of {', '.join(allowed)}", lambda value: value in allowed)


def list_of(*allowed: str) -> Validator:
    """Allow lists whose every element is one of the given words."""
    return Validator(
        f"a list of {', '.join(allowed)}",
        lambda value: isinstance(value, tuple) and all(element in allowed for element in value),
    )


def matches(pattern: str, allowed: str) -> Validator:
    """Allow strings that match the pattern as a whole; of a list, every element must match."""
    compiled = re.compile(pattern)

    def accepts(value: ConfigValue) -> bool:
        elements = value if isinstance(value, tuple) else (value,)
        return all(isinstance(element, str) and compiled.fullmatch(element) for element in elements)

    return Validator(allowed, accepts)


NON_EMPTY: Final = Validator("a value that is not empty", lambda value: value not in ("", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """The declaration of one setting."""

    name: str
    type: ConfigType
    default: ConfigValue
    documentation: str
    importance: Importance = Importance.MEDIUM
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    """Not listed in the documentation: for tests and experiments."""
    requires: MissingFeature | None = None
    """The missing feature that values of this setting ask for; such values are refused."""
    harmless: tuple[ConfigValue, ...] | None = None
    """The values that do not ask for `requires`; where not given, the default and empty values."""
    without_effect: str | None = None
    """The missing feature because of which nothing reads the setting; None where it has an effect."""

    def asks_for(self, value: ConfigValue) -> MissingFeature | None:
        """Return the missing feature that the value asks for, if it asks for one."""
        if self.harmless is None:
            is_harmless = value == self.default or value in (None, "", ())
        else:
            is_harmless = value in self.harmless
        return None if is_harmless else self.requires

    @property
    def allowed(self) -> str:
        """The values that are allowed, in words, e.g. "an int, at least 1"."""
        noun = _NOUNS[self.type]
        return f"{noun}, {self.validator.allowed}" if self.validator is not None else noun

    def parse(self, text: str | None) -> ConfigValue:
        """Read a value as it stands in a properties file.

        Raises:
            ConfigError: it is not of the type, or the validator refuses it.
        """
        if text is None:
            if self.default is None:
                return None
            raise self._refused("null")
        try:
            value = self.type.parse(text)
        except ValueError:
            raise self._refused(text) from None
        if self.validator is not None and not self.validator.accepts(value):
            raise self._refused(text)
        return value

    def shown(self, value: ConfigValue) -> str:
        """Write a value for a message or a log line; passwords are hidden.

        >>> ConfigKey(name="a", type=ConfigType.LIST, default=(), documentation="").shown(("x", "y"))
        'x,y'
        """
        if self.type.is_sensitive:
            return HIDDEN
        text = self.format(value)
        return "(not set)" if text is None else text or "(empty)"

    def format(self, value: ConfigValue) -> str | None:
        """Write a value as Kafka's DescribeConfigs does: ``parse(format(v)) == v``."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return _format_double(value)
        return str(value)

    def _refused(self, text: str) -> ConfigError:
        shown = HIDDEN if self.type.is_sensitive else text
        return ConfigError(self.name, f"`{self.name}`={shown} is not allowed: it takes {self.allowed}")


def refuse_missing_features(settings: Iterable[tuple[ConfigKey, ConfigValue]]) -> None:
    """Refuse settings that ask for features that Kalda does not have, all in one error.

    Raises:
        MissingFeatureError: there are such settings.
    """
    refused = [(key, value, feature) for key, value in settings if (feature := key.asks_for(value))]
    if not refused:
        return
    parts = [
        f"`{key.name}`={key.shown(value)} needs {feature.name}, which Kalda does not have: "
        f"{feature.consequence} ({_harmless_words(key)})"
        for key, value, feature in refused
    ]
    raise MissingFeatureError(refused[0][0].name, "; ".join(parts))


def _harmless_words(key: ConfigKey) -> str:
    allowed = (key.default,) if key.harmless is None else key.harmless
    words = [text for value in allowed if (text := key.format(value))]
    return f"allowed: {' or '.join(words)}, or leave it out" if words else "leave it out"


class ConfigDef:
    """A set of settings, in the order of their declaration."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self.keys: Final[dict[str, ConfigKey]] = {}
        for key in keys:
            assert key.name not in self.keys, f"{key.name} is declared twice"
            self.keys[key.name] = key
        self.defaults: Final[Mapping[str, ConfigValue]] = {
            key.name: key.default for key in self.keys.values()
        }

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, name: str) -> ConfigKey:
        """Return the declaration.

        Raises:
            ConfigError: there is none; the message offers the nearest name.
        """
        found = self.keys.get(name)
        if found is None:
            raise ConfigError(name, self._unknown(name))
        return found

    def parse(self, properties: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Read the given settings only; see `defaults` for the rest.

        Raises:
            ConfigError: the first unknown name or refused value.
        """
        return {name: self.key(name).parse(text) for name, text in properties.items()}

    def _unknown(self, name: str) -> str:
        return f"`{name}` is not a setting{did_you_mean(name, self.keys)}"


_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _parse_boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError(text)
    return lower == "true"


def _whole_number_parser(bits: int) -> Callable[[str], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def parse(text: str) -> int:
        # int() alone would take "1_000" and non-ASCII digits, which Kafka's tools refuse.
        if not _WHOLE_NUMBER.fullmatch(text) or not low <= (value := int(text)) <= high:
            raise ValueError(text)
        return value

    return parse


def _parse_double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(element.strip() for element in text.split(",")) if text else ()


def _format_double(value: float) -> str:
    """Write a double as Java does, e.g. ``1.7976931348623157E308``; plain between 1e-3 and 1e7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, exponent = f"{value:.17e}".split("e")
    for digits in range(1, 18):
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return f"{mantissa}E{int(exponent)}"


_PARSERS: Final[dict[ConfigType, Callable[[str], ConfigValue]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _whole_number_parser(32),
    ConfigType.SHORT: _whole_number_parser(16),
    ConfigType.LONG: _whole_number_parser(64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}

_NOUNS: Final[dict[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a string",
    ConfigType.INT: "an int",
    ConfigType.SHORT: "a short",
    ConfigType.LONG: "a long",
    ConfigType.DOUBLE: "a double",
    ConfigType.LIST: "a comma-separated list",
    ConfigType.CLASS: "a class name",
    ConfigType.PASSWORD: "a password",
}
