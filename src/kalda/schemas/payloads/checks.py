"""Makes the check of a registered schema."""

from collections.abc import Mapping

from kalda.schemas.payloads.avro_check import AvroCheck
from kalda.schemas.payloads.errors import UnusableSchemaError
from kalda.schemas.payloads.json_check import JsonCheck
from kalda.schemas.payloads.protobuf_check import ProtobufCheck
from kalda.schemas.payloads.record_check import PayloadCheck


def make_check(schema_type: str, text: str, dependencies: Mapping[str, str]) -> PayloadCheck:
    """Return what checks payloads of a schema.

    Args:
        schema_type: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: The schema.
        dependencies: The text of each schema that it refers to, directly or not, by the name of the
            reference, each after those that it uses itself.

    Raises:
        UnusableSchemaError: The schema is malformed, or of an unknown type.
        ModuleNotFoundError: The extra ``http`` is not installed, which JSON Schema and Protobuf need.
    """
    if schema_type == "AVRO":
        return AvroCheck(text, tuple(dependencies.values()))
    if schema_type == "JSON":
        return JsonCheck(text, dependencies)
    if schema_type == "PROTOBUF":
        return ProtobufCheck(text, dependencies)
    raise UnusableSchemaError(f"it is of the type {schema_type[:40]!r}; AVRO, JSON and PROTOBUF are known")
