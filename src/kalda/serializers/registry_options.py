"""The options of the serializers that use a schema registry, by the names of Confluent's clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kalda.clients.errors import ClientConfigError
from kalda.schemas.payloads.errors import BadPayloadError
from kalda.schemas.payloads.subjects import SubjectNameStrategy

if TYPE_CHECKING:
    from kalda.formats.registry import RegistrySettings

Part: TypeAlias = Literal["key", "value"]
Config: TypeAlias = Mapping[str, object]

_OF_THE_REGISTRY: Final = (
    "schema.registry.url",
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "timeout",
    "max.retries",
)
_OF_SERIALIZERS: Final = (
    "auto.register.schemas",
    "use.latest.version",
    "normalize.schemas",
    "subject.name.strategy",
)
_TIMEOUT_SECONDS: Final = 10
_RETRIES: Final = 3
_RETRIES_MAX: Final = 20
_SECONDS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """How a registry is reached, and what a serializer does there."""

    urls: tuple[str, ...]
    user: str | None
    password: str | None
    token: str | None
    ca_location: str | None
    timeout_s: int
    tries: int
    registers: bool
    uses_latest: bool
    normalizes: bool
    strategy: SubjectNameStrategy
    validates: bool

    @classmethod
    def of(cls, config: Config, *more: str) -> "RegistryOptions":
        """Return the options of a serializer or deserializer.

        Args:
            config: Names and values.
            more: The names that only this one has.

        Raises:
            ClientConfigError: A name is unknown, or a value is not possible.
        """
        allowed = (*_OF_THE_REGISTRY, *_OF_SERIALIZERS, *more)
        for name in config:
            if name not in allowed:
                raise ClientConfigError(f"`{name}` is unknown here; known are {', '.join(sorted(allowed))}")
        user, password = _user(config)
        uses_latest = _flag(config, "use.latest.version", default=False)
        registers = _flag(config, "auto.register.schemas", default=not uses_latest)
        if uses_latest and registers:
            raise ClientConfigError(
                "`use.latest.version` and `auto.register.schemas` are both true; set one of them to false"
            )
        token = _text(config, "bearer.auth.token")
        if user is not None and token is not None:
            raise ClientConfigError(
                "`basic.auth.user.info` and `bearer.auth.token` are both given; give one kind of credentials"
            )
        return cls(
            _urls(config),
            user,
            password,
            token,
            _text(config, "ssl.ca.location"),
            _integer(config, "timeout", _TIMEOUT_SECONDS, 1, _SECONDS_MAX),
            _integer(config, "max.retries", _RETRIES, 0, _RETRIES_MAX) + 1,
            registers,
            uses_latest,
            _flag(config, "normalize.schemas", default=False),
            _strategy(config),
            _flag(config, "validate", default=True),
        )

    def settings(self) -> "RegistrySettings":
        """Return the settings of the client of registries."""
        from kalda.formats.registry import OptionNames, RegistrySettings

        return RegistrySettings(
            self.urls,
            self.user,
            self.password,
            self.token,
            self.timeout_s,
            self.tries,
            self.ca_location,
            OptionNames("`schema.registry.url`", "`basic.auth.user.info` or `bearer.auth.token`"),
        )

    def subject(self, topic: str, part: Part, record_name: str | None) -> str:
        """Return the subject of a topic's keys or values.

        Raises:
            ClientConfigError: The strategy takes the name of the record, and the schema has none.
        """
        try:
            return self.strategy.subject(topic, record_name, is_key=part == "key")
        except BadPayloadError as error:
            raise ClientConfigError(f"`subject.name.strategy`: {error}") from error


def check_part(part: str) -> None:
    """Check which part of a record a serializer is for.

    Raises:
        ClientConfigError: It is neither ``key`` nor ``value``.
    """
    if part not in ("key", "value"):
        raise ClientConfigError(f"part={part!r} is not possible; it is key or value")


def _urls(config: Config) -> tuple[str, ...]:
    found = _text(config, "schema.registry.url") or ""
    urls = tuple(each.strip().rstrip("/") for each in found.split(",") if each.strip())
    if not urls or not all(each.startswith(("http://", "https://")) for each in urls):
        raise ClientConfigError(
            f"`schema.registry.url` is {found!r}; it takes addresses such as http://127.0.0.1:8081"
        )
    return urls


def _user(config: Config) -> tuple[str | None, str | None]:
    found = _text(config, "basic.auth.user.info")
    if found is None:
        return None, None
    user, colon, password = found.partition(":")
    if not colon:
        raise ClientConfigError("`basic.auth.user.info` has no colon; it is user:password")
    return user, password


def _strategy(config: Config) -> SubjectNameStrategy:
    found = _text(config, "subject.name.strategy") or SubjectNameStrategy.TOPIC
    try:
        return SubjectNameStrategy(found.lower())
    except ValueError:
        raise ClientConfigError(
            f"`subject.name.strategy` is {found!r}; it is {', '.join(SubjectNameStrategy)}"
        ) from None


def _text(config: Config, name: str) -> str | None:
    found = config.get(name)
    if found is not None and not isinstance(found, str):
        raise ClientConfigError(f"`{name}` is {found!r}; it takes a text")
    return found


def _flag(config: Config, name: str, *, default: bool) -> bool:
    found = config.get(name, default)
    if not isinstance(found, bool):
        raise ClientConfigError(f"`{name}` is {found!r}; it is true or false")
    return found


def _integer(config: Config, name: str, default: int, low: int, high: int) -> int:
    found = config.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
        raise ClientConfigError(f"`{name}` is {found!r}; it is a number from {low} to {high}")
    return found
