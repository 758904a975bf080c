"""Checks JSON payloads against a JSON Schema, by the library jsonschema-rs.

The values of a batch are checked in one call; only where it fails, each value has a call of its own, which
names the property. References are those that were registered: nothing is fetched.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urljoin

from kalda.common.extras import missing_package
from kalda.schemas.payloads.errors import BadPayloadError, UnusableSchemaError
from kalda.schemas.payloads.framing import HEADER_BYTES

if TYPE_CHECKING:
    import jsonschema_rs

_WITHOUT_BASE: Final = "http://schema.invalid/schema"
"""The address of a schema without an ``$id``; relative references are resolved against it. No host has a name
in ``invalid``, and what is not known here is not fetched."""
_OF_BATCHES: Final = "http://schema.invalid/batch"
_CHECKED_AT_ONCE: Final = 64
"""Values of one call of the library: their documents stay in the processor's cache."""


class JsonCheck:
    """Checks the payloads of one schema.

    Args:
        text: The schema; without ``$schema`` it is one of draft 7, as in Confluent's registry.
        references: The text of each schema that it uses, by the name in its ``$ref``.

    Raises:
        UnusableSchemaError: The schema is malformed, or uses one that is not registered.
        ModuleNotFoundError: jsonschema-rs is not installed.
    """

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        try:
            import jsonschema_rs
        except ModuleNotFoundError as error:
            raise missing_package("a check of JSON payloads", "http", error) from None
        schema = _document(text)
        title = schema.get("title") if isinstance(schema, dict) else None
        self._record_name: Final = title if isinstance(title, str) else None
        draft = schema.get("$schema") if isinstance(schema, dict) else None
        base = (schema.get("$id") if isinstance(schema, dict) else None) or _WITHOUT_BASE
        known = {name: _document(each) for name, each in (references or {}).items()}
        for name in list(known):
            known.setdefault(urljoin(base, name), known[name])
            known.setdefault(urljoin(_WITHOUT_BASE, name), known[name])
        root = base.removesuffix("#")
        known.setdefault(root, schema)

        def retrieve(uri: str) -> Any:
            if uri not in known:
                raise ValueError(f"no schema is registered under the name {uri}")
            return known[uri]

        make = partial(
            jsonschema_rs.Draft7Validator if draft is None else jsonschema_rs.validator_for,
            retriever=retrieve,
        )
        batch: dict[str, Any] = {"type": "array", "items": {"$ref": root}}
        if draft is not None:
            batch["$schema"] = draft
        try:
            self._validator: Final[jsonschema_rs.Validator] = make(schema, base_uri=base)
            self._batch: Final[jsonschema_rs.Validator] = make(batch, base_uri=_OF_BATCHES)
        except ValueError as error:
            raise UnusableSchemaError(f"the JSON schema cannot be used: {str(error)[:300]}") from None
        decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant)
        self._scan: Final[Callable[[str, int], tuple[object, int]]] = decoder.scan_once

    def record_name_of(self, value: bytes) -> str | None:
        """Return the title of the schema; None without one."""
        return self._record_name

    def check(self, values: Sequence[bytes]) -> list[tuple[int, BadPayloadError]]:
        """Return the index and the fault of each framed value that is not of the schema."""
        faults: list[tuple[int, BadPayloadError]] = []
        for first in range(0, len(values), _CHECKED_AT_ONCE):
            self._check(values[first : first + _CHECKED_AT_ONCE], first, faults)
        return faults

    def _check(self, values: Sequence[bytes], first: int, faults: list[tuple[int, BadPayloadError]]) -> None:
        documents: list[object] = []
        is_good = True
        scan = self._scan
        for value in values:
            try:
                text = str(value[HEADER_BYTES:], "utf-8")
                document, end = scan(text, 0)
                if end != len(text):
                    document = _loads(text)
            except (StopIteration, ValueError, RecursionError):
                is_good = False
                break
            documents.append(document)
        if is_good and self._is_valid(self._batch, documents):
            return
        for index, value in enumerate(values, first):
            try:
                document = _loads(str(value[HEADER_BYTES:], "utf-8"))
            except (ValueError, RecursionError) as error:
                faults.append((index, _not_json(error)))
            else:
                if not self._is_valid(self._validator, document):
                    faults.append((index, self._fault(document)))

    @staticmethod
    def _is_valid(validator: "jsonschema_rs.Validator", document: object) -> bool:
        try:
            return validator.is_valid(document)
        except (ValueError, RecursionError):
            # What the library cannot represent, such as a document of too many levels; `_fault` says it.
            return False

    def _fault(self, document: object) -> BadPayloadError:
        try:
            for error in self._validator.iter_errors(document):
                return BadPayloadError(error.message, _path(error.instance_path))
        except (ValueError, RecursionError) as error:
            return BadPayloadError(f"the value cannot be checked: {error}")
        return BadPayloadError("the value cannot be checked")


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableSchemaError(f"the JSON schema is no JSON: {error}") from None


def _loads(text: str) -> object:
    """Parse what may have white space around it."""
    document: object = json.loads(text, parse_constant=_refuse_constant)
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _not_json(error: Exception) -> BadPayloadError:
    if isinstance(error, UnicodeDecodeError):
        return BadPayloadError(f"the value is not UTF-8: {error.reason} at byte {error.start}")
    if isinstance(error, RecursionError):
        return BadPayloadError("the value nests too deeply")
    return BadPayloadError(f"the value is not JSON: {error}")


def _path(parts: Sequence[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
