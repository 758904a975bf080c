"""Declares settings as class attributes, so that one line is the definition and the typed attribute.

>>> class SocketServerConfig(Settings):
...     socket_listen_backlog_size = integer(50, "Connections that may queue to be accepted.", at_least(1))
>>> SocketServerConfig.socket_listen_backlog_size.name
'socket.listen.backlog.size'
>>> SocketServerConfig().socket_listen_backlog_size
50

On the class, the attribute is the definition (a `Setting`, which is a `ConfigKey`); its name has dots for
the attribute's underscores. On an instance, the attribute is the value. A type checker infers the type of
the value from the declaration: `integer` gives an ``int``, or an ``int | None`` where the default is None.
Values are read and checked by `kalda.common.config_def`.
"""

from typing import Final, Generic, Self, TypedDict, TypeVar, Unpack, cast, overload

from kalda.common.config_def import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    MissingFeature,
    UpdateMode,
    Validator,
)

T = TypeVar("T")
ValueT = TypeVar("ValueT", bound=ConfigValue)
SettingsT = TypeVar("SettingsT", bound="Settings")
T_co = TypeVar("T_co", covariant=True)

HIGH: Final = Importance.HIGH
LOW: Final = Importance.LOW
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Setting(ConfigKey, Generic[T_co]):
    """The definition of a setting that is an attribute of a class; instances hold a value of type `T_co`."""

    __slots__ = ()

    def __set_name__(self, owner: type, attribute: str) -> None:
        # Two underscores stand for the dash that few of Kafka's names have.
        object.__setattr__(self, "name", attribute.replace("__", "-").replace("_", "."))

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T_co: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T_co:
        # A value in the instance's dictionary comes before this method: reading it costs no call.
        return self if instance is None else cast(T_co, self.default)

    def computed_as(self, attribute_type: type[T]) -> "Setting[T]":
        """Declare that instances hold what their class computes from this setting and others."""
        return cast("Setting[T]", self)


class Settings:
    """Base of the classes whose bodies declare settings; an instance holds one value for each.

    Some of the classes only group declarations for a class that inherits from them.
    """

    def __init__(self, **values: object) -> None:
        """Set the given attributes; the others have their defaults."""
        unknown = values.keys() - self.definitions().keys()
        assert not unknown, f"{type(self).__name__} declares no {', '.join(sorted(unknown))}"
        vars(self).update(values)

    def replaced(self, **values: object) -> Self:
        """Return a copy with other values of some attributes."""
        set_here = {
            attribute: vars(self)[attribute] for attribute in self.definitions() if attribute in vars(self)
        }
        return type(self)(**{**set_here, **values})

    def part(self, declaring: type[SettingsT]) -> SettingsT:
        """Return the values that the settings of `declaring`, a base of this object's class, have now."""
        return declaring(**{attribute: getattr(self, attribute) for attribute in declaring.definitions()})

    @classmethod
    def definitions(cls) -> dict[str, ConfigKey]:
        """Return the definitions by attribute, those of base classes included."""
        return {
            attribute: declared
            for base in reversed(cls.__mro__)
            for attribute, declared in vars(base).items()
            if isinstance(declared, Setting)
        }


class _Options(TypedDict, total=False):
    """The optional parts of a declaration; see `ConfigKey`."""

    importance: Importance
    update_mode: UpdateMode
    internal: bool
    requires: MissingFeature
    harmless: tuple[ConfigValue, ...]
    without_effect: str


class _Kind(Generic[ValueT]):
    """Declares settings of one type."""

    def __init__(self, config_type: ConfigType) -> None:
        self._type: Final = config_type

    @overload
    def __call__(
        self, default: ValueT, doc: str, validator: Validator | None = None, **options: Unpack[_Options]
    ) -> Setting[ValueT]: ...
    @overload
    def __call__(
        self, default: None, doc: str, validator: Validator | None = None, **options: Unpack[_Options]
    ) -> Setting[ValueT | None]: ...
    def __call__(
        self,
        default: ValueT | None,
        doc: str,
        validator: Validator | None = None,
        **options: Unpack[_Options],
    ) -> Setting[ValueT] | Setting[ValueT | None]:
        return Setting(
            name="", type=self._type, default=default, documentation=doc, validator=validator, **options
        )


boolean: Final = _Kind[bool](ConfigType.BOOLEAN)
string: Final = _Kind[str](ConfigType.STRING)
integer: Final = _Kind[int](ConfigType.INT)
short: Final = _Kind[int](ConfigType.SHORT)
long: Final = _Kind[int](ConfigType.LONG)
double: Final = _Kind[float](ConfigType.DOUBLE)
string_list: Final = _Kind[tuple[str, ...]](ConfigType.LIST)
class_name: Final = _Kind[str](ConfigType.CLASS)
"""The name of one of Java's classes."""
password: Final = _Kind[str](ConfigType.PASSWORD)
"""A string whose values are never shown."""
