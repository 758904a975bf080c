"""Counts the nulls of columns and adds up a checksum of their values, for the ledger.

The totals of rows do not depend on their order, on how they are cut into batches, or on the engine that
executes a pipeline, and a number counts the same in each type that holds it. So the totals of what was
decoded, of what was handed to a target and of what the target has can be compared. A checksum covers numbers
and times whole; of a text or bytes the length, the first 16, the middle 8 and the last 8 bytes. So it finds
values that were lost or changed places, not each change inside a long text. It does not protect against an
attacker.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS_MAX: Final = 500
"""Rows of more columns are not totalled: the ledger's records have a line for each."""

_MASK: Final = (1 << 64) - 1
_WORD: Final = 8
_ONE: Final = np.uint64(0x9E3779B97F4A7C15)
_TWO: Final = np.uint64(0xBF58476D1CE4E5B9)
_THREE: Final = np.uint64(0x94D049BB133111EB)
_WHOLE_MAX: Final = float(1 << 63)

_Hashes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"
_Integers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True)
class ColumnTotal:
    """The totals of one column."""

    name: str
    nulls: int
    checksum: int
    """The sum of the values' hashes modulo 2^64; a null adds nothing."""


Totals: TypeAlias = tuple[ColumnTotal, ...]
"""In the order of the names; each once."""


def totals_of(rows: pa.RecordBatch, without: Iterable[str] = ()) -> Totals | None:
    """Return the totals of the columns of rows; None for too many columns."""
    hidden = frozenset(without)
    if rows.num_columns > COLUMNS_MAX:
        return None
    found = [
        ColumnTotal(name, column.null_count, int(_hashes(column).sum(dtype=np.uint64)))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if name not in hidden
    ]
    return tuple(sorted(found, key=lambda each: each.name))


def added(one: Totals | None, one_rows: int, other: Totals | None, other_rows: int) -> Totals | None:
    """Return the totals of two sets of rows together; a column that one lacks is null in its rows.

    None stands for unknown totals, except of no rows.
    """
    assert one_rows >= 0, f"{one_rows} rows"
    assert other_rows >= 0, f"{other_rows} rows"
    if not one_rows or not other_rows:
        return other if not one_rows else one
    if one is None or other is None:
        return None
    first, second = ({each.name: each for each in totals} for totals in (one, other))
    found = []
    for name in sorted(first.keys() | second.keys()):
        left = first.get(name, ColumnTotal(name, one_rows, 0))
        right = second.get(name, ColumnTotal(name, other_rows, 0))
        found.append(ColumnTotal(name, left.nulls + right.nulls, (left.checksum + right.checksum) & _MASK))
    return tuple(found) if len(found) <= COLUMNS_MAX else None


def to_json(totals: Totals | None) -> dict[str, list[int | str]] | None:
    """Return totals as JSON has them: nulls and checksum by name."""
    if totals is None:
        return None
    return {each.name: [each.nulls, f"{each.checksum:016x}"] for each in totals}


def from_json(document: Mapping[str, tuple[int, str]] | None) -> Totals | None:
    """Read what `to_json` returned.

    Raises:
        ValueError, TypeError: it is something else.
    """
    if document is None:
        return None
    return tuple(ColumnTotal(name, int(nulls), int(text, 16)) for name, (nulls, text) in document.items())


class TotalCount:
    """Adds up the totals of batches."""

    def __init__(self) -> None:
        self.rows = 0
        self.totals: Totals | None = ()

    def add(self, rows: int, totals: Totals | None) -> None:
        """Add the totals of some rows."""
        self.totals = added(self.totals, self.rows, totals, rows)
        self.rows += rows


def _hashes(column: pa.Array) -> _Hashes:
    """Return a hash of each value, 0 for a null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hashes(column.dictionary_decode())
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.uint64)
    hashes = _hash_of(kind)(column)
    if column.null_count:
        hashes = np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, np.uint64(0))
    return hashes


def _hash_of(kind: pa.DataType) -> Callable[[pa.Array], _Hashes]:
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind):
        return _hash_integers
    if types.is_floating(kind):
        return _hash_floats
    if types.is_decimal(kind):
        return _hash_decimals
    if types.is_timestamp(kind):
        return lambda column: _hash_integers(
            column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
        )
    if types.is_date(kind):
        return lambda column: _hash_integers(column.cast(pa.date32()).view(pa.int32()))
    if types.is_time(kind):
        return lambda column: _hash_integers(column.cast(pa.time64("us"), safe=False).view(pa.int64()))
    if types.is_struct(kind):
        return _hash_structs
    if types.is_map(kind):
        return _hash_maps
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _hash_lists
    return _hash_bytes


def _mixed(words: _Hashes) -> _Hashes:
    """Return words whose bits all depend on all bits of the given ones (the end of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * _TWO
    words = (words ^ (words >> np.uint64(27))) * _THREE
    return words ^ (words >> np.uint64(31))


def _hash_integers(column: pa.Array) -> _Hashes:
    if pa.types.is_uint64(column.type):
        words = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    else:
        words = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
    return _mixed(words + _ONE)


def _hash_floats(column: pa.Array) -> _Hashes:
    """Hash whole numbers as integers, so that a wider type changes nothing; all NaN are one."""
    numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < _WHOLE_MAX)
    integers = np.where(whole, numbers, 0.0).astype(np.int64).view(np.uint64)
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    return np.where(whole, _mixed(integers + _ONE), _mixed(bits ^ _TWO))


def _hash_decimals(column: pa.Array) -> _Hashes:
    """Hash what is a whole number of 64 bits, signed or not, as an integer, else the digits of the number."""
    text = _without_exponents(column.cast(pa.string()))
    has_point = pc.fill_null(pc.match_substring(text, "."), False)
    short = pc.if_else(has_point, pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."), text)
    is_whole = pc.match_substring_regex(pc.fill_null(short, "0"), "^-?[0-9]{1,18}$")
    integers = pc.if_else(is_whole, short, "0").cast(pa.int64())
    hashes = np.where(is_whole.to_numpy(zero_copy_only=False), _hash_integers(integers), _hash_bytes(short))
    is_long = pc.fill_null(pc.match_substring_regex(short, "^-?[0-9]{19,20}$"), False)
    for row in pc.indices_nonzero(is_long).to_pylist():
        number = int(short[row].as_py())
        if -(1 << 63) <= number < 1 << 64:
            hashes[row] = _hash_integers(pa.array([number & _MASK], pa.uint64()))[0]
    return hashes


def _without_exponents(texts: pa.StringArray) -> pa.StringArray:
    """Return texts of decimals whose digits show the number: a small one as ``0.00000010``, zero as ``0``."""
    texts = pc.if_else(pc.starts_with(texts, "0E"), "0", texts)
    has_exponent = pc.fill_null(pc.match_substring(texts, "E"), False)
    if not pc.any(has_exponent).as_py():
        return texts
    plain = [f"{Decimal(each):f}" for each in texts.filter(has_exponent).to_pylist()]
    return pc.replace_with_mask(texts, has_exponent, pa.array(plain, pa.string()))


def _hash_bytes(column: pa.Array) -> _Hashes:
    if not len(column):
        return np.zeros(0, dtype=np.uint64)
    column = column.cast(pa.large_binary() if _is_large(column.type) else pa.binary())
    kind = np.int64 if _is_large(column.type) else np.int32
    size = np.dtype(kind).itemsize
    offsets = np.frombuffer(column.buffers()[1], kind, len(column) + 1, column.offset * size)
    first, last = int(offsets[0]), int(offsets[-1])
    raw = np.zeros(last - first + 2 * _WORD, dtype=np.uint8)
    if last > first:
        raw[: last - first] = np.frombuffer(column.buffers()[2], np.uint8, last - first, first)
    # A word begins at each byte.
    words = np.ndarray(shape=(len(raw) - _WORD,), dtype="<u8", buffer=raw.data, strides=(1,))
    hashes = np.empty(len(column), dtype=np.uint64)
    for start in range(0, len(column), _PART):
        part = offsets[start : start + _PART + 1].astype(np.int64) - first
        hashes[start : start + _PART] = _hash_texts(words, part[:-1], np.diff(part))
    return hashes


def _hash_texts(words: _Hashes, starts: _Integers, lengths: _Integers) -> _Hashes:
    """Return the hashes of the bytes from some places on."""
    ends = starts + lengths
    hashes = lengths.view(np.uint64) * _FACTORS[0]
    hashes += (words[starts] & _LEFT[np.minimum(lengths, _WORD)]) * _FACTORS[1]
    if int(lengths.max()) > _WORD:
        second = np.minimum(starts + _WORD, len(words) - 1)
        hashes += (words[second] & _LEFT[np.clip(lengths - _WORD, 0, _WORD)]) * _FACTORS[2]
    if int(lengths.max()) > 2 * _WORD:
        is_long = _LEFT[np.where(lengths > 2 * _WORD, _WORD, 0)]
        hashes += (words[starts + np.maximum(lengths // 2 - _WORD // 2, 0)] & is_long) * _FACTORS[3]
        hashes += (words[np.maximum(ends - _WORD, starts)] & is_long) * _FACTORS[4]
    return _mixed(hashes + _ONE)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


_FACTORS: Final = np.array(
    [0xD6E8FEB86659FD93, 0x9FB21C651E98DF25, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3],
    dtype=np.uint64,
)
_PART: Final = 16_384
"""Rows at a time, so that their words stay in the processor's cache."""
_LEFT: Final = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
"""Masks of the first bytes of a word."""


def _hash_structs(column: pa.StructArray) -> _Hashes:
    """Add the fields' hashes by name; a field that is null counts as one that is not there."""
    hashes = np.full(len(column), int(_THREE), dtype=np.uint64)
    for field, values in zip(column.type, column.flatten(), strict=True):
        own = _hashes(values)
        hashes += np.where(own == 0, np.uint64(0), _mixed(own ^ _name_hash(field.name)))
    return hashes


def _hash_lists(column: pa.Array) -> _Hashes:
    """Add the elements' hashes with their places."""
    values = _hashes(column.flatten())
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return _sums(_mixed(values ^ (_places(lengths) * _TWO)), lengths)


def _hash_maps(column: pa.MapArray) -> _Hashes:
    """Add the entries' hashes, in any order."""
    plain = pa.concat_arrays([column.take(pa.array(np.arange(len(column))))])
    lengths = np.diff(plain.offsets.to_numpy())
    entries = _mixed(_hashes(plain.keys) ^ (_hashes(plain.items) * _TWO))
    return _sums(entries, lengths.astype(np.int64))


def _places(lengths: _Integers) -> _Hashes:
    starts = np.cumsum(lengths) - lengths
    return (np.arange(int(lengths.sum())) - np.repeat(starts, lengths) + 1).view(np.uint64)


def _sums(values: _Hashes, lengths: _Integers) -> _Hashes:
    """Return the sums of consecutive values, so many for each row, with the length mixed in."""
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(values, dtype=np.uint64)])
    ends = np.cumsum(lengths)
    return _mixed(sums[ends] - sums[ends - lengths] + lengths.view(np.uint64) * _ONE + _TWO)


def _name_hash(name: str) -> np.uint64:
    return np.uint64(_hash_bytes(pa.array([name]))[0])
