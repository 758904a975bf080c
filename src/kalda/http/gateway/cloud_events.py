"""Maps CloudEvents 1.0 between HTTP and records, as the bindings for HTTP and for Kafka say.

In binary mode the attributes are headers, ``ce-id`` in HTTP and ``ce_id`` in a record; ``datacontenttype`` is
``Content-Type`` and ``content-type``. In structured mode the body, or the value, is the whole event as JSON.
The extension ``partitionkey`` is the record's key. An event keeps its mode from HTTP to the record.

Source: github.com/cloudevents/spec, documents http-protocol-binding and kafka-protocol-binding, 1.0.2.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from kalda.clients.values import ConsumerRecord
from kalda.common.json_text import strict_json
from kalda.common.received_json import loads_body, loads_received
from kalda.records.record import Header

STRUCTURED_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
_JSON_TYPE: Final = "application/json"
_REQUIRED: Final = ("id", "source", "type", "specversion")
_NAME: Final = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
"""The specification asks for lower case letters and digits, and recommends 20 at most."""
_ATTRIBUTES_MAX: Final = 64


class InvalidEventError(ValueError):
    """A request or a record says that it is a CloudEvent, and is none; the message has the attribute."""


@dataclass(frozen=True, slots=True)
class KafkaEvent:
    """A CloudEvent as a record."""

    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]


def read_binary(body: bytes, headers: Mapping[str, str]) -> KafkaEvent:
    """Return the record of a request in binary mode; `headers` has names in lower case.

    Raises:
        InvalidEventError: an attribute is missing or not allowed.
    """
    attributes: dict[str, str] = {}
    for name, text in headers.items():
        if name.startswith("ce-"):
            attribute = name.removeprefix("ce-")
            try:
                # Header values are percent-encoded UTF-8, and may be quoted.
                raw = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
                attributes[attribute] = unquote_to_bytes(raw).decode()
            except UnicodeDecodeError:
                raise InvalidEventError(f"header {name} is not UTF-8 in percent-encoding") from None
    _check(attributes)
    record_headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
    content_type = headers.get("content-type")
    if content_type:
        record_headers.append(("content-type", content_type.encode("latin-1", "replace")))
    return KafkaEvent(body, _key(attributes), tuple(record_headers))


def read_structured(body: bytes) -> KafkaEvent:
    """Return the record of a request in structured mode.

    Raises:
        InvalidEventError: the body is no CloudEvent in JSON.
    """
    event = _json(body)
    return KafkaEvent(body.strip(), _checked_key(event), (("content-type", STRUCTURED_TYPE.encode()),))


def read_batch(body: bytes) -> list[KafkaEvent]:
    """Return the records of a batch; each is in structured mode.

    Raises:
        InvalidEventError: the body is no array of CloudEvents.
    """
    events = _json(body)
    if not isinstance(events, list):
        raise InvalidEventError("the batch is not a JSON array of CloudEvents")
    content_type = (("content-type", STRUCTURED_TYPE.encode()),)
    return [KafkaEvent(strict_json(each).encode(), _checked_key(each), content_type) for each in events]


def structured_event(record: "ConsumerRecord[bytes, bytes]") -> str:
    """Return a record as a CloudEvent in JSON.

    A record that is no CloudEvent becomes one of type ``kalda.record``, whose source and id are its topic and
    its place there.
    """
    headers = {name: value for name, value in record.headers if value is not None}
    content_type = headers.get("content-type", b"").decode("latin-1")
    if content_type.partition(";")[0].strip().lower() == STRUCTURED_TYPE and record.value is not None:
        try:
            event = loads_received(record.value.decode())
        except ValueError:
            event = None
        if isinstance(event, dict):
            return strict_json(event)
    attributes: dict[str, Any] = {
        name.removeprefix("ce_"): value.decode("utf-8", "replace")
        for name, value in headers.items()
        if name.startswith("ce_") and _NAME.fullmatch(name.removeprefix("ce_"))
    }
    if "id" not in attributes or "source" not in attributes:
        attributes = {
            "specversion": "1.0",
            "id": f"{record.partition}:{record.offset}",
            "source": f"/topics/{record.topic}",
            "type": "kalda.record",
        }
        if record.key is not None:
            attributes["partitionkey"] = record.key.decode("utf-8", "replace")
    if content_type:
        attributes["datacontenttype"] = content_type
    return strict_json({**attributes, **_data(record.value, content_type)})


def binary_headers(record: "ConsumerRecord[bytes, bytes]") -> dict[str, str]:
    """Return the ``ce-`` headers of HTTP for a record in binary mode; none if it is no CloudEvent."""
    found = {
        f"ce-{name.removeprefix('ce_')}": _percent_encoded(value)
        for name, value in record.headers
        if value is not None and name.startswith("ce_") and _NAME.fullmatch(name.removeprefix("ce_"))
    }
    return found if "ce-id" in found else {}


def _data(value: bytes | None, content_type: str) -> dict[str, Any]:
    if value is None:
        return {}
    media_type = content_type.partition(";")[0].strip().lower()
    is_json = not media_type or media_type == _JSON_TYPE or media_type.endswith("+json")
    try:
        text = value.decode()
        return {"data": loads_received(text) if is_json else text}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(value).decode()}
    except ValueError:
        return {"data": text}


def _json(body: bytes) -> Any:
    try:
        return loads_body(body.decode())
    except ValueError as error:
        raise InvalidEventError(f"the body is not JSON: {error}") from None


def _checked_key(event: object) -> bytes | None:
    if not isinstance(event, dict):
        raise InvalidEventError("a CloudEvent is a JSON object")
    _check({name: value for name, value in event.items() if name not in ("data", "data_base64")})
    if "data" in event and "data_base64" in event:
        raise InvalidEventError("a CloudEvent has data or data_base64, not both")
    if "data_base64" in event:
        try:
            base64.b64decode(event["data_base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidEventError("data_base64 of the CloudEvent is not base64") from None
    return _key(event)


def _check(attributes: Mapping[str, object]) -> None:
    if len(attributes) > _ATTRIBUTES_MAX:
        raise InvalidEventError(f"{len(attributes)} attributes; at most {_ATTRIBUTES_MAX} are allowed")
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            raise InvalidEventError(f"attribute {name!r:.80} has a name with more than a-z and 0-9")
        if not isinstance(value, str | int | bool | None):
            raise InvalidEventError(f"attribute {name} is neither a text, a whole number nor a truth value")
    for name in _REQUIRED:
        value = attributes.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidEventError(f"attribute {name} is missing or empty")
    version = str(attributes["specversion"])
    if version != "1.0":
        raise InvalidEventError(f"specversion={version!r:.20} is not supported; it is 1.0")


def _key(attributes: Mapping[str, object]) -> bytes | None:
    key = attributes.get("partitionkey")
    return None if key is None else str(key).encode()


def _percent_encoded(value: bytes) -> str:
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E and byte not in b'"%' else f"%{byte:02X}" for byte in value
    )
