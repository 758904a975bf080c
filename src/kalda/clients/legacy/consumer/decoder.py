"""Makes keys and messages of bytes: the `Decoder` interface of the documents, and Kafka's own decoders."""

from collections.abc import Callable
from typing import Any, Final

from kalda.clients.errors import ClientConfigError
from kalda.clients.legacy.class_names import object_of
from kalda.common.public import public_in

Decode = Callable[[bytes], Any]


@public_in("kalda.clients.legacy")
class DefaultDecoder:
    """Returns the bytes as they are."""

    def from_bytes(self, data: bytes) -> bytes:
        """Return `data`."""
        return data


@public_in("kalda.clients.legacy")
class StringDecoder:
    """Decodes texts; what is none becomes the replacement character, as in a Java String.

    Args:
        encoding: A name that `bytes.decode` knows.
    """

    def __init__(self, encoding: str = "UTF8") -> None:
        self._encoding: Final = encoding

    def from_bytes(self, data: bytes) -> str:
        """Return the text."""
        return data.decode(self._encoding, "replace")


_KNOWN: Final[dict[str, Callable[[], object]]] = {
    "kafka.serializer.DefaultDecoder": DefaultDecoder,
    "kafka.serializer.StringDecoder": StringDecoder,
}


def decoder_of(argument: str, value: object) -> Decode:
    """Return the function that a decoder stands for; None stands for `DefaultDecoder`.

    It takes an object with ``from_bytes`` or, as in Java, ``fromBytes``; a class; the name of one; or a
    function of bytes.

    Raises:
        ClientConfigError: the value is none of them.
    """
    made = DefaultDecoder() if value is None else object_of(argument, value, _KNOWN)
    for name in ("from_bytes", "fromBytes"):
        method = getattr(made, name, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
    if callable(made):
        return made
    raise ClientConfigError(
        f"`{argument}`={value!r} is no decoder; it takes an object with from_bytes(data), or a function"
    )
