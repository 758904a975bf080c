"""Reads and writes the headers of messages: the line ``NATS/1.0``, then ``Name: value`` lines, as in HTTP."""

from collections.abc import Iterable, Sequence
from typing import Final

VERSION_LINE: Final = b"NATS/1.0"
_END: Final = b"\r\n"

NO_RESPONDERS: Final = b"NATS/1.0 503\r\n\r\n"
"""The headers of the answer to a request that has no subscriber."""


class HeadersError(ValueError):
    """The headers of a message are malformed."""


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Write headers, in their order; a name may come several times.

    Raises:
        HeadersError: a name is empty or has a colon, or a line would break.
    """
    lines = [VERSION_LINE]
    for name, value in headers:
        if not name or any(each in name for each in ":\r\n") or "\r" in value or "\n" in value:
            raise HeadersError(f"the header {name!r}={value!r} does not fit into one line `Name: value`")
        lines.append(f"{name}: {value}".encode())
    return _END.join((*lines, b"", b""))


def decode_headers(data: bytes) -> Sequence[tuple[str, str]]:
    """Read headers in their order; bytes that are no UTF-8 are replaced.

    Raises:
        HeadersError: the first line is another, or a line has no colon.
    """
    if not data.startswith(VERSION_LINE) or not data.endswith(_END + _END):
        raise HeadersError(f"headers begin with {VERSION_LINE.decode()} and end with an empty line")
    found = []
    for line in data[:-4].split(_END)[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise HeadersError(f"the header line {line[:80]!r} is not `Name: value`")
        found.append((name.decode(errors="replace"), value.strip().decode(errors="replace")))
    return found
