"""Columns of values with a schema registry's framing: `from_registry` decodes them, `to_registry` encodes.

Both are Arrow functions of Spark over `kalda.formats`, the code that reads and writes values for the data
source and for pipelines. The driver asks the registry once, for the schema that the rows have, and sends it
with the function; workers ask for the schemas that values name.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kalda.common.public import public_in
from kalda.formats import FormatSpec, RegistryError, open_decoder, open_encoder
from kalda.formats.registry import RegisteredSchema, RegistryClient, UnknownSchemaError, registry_settings
from kalda.formats.spec import FormatError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_FORMATS: Final = {"AVRO": "avro-sr", "JSON": "json-sr", "PROTOBUF": "protobuf-sr"}
_MODES: Final = ("FAILFAST", "PERMISSIVE")


@public_in("kalda.spark")
class RegistryValueError(ValueError):
    """A value cannot be decoded, and the mode is FAILFAST."""


@public_in("kalda.spark")
def from_registry(
    data: "Column | str",
    *,
    subject: str | None = None,
    schema_id: int | None = None,
    registry_url: str,
    registry_user: str | None = None,
    registry_password: str | None = None,
    registry_token: str | None = None,
    message: str | None = None,
    mode: str = "FAILFAST",
) -> "Column":
    """Return a struct column of the rows that framed values hold.

    Values may be of any versions of a schema: the rows have the columns of the subject's latest version, or
    of `schema_id`. A field that a version does not have is its default in Avro, and null elsewhere.

    Args:
        data: The column of bytes, or its name.
        subject: The subject whose latest schema the rows have, for example ``orders-value``.
        schema_id: The id of the schema that the rows have, in place of a subject.
        registry_url: Addresses of the registry, with commas between them.
        registry_user: The name for HTTP's basic authentication.
        registry_password: Its password.
        registry_token: A bearer token, in place of these.
        message: The full name of a message of a Protobuf schema; its first one where it is not given.
        mode: ``FAILFAST`` fails the query at a bad value, ``PERMISSIVE`` makes its row null.

    Raises:
        FormatError: An argument is wrong, or the schema has no columns.
        RegistryError: The registry does not answer, or has no such schema.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

    if mode.upper() not in _MODES:
        raise FormatError(f"mode={mode!r} is not one of {', '.join(_MODES)}")
    if (subject is None) == (schema_id is None):
        raise FormatError("give a subject, or a schema_id; rows have the columns of one schema")
    options = _options(registry_url, registry_user, registry_password, registry_token)
    found = _found(options, subject, schema_id)
    if message is not None:
        options["message"] = message
    # The id pins the schema: a version that is registered while the query runs changes no column.
    decoder = open_decoder(FormatSpec(_format(found.kind), options={**options, "schema.id": str(found.id)}))
    columns = decoder.schema()
    assert columns is not None, "the schema of an id has columns"
    kind = from_arrow_schema(columns)
    is_strict = mode.upper() == "FAILFAST"
    target = to_arrow_type(kind, timezone="UTC")

    def decode(values: "pa.Array") -> "pa.Array":
        import pyarrow as pa

        decoded = decoder.decode(values.cast(pa.binary()))
        if is_strict and decoded.errors:
            first = decoded.errors[0]
            raise RegistryValueError(
                f"a value cannot be decoded: {first.error_class}: {first.message}; "
                "with mode='PERMISSIVE' its row is null"
            )
        return decoded.columns.cast(target)

    return _over(data, decode, kind)


@public_in("kalda.spark")
def to_registry(
    data: "Column | str",
    *,
    subject: str,
    schema: str | None = None,
    registry_url: str,
    registry_user: str | None = None,
    registry_password: str | None = None,
    registry_token: str | None = None,
    message: str | None = None,
    schema_type: str | None = None,
) -> "Column":
    """Return a column of bytes: each struct as a value with a schema registry's framing.

    Args:
        data: The struct column, or its name; a null row is a null value.
        subject: The subject whose latest schema values are written with, for example ``orders-value``.
        schema: A schema that is registered for the subject first. Without one, a subject that does not exist
            gets an Avro schema of the struct's columns.
        registry_url: Addresses of the registry, with commas between them.
        registry_user: The name for HTTP's basic authentication.
        registry_password: Its password.
        registry_token: A bearer token, in place of these.
        message: The full name of a message of a Protobuf schema; its first one where it is not given.
        schema_type: ``AVRO``, ``JSON`` or ``PROTOBUF``: what `schema` is; Avro where it is not given.

    Raises:
        FormatError: An argument is wrong, or the schema cannot be written.
        RegistryError: The registry does not answer, or refuses the schema.
    """

    from pyspark.sql.types import BinaryType

    options = _options(registry_url, registry_user, registry_password, registry_token)
    kind = (schema_type or "AVRO").upper()
    if kind not in _FORMATS:
        raise FormatError(f"schema_type={schema_type!r} is not one of {', '.join(_FORMATS)}")
    if schema is not None:
        client = RegistryClient(registry_settings(FormatSpec(_format(kind), options=options)))
        options["schema.id"] = str(client.register(subject, kind, schema))
    else:
        try:
            found = _found(options, subject, None)
        except UnknownSchemaError:
            options["subject"] = subject
        else:
            kind, options["schema.id"] = found.kind, str(found.id)
    if message is not None:
        options["message"] = message
    spec = FormatSpec(_format(kind), options=options)

    def encode(rows: "pa.Array") -> "pa.Array":
        import pyarrow as pa

        return open_encoder(spec, pa.schema(list(rows.type))).encode(rows)

    return _over(data, encode, BinaryType())


def _over(data: "Column | str", function: "Callable[[pa.Array], pa.Array]", kind: "DataType") -> "Column":
    """Return a column of a type: a function of Arrow arrays over another column."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    # Spark reads the types of the parameters, which are names here: pyarrow is imported when it is used.
    function.__annotations__ = {
        "return": pa.Array,
        **dict.fromkeys(inspect.signature(function).parameters, pa.Array),
    }
    make: Any = arrow_udf
    column: Column = make(function, kind)(data)
    return column


def _options(url: str, user: str | None, password: str | None, token: str | None) -> dict[str, str]:
    given = {
        "registry.url": url,
        "registry.user": user,
        "registry.password": password,
        "registry.token": token,
    }
    return {name: value for name, value in given.items() if value is not None}


def _found(options: dict[str, str], subject: str | None, schema_id: int | None) -> RegisteredSchema:
    client = RegistryClient(registry_settings(FormatSpec("avro-sr", options=options)))
    return client.schema(schema_id) if schema_id is not None else client.latest(str(subject))


def _format(kind: str) -> str:
    if kind not in _FORMATS:
        raise RegistryError(f"the registry has a schema of type {kind}; known are {', '.join(_FORMATS)}")
    return _FORMATS[kind]
