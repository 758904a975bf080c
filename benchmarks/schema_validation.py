"""What the check of a record by its schema costs the leader, in microseconds of CPU time.

The validator of a log checks a batch of 1,000 records, as it does before an append: once without checks, once
with them. The difference is the cost; it contains opening the records.
"""

import io
import json
from time import process_time
from typing import Any, Final

import fastavro

from benchmarks.end_to_end import Figure
from kalda.broker.schemas.schema_validation import SchemaValidation
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder
from kalda.schemas.payloads.checks import make_check
from kalda.schemas.payloads.framing import framed
from kalda.schemas.payloads.record_check import KnownSchema, Wanted
from kalda.storage.log_config import LogConfig
from kalda.storage.log_validator import LogValidator
from kalda.storage.producer_state_manager import AppendOrigin

_RECORDS: Final = 1_000
_ROUNDS: Final = 15
_NOW_MS: Final = 1_700_000_000_000

_ROW: Final[dict[str, Any]] = {
    "id": 123_456,
    "name": "A name as usual",
    "price": 12.5,
    "tags": ["new", "red", "large"],
    "address": {"city": "Vienna", "zip": "1010"},
    "active": True,
    "email": "nobody1@example.org",
    "state": "PAID",
}
_AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "string"]}],
            },
        },
        {"name": "active", "type": "boolean"},
        {"name": "email", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
_JSON: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "active": {"type": "boolean"},
        "state": {"enum": ["NEW", "PAID"]},
    },
    "required": ["id", "name"],
}
_PROTOBUF: Final = """
syntax = "proto3";
message Order { int64 id = 1; string name = 2; double price = 3; repeated string tags = 4;
  Address address = 5; bool active = 6; string email = 7; State state = 8; }
message Address { string city = 1; string zip = 2; }
enum State { NEW = 0; PAID = 1; }
"""


class _Registry:
    """Knows one schema, and denies nothing."""

    def __init__(self, kind: str, text: str) -> None:
        self._schema: Final = KnownSchema(1, frozenset({"orders-value"}), make_check(kind, text, {}))

    def find(self, schema_id: int) -> KnownSchema | None:
        return self._schema if schema_id == 1 else None

    def is_denied(self, wanted: Wanted) -> bool:
        return False

    def problem(self) -> str | None:
        return None


def run() -> list[Figure]:
    """Return the cost of a record for each format and mode."""
    avro = io.BytesIO()
    fastavro.schemaless_writer(avro, fastavro.parse_schema(_AVRO), _ROW)
    text = json.dumps(_ROW).encode()
    values = {
        "JSON": (json.dumps(_JSON), framed(1, text)),
        "AVRO": (json.dumps(_AVRO), framed(1, avro.getvalue())),
        "PROTOBUF": (_PROTOBUF, framed(1, _message(), [0])),
    }
    figures: list[Figure] = []
    for kind, (schema, value) in values.items():
        off = _microseconds(value, None, "off")
        for mode in ("id", "full"):
            cost = _microseconds(value, _Registry(kind, schema), mode) - off
            figures.append((f"{mode}: {kind} of {len(value)} B", cost, "us a record"))
    figures.append(("off", off, "us a record"))
    return figures


def _message() -> bytes:
    """Return the row as Protobuf, written by hand: the library needs a compiled schema for it."""
    texts = [(2, _ROW["name"]), *((4, tag) for tag in _ROW["tags"]), (7, _ROW["email"])]
    address = b"".join(_text(number, each) for number, each in ((1, "Vienna"), (2, "1010")))
    message = b"\x08\xc0\xc4\x07\x19\x00\x00\x00\x00\x00\x00\x29\x40"
    message += b"".join(_text(number, each) for number, each in texts)
    return message + b"\x2a" + bytes([len(address)]) + address + b"\x30\x01\x40\x01"


def _text(number: int, text: str) -> bytes:
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def _microseconds(value: bytes, registry: Any, mode: str) -> float:
    config = LogConfig(kalda_schema_validation_value=mode)
    validator = LogValidator(config, SchemaValidation(registry).inspection("orders", config))
    builder = RecordBatchBuilder(compression=Compression.NONE)
    for _ in range(_RECORDS):
        builder.append_next(None, value, _NOW_MS)
    batch = memoryview(bytearray(builder.build()))
    best = float("inf")
    for _ in range(_ROUNDS):
        started = process_time()
        if validator.read_untouched(batch) is None:
            validator.validate(batch, AppendOrigin.CLIENT, _NOW_MS)
        best = min(best, process_time() - started)
    return best / _RECORDS * 1e6
