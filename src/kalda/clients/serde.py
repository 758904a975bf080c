"""Defines `Serde`, a serializer and a deserializer in one object, and the type variables of the clients."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic

from kalda.common.public import public_in
from kalda.records.record import Header

if TYPE_CHECKING or sys.version_info >= (3, 13):
    if sys.version_info >= (3, 13):
        from typing import TypeVar
    else:
        from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes | None)
    """What keys are; bytes or None for a client without a function for keys."""
    V = TypeVar("V", default=bytes | None)
    """What values are; bytes or None for a client without a function for values."""
    ConfiguredK = TypeVar("ConfiguredK", default=Any)
    """What keys are where a properties file may name the function."""
    ConfiguredV = TypeVar("ConfiguredV", default=Any)
    """What values are where a properties file may name the function."""
    T_contra = TypeVar("T_contra", contravariant=True, default=Any)
else:
    # Defaults of type variables (PEP 696) are for type checkers.
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    ConfiguredK = TypeVar("ConfiguredK")
    ConfiguredV = TypeVar("ConfiguredV")
    T_contra = TypeVar("T_contra", contravariant=True)

T = TypeVar("T")


class LoadRequiredError(Exception):
    """A serializer or deserializer has to load something first, such as a schema from a registry.

    Its methods ``serialize_nowait`` and ``deserialize_nowait`` raise this instead of asking that server,
    because an event loop must not wait for it. The clients call `load` where blocking is allowed, and try the
    record again. When `load` returns, what it asked for is known, or known to be refused.
    """

    def __init__(self, load: Callable[[], None]) -> None:
        super().__init__("a call of `load` is needed first")
        self.load: Final = load


@public_in("kalda.serializers")
class Serde(Generic[T]):
    """A serializer for a producer and a deserializer for a consumer, of the same type.

    A record without a key has the key None, and a tombstone the value None; both pass unchanged.

    Args:
        encode: Returns the bytes of an object that is not None.
        decode: Returns the object of such bytes.
    """

    __slots__ = ("decode", "encode")

    def __init__(self, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self.encode: Final = encode
        self.decode: Final = decode

    def serialize(self, topic: str, headers: Sequence[Header], data: T) -> bytes | None:
        """Return the bytes of a key or value; a producer calls this."""
        return None if data is None else self.encode(data)

    def deserialize(self, topic: str, data: bytes, headers: Sequence[Header]) -> T:
        """Return the key or value that the bytes hold; a consumer calls this, or `decode`."""
        return self.decode(data)
