"""Reads the records that a request writes, in each of the forms of its body.

===================================== ==========================================================
media type                            records
===================================== ==========================================================
``application/vnd.kalda.records+json``  ``{"records": [{"key", "value", "headers", …}, …]}``
``application/x-ndjson``              one for each line, which is JSON
``application/cloudevents+json``      one, a CloudEvent in structured mode
``application/cloudevents-batch+json``  one for each CloudEvent of the array
``application/json``, ``…+json``      one, whose value is the body; with ``split=true`` one for each
                                      element of an array
any other                             one, whose value is the body
===================================== ==========================================================

A value that is JSON keeps the sender's own text where it is the body or a line.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kalda.common.json_text import strict_json
from kalda.common.received_json import loads_body
from kalda.http.gateway import cloud_events
from kalda.http.gateway.parameters import InvalidParameterError, read_int, read_word
from kalda.http.gateway.streams.event_ids import PARTITION_MAX
from kalda.http.gateway.streams.stream_request import TIMESTAMP_MAX
from kalda.records.record import Header

RECORDS_TYPE: Final = "application/vnd.kalda.records+json"
NDJSON_TYPES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")

RECORDS_MAX: Final = 10_000
"""Records of one request; larger ones hold the producer's memory for long."""
HEADERS_MAX: Final = 100
"""Headers of one record."""

_PARAMETERS: Final = ("key", "key_base64", "header", "partition", "timestamp", "split")
_FIELDS: Final = (
    "key",
    "key_base64",
    "value",
    "text",
    "value_base64",
    "headers",
    "partition",
    "timestamp",
)
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class InvalidBodyError(ValueError):
    """The body of a request holds no records; the message says where and why."""


def read_records(
    body: bytes, headers: Mapping[str, str], parameters: Iterable[tuple[str, str]]
) -> list[OutgoingRecord]:
    """Return the records of a request.

    Args:
        body: The whole body.
        headers: The request's headers, by names in lower case.
        parameters: Pairs of name and value, as the query has them.

    Raises:
        InvalidParameterError: a parameter is not allowed.
        InvalidBodyError: the body is not what its media type says.
    """
    common, is_split = _common(parameters)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidBodyError(f"Content-Type: {media_type!r:.80} is not a media type")
    if media_type == cloud_events.BATCH_TYPE:
        records = [_of_event(event) for event in cloud_events.read_batch(body)]
    elif media_type == cloud_events.STRUCTURED_TYPE:
        records = [_of_event(cloud_events.read_structured(body))]
    elif "ce-specversion" in headers:
        records = [_of_event(cloud_events.read_binary(body, headers))]
    elif media_type == RECORDS_TYPE:
        records = _enveloped(body)
    elif media_type in NDJSON_TYPES:
        records = [OutgoingRecord(line) for line in _lines(body)]
    elif media_type == "application/json" or media_type.endswith("+json"):
        records = _json_values(body, is_split=is_split)
    else:
        records = [OutgoingRecord(body)]
    if not records:
        raise InvalidBodyError("the body has no records; at least one is needed")
    if len(records) > RECORDS_MAX:
        raise InvalidBodyError(f"the body has {len(records)} records; at most {RECORDS_MAX} are allowed")
    return [_with_common(record, common) for record in records]


def _common(parameters: Iterable[tuple[str, str]]) -> tuple[OutgoingRecord, bool]:
    """Return what the query says of all records, as a record without a value, and whether to split."""
    key: bytes | None = None
    headers: list[Header] = []
    partition = timestamp_ms = None
    is_split = False
    seen: set[str] = set()
    for name, text in parameters:
        read_word("parameter", name, _PARAMETERS)
        if name != "header" and (name in seen or (name.startswith("key") and key is not None)):
            raise InvalidParameterError(name, text, "it may be given once")
        seen.add(name)
        match name:
            case "key":
                key = text.encode()
            case "key_base64":
                key = _base64(name, text)
            case "header":
                header_name, colon, value = text.partition(":")
                if not header_name or len(headers) == HEADERS_MAX:
                    raise InvalidParameterError(name, text, f"name:value, at most {HEADERS_MAX} times")
                headers.append((header_name, value.encode() if colon else None))
            case "partition":
                partition = read_int(name, text, 0, PARTITION_MAX)
            case "timestamp":
                timestamp_ms = read_int(name, text, 0, TIMESTAMP_MAX)
            case _:
                is_split = read_word(name, text, ("true", "false")) == "true"
    return OutgoingRecord(None, key, tuple(headers), partition, timestamp_ms), is_split


def _with_common(record: OutgoingRecord, common: OutgoingRecord) -> OutgoingRecord:
    return replace(
        record,
        key=common.key if record.key is None else record.key,
        headers=record.headers + common.headers,
        partition=common.partition if record.partition is None else record.partition,
        timestamp_ms=common.timestamp_ms if record.timestamp_ms is None else record.timestamp_ms,
    )


def _of_event(event: cloud_events.KafkaEvent) -> OutgoingRecord:
    return OutgoingRecord(event.value, event.key, event.headers)


def _json_values(body: bytes, *, is_split: bool) -> list[OutgoingRecord]:
    value = _parsed(body, "the body")
    if not is_split:
        return [OutgoingRecord(body.strip())]
    if not isinstance(value, list):
        raise InvalidBodyError("split=true needs a JSON array as body")
    return [OutgoingRecord(strict_json(each).encode()) for each in value]


def _lines(body: bytes) -> list[bytes]:
    count = body.count(b"\n")
    if count > 2 * RECORDS_MAX:
        raise InvalidBodyError(f"the body has {count} lines; at most {RECORDS_MAX} records are allowed")
    lines = [line.strip() for line in body.split(b"\n")]
    for number, line in enumerate(lines, 1):
        if line:
            _parsed(line, f"line {number}")
    return [line for line in lines if line]


def _enveloped(body: bytes) -> list[OutgoingRecord]:
    document = _parsed(body, "the body")
    if not isinstance(document, dict) or not isinstance(document.get("records"), list) or len(document) > 1:
        raise InvalidBodyError('the body is not {"records": [ … ]}')
    return [_record(each, f"records[{number}]") for number, each in enumerate(document["records"])]


def _record(given: object, where: str) -> OutgoingRecord:
    if not isinstance(given, dict):
        raise InvalidBodyError(f"{where} is not an object with the fields {', '.join(_FIELDS)}")
    for name in given:
        if name not in _FIELDS:
            raise InvalidBodyError(f"{where}.{name:.80} is no field; the fields are {', '.join(_FIELDS)}")
    values = [name for name in ("value", "text", "value_base64") if name in given]
    if len(values) > 1 or ("key" in given and "key_base64" in given):
        raise InvalidBodyError(f"{where} has two values or two keys; one of each is allowed")
    return OutgoingRecord(
        _value(values[0], given[values[0]], where) if values else None,
        _key(given, where),
        _headers(given.get("headers"), where),
        _number(given, "partition", where, PARTITION_MAX),
        _number(given, "timestamp", where, TIMESTAMP_MAX),
    )


def _value(name: str, value: object, where: str) -> bytes | None:
    if name == "value":
        return None if value is None else strict_json(value).encode()
    if not isinstance(value, str):
        raise InvalidBodyError(f"{where}.{name} is not a text")
    if name == "text":
        return value.encode()
    return _base64(f"{where}.{name}", value)


def _key(given: Mapping[str, Any], where: str) -> bytes | None:
    if "key_base64" in given:
        return _value("value_base64", given["key_base64"], f"{where}.key_base64")
    key = given.get("key")
    if key is None:
        return None
    return key.encode() if isinstance(key, str) else strict_json(key).encode()


def _headers(given: object, where: str) -> tuple[Header, ...]:
    pairs: Sequence[object] = ()
    if isinstance(given, dict):
        pairs = list(given.items())
    elif isinstance(given, list):
        pairs = given
    elif given is not None:
        raise InvalidBodyError(f"{where}.headers is neither an object nor an array of pairs")
    if len(pairs) > HEADERS_MAX:
        raise InvalidBodyError(f"{where} has {len(pairs)} headers; at most {HEADERS_MAX} are allowed")
    found: list[Header] = []
    for pair in pairs:
        match pair:
            case (str(name), None):
                found.append((name, None))
            case (str(name), str(text)):
                found.append((name, text.encode()))
            case (str(name), {"base64": str(text)}):
                found.append((name, _base64(f"{where}.headers", text)))
            case _:
                raise InvalidBodyError(
                    f"{where}.headers has {strict_json(pair):.80}; a header is a name with a text, null or "
                    '{"base64": "…"}'
                )
    return tuple(found)


def _number(given: Mapping[str, Any], name: str, where: str, high: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= high:
        raise InvalidBodyError(f"{where}.{name} is not a whole number from 0 to {high}")
    return value


def _parsed(data: bytes, what: str) -> Any:
    try:
        return loads_body(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidBodyError(f"{what} is not UTF-8: byte {error.start} is wrong") from None
    except ValueError as error:
        raise InvalidBodyError(f"{what} is not JSON: {error}") from None


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParameterError(name, text, "base64") from None
