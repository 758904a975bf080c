"""Writes numbers, sizes, times and bytes for people. Pure functions."""

import json
import math
from datetime import UTC, datetime
from typing import Final

from kalda.common.received_json import loads_received

_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN: Final = "\N{EN DASH}"
"""Stands for what is not known."""

_KIB: Final = 1024
_TEN: Final = 10
_DUMP_BYTES: Final = 16
_PRINTABLE: Final = range(0x20, 0x7F)
_YEAR_10000_MS: Final = 253_402_300_800_000
_AGE_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_CONFLUENT_MAGIC: Final = 0
_FRAME_BYTES: Final = 5


def size_text(size: float | None) -> str:
    """Return a number of bytes in the unit that fits.

    >>> size_text(0), size_text(1023), size_text(1536), size_text(None)
    ('0 B', '1023 B', '1.5 KiB', '\\u2013')
    """
    if size is None:
        return UNKNOWN
    value, unit = float(size), 0
    while abs(value) >= _KIB and unit < len(_SIZE_UNITS) - 1:
        value, unit = value / _KIB, unit + 1
    digits = 1 if unit and abs(value) < 100 else 0
    return f"{value:.{digits}f} {_SIZE_UNITS[unit]}"


def count_text(count: float | None) -> str:
    """Return a number with thin spaces between thousands.

    >>> count_text(1234567), count_text(None), count_text(0.25)
    ('1\\u202f234\\u202f567', '\\u2013', '0.2')
    """
    if count is None:
        return UNKNOWN
    if abs(count) < _TEN and count != int(count):
        return f"{count:.1f}"
    return f"{round(count):,}".replace(",", "\u202f")


def counted(count: int, one: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "record"), counted(2000, "record")
    ('1 record', '2\\u202f000 records')
    """
    return f"{count_text(count)} {one}{'s' * (count != 1)}"


def rate_text(rate: float | None) -> str:
    """Return a number for each second, e.g. ``12/s``; a dash if it is not known."""
    return UNKNOWN if rate is None else f"{count_text(rate)}/s"


def time_text(time_ms: int | None) -> str:
    """Return a time in UTC to the millisecond; the number itself where it is no date.

    >>> time_text(0), time_text(-1), time_text(10**17)
    ('1970-01-01 00:00:00.000', '\\u2013', '100000000000000000 ms')
    """
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    if time_ms >= _YEAR_10000_MS:
        return f"{time_ms} ms"
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03}"


def age_text(seconds: float | None) -> str:
    """Return a length of time in its two largest units.

    >>> age_text(830_445), age_text(0.4), age_text(61)
    ('9 d 14 h', '0 s', '1 min 1 s')
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, name in _AGE_UNITS:
        if left >= unit or (unit == 1 and not parts):
            parts.append(f"{left // unit} {name}")
            left %= unit
        elif parts:
            break
    return " ".join(parts[:2])


def bytes_text(data: bytes) -> tuple[str, str]:
    """Return bytes as text, and what they are: ``json`` (indented), ``text`` or ``binary`` (a dump)."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return dump_text(data), "binary"
    if any(ord(each) < 0x20 and each not in "\t\n\r" for each in text):
        return dump_text(data), "binary"
    if text[:1] in ("{", "["):
        try:
            return json.dumps(loads_received(text), ensure_ascii=False, indent=2), "json"
        except (ValueError, RecursionError):
            # It is no JSON, or no page can carry its texts: half of a surrogate pair.
            pass
    return text, "text"


def line_text(data: bytes | None, characters_max: int) -> str | None:
    """Return the first of some bytes as one line; None for None."""
    if data is None:
        return None
    begin = data[: 4 * characters_max + 4].decode(errors="replace")
    line = "".join(each if each.isprintable() else "·" for each in begin)
    return line if len(line) <= characters_max else line[:characters_max] + "…"


def dump_text(data: bytes) -> str:
    """Return bytes as lines of offset, hexadecimal bytes and printable characters."""
    lines = []
    for start in range(0, len(data), _DUMP_BYTES):
        row = data[start : start + _DUMP_BYTES]
        codes = " ".join(f"{each:02x}" for each in row)
        shown = "".join(chr(each) if each in _PRINTABLE else "·" for each in row)
        lines.append(f"{start:06x}  {codes:<47}  {shown}")
    return "\n".join(lines)


def schema_id_of(data: bytes | None) -> int | None:
    """Return the id of the registry's schema that a value names in the form of Confluent's serializers."""
    if data is None or len(data) < _FRAME_BYTES or data[0] != _CONFLUENT_MAGIC:
        return None
    return int.from_bytes(data[1:_FRAME_BYTES], "big")
