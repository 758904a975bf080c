"""Merges the types of values that declare no schema: one type for a column, whatever each value holds.

`merged` is commutative in the type and associative, and every pair of types has a result, so the columns of a
batch do not depend on where it is cut, and no value is bad because of another one. A type that nothing is
known of yet is null, alone or inside a struct, a list or a map; `settled` removes these in the end. Types
that have nothing in common stay side by side in a union: a column that earlier batches know is extended by
those that fit it. Where none is known, `settled` makes the column a text.

`converted` gives rows of any type the settled one. Numbers widen as Spark's do: a whole number beside one
with a fraction is a double, and so are decimals that 38 digits do not hold.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.common.json_text import strict_json
from kalda.formats.ddl import DEPTH_MAX
from kalda.formats.decimals import as_floats
from kalda.formats.temporal import YEARS_SECONDS, far_day

FIELDS_MAX: Final = 1_000
"""Fields of a nested struct. An object with more is a map in disguise, for example by user; its column is
text."""
COLUMNS_MAX: Final = 10_000
"""Columns that the values of a batch may have together, counting those inside structs."""
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_DIGITS_MAX: Final = 38


class ColumnsChangedError(Exception):
    """Values have columns that the batch was not planned with; the batch is to be tried again."""

    @classmethod
    def of(cls, field: str) -> "ColumnsChangedError":
        """Return the error of a field that is no column."""
        return cls(
            f"values have the field {field!r}, which was not there when the columns of the batch were found; "
            "the batch is tried again"
        )


def merged(one: pa.DataType, other: pa.DataType, depth: int = 0) -> pa.DataType:
    """Return the narrowest type for values of both types; a union when they have nothing in common.

    ``merged(int32, int64)`` is int64, ``merged(int64, double)`` is double, ``merged(int64, string)`` is the
    union of both. Structs get the fields of both, the first one's first.
    """
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if depth > DEPTH_MAX:
        return pa.string()
    if types.is_union(one) or types.is_union(other):
        return _united([*_kinds(one), *_kinds(other)], depth)
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            known = fields.get(field.name)
            fields[field.name] = field.type if known is None else merged(known, field.type, depth + 1)
        return struct_of(fields.items(), is_nested=depth > 0)
    if _is_list(one) and _is_list(other):
        return pa.list_(merged(one.value_type, other.value_type, depth + 1))
    if types.is_map(one) and types.is_map(other) and one.key_type == other.key_type:
        return pa.map_(one.key_type, merged(one.item_type, other.item_type, depth + 1))
    widened = _plain(one, other)
    return _union([one, other]) if widened is None else widened


def _united(kinds: Iterable[pa.DataType], depth: int) -> pa.DataType:
    """Return the type of several, of which those that have something in common are merged."""
    found: list[pa.DataType] = []
    for kind in kinds:
        for index, own in enumerate(found):
            both = merged(own, kind, depth)
            if not pa.types.is_union(both):
                found[index] = both
                break
        else:
            found.append(kind)
    found = list(dict.fromkeys(found))  # structs with too many fields have become texts
    return found[0] if len(found) == 1 else _union(found)


def _union(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the union of types that have nothing in common, in an order that depends on them alone."""
    ordered = sorted(kinds, key=lambda kind: (kind.id, str(kind)))
    return pa.dense_union([pa.field(str(index), kind) for index, kind in enumerate(ordered)])


def _kinds(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of a union; another type is the only one."""
    return [field.type for field in kind] if pa.types.is_union(kind) else [kind]


def struct_of(fields: Iterable[tuple[str, pa.DataType]], *, is_nested: bool) -> pa.DataType:
    """Return the struct of fields; text for a nested one with more than `FIELDS_MAX`."""
    found = list(fields)
    if is_nested and len(found) > FIELDS_MAX:
        return pa.string()
    return pa.struct(found)


def merged_all(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the merged type of structs; a struct without fields for none."""
    result = pa.struct([])
    for kind in kinds:
        result = merged(result, kind)
    return result


def extended(known: pa.DataType, shown: pa.DataType) -> pa.DataType:
    """Return the columns of earlier values with those that new ones show.

    A column keeps the type that it has got, unless that widens: a value of a type that has nothing in common
    with it is bad by itself. It neither turns the column of all others into text, nor hides what they show.
    """
    if pa.types.is_union(shown) and not is_unknown(known):
        for kind in _kinds(shown):
            known = extended(known, kind)
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(shown):
        fields = {field.name: field.type for field in known}
        for field in shown:
            own = fields.get(field.name)
            fields[field.name] = field.type if own is None else extended(own, field.type)
        return pa.struct(list(fields.items()))
    if _is_list(known) and _is_list(shown):
        return pa.list_(extended(known.value_type, shown.value_type))
    widened = merged(known, shown)
    is_other = pa.types.is_union(widened) or pa.types.is_string(widened)
    return known if is_other and not is_unknown(known) else widened


def text_places(columns: pa.DataType, shown: pa.DataType, path: str = "") -> Iterator[str]:
    """Yield the nested columns beside which new values show a text.

    What the text stands for may have fields that are no columns: those of structs with more than `FIELDS_MAX`
    together.
    """
    for kind in _kinds(shown):
        if pa.types.is_string(kind) and pa.types.is_nested(columns):
            yield path
        elif pa.types.is_struct(columns) and pa.types.is_struct(kind):
            for field in kind:
                index = columns.get_field_index(field.name)
                if index >= 0:
                    place = f"{path}.{field.name}" if path else field.name
                    yield from text_places(columns.field(index).type, field.type, place)
        elif _is_list(columns) and _is_list(kind):
            yield from text_places(columns.value_type, kind.value_type, f"{path}[]")
        elif pa.types.is_map(columns) and pa.types.is_map(kind):
            yield from text_places(columns.item_type, kind.item_type, f"{path}[]")


def settled(kind: pa.DataType) -> pa.DataType:
    """Return a struct with text in place of unions, and without the fields whose type no value shows.

    These are null, or empty in every value.
    """
    return pa.struct([(field.name, _settled(field.type)) for field in kind if not is_unknown(field.type)])


def without_unions(kind: pa.DataType) -> pa.DataType:
    """Return a type with text in place of unions, which rows can be `converted` to."""
    if pa.types.is_union(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, without_unions(field.type)) for field in kind])
    if _is_list(kind):
        return pa.list_(without_unions(kind.value_type))
    return pa.map_(kind.key_type, without_unions(kind.item_type)) if pa.types.is_map(kind) else kind


def is_unknown(kind: pa.DataType) -> bool:
    """Return whether a type has no value but null, or objects and arrays of such."""
    if pa.types.is_struct(kind):
        return all(is_unknown(f.type) for f in kind)
    if _is_list(kind):
        return is_unknown(kind.value_type)
    return bool(pa.types.is_null(kind))


def leaf_count(kind: pa.DataType) -> int:
    """Return how many plain columns a type has, at least 1."""
    if not pa.types.is_nested(kind) or pa.types.is_union(kind):
        return 1
    return max(1, sum(leaf_count(kind.field(index).type) for index in range(kind.num_fields)))


def item_leaves(kind: pa.DataType) -> int:
    """Return how many plain columns the widest item of an array has; 0 without arrays."""
    if pa.types.is_list(kind):
        return max(leaf_count(kind.value_type), item_leaves(kind.value_type))
    if pa.types.is_map(kind):
        return max(leaf_count(kind.item_type), item_leaves(kind.item_type))
    if pa.types.is_struct(kind):
        return max((item_leaves(field.type) for field in kind), default=0)
    return 0


def converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as a type that its own was merged to.

    Raises:
        ColumnsChangedError: The array has values of a field that the type lacks.
    """
    own = array.type
    if own == kind:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(own):
        return struct_array(_converted_fields(array, kind), kind, array)
    mask = array.is_null() if array.null_count else None
    if _is_list(kind) and _is_list(own):
        array = _with_own_items(array, array.values)
        items = converted(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
    if pa.types.is_map(kind) and pa.types.is_map(own) and own.key_type == kind.key_type:
        array = _with_own_items(array, array.items)
        items = converted(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=mask)
    if pa.types.is_string(kind):
        return _as_text(array)
    if pa.types.is_decimal(own) and pa.types.is_floating(kind):
        return as_floats(array, kind)
    if has_text_or_number(own, kind):
        return array.cast(kind, safe=False)
    assert not shows_type(array).true_count, f"{own} has nothing in common with {kind}"
    return pa.nulls(len(array), kind)


def _with_own_items(array: pa.Array, items: pa.Array) -> pa.Array:
    """Return lists or maps whose items begin and end where they do; nulls have none."""
    ends = array.offsets[0].as_py(), array.offsets[-1].as_py()
    is_own = not array.offset and not array.null_count and ends == (0, len(items))
    return array if is_own else array.take(pa.array(range(len(array)), pa.int64()))


def has_text_or_number(own: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type has each value of another one, as itself, as a wider number or as a text.

    A cast alone does not say that: of a number it makes a moment, and of a moment the day.
    """
    types = pa.types
    is_same_text = types.is_string(own) and types.is_binary(kind)
    is_special = types.is_null(own) or types.is_string(kind) or is_same_text
    return bool(is_special or _plain(own, kind) == kind)


def shows_type(array: pa.Array) -> pa.BooleanArray:
    """Return which values are more than null, and more than objects and arrays of nothing else.

    A map shows its type when it has an entry.
    """
    kind = array.type
    if pa.types.is_map(kind):
        return pc.and_(array.is_valid(), pa.array(np.diff(array.offsets.to_numpy()) > 0))
    if not (pa.types.is_struct(kind) or pa.types.is_list(kind)):
        return array.is_valid()
    shown = np.zeros(len(array), np.bool_)
    if pa.types.is_struct(kind):
        for child in array.flatten():
            shown |= shows_type(child).to_numpy(zero_copy_only=False)
    else:
        items = shows_type(array.values).to_numpy(zero_copy_only=False)
        places = item_places(array, len(items))
        shown[places[items & (places >= 0)]] = True
    return pa.array(shown)


def item_places(lists: pa.Array, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return for each of so many items which list or map has it; -1 for items of nulls and outside of all."""
    offsets = lists.offsets.to_numpy()
    places = np.full(count, -1, np.int64)
    owners = np.where(lists.is_valid().to_numpy(zero_copy_only=False), np.arange(len(lists)), -1)
    places[offsets[0] : offsets[-1]] = np.repeat(owners, np.diff(offsets))
    return places


def struct_array(columns: list[pa.Array], kind: pa.DataType, like: pa.Array) -> pa.StructArray:
    """Return a struct array of columns, null where `like` is."""
    if columns:
        mask = like.is_null() if like.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    return pa.array([{} if each else None for each in like.is_valid().to_pylist()], kind)


def _converted_fields(array: pa.StructArray, kind: pa.DataType) -> list[pa.Array]:
    children = dict(zip(array.type.names, array.flatten(), strict=True))
    wanted = {field.name for field in kind}
    for name, child in children.items():
        if name not in wanted and shows_type(child).true_count:
            raise ColumnsChangedError.of(name)
    return [
        converted(children[field.name], field.type)
        if field.name in children
        else pa.nulls(len(array), field.type)
        for field in kind
    ]


def _plain(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the number type of two types that differ; None unless both are numbers."""
    types = pa.types
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    exact = [one in _INTEGERS or types.is_decimal(one), other in _INTEGERS or types.is_decimal(other)]
    if all(exact):
        scale = max(_scale(one), _scale(other))
        digits = scale + max(_whole_digits(one), _whole_digits(other))
        return pa.decimal128(digits, scale) if digits <= _DIGITS_MAX else pa.float64()
    if all(is_exact or types.is_floating(kind) for is_exact, kind in zip(exact, (one, other), strict=True)):
        return pa.float64()
    return None


def _scale(kind: pa.DataType) -> int:
    return int(kind.scale) if pa.types.is_decimal(kind) else 0


def _whole_digits(kind: pa.DataType) -> int:
    return int(kind.precision - kind.scale) if pa.types.is_decimal(kind) else _DIGITS[kind]


def _settled(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_union(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return settled(kind)
    if _is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if pa.types.is_map(kind):
        item = kind.item_type
        return pa.map_(kind.key_type, pa.string() if is_unknown(item) else _settled(item))
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind))


def _as_text(array: pa.Array) -> pa.StringArray:
    """Return values as texts: as they are, or as JSON."""
    if pa.types.is_nested(array.type):
        found = converted(array, _plain_type(array.type)).to_pylist(maps_as_pydicts="lossy")
        return pa.array([None if value is None else strict_json(value) for value in found], pa.string())
    return _plain_text(array)


def _plain_text(array: pa.Array) -> pa.StringArray:
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        found = [None if each is None else base64.b64encode(each).decode() for each in array.to_pylist()]
        return pa.array(found, pa.string())
    texts = array.cast(pa.string())
    return _with_far_years(texts, array) if pa.types.is_temporal(array.type) else texts


def _with_far_years(texts: pa.StringArray, array: pa.Array) -> pa.StringArray:
    """Return `texts` with the years outside of 1 to 9999 replaced by the form of `far_day`."""
    kind = array.type
    if pa.types.is_date32(kind):
        days = array.cast(pa.int32()).cast(pa.int64())
        return _replaced(texts, pc.multiply(days, 86_400), lambda second, _: far_day(second))
    if not pa.types.is_timestamp(kind):
        return texts
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    seconds = pc.divide(array.cast(pa.int64()), per_second)
    numbers = array.cast(pa.int64())
    digits, zone = len(str(per_second)) - 1, "Z" if kind.tz else ""

    def text(_: int, row: int) -> str:
        second, part = divmod(numbers[row].as_py(), per_second)
        clock = second % 86_400
        fraction = f".{part:0{digits}}" if digits else ""
        time = f"{clock // 3_600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        return f"{far_day(second)} {time}{fraction}{zone}"

    return _replaced(texts, seconds, text)


def _replaced(
    texts: pa.StringArray, seconds: pa.Int64Array, text: Callable[[int, int], str]
) -> pa.StringArray:
    low, high = YEARS_SECONDS
    is_far = pc.or_(pc.less(seconds, low), pc.greater(seconds, high))
    rows = pc.indices_nonzero(pc.fill_null(is_far, False)).to_pylist()
    if not rows:
        return texts
    found: list[str | None] = texts.to_pylist()
    for row in rows:
        found[row] = text(seconds[row].as_py(), row)
    return pa.array(found, pa.string())


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts where JSON has no value of its own."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain_type(field.type)) for field in kind])
    if _is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _plain_type(kind.item_type))
    is_plain = (
        kind in _INTEGERS or pa.types.is_boolean(kind) or kind == pa.float64() or pa.types.is_null(kind)
    )
    return kind if is_plain else pa.string()
