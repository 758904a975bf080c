"""Makes frames: requests or responses, preceded by their sizes in 4 bytes, big-endian. Sans-IO.

The receivers split streams into frames: `kalda.net.framed_connection` and `kalda.net.client.frame_receiver`.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from kalda.protocol.wire_format import Buffer

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = SIZE.size


def frame(chunks: Iterable[Buffer]) -> bytes:
    """Put the size before the chunks of one message, and join them."""
    return b"".join(frame_parts(chunks))


def frame_parts(chunks: Iterable[Buffer]) -> list[Buffer]:
    """Put the size before the chunks of one message; they are not copied."""
    parts: list[Buffer] = [b"", *chunks]
    parts[0] = SIZE.pack(sum(map(len, parts)))
    return parts
