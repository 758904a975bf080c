"""Decodes the column `value` with a declared format (`value.format`), after the records were read.

The column stays where it is and becomes a struct, so that ``select("value.*")`` gives the fields. A tombstone
is null. With `value.onError=null`, a bad value is null too, and the column `value_error` says why.

An error names topic, partition and offset, so the three columns are read even where the query does not want
them.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import OnBadValue, ValueOptions
from kalda.spark.source.schema import VALUE_ERROR, source_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from kalda.formats import Decoder

_PLACE: Final = ("topic", "partition", "offset")


class BadValueError(Exception):
    """A value is not of the declared format, and `value.onError` is fail."""


def value_type(options: ValueOptions) -> StructType:
    """Return the type of the column `value`.

    Raises:
        OptionError: the format does not exist, its schema is wrong or missing, or it has no fixed columns.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = _open(options).schema()
    if fields is None:
        raise OptionError(
            f"`value.format`={options.name} needs `value.schema` or `value.schemaFile`: Spark must know the "
            "columns before it reads"
        )
    return from_arrow_schema(fields)


def raw_schema(schema: StructType) -> StructType:
    """Return the columns to read for a requested schema: the value as bytes, and where each record is."""
    known = {field.name: field for field in source_schema(include_headers="headers" in schema.names)}
    wanted = [*schema.names, *(name for name in ("value", *_PLACE) if name not in schema.names)]
    return StructType([known[name] for name in wanted if name in known])


def decode_values(
    batches: Iterable["pa.RecordBatch"], schema: StructType, options: ValueOptions
) -> Iterator["pa.RecordBatch"]:
    """Yield batches of the requested schema for batches of the raw one.

    Raises:
        BadValueError: a value is bad, and `value.onError` is fail.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    decoder = _open(options)
    target = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        decoded = decoder.decode(batch.column("value"))
        if decoded.errors and options.on_error is OnBadValue.FAIL:
            first = decoded.errors[0]
            topic, partition, offset = (batch.column(name)[first.row].as_py() for name in _PLACE)
            raise BadValueError(
                f"the value of {topic}-{partition} at offset {offset} is not {options.name}: "
                f"{first.error_class}: {first.message}. To read on, set `value.onError` to null"
            )
        columns = []
        for field in target:
            if field.name == "value":
                columns.append(decoded.columns.cast(field.type))
            elif field.name == VALUE_ERROR:
                texts: list[str | None] = [None] * len(batch)
                for each in decoded.errors:
                    texts[each.row] = f"{each.error_class}: {each.message}"
                columns.append(pa.array(texts, pa.string()))
            else:
                columns.append(batch.column(field.name))
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def _open(options: ValueOptions) -> "Decoder":
    from kalda.formats import FormatError, FormatSpec, open_decoder

    try:
        spec = FormatSpec(options.name, options.schema, options.schema_file, dict(options.settings))
        return open_decoder(spec.resolved())
    except FormatError as error:
        raise OptionError(f"value.*: {error}") from None
