"""Value formats on Arrow columns: bytes of records to rows and back.

A format is declared by a `FormatSpec`; `open_decoder` checks it and returns a picklable `Decoder`. Formats
know nothing of topics, brokers and Spark; they see an array of values.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from kalda.formats.avro_format import AvroDecoder, RegistryAvroDecoder
from kalda.formats.csv_format import CsvDecoder
from kalda.formats.debezium import DebeziumDecoder
from kalda.formats.decoded import Decoded, DecodeFailure, Decoder, EncodeError, Encoder, ValueDecoder
from kalda.formats.encoders import AvroEncoder, CsvEncoder, JsonEncoder, ProtobufEncoder, RegistryJsonEncoder
from kalda.formats.guarded_decoder import GuardedDecoder
from kalda.formats.json_format import JsonDecoder
from kalda.formats.json_registry_format import RegistryJsonDecoder
from kalda.formats.protobuf_format import ProtobufDecoder, RegistryProtobufDecoder
from kalda.formats.registry import RegistryError
from kalda.formats.spec import FormatError, FormatSpec, close_match, spec_from_mapping
from kalda.formats.text_format import RawDecoder, SingleColumnEncoder, StringDecoder

__all__ = [
    "FORMATS",
    "DecodeFailure",
    "Decoded",
    "Decoder",
    "EncodeError",
    "Encoder",
    "FormatError",
    "FormatSpec",
    "RegistryError",
    "check_written",
    "open_decoder",
    "open_encoder",
    "spec_from_mapping",
]

_DECODERS: Final[dict[str, Callable[[FormatSpec], ValueDecoder]]] = {
    "avro": AvroDecoder,
    "avro-sr": RegistryAvroDecoder,
    "csv": CsvDecoder,
    "debezium-avro-sr": DebeziumDecoder,
    "debezium-json": DebeziumDecoder,
    "json": JsonDecoder,
    "json-sr": RegistryJsonDecoder,
    "protobuf": ProtobufDecoder,
    "protobuf-sr": RegistryProtobufDecoder,
    "raw": RawDecoder,
    "string": StringDecoder,
}

_ENCODERS: Final[dict[str, Callable[[FormatSpec, pa.Schema], Encoder]]] = {
    "avro": AvroEncoder,
    "avro-sr": AvroEncoder,
    "csv": CsvEncoder,
    "json": JsonEncoder,
    "json-sr": RegistryJsonEncoder,
    "protobuf": ProtobufEncoder,
    "protobuf-sr": ProtobufEncoder,
    "raw": SingleColumnEncoder,
    "string": SingleColumnEncoder,
}

FORMATS: Final = tuple(sorted(_DECODERS))
"""The names of the formats."""


def open_decoder(spec: FormatSpec) -> Decoder:
    """Return the decoder of a format, after its schema and options are checked; no connection is opened.

    Raises:
        FormatError: The format is unknown, or its schema or an option is wrong.
    """
    if spec.name not in _DECODERS:
        raise FormatError(
            f"{spec.name!r} is not a format{close_match(spec.name, FORMATS)}; allowed: {', '.join(FORMATS)}"
        )
    return GuardedDecoder(_DECODERS[spec.name](spec.resolved()))


def open_encoder(spec: FormatSpec, columns: pa.Schema) -> Encoder:
    """Return the encoder of a format for rows with the given columns; no connection is opened.

    Raises:
        FormatError: The format is unknown or cannot be written, or its schema or an option is wrong.
    """
    check_written(spec.name)
    return _ENCODERS[spec.name](spec.resolved(), columns)


def check_written(name: str) -> None:
    """Check that a format can be written.

    Raises:
        FormatError: It is unknown, or can only be read.
    """
    if name not in _ENCODERS:
        allowed = sorted(_ENCODERS)
        raise FormatError(
            f"{name!r} is not a format to write{close_match(name, allowed)}; allowed: {', '.join(allowed)}"
        )
