"""Says how the records of a topic become rows, and makes them: columns, value format, steps, event time.

A plan is a value that is pickled to the executors; it reads nothing. The rows are those that the same
pipeline makes when Spark executes it, in names, types and values.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.common.types import TopicPartition
from kalda.formats.decoded import NO_COLUMN
from kalda.formats.decoded import DecodeFailure as FormatFailure
from kalda.formats.merging import extended, merged, settled, text_places
from kalda.formats.spec import FormatError
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, RowStep, apply_steps, without_offsets
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.arrow_rows import source_column

SOURCE_TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
"""The columns of the source and their types."""

RESERVED_NAME: Final = "ReservedName"
"""The class of a value with a field that is called like a column of Kalda's own."""
_OWN_PREFIX: Final = "__kalda_"
MALFORMED_TIMESTAMP: Final = "MalformedTimestamp"
"""The class of a record whose timestamp is kept and fits no column."""
_TIMESTAMP_MESSAGE: Final = (
    "the record's timestamp is no count of milliseconds that a timestamp column holds; its producer may "
    "count in nanoseconds: mend it, or leave timestamp out of keep"
)


class RowPlanError(ValueError):
    """The columns of a plan contradict each other, e.g. a field of the value is called like a kept column."""


class DecodeFailure(Protocol):
    """Why one value could not be decoded; `kalda.formats` has the class."""

    @property
    def row(self) -> int:
        """The index of the value."""
        ...

    @property
    def error_class(self) -> str:
        """A short name of the kind of error."""
        ...

    @property
    def message(self) -> str:
        """What is wrong, for the dead-letter queue."""
        ...

    @property
    def schema_id(self) -> int | None:
        """The schema of the registry that the value names."""
        ...


class DecodedValues(Protocol):
    """The columns of decoded values; `kalda.formats` has the class."""

    @property
    def columns(self) -> pa.StructArray:
        """One row for each value, null where it is bad or null."""
        ...

    @property
    def errors(self) -> Sequence[DecodeFailure]:
        """The bad values, in order."""
        ...


class ValueDecoder(Protocol):
    """The part of a decoder of `kalda.formats` that a plan uses."""

    def schema(self) -> pa.Schema | None:
        """Return the fields of the values; None where they are known only with data."""
        ...

    def decode(self, values: pa.Array) -> DecodedValues:
        """Decode a column of values."""
        ...


@runtime_checkable
class OpenValueDecoder(ValueDecoder, Protocol):
    """A decoder whose columns may be known only with data."""

    def columns(self, values: pa.Array) -> pa.StructType:
        """Return the columns that good values of these have."""
        ...

    def with_columns(self, columns: pa.StructType, texts: Collection[str] = ()) -> ValueDecoder:
        """Return the decoder whose rows have these columns; see `GuardedDecoder.with_columns`."""
        ...


@dataclass(frozen=True, slots=True)
class _Refused:
    columns: pa.StructArray
    errors: Sequence[DecodeFailure]


@dataclass(frozen=True, slots=True)
class _OwnNamesRefused:
    """A decoder for which values with a field called like a kept column or one of Kalda's own are bad."""

    decoder: ValueDecoder
    kept: tuple[str, ...]

    def schema(self) -> pa.Schema | None:
        """Return the other fields."""
        schema = self.decoder.schema()
        return (
            None if schema is None else pa.schema([each for each in schema if not self._is_taken(each.name)])
        )

    def decode(self, values: pa.Array) -> DecodedValues:
        """Decode a column of values."""
        decoded = self.decoder.decode(values)
        kind = decoded.columns.type
        children = dict(zip(kind.names, decoded.columns.flatten(), strict=True))
        bad: dict[int, DecodeFailure] = {each.row: each for each in decoded.errors}
        for name in filter(self._is_taken, kind.names):
            whose = "Kalda's own" if _is_own(name) else "the record that is kept"
            message = f"the field {name} is called like a column of {whose}; give it another name"
            for row in pc.indices_nonzero(children[name].is_valid()).to_pylist():
                bad.setdefault(row, FormatFailure(row, RESERVED_NAME, message))
        fields = [each for each in kind if not self._is_taken(each.name)]
        valid = decoded.columns.is_valid().to_pylist()
        mask = pa.array([not is_valid or row in bad for row, is_valid in enumerate(valid)])
        kept = [children[each.name] for each in fields]
        return _Refused(
            pa.StructArray.from_arrays(kept, fields=fields, mask=mask), [bad[row] for row in sorted(bad)]
        )

    def _is_taken(self, name: str) -> bool:
        return _is_own(name) or _is_kept(name, self.kept)


def _is_kept(name: str, kept: Sequence[str]) -> bool:
    """Return whether a name is one of the kept columns, for SQL, which does not look at case."""
    return name.lower() in {each.lower() for each in kept}


def _is_own(name: str) -> bool:
    return name.startswith(_OWN_PREFIX)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows of one decode, and the records that are none because their value is bad."""

    rows: pa.RecordBatch
    """With the hidden column of offsets."""
    failures: Sequence[DecodeFailure]
    """`row` is the index in the decoded records."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How records become rows.

    Args:
        keep: columns of the source in the rows, before the steps.
        decoder: turns the values into columns of their own, which come first; None: the rows have the
            source's columns only.
        steps: what happens to the rows then.
    """

    keep: tuple[str, ...]
    decoder: ValueDecoder | None = None
    steps: tuple[RowStep, ...] = ()

    @property
    def want_headers(self) -> bool:
        """Whether the rows have headers before the steps."""
        return "headers" in self.keep

    @property
    def want_values(self) -> bool:
        """Whether the rows are made of the values."""
        return self.decoder is not None or "value" in self.keep

    def columns_of(self, values: pa.Array) -> pa.StructType:
        """Return the columns that values have, where nothing declares them."""
        return self._open().columns(values)

    def good_columns_of(self, values: pa.Array, known: pa.StructType, shown: pa.StructType) -> pa.StructType:
        """Return the columns that good values show, which fit the columns of earlier batches.

        Args:
            values: The values.
            known: The columns of earlier batches.
            shown: The columns of all of the values.
        """
        columns = settled(extended(known, shown))
        if columns == settled(merged(known, shown)):
            return shown
        try:
            plan = self.with_columns(columns, list(text_places(columns, shown)))
        except FormatError:
            return shown  # too many columns, which the driver finds for the batch as a whole
        assert plan.decoder is not None, "values have a decoder"
        errors = plan.decoder.decode(values).errors
        # A value that is bad only because of a field that these columns lack shows that field.
        good = _good(len(values), [each for each in errors if each.error_class != NO_COLUMN])
        return self.columns_of(values.filter(good))

    def with_columns(self, columns: pa.StructType, texts: Collection[str] = ()) -> "RowPlan":
        """Return the plan for values with these columns, which were found in all values of a batch.

        Args:
            columns: The columns.
            texts: Those beside which values show texts: `kalda.formats.merging.text_places`.

        Raises:
            FormatError: there are more than a table can have.
        """
        decoder = self._open().with_columns(columns, texts)
        is_taken = any(_is_own(name) or _is_kept(name, self.keep) for name in columns.names)
        return replace(self, decoder=_OwnNamesRefused(decoder, self.keep) if is_taken else decoder)

    def _open(self) -> OpenValueDecoder:
        assert isinstance(self.decoder, OpenValueDecoder), (
            "a plan without declared columns has such a decoder"
        )
        return self.decoder

    def input_schema(self) -> pa.Schema | None:
        """Return the columns before the steps; None where the values' are known only with data.

        Raises:
            RowPlanError: a kept column is unknown or has the name of a field.
        """
        fields: list[pa.Field] = []
        if self.decoder is not None:
            values = self.decoder.schema()
            if values is None:
                return None
            fields += list(values)
        names = {field.name.lower() for field in fields}
        for name in self.keep:
            if name not in SOURCE_TYPES:
                raise RowPlanError(f"there is no column {name}; the source has {', '.join(SOURCE_TYPES)}")
            if name.lower() in names:
                raise RowPlanError(f"the values have a field {name}, so the record's {name} cannot be kept")
            fields.append(pa.field(name, SOURCE_TYPES[name]))
        return pa.schema(fields)

    def output_schema(self) -> pa.Schema | None:
        """Return the columns behind the steps, found by applying these to a batch without rows.

        Raises:
            StepError: a step cannot be applied to such a batch.
        """
        schema = self.input_schema()
        if schema is None:
            return None
        rows = pa.RecordBatch.from_pylist([], schema=schema.append(pa.field(OFFSET_COLUMN, pa.int64())))
        for step in self.steps:
            rows = step.apply(rows)
        if rows.schema.names.count(OFFSET_COLUMN) != 1:
            raise RowPlanError(f"the column {OFFSET_COLUMN} is Kalda's own; give the column another name")
        return without_offsets(rows).schema

    def rows_of(self, decoded: ColumnarBatch, topic_partition: TopicPartition) -> DecodedRows:
        """Return the rows of some records, before the steps."""
        columns: list[pa.Array] = []
        names: list[str] = []
        failures: Sequence[DecodeFailure] = ()
        if self.decoder is not None:
            values = self.decoder.decode(decoded.values)
            failures = values.errors
            fields = values.columns.type
            columns += values.columns.flatten()
            names += [fields.field(index).name for index in range(fields.num_fields)]
        kept = [source_column(name, decoded, topic_partition) for name in self.keep]
        failures = self.with_kept_failures(failures, kept)
        columns += kept
        names += [*self.keep, OFFSET_COLUMN]
        columns.append(decoded.offsets)
        rows = pa.RecordBatch.from_arrays(columns, names=names)
        if failures:
            rows = rows.filter(_good(rows.num_rows, failures))
        return DecodedRows(rows, failures)

    def with_kept_failures(
        self, failures: Sequence[DecodeFailure], kept: Sequence[pa.Array]
    ) -> Sequence[DecodeFailure]:
        """Return the failures of values and those of the kept columns, ordered by row.

        A record always has a timestamp, so a null is one that no column holds.
        """
        if "timestamp" not in self.keep:
            return failures
        timestamps = kept[self.keep.index("timestamp")]
        if not timestamps.null_count:
            return failures
        known = {each.row for each in failures}
        more = [
            FormatFailure(row, MALFORMED_TIMESTAMP, _TIMESTAMP_MESSAGE)
            for row in pc.indices_nonzero(timestamps.is_null()).to_pylist()
            if row not in known
        ]
        return sorted([*failures, *more], key=lambda each: each.row)

    def transform(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the rows behind the steps and how many were dropped; raises as `apply_steps`."""
        return apply_steps(rows, self.steps)


def _good(count: int, failures: Sequence[DecodeFailure]) -> pa.BooleanArray:
    """Return which of so many rows have no failure."""
    good = np.ones(count, dtype=np.bool_)
    good[[each.row for each in failures]] = False
    return pa.array(good)
