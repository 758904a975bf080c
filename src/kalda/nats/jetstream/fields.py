"""Reads fields of JSON objects by type, as Go's decoder does: an absent or null field has its zero value."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from kalda.nats.jetstream.api_errors import bad_request, invalid_json

T = TypeVar("T")

Json = Mapping[str, object]

METADATA_BYTES_MAX: Final = 128 * 1024
"""Of the names and values of one stream or consumer, as in nats-server."""

INTEGER_MAX: Final = 2**63 - 1

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIME: Final = "0001-01-01T00:00:00Z"


def read_object(body: bytes, *, may_be_empty: bool = False) -> Json:
    """Read the body of a request.

    Raises:
        JetStreamError: it is no JSON object.
    """
    if may_be_empty and not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise invalid_json() from None
    if not isinstance(found, dict) or not _is_encodable(body):
        raise invalid_json()
    return found


def _is_encodable(body: bytes) -> bool:
    """Return whether no half of a surrogate pair stands alone."""
    if b"\\u" not in body and b"\\U" not in body:
        return True
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def text(fields: Json, name: str) -> str:
    """Return a string; raises `JetStreamError` for another type."""
    return _typed(fields, name, str, "")


def flag(fields: Json, name: str) -> bool:
    """Return a boolean; raises `JetStreamError` for another type."""
    return _typed(fields, name, bool, False)


def integer(fields: Json, name: str, default: int = 0) -> int:
    """Return an integer of 64 bits; raises `JetStreamError` for another value."""
    value = _typed(fields, name, int, default)
    if isinstance(value, bool) or abs(value) > INTEGER_MAX:
        raise invalid_json()
    return value


def natural(fields: Json, name: str) -> int:
    """Return an integer from 0 on; raises `JetStreamError` for another value."""
    value = integer(fields, name)
    if value < 0:
        raise invalid_json()
    return value


def texts(fields: Json, name: str) -> tuple[str, ...]:
    """Return strings; raises `JetStreamError` for another type."""
    found = _typed(fields, name, list, [])
    if not all(isinstance(each, str) for each in found):
        raise invalid_json()
    return tuple(found)


def integers(fields: Json, name: str) -> tuple[int, ...]:
    """Return integers; raises `JetStreamError` for another type."""
    found = _typed(fields, name, list, [])
    return tuple(integer({"": each}, "") for each in found)


def metadata(fields: Json) -> tuple[tuple[str, str], ...]:
    """Return the texts that clients keep with a configuration; raises `JetStreamError` for other types."""
    found = _typed(fields, "metadata", dict, {})
    if not all(isinstance(each, str) for each in found.values()):
        raise invalid_json()
    return tuple(sorted(found.items()))


def metadata_size(found: Iterable[tuple[str, str]]) -> int:
    """Return the bytes of all names and values."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in found)


def part(fields: Json, name: str) -> Json:
    """Return an object; raises `JetStreamError` for another type."""
    return _typed(fields, name, dict, {})


def choice(fields: Json, name: str, choices: tuple[str, ...]) -> str:
    """Return one of some strings, by default the first; raises `JetStreamError` for another value."""
    value = _typed(fields, name, str, choices[0])
    if value not in choices:
        raise invalid_json()
    return value


def _typed(fields: Json, name: str, kind: type[T], default: T) -> T:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise invalid_json()
    return value


def page(fields: Json) -> int:
    """Return the offset of a page; raises `JetStreamError` for another value."""
    offset = integer(fields, "offset")
    if offset < 0:
        raise bad_request()
    return offset


def time_text(time_ns: int) -> str:
    """Return a time as RFC 3339 has it, in UTC."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    moment = _EPOCH + timedelta(seconds=seconds)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def read_time(value: str) -> int:
    """Return the nanoseconds since the epoch of a time as RFC 3339 has it; raises `JetStreamError`."""
    found = _TIME.fullmatch(value)
    if found is None:
        raise invalid_json()
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError:
        raise invalid_json() from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def dumps(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
