"""`GuardedDecoder`, which `open_decoder` puts around every decoder: each value gets a row or a failure.

Decoders call parsers of others, whose limits show as exceptions of many kinds. What one raises for a slice of
values is found by halving the slice, and becomes the failure of the value that causes it. Memory is bounded
by decoding slices: of so many bytes, because parsed values are larger than their text, and of so many rows,
because a row has all columns, however few bytes its value has.

Only errors of the whole job leave it: `PASSED`, and `FormatError` for too many columns. A parser that can end
the process (deep recursion in C) must be kept from such values before it is called.
"""

from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa

from kalda.formats.decoded import (
    DECODER_FAILED,
    BadValueError,
    Decoded,
    Decoder,
    ValueDecoder,
    joined,
    null_rows,
)
from kalda.formats.framing import slices_of
from kalda.formats.merging import COLUMNS_MAX, ColumnsChangedError, leaf_count, merged_all, settled
from kalda.formats.registry import RegistryError
from kalda.formats.spec import FormatError

PASSED: Final = (RegistryError, ColumnsChangedError)
"""Errors of the job, not of a value."""
SLICE_BYTES: Final = 2 << 20
"""Bytes of values that are decoded at once; parsed they take some hundred times as much at worst."""
SLICE_CELLS: Final = 1 << 22
"""Rows times columns that are decoded at once."""


class GuardedDecoder:
    """A decoder that raises for no value."""

    def __init__(self, inner: ValueDecoder, texts: Collection[str] = ()) -> None:
        self._inner: Final = inner
        self._texts: Final = tuple(texts)

    def schema(self) -> pa.Schema | None:
        """Return the columns of each decoded row, or None when only the data says which they are."""
        return self._inner.schema()

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns that some values have; see `kalda.formats.Decoder`."""
        return merged_all(self._columns(each) for each in slices_of(values, SLICE_BYTES))

    def with_columns(self, columns: pa.StructType, texts: Collection[str] = ()) -> "GuardedDecoder":
        """Return the decoder whose rows have these columns.

        Args:
            columns: The columns.
            texts: Those whose nested fields were not all found, see `kalda.formats.merging.text_places`. A
                value with another field there is bad; anywhere else, the columns are to be found again.

        Raises:
            FormatError: There are more than `COLUMNS_MAX`.
        """
        kind = settled(columns)
        if leaf_count(kind) > COLUMNS_MAX:
            raise FormatError(
                f"the values have {leaf_count(kind)} different fields; up to {COLUMNS_MAX} can be columns: "
                "declare a schema with those that you need"
            )
        return GuardedDecoder(self._open().with_columns(kind), texts)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; without a schema, with the columns of these values alone."""
        schema = self.schema()
        if schema is None:
            return self.with_columns(self.columns(values)).decode(values)
        kind = pa.struct(list(schema))
        rows_max = max(1, SLICE_CELLS // leaf_count(kind))
        slices = slices_of(values, SLICE_BYTES, rows_max)
        decoded = joined((part for each in slices for part in self._decoded(each, kind)), kind)
        for lost in sorted({each.lost for each in decoded.errors if each.lost is not None}):
            if not any(lost.startswith((f"{text}.", f"{text}[")) for text in self._texts):
                raise ColumnsChangedError.of(lost)
        return decoded

    def _open(self) -> Decoder:
        assert isinstance(self._inner, Decoder), f"{type(self._inner).__name__} has declared columns"
        return self._inner

    def _decoded(self, values: pa.BinaryArray, kind: pa.DataType) -> Iterator[Decoded]:
        """Yield the results of decoding some values, in order, in one or more parts."""
        waiting = [values]
        while waiting:
            part = waiting.pop()
            try:
                decoded = self._inner.decode(part)
                if len(decoded.columns) != len(part) or decoded.columns.type != kind:
                    raise TypeError(f"{len(part)} values became {len(decoded.columns)} other rows")
            except PASSED:
                raise
            except Exception as error:  # the boundary: parsers raise what their authors thought of, and more
                if len(part) > 1:
                    waiting += _halves(part)
                    continue
                bad = error if isinstance(error, BadValueError) else _failed(error)
                decoded = Decoded(null_rows(kind, 1), (bad.at(0),))
            yield decoded

    def _columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns of the values that do not make the decoder fail."""
        try:
            return self._open().columns(values)
        except PASSED:
            raise
        except Exception:  # the boundary, as in `_decoded`, which says what is wrong with the value
            if len(values) == 1:
                return pa.struct([])
            return merged_all(self._columns(half) for half in reversed(_halves(values)))


def _failed(error: Exception) -> BadValueError:
    return BadValueError(DECODER_FAILED, f"the decoder failed: {type(error).__name__}: {error}")


def _halves(values: pa.BinaryArray) -> list[pa.BinaryArray]:
    """Return the second half and the first one."""
    middle = len(values) // 2
    return [values.slice(middle), values.slice(0, middle)]
