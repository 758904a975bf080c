"""Writes records as JSON, and as the events of a stream. It has no state, so that readers share the bytes.

A record is one JSON object on one line::

    {"topic":"orders","partition":0,"offset":41,"timestamp":1764393600000,
     "key":"k1","value":{"price":10},"value_type":"json","headers":[["source","web"]]}

``value_type`` says what ``value`` is: ``json``, ``text``, ``base64`` (bytes that are no text), ``null`` (a
tombstone). ``key_type`` is there when the key is not a text or null.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kalda.clients.values import ConsumerRecord
from kalda.common.json_text import strict_json
from kalda.common.received_json import loads_received
from kalda.http.gateway.cloud_events import structured_event
from kalda.records.record import Header

_text: Final = json.JSONEncoder(ensure_ascii=False).encode


Decode = Callable[[bytes], str | None]


class Format(Enum):
    """How keys or values are written."""

    AUTO = "auto"
    """JSON if it is JSON, else text if it is UTF-8, else base64. Keys are not read as JSON."""
    JSON = "json"
    """As `AUTO`, and for keys, too."""
    TEXT = "text"
    """Text if it is UTF-8, else base64."""
    BINARY = "binary"
    """Base64."""
    SCHEMA = "schema"
    """Decoded by the schema of the registry that the first bytes name; as `AUTO` where that fails."""
    CLOUDEVENTS = "cloudevents"
    """The record as a CloudEvent in JSON instead of the object above."""


def render_data(data: bytes | None, form: Format, *, is_key: bool = False) -> tuple[str, str]:
    """Return bytes as JSON on one line, and the word for what it is."""
    if data is None:
        return "null", "null"
    if form is not Format.BINARY:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return f'"{base64.b64encode(data).decode()}"', "base64"
        if form is not Format.TEXT and (form is Format.JSON or not is_key):
            try:
                loads_received(text)
            except ValueError:
                return _text(text), "text"
            # The sender's own text, so that a number keeps its digits. Raw line ends are only between tokens.
            return text.strip().replace("\r", " ").replace("\n", " "), "json"
        return _text(text), "text"
    return f'"{base64.b64encode(data).decode()}"', "base64"


def render_headers(headers: Sequence[Header]) -> str:
    """Return headers as a JSON array of pairs; a value that is no text is ``{"base64": …}``."""
    pairs: list[list[Any]] = []
    for name, value in headers:
        shown: Any = None
        if value is not None:
            try:
                shown = value.decode()
            except UnicodeDecodeError:
                shown = {"base64": base64.b64encode(value).decode()}
        pairs.append([name, shown])
    return strict_json(pairs)


def render_record(
    record: "ConsumerRecord[bytes, bytes]",
    key_format: Format = Format.AUTO,
    value_format: Format = Format.AUTO,
    *,
    key: tuple[str, str] | None = None,
    value: tuple[str, str] | None = None,
) -> str:
    """Return a record as a JSON object on one line.

    Args:
        record: The record.
        key_format: How the key is written.
        value_format: How the value is written.
        key: The key's JSON and type where something else has decoded it.
        value: The value's JSON and type, likewise.
    """
    key_json, key_type = key or render_data(record.key, key_format, is_key=True)
    value_json, value_type = value or render_data(record.value, value_format)
    key_part = "" if key_type in ("text", "null") else f',"key_type":"{key_type}"'
    headers = f',"headers":{render_headers(record.headers)}' if record.headers else ""
    return (
        f'{{"topic":{_text(record.topic)},"partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp_ms},"key":{key_json}{key_part},'
        f'"value":{value_json},"value_type":"{value_type}"{headers}}}'
    )


@dataclass(frozen=True, slots=True)
class RecordRenderer:
    """Writes records in a form; renderers of equal formats are equal."""

    key_format: Format
    value_format: Format
    decode: Decode | None = None
    """Returns JSON for bytes that a schema of the registry fits, for `Format.SCHEMA`."""

    def __call__(self, record: "ConsumerRecord[bytes, bytes]") -> str:
        """Return a record as JSON on one line."""
        if self.value_format is Format.CLOUDEVENTS:
            return structured_event(record)
        key = self._decoded(record.key, self.key_format)
        value = self._decoded(record.value, self.value_format)
        return render_record(record, self.key_format, self.value_format, key=key, value=value)

    def _decoded(self, data: bytes | None, form: Format) -> tuple[str, str] | None:
        if data is None or self.decode is None or form is not Format.SCHEMA:
            return None
        decoded = self.decode(data)
        return None if decoded is None else (decoded, "json")


def server_sent_event(event_id: str | None, data: str, event: str | None = None) -> bytes:
    """Return an event of a stream; `data` is one line. Without an id the reader keeps the one before."""
    name = "" if event is None else f"event: {event}\n"
    id_line = "" if event_id is None else f"id: {event_id}\n"
    return f"{name}{id_line}data: {data}\n\n".encode()


def position_event(event_id: str) -> bytes:
    """Return an event without data: `EventSource` takes over the id, and shows its program nothing."""
    return f"id: {event_id}\n\n".encode()


HEARTBEAT: Final = b": heartbeat\n\n"
