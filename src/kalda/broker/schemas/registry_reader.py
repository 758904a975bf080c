"""Reads from a schema registry what the check of an id needs; blocks, so it runs on a thread."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from kalda.broker.schemas.registry_lookups import LookupFailedError, ReadSchema
from kalda.net.schema_registry import (
    RegistryConnection,
    RegistryRefusalError,
    RegistryUnavailableError,
    shown_address,
)
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.payloads.checks import make_check
from kalda.schemas.payloads.errors import UnusableSchemaError
from kalda.schemas.references import texts_of_references

_ID_MAX: Final = 2**31 - 1
"""Registries number schemas with 32 bits and a sign; they refuse others before they look."""
_KEPT_CHARACTERS: Final = 300


class RegistryReader:
    """Reads from registries."""

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection: Final = connection

    def read(self, schema_id: int) -> ReadSchema:
        """Return the schema registered under an id.

        Raises:
            LookupFailedError: No registry answers.
        """
        if schema_id > _ID_MAX:
            return ReadSchema()
        schema = self._get(f"/schemas/ids/{schema_id}")
        versions = None if schema is None else self._get(f"/schemas/ids/{schema_id}/versions")
        if not isinstance(schema, dict) or not isinstance(versions, list):
            return ReadSchema()
        subjects = frozenset(str(each.get("subject")) for each in versions if isinstance(each, dict))
        if not subjects:
            return ReadSchema()
        try:
            dependencies = texts_of_references(schema.get("references"), self._version)
            kind = str(schema.get("schemaType", "AVRO"))
            return ReadSchema(subjects, make_check(kind, str(schema.get("schema")), dependencies))
        except (InvalidSchemaError, UnusableSchemaError) as error:
            return ReadSchema(subjects, problem=str(error)[:_KEPT_CHARACTERS])
        except ModuleNotFoundError as error:
            # The broker's fault, so the producer may send the record again.
            raise LookupFailedError(f"the schema {schema_id} cannot be used: {error}") from None

    def _version(self, subject: str, version: int) -> Mapping[str, object] | None:
        document = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
        return document if isinstance(document, dict) else None

    def _get(self, path: str) -> Any:
        """Return a document; None where the registry has none."""
        try:
            return self._connection.request("GET", path)
        except RegistryRefusalError as error:
            if error.is_missing:
                return None
            raise LookupFailedError(f"{shown_address(self._connection.urls[0])}: {error}") from None
        except RegistryUnavailableError as error:
            raise LookupFailedError(str(error)) from None
