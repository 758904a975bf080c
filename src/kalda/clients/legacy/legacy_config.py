"""Reads the properties of old clients: two names for one setting, and settings that take Python objects.

Release 0.8 renamed most settings of 0.7. Both names are taken, and both at once are refused. A setting that
names a Java class in a properties file takes a Python object, class or function in a program.
"""

from collections.abc import Mapping
from enum import Enum
from numbers import Real
from typing import ClassVar, Final

from kalda.clients.config.properties_source import PropertiesSource, properties_of
from kalda.clients.errors import ClientConfigError
from kalda.common.config_def import ConfigError, ConfigKey, ConfigType
from kalda.common.nearest import did_you_mean
from kalda.common.settings import Settings


class LegacyConfig(Settings):
    """The settings of one old client; a subclass declares them under their names of 0.8.

    >>> ProducerConfig({"zk.connect": "127.0.0.1:2181", "queue.time": "500"}).queue_buffering_max_ms
    500

    Args:
        properties: A mapping with Kafka's names, or the path of a properties file.
        options: The same with underscores for dots: ``zk_connect="127.0.0.1:2181"``.

    Raises:
        ClientConfigError: a name is unknown (the message offers the nearest one), a setting is given under
            two names, or a value is not allowed.
    """

    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Names of 0.7, with the names of 0.8 that replaced them."""
    OBJECTS: ClassVar[frozenset[str]] = frozenset()
    """The settings that take Python objects beside names of classes."""

    def __init__(self, properties: PropertiesSource | None = None, /, **options: object) -> None:
        given = dict(properties_of({} if properties is None else properties))
        spelled = {self._spelling(name): name for name in [*self._keys(), *self.RENAMED]}
        given |= {spelled.get(name, name.replace("_", ".")): value for name, value in options.items()}
        self._given: Final = self._by_name(given)
        values: dict[str, object] = {}
        for attribute, key in self.definitions().items():
            value = self._given.get(key.name)
            if value is not None and not (key.name in self.OBJECTS and not isinstance(value, str)):
                values[attribute] = _parsed(key, value)
        super().__init__(**values)
        self.check_rules()

    def check_rules(self) -> None:
        """Check the rules between settings; a class that has rules overrides this method.

        Raises:
            ClientConfigError: the first rule that is broken, with the names and values.
        """

    def given(self, name: str) -> object | None:
        """Return the value of a setting as the program gave it; None if it has its default."""
        return self._given.get(name)

    @classmethod
    def _keys(cls) -> dict[str, ConfigKey]:
        return {key.name: key for key in cls.definitions().values()}

    @staticmethod
    def _spelling(name: str) -> str:
        return name.replace(".", "_")

    @classmethod
    def _by_name(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return the values under the names of 0.8."""
        keys = cls._keys()
        found: dict[str, tuple[str, object]] = {}
        for name, value in given.items():
            own = cls.RENAMED.get(name, name)
            if own not in keys:
                hint = did_you_mean(name, [*keys, *cls.RENAMED])
                raise ClientConfigError(f"`{name}` is not a setting of this client{hint}")
            if own in found:
                raise ClientConfigError(f"`{found[own][0]}` and `{name}` are one setting; give one of them")
            found[own] = (name, value)
        return {own: value for own, (_, value) in found.items()}


def _parsed(key: ConfigKey, value: object) -> object:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | Real):
        text = str(value)
    elif key.type is ConfigType.LIST and isinstance(value, list | tuple | set | frozenset):
        text = ",".join(str(each) for each in value)
    else:
        kind = type(value).__name__
        raise ClientConfigError(f"`{key.name}`={value!r} is not allowed: it takes {key.allowed}, not {kind}")
    try:
        return key.parse(text)
    except ConfigError as error:
        raise ClientConfigError(str(error)) from None
