"""Messages to bytes and back: the one entrance to the codecs."""

from collections.abc import Sequence
from typing import TypeVar

from kalda.protocol.codec_reference import decode_reference, encode_reference
from kalda.protocol.schema import Message, SizedRecords
from kalda.protocol.wire_format import Buffer

M = TypeVar("M", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """Write the body of a message.

    Raises:
        MessageError: the version does not exist, or cannot carry a value that is set.
    """
    return encode_reference(message, version)


def encode_chunks(message: Message, version: int) -> Sequence[bytes | SizedRecords]:
    """Write the body of a message as chunks to be sent one after the other."""
    return [encode_reference(message, version)]


def decode(message_class: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """Read the body of a message, which must end where the buffer ends.

    Raises:
        ProtocolError: the bytes are not such a message.
        MessageError: the message has no such version.
    """
    return decode_reference(message_class, version, buffer, position)
