"""Reads and writes JSON with the framing of a schema registry: ``json-sr``.

The columns are those of a declared schema, or of the properties of the subject's JSON Schema.
"""

import copy
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decoded import Decoded
from kalda.formats.framing import HEADER_BYTES, decode_framed, framed_columns
from kalda.formats.json_format import OPTIONS as JSON_OPTIONS
from kalda.formats.json_format import JsonDecoder
from kalda.formats.registry import OPTIONS as REGISTRY_OPTIONS
from kalda.formats.registry import (
    SUBJECT_OPTIONS,
    RegistryClient,
    UnknownSchemaError,
    registry_settings,
    subject_schema,
)
from kalda.formats.spec import FormatSpec


class RegistryJsonDecoder:
    """Decodes JSON objects behind the framing of a schema registry."""

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS, *JSON_OPTIONS))
        self._client: Final = RegistryClient(registry_settings(spec))
        self._spec: Final = spec
        self._kinds: dict[int, str] = {}
        self._inner = JsonDecoder(FormatSpec("json", spec.schema, None, self._inner_options()))

    def schema(self) -> pa.Schema | None:
        """Return the columns of the declared schema or of the subject's; None without these.

        Raises:
            RegistryError: The registry does not answer.
        """
        if self._inner.schema() is None:
            found = subject_schema(self._client, self._spec, "JSON")
            if found is not None:
                self._inner = JsonDecoder(FormatSpec("json", found.text, None, self._inner_options()))
        return self._inner.schema()

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns that some values have; see `kalda.formats.Decoder`."""
        return framed_columns(
            values, lambda number, framed: self._inner.columns(self._payloads(number, framed))
        )

    def with_columns(self, columns: pa.StructType) -> "RegistryJsonDecoder":
        """Return the decoder whose rows have these columns."""
        decoder = copy.copy(self)
        decoder._inner = self._inner.with_columns(columns)
        return decoder

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        schema = self.schema()
        assert schema is not None, "columns are found before values are decoded"
        kind = pa.struct(list(schema))
        return decode_framed(
            values, lambda number, framed: self._inner.decode(self._payloads(number, framed)), kind
        )

    def _inner_options(self) -> dict[str, str]:
        return {name: value for name, value in self._spec.options.items() if name in JSON_OPTIONS}

    def _payloads(self, schema_id: int, framed: pa.BinaryArray) -> pa.BinaryArray:
        """Return values without their framing.

        Raises:
            UnknownSchemaError: The registry has no such schema, or one of another kind.
        """
        kind = self._kinds.get(schema_id)
        if kind is None:
            kind = self._kinds[schema_id] = self._client.schema(schema_id).kind
        if kind != "JSON":
            raise UnknownSchemaError(f"schema {schema_id} is {kind}, not JSON")
        return pc.binary_slice(framed, HEADER_BYTES)
