"""Value formats on Arrow columns: bytes of records to rows and back.

A format is declared by a `FormatSpec`; `open_decoder` checks it and returns a picklable `Decoder`. Formats
know nothing of topics, brokers and Spark; they see an array of values.
"""

from collections.abc import Callable
from typing import Final

from kalda.formats.avro_format import AvroDecoder, RegistryAvroDecoder
from kalda.formats.decoded import Decoded, DecodeFailure, Decoder, EncodeError, Encoder
from kalda.formats.json_format import JsonDecoder
from kalda.formats.registry import RegistryError
from kalda.formats.spec import FormatError, FormatSpec, close_match, spec_from_mapping
from kalda.formats.text_format import RawDecoder, StringDecoder

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
    "open_decoder",
    "spec_from_mapping",
]

_DECODERS: Final[dict[str, Callable[[FormatSpec], Decoder]]] = {
    "avro": AvroDecoder,
    "avro-sr": RegistryAvroDecoder,
    "json": JsonDecoder,
    "raw": RawDecoder,
    "string": StringDecoder,
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
    return _DECODERS[spec.name](spec.resolved())
