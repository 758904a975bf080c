"""Encodes and decodes messages; the only entry point to the codecs.

The code for each message and version is compiled at its first use and cached. `schema` declares which fields
a message has. The limits are these: a string has at most 32,767 bytes; an array has at most as many elements
as bytes remain; all arrays of structs and strings of one message together have at most
`wire_format.ELEMENTS_MAX` elements; a body ends where its buffer ends.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from kalda.protocol.codec_decoder import compile_decoder
from kalda.protocol.codec_encoder import Parts, compile_encoder
from kalda.protocol.codec_source import has_records
from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.schema import Message, SizedRecords
from kalda.protocol.wire_format import Buffer

M = TypeVar("M", bound=Message)

_BYTES_LIKE = frozenset((bytes, bytearray, memoryview))

_encoders: dict[tuple[type[Message], int], Callable[[Message], Parts]] = {}
_decoders: dict[tuple[type[Message], int], tuple[Callable[..., tuple[Any, int]], bool]] = {}
"""With each decoder, whether it must be given a view because the message carries records."""


def encode(message: Message, version: int) -> bytes:
    """Write the body of a message.

    Raises:
        MessageError: the version does not exist, or cannot carry a value that is set.
    """
    parts = _encode_parts(message, version)
    try:
        return b"".join(parts)
    except TypeError:
        raise _not_bytes(message, version) from None


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """Write the body of a message as bytes-like parts, records uncopied, for a caller that joins them itself.

    Raises:
        MessageError: as `encode`.
    """
    parts = _encode_parts(message, version)
    for part in parts:
        if type(part) not in _BYTES_LIKE:
            raise _not_bytes(message, version)
    return parts


def _not_bytes(message: Message, version: int) -> MessageError:
    name = message.SCHEMA.name
    return MessageError(f"{name} v{version} holds records that are not bytes; use encode_chunks")


def encode_chunks(message: Message, version: int) -> list[bytes | SizedRecords]:
    """Write the body of a message as chunks to be sent one after the other.

    Records that are not bytes-like, such as slices of a file, are chunks of their own and come out as the
    objects they are; whatever lies between them is joined.

    Raises:
        MessageError: as `encode`.
    """
    parts = _encode_parts(message, version)
    try:
        return [b"".join(parts)] if parts else []
    except TypeError:
        # Some records are not bytes-like.
        pass
    chunks: list[bytes | SizedRecords] = []
    pending: list[bytes] = []
    for part in parts:
        if type(part) in _BYTES_LIKE:
            pending.append(part)
            continue
        if pending:
            chunks.append(b"".join(pending))
            pending = []
        chunks.append(part)
    if pending:
        chunks.append(b"".join(pending))
    return chunks


def decode(
    message_class: type[M], version: int, buffer: Buffer, position: int = 0, *, allow_excess: bool = False
) -> M:
    """Read the body of a message, which must end where the buffer ends unless `allow_excess`.

    A broker allows it, as Kafka's does: librdkafka 2.16 leaves three zero bytes behind a MetadataRequest
    for all topics, because it does not shrink the place that it kept for the array's length.

    Records come out as views of the buffer, everything else as values of its own. Tagged fields that are
    not declared are skipped.

    Raises:
        ProtocolError: the bytes are not such a message.
        MessageError: the message has no such version.
    """
    found = _decoders.get((message_class, version))
    if found is None:
        decoder = compile_decoder(message_class, version)
        found = _decoders[message_class, version] = (decoder, has_records(message_class))
    decoder, needs_view = found
    end = len(buffer)
    data: Buffer
    if needs_view:
        data = memoryview(buffer)
    else:
        # Slicing bytes is twice as fast as slicing a view, and worth the copy unless there may be megabytes.
        data = buffer if type(buffer) is bytes else bytes(buffer)
    try:
        message: M
        message, position = decoder(data, position, end)
    except (struct.error, IndexError):
        raise ProtocolError(f"{message_class.__name__} v{version}: truncated at {end} bytes") from None
    except (ProtocolError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{message_class.__name__} v{version}: {error}") from None
    if position != end and not allow_excess:
        raise ProtocolError(f"{message_class.__name__} v{version}: {end - position} bytes left over")
    return message


def _encode_parts(message: Message, version: int) -> Parts:
    message_class = type(message)
    encoder = _encoders.get((message_class, version))
    if encoder is None:
        encoder = _encoders[message_class, version] = compile_encoder(message_class, version)
    try:
        return encoder(message)
    except (struct.error, TypeError, AttributeError, OverflowError, UnicodeEncodeError) as error:
        raise MessageError(f"{message_class.__name__} v{version} cannot carry a value: {error}") from error
