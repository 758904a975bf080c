"""Checks the columns of a query and splits its Arrow batches by topic, without an object for each row.

The columns are those of Spark's Kafka connector: ``value`` (required), ``key``, ``headers``, ``topic`` and
``partition``; and ``timestamp``, which sets the records' time. Other columns are ignored, as there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kalda.spark.source.option_values import OptionError

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TEXT: Final = (StringType(), BinaryType())
_TYPES: Final[Mapping[str, tuple[DataType, ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": (_HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
_RECORD_COLUMNS: Final = ("value", "key", "headers", "partition", "timestamp")


_NO_TOPIC: Final = "topic option required when no column `topic` is present; set the option `topic`"


def check_write_schema(schema: StructType, topic: str | None) -> None:
    """Check the columns of a query that is written; `topic` is the option.

    Raises:
        OptionError: ``value`` or the topic is missing, or a column has another type or is there twice.
    """
    found: dict[str, DataType] = {}
    for field in schema:
        name = field.name.lower()
        if name in found and name in _TYPES:
            raise OptionError(
                f"there are two columns `{name}`; names do not depend on case: rename or drop one"
            )
        found[name] = field.dataType
    if topic is None and "topic" not in found:
        raise OptionError(_NO_TOPIC)
    if "value" not in found:
        raise OptionError("required column `value` is not there; add a column `value` of string or binary")
    for name, allowed in _TYPES.items():
        kind = found.get(name)
        if kind is None or any(_is_same(kind, each) for each in allowed):
            continue
        names = " or ".join(each.simpleString() for each in allowed)
        raise OptionError(f"column `{name}` must be {names}, it is {kind.simpleString()}; cast it")


def _is_same(kind: DataType, expected: DataType) -> bool:
    """Compare without nullability, metadata and collation."""
    if isinstance(expected, StringType):
        return isinstance(kind, StringType)
    return kind.simpleString() == expected.simpleString()


class RowError(OptionError):
    """A row cannot be written as the options are; the message names what is wrong with it."""


class TopicRows:
    """Splits the batches of one query into record batches for `Producer.send_arrow`.

    Args:
        names: The columns that the batches have, in their order.
        topic: The topic of all rows, or None for the column ``topic``.

    Raises:
        OptionError: the column ``value`` or the topic is missing.
    """

    def __init__(self, names: Sequence[str], topic: str | None) -> None:
        positions = {name.lower(): index for index, name in enumerate(names)}
        if "value" not in positions:
            raise OptionError(
                "required column `value` is not there; add a column `value` of string or binary"
            )
        if topic is None and "topic" not in positions:
            raise OptionError(_NO_TOPIC)
        self._names: Final = [name for name in _RECORD_COLUMNS if name in positions]
        self._columns: Final = [positions[name] for name in self._names]
        self._topic: Final = topic
        self._topic_column: Final = positions.get("topic", -1)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each topic with its rows, in their order.

        Raises:
            RowError: a row has no topic.
        """
        if not batch.num_rows:
            return
        records = pa.RecordBatch.from_arrays([batch.column(each) for each in self._columns], self._names)
        if self._topic is not None:
            yield self._topic, records
            return
        encoded = pc.dictionary_encode(batch.column(self._topic_column))
        if encoded.null_count:
            row = pc.index(encoded.is_null(), True).as_py()
            raise RowError(
                f"null topic present in the data (row {row} of a batch of {len(encoded)}); use the option "
                "`topic` to set one for all rows, or fill the column"
            )
        topics = encoded.dictionary.to_pylist()
        if len(topics) == 1:
            yield topics[0], records
            return
        for number, topic in enumerate(topics):
            yield topic, records.filter(pc.equal(encoded.indices, number))
