"""Shows the bytes of keys, values and headers as text, for people and for programs.

What must not break: `json_field` loses no byte. Text that is valid UTF-8 keeps the field's name; other bytes
go under the name with ``Base64`` behind it.
"""

import base64
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A value that `json.dumps` writes."""


def readable(data: bytes) -> str:
    """Return bytes as text; each byte sequence that is not UTF-8 becomes U+FFFD, as in Kafka's tools."""
    return data.decode(errors="replace")


def shortened(data: bytes | None, characters_max: int) -> str | None:
    """Return the first characters of bytes, with the number of all bytes if there are more.

    >>> shortened(b"abcdef", 6), shortened(b"abcdefgh", 6)
    ('abcdef', 'abcdef... (8 bytes)')
    """
    if data is None:
        return None
    begin = readable(data[: 4 * characters_max + 4])  # a character has at most four bytes
    if len(begin) <= characters_max:
        return begin
    return f"{begin[:characters_max]}... ({len(data):,} bytes)"


def json_field(name: str, data: bytes | None) -> dict[str, JsonValue]:
    """Return the field of a JSON object that holds `data`.

    >>> json_field("key", b"a"), json_field("key", b"\\xff"), json_field("key", None)
    ({'key': 'a'}, {'keyBase64': '/w=='}, {'key': None})
    """
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}
