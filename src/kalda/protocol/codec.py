"""Encodes and decodes messages; the only entry point to the codecs.

The code for each message and version is compiled at its first use and cached. `schema` declares which fields
a message has. The limits are these: a string has at most 32,767 bytes; an array has at most as many elements
as bytes remain; all arrays of structs and strings of one message together have at most
`wire_format.ELEMENTS_MAX` elements; a body ends where its buffer ends.
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from kalda.protocol.codec_decoder import compile_decoder, compile_stepped_decoder
from kalda.protocol.codec_encoder import Parts, compile_encoder, compile_stepped_encoder
from kalda.protocol.codec_source import has_records
from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.schema import Message, SizedRecords
from kalda.protocol.wire_format import Buffer

M = TypeVar("M", bound=Message)

_MALFORMED: Final = (struct.error, IndexError, ProtocolError, UnicodeDecodeError)
_UNFIT: Final = (struct.error, TypeError, AttributeError, OverflowError, UnicodeEncodeError)
_BYTES_LIKE = frozenset((bytes, bytearray, memoryview))

_STEP_PARTS: Final = 1024
"""Parts that are joined in one step, some 30 microseconds."""

_CHUNK_BYTES: Final = 512 * 1024
"""About the size of the chunks of a message that is encoded in steps: 12 MB take 20 to 30 ms to copy."""

_SHARED_FROM: Final = 1024 * 1024
_SHARED_PART_BYTES_MIN: Final = 16 * 1024
"""Messages of `_SHARED_FROM` bytes are not joined whole: the metadata of a group, which is in each response
to its leader, would be copied for each connection that does not read its response."""

_encoders: dict[tuple[type[Message], int], Callable[[Message], Parts]] = {}
_decoders: dict[tuple[type[Message], int], tuple[Callable[..., tuple[Any, int]], bool]] = {}
"""With each decoder, whether it must be given a view because the message carries records."""
_stepped_encoders: dict[tuple[type[Message], int], Callable[[Message], Generator[None, None, Parts]]] = {}
_stepped_decoders: dict[tuple[type[Message], int], Callable[..., Generator[None, None, tuple[Any, int]]]] = {}


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


def _with_shared_bytes(parts: Parts) -> list[bytes | SizedRecords]:
    """Join the parts but for large ones, which stay the objects that they are."""
    chunks: list[bytes | SizedRecords] = []
    pending: list[bytes] = []
    for part in parts:
        if type(part) is not bytes or len(part) < _SHARED_PART_BYTES_MIN:
            pending.append(part)
            continue
        if pending:
            chunks.append(b"".join(pending))
            pending = []
        chunks.append(part)
    if pending:
        chunks.append(b"".join(pending))
    return chunks


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
    return _chunks(_encode_parts(message, version))


def encode_in_steps(message: Message, version: int) -> Generator[None, None, list[bytes | SizedRecords]]:
    """Do what `encode_chunks` does in steps of at most `wire_format.STEP_ELEMENTS` elements.

    Raises:
        MessageError: as `encode`.
    """
    message_class = type(message)
    encoder = _stepped_encoders.get((message_class, version))
    if encoder is None:
        encoder = _stepped_encoders[message_class, version] = compile_stepped_encoder(message_class, version)
    try:
        parts = yield from encoder(message)
    except _UNFIT as error:
        raise _unfit(message_class, version, error) from error
    if has_records(message_class):
        return _chunks(parts)
    joined: list[bytes] = []
    while parts:
        # From the end, where a list gives parts up at once.
        joined.append(b"".join(parts[-_STEP_PARTS:]))
        del parts[-_STEP_PARTS:]
        yield
    joined.reverse()
    chunks: list[bytes | SizedRecords] = []
    start = size = 0
    for end, part in enumerate(joined, 1):
        size += len(part)
        if size >= _CHUNK_BYTES or end == len(joined):
            chunks.append(b"".join(joined[start:end]))
            start, size = end, 0
            yield
    return chunks


def _chunks(parts: Parts) -> list[bytes | SizedRecords]:
    try:
        joined = b"".join(parts)
    except TypeError:
        # Some records are not bytes-like.
        pass
    else:
        if len(joined) >= _SHARED_FROM:
            return _with_shared_bytes(parts)
        return [joined] if joined else []
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
    except _MALFORMED as error:
        raise _malformed(message_class, version, end, error) from None
    if position != end and not allow_excess:
        raise ProtocolError(f"{message_class.__name__} v{version}: {end - position} bytes left over")
    return message


def decode_in_steps(
    message_class: type[M], version: int, data: bytes, elements_max: int
) -> Generator[None, None, M]:
    """Read the body of a message in steps of at most `wire_format.STEP_ELEMENTS` elements.

    Bytes behind the message are allowed. All arrays together may have `elements_max` elements, numbers in
    arrays of 16 or more included.

    Raises:
        ProtocolError: the bytes are not such a message.
        MessageError: the message has no such version.
    """
    decoder = _stepped_decoders.get((message_class, version))
    if decoder is None:
        decoder = _stepped_decoders[message_class, version] = compile_stepped_decoder(message_class, version)
    try:
        message: M
        buffer = memoryview(data) if has_records(message_class) else data
        message, _ = yield from decoder(buffer, 0, len(data), elements_max)
    except _MALFORMED as error:
        raise _malformed(message_class, version, len(data), error) from None
    return message


def _malformed(message_class: type[Message], version: int, end: int, error: Exception) -> ProtocolError:
    reason = f"truncated at {end} bytes" if isinstance(error, (struct.error, IndexError)) else str(error)
    return ProtocolError(f"{message_class.__name__} v{version}: {reason}")


def _encode_parts(message: Message, version: int) -> Parts:
    message_class = type(message)
    encoder = _encoders.get((message_class, version))
    if encoder is None:
        encoder = _encoders[message_class, version] = compile_encoder(message_class, version)
    try:
        return encoder(message)
    except _UNFIT as error:
        raise _unfit(message_class, version, error) from error


def _unfit(message_class: type[Message], version: int, error: Exception) -> MessageError:
    return MessageError(f"{message_class.__name__} v{version} cannot carry a value: {error}")
