"""Implements the schema language, in which one typed class declares a message for all its versions.

    class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
        group_id: str = wire(STRING, "0+")
        group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)

A declaration is a plain class with slots and a keyword-only constructor in which every field has a default;
type checkers see the real fields. This module is not a codec: it holds the facts that the two codecs
(`codec_reference`, and the one that `codec` compiles) read.

Importing a message module creates classes only. No source is generated before the first use of a class,
because the broker's start-up time pays for every class.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from kalda.common.api_keys import ApiKey
from kalda.common.public import public
from kalda.common.types import UUID, ZERO_UUID

T = TypeVar("T")

VERSION_MAX: Final = 32767
"""API versions are int16 on the wire; an open range such as ``3+`` ends here."""


@public
class VersionRange(NamedTuple):
    """An inclusive range of versions; empty when `lowest` is above `highest`."""

    lowest: int
    highest: int

    def includes(self, version: int) -> bool:
        """Return whether the version is in the range."""
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == VERSION_MAX:
            return f"{self.lowest}+"
        return f"{self.lowest}-{self.highest}" if self.lowest != self.highest else str(self.lowest)


NO_VERSIONS: Final = VersionRange(0, -1)


@lru_cache(maxsize=256)
def parse_versions(text: str) -> VersionRange:
    """Read ``"3+"``, ``"0-4"``, ``"2"`` or ``"none"``.

    Raises:
        ValueError: the text has none of these forms.
    """
    if text == "none":
        return NO_VERSIONS
    lowest, dash, highest = text.partition("-")
    if dash:
        return VersionRange(int(lowest), int(highest))
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), VERSION_MAX)
    return VersionRange(int(text), int(text))


class SizedRecords(Protocol):
    """Records that lie elsewhere, such as a slice of a segment file: the codec needs only their size.

    They come out of `codec.encode_chunks` as they went in, as a chunk of their own.
    """

    @property
    def size(self) -> int:
        """Bytes that the records occupy on the wire."""


Records = bytes | bytearray | memoryview | SizedRecords
"""The value of a records field; after decoding it is a view of the received buffer."""


class Kind(Generic[T]):
    """The wire format of values of type `T`. The instances below are all kinds of the protocol."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: T) -> None:
        self.name: Final = name
        self.default: Final = default

    def __repr__(self) -> str:
        return self.name


class FixedKind(Kind[T]):
    """A value of fixed width; `code` is its letter for `struct`, `size` its bytes."""

    __slots__ = ("code", "size")

    def __init__(self, name: str, default: T, code: str, size: int) -> None:
        super().__init__(name, default)
        self.code: Final = code
        self.size: Final = size


class ArrayKind(Kind[list[T]]):
    """A counted run of elements, each of one kind or one struct class. Its default is a new empty list."""

    __slots__ = ("element",)

    def __init__(self, element: "Kind[T] | type[T]") -> None:
        label = element.name if isinstance(element, Kind) else element.__name__
        super().__init__(f"[]{label}", [])
        self.element: Final = element


BOOL: Final[FixedKind[bool]] = FixedKind("bool", False, "?", 1)
INT8: Final[FixedKind[int]] = FixedKind("int8", 0, "b", 1)
INT16: Final[FixedKind[int]] = FixedKind("int16", 0, "h", 2)
UINT16: Final[FixedKind[int]] = FixedKind("uint16", 0, "H", 2)
INT32: Final[FixedKind[int]] = FixedKind("int32", 0, "i", 4)
UINT32: Final[FixedKind[int]] = FixedKind("uint32", 0, "I", 4)
INT64: Final[FixedKind[int]] = FixedKind("int64", 0, "q", 8)
FLOAT64: Final[FixedKind[float]] = FixedKind("float64", 0.0, "d", 8)
UUID_KIND: Final[FixedKind[UUID]] = FixedKind("uuid", ZERO_UUID, "16s", 16)
STRING: Final[Kind[str]] = Kind("string", "")
BYTES: Final[Kind[bytes]] = Kind("bytes", b"")
RECORDS: Final[Kind[Records]] = Kind("records", b"")


def array(element: Kind[T] | type[T]) -> Kind[list[T]]:
    """Declare an array of a kind or of a struct class."""
    return ArrayKind(element)


class Unset:
    """The type of `UNSET`, so that it prints well and cannot be taken for a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


class Field:
    """One declared field: its wire kind and what each version does with it."""

    __slots__ = ("_default", "ignorable", "kind", "name", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: "Kind[Any] | type[Struct]",
        versions: VersionRange,
        nullable: VersionRange,
        default: object,
        ignorable: bool,
        tag: int | None,
        tagged: VersionRange,
    ) -> None:
        self.name = ""
        self.kind: Final = kind
        self.versions: Final = versions
        self.nullable: Final = nullable
        self.ignorable: Final = ignorable
        self.tag: Final = tag
        # Versions in which the field travels in the tagged section (KIP-482) instead of in its place.
        self.tagged: Final = tagged
        self._default: Final = default

    @property
    def has_fresh_default(self) -> bool:
        """Whether every message needs a default of its own, since lists and structs are mutable."""
        return self._default is UNSET and (
            isinstance(self.kind, ArrayKind) or not isinstance(self.kind, Kind)
        )

    def default(self) -> object:
        """The value of the field when it is not set; a new object each time where it is mutable."""
        if self._default is not UNSET:
            return self._default
        if isinstance(self.kind, ArrayKind):
            return []
        return self.kind.default if isinstance(self.kind, Kind) else self.kind()

    def __repr__(self) -> str:
        kind = self.kind.name if isinstance(self.kind, Kind) else self.kind.__name__
        return f"<{self.name} {kind} {self.versions}>"


@overload
def wire(
    kind: Kind[T] | type[T],
    versions: str,
    *,
    default: T = ...,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> T: ...
@overload
def wire(
    kind: Kind[T] | type[T],
    versions: str,
    *,
    nullable: str,
    default: T | None = ...,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> T | None: ...
def wire(
    kind: Any,
    versions: str,
    *,
    nullable: str = "none",
    default: object = UNSET,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare a field.

    Args:
        kind: its kind, or the class of a nested struct.
        versions: the versions that carry it.
        nullable: the versions in which it may be None.
        default: its value when not set; without it the kind's zero value.
        ignorable: whether a version that does not carry the field may drop a value that is not the default.
        tag: its number in the tagged section.
        tagged: the versions in which it is tagged; without it, all that carry it.
    """
    if tag is None:
        tagged = "none"
    return Field(
        kind,
        parse_versions(versions),
        parse_versions(nullable),
        default,
        ignorable,
        tag,
        parse_versions(tagged or versions),
    )


class Schema(NamedTuple):
    """The properties that are declared once per message, beside its fields."""

    name: str
    api_key: ApiKey | None
    versions: VersionRange
    flexible: VersionRange

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged sections (KIP-482)."""
        return self.flexible.includes(version)


def _first_init(self: "Struct", **values: object) -> None:
    """Stand in for a constructor until the first instance, then write the real one and run it."""
    cls = type(self)
    init = _compile_init(cls.FIELDS, cls.__name__)
    cls.__init__ = init  # type: ignore[method-assign]  # this is the point: the next call goes straight there
    init(self, **values)


def _compile_init(fields: tuple[Field, ...], class_name: str) -> Callable[..., None]:
    """Write the constructor: plain stores, no loop, since handlers build thousands of these per response."""
    namespace: dict[str, object] = {"UNSET": UNSET}
    parameters = []
    body = []
    for field in fields:
        default = f"default_{field.name}"
        if field.has_fresh_default:
            namespace[default] = field.default
            parameters.append(f"{field.name}=UNSET")
            body.append(f" self.{field.name} = {default}() if {field.name} is UNSET else {field.name}")
        else:
            namespace[default] = field.default()
            parameters.append(f"{field.name}={default}")
            body.append(f" self.{field.name} = {field.name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(body) or " pass")
    exec(compile(source, f"<kalda {class_name}.__init__>", "exec"), namespace)
    return cast("Callable[..., None]", namespace["__init__"])


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns a declaration into a class with slots: the fields leave the class body and enter `FIELDS`."""

    FIELDS: tuple[Field, ...]
    SCHEMA: Schema

    def __new__(
        metaclass,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: ApiKey | None = None,
        versions: str | None = None,
        flexible: str = "none",
    ) -> "StructType":
        """Make the class; the keywords are those of a `Message`."""
        fields = tuple(value for value in namespace.values() if type(value) is Field)
        for attribute, value in list(namespace.items()):
            if type(value) is Field:
                value.name = attribute
                del namespace[attribute]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = fields
        if versions is not None:
            namespace["SCHEMA"] = Schema(name, api_key, parse_versions(versions), parse_versions(flexible))
        namespace["__init__"] = _first_init
        return super().__new__(metaclass, name, bases, namespace)


class Struct(metaclass=StructType):
    """A declared group of fields; compares and prints by value."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(mine == theirs for mine, theirs in zip(self._values(), other._values(), strict=True))

    __hash__ = None  # type: ignore[assignment]  # mutable, compared by value

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({shown})"

    def _values(self) -> Iterator[object]:
        return (getattr(self, field.name) for field in self.FIELDS)


class Message(Struct):
    """The body of a request or a response, or a header: a struct with versions of its own."""

    SCHEMA: ClassVar[Schema]
