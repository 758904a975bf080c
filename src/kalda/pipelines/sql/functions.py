"""The functions that Kalda evaluates, each by the rules of Spark's function of that name.

A function is here only when its values are Spark's for all arguments of the types that it takes; what depends
on Java's formatting or regular expressions, on the clock or on chance is left to Spark.
"""

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.sql import calendar
from kalda.pipelines.sql.casts import cast
from kalda.pipelines.sql.nodes import SqlError, UnsupportedSqlError
from kalda.pipelines.sql.values import FLOATS, INTEGERS, TIMESTAMP, Compiled, applied, converted, type_name

Build = Callable[[str, list[Compiled]], Compiled]
_STRING: Final = pa.string()


def call(name: str, arguments: list[Compiled]) -> Compiled:
    """Return the expression of a function with its arguments.

    Raises:
        UnsupportedSqlError: Kalda does not know the function, or not for these types.
    """
    build = FUNCTIONS.get(name)
    if build is None:
        raise UnsupportedSqlError(f"the function {name} is not evaluated by Kalda")
    return build(name, arguments)


def _refused(name: str, arguments: list[Compiled]) -> UnsupportedSqlError:
    kinds = ", ".join(type_name(argument.type) for argument in arguments)
    return UnsupportedSqlError(f"{name}({kinds}) is not evaluated by Kalda")


def _text(function: Callable[[pa.Array], pa.Array], kind: pa.DataType = _STRING) -> Build:
    """Return the builder of a function of one text."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1 or arguments[0].type != _STRING:
            raise _refused(name, arguments)
        return applied(kind, function, arguments[0])

    return build


def _case(ascii_only: str, method: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    def convert(values: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(values), skip_nulls=True).as_py() is not False:
            return pc.call_function(ascii_only, [values])
        return pa.array([None if v is None else method(v) for v in values.to_pylist()], _STRING)

    return convert


def _length(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in (_STRING, pa.binary()):
        raise _refused(name, arguments)
    function = pc.utf8_length if arguments[0].type == _STRING else pc.binary_length
    return applied(pa.int32(), function, arguments[0])


def _concat(name: str, arguments: list[Compiled]) -> Compiled:
    if not arguments:
        raise _refused(name, arguments)
    texts = [a if a.type == _STRING else cast(a, _STRING, False) for a in arguments]
    if any(a.type == pa.binary() for a in arguments):
        raise _refused(name, arguments)

    def join(*values: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(*values, "") if len(values) > 1 else values[0]

    return applied(_STRING, join, *texts)


def _substring(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``substring(text, position[, length])``: positions count from 1, or from the end."""
    bounds: list[int] = [a.constant.as_py() for a in arguments[1:] if a.constant is not None]
    if (
        len(arguments) not in (2, 3)
        or arguments[0].type != _STRING
        or any(a.type != pa.int32() for a in arguments[1:])
        or len(bounds) != len(arguments) - 1
        or None in bounds
    ):
        raise _refused(name, arguments)
    position, length = bounds[0], bounds[1] if len(bounds) == 2 else None
    if length is not None and length <= 0:
        return applied(
            _STRING, lambda values: pc.if_else(values.is_valid(), "", None).cast(_STRING), arguments[0]
        )
    if position < 0:

        def from_end(text: str) -> str:
            start = len(text) + position
            end = len(text) if length is None else max(start + length, 0)
            return text[max(start, 0) : end]

        return applied(
            _STRING,
            lambda values: pa.array(
                [None if v is None else from_end(v) for v in values.to_pylist()], _STRING
            ),
            arguments[0],
        )
    start = max(position - 1, 0)
    stop = None if length is None else start + length
    return applied(_STRING, lambda values: pc.utf8_slice_codeunits(values, start, stop), arguments[0])


def _match(function: Callable[..., pa.Array]) -> Build:
    """Return the builder of a test of a text against a constant text."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if (
            len(arguments) != 2
            or any(a.type != _STRING for a in arguments)
            or arguments[1].constant is None
            or not arguments[1].constant.is_valid
        ):
            raise _refused(name, arguments)
        pattern = arguments[1].constant.as_py()
        return applied(pa.bool_(), lambda values: function(values, pattern), arguments[0])

    return build


def _replace(name: str, arguments: list[Compiled]) -> Compiled:
    parts = [a.constant.as_py() if a.constant is not None else None for a in arguments[1:]]
    if len(arguments) != 3 or any(a.type != _STRING for a in arguments) or None in parts or parts[0] == "":
        raise _refused(name, arguments)
    return applied(_STRING, lambda values: pc.replace_substring(values, parts[0], parts[1]), arguments[0])


def _moment(argument: Compiled) -> Compiled:
    return argument if argument.type == TIMESTAMP else cast(argument, TIMESTAMP, False)


def _to(kind: pa.DataType) -> Build:
    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1 or arguments[0].type not in (_STRING, pa.date32(), TIMESTAMP):
            raise _refused(name, arguments)
        return cast(arguments[0], kind, False)

    return build


def _part(unit: str, of_date: bool) -> Build:
    """Return the builder of a part of a date or a timestamp as an int."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1 or arguments[0].type not in (
            (pa.date32(), TIMESTAMP) if of_date else (TIMESTAMP,)
        ):
            raise _refused(name, arguments)
        return applied(pa.int32(), lambda values: calendar.part(unit, values), arguments[0])

    return build


_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _date_trunc(name: str, arguments: list[Compiled]) -> Compiled:
    if (
        len(arguments) != 2
        or arguments[0].constant is None
        or arguments[1].type not in (TIMESTAMP, pa.date32())
    ):
        raise _refused(name, arguments)
    unit = str(arguments[0].constant.as_py()).lower()
    unit = {"yyyy": "year", "yy": "year", "mm": "month", "mon": "month", "dd": "day"}.get(unit, unit)
    if unit not in _UNITS:
        raise _refused(name, arguments)
    moments = _moment(arguments[1])
    return applied(TIMESTAMP, lambda values: calendar.truncated(values, unit), moments, fails=True)


_PATTERN: Final = (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"))


def _date_format(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``date_format`` for patterns of yyyy, MM, dd, HH, mm and signs."""
    if (
        len(arguments) != 2
        or arguments[1].constant is None
        or arguments[0].type not in (TIMESTAMP, pa.date32())
    ):
        raise _refused(name, arguments)
    rest = pattern = str(arguments[1].constant.as_py())
    for java, strftime in _PATTERN:
        pattern, rest = pattern.replace(java, strftime), rest.replace(java, "")
    if any(c.isalpha() or c in "'[]{}#%" for c in rest):
        raise _refused(name, arguments)
    return applied(_STRING, lambda values: calendar.formatted(values, pattern), _moment(arguments[0]))


def _epoch(factor: int) -> Build:
    """Return the builder of a timestamp from a count of units since 1970."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1 or arguments[0].type not in INTEGERS:
            raise _refused(name, arguments)

        def convert(values: pa.Array) -> pa.Array:
            try:
                return pc.multiply_checked(values, factor).cast(TIMESTAMP)
            except pa.ArrowInvalid as error:
                raise SqlError(f"{name}: {error}") from error

        return applied(TIMESTAMP, convert, converted(arguments[0], pa.int64()), fails=True)

    return build


def _since_epoch(divisor: int) -> Build:
    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1 or arguments[0].type != TIMESTAMP:
            raise _refused(name, arguments)

        return applied(pa.int64(), lambda values: calendar.floor_divided(values, divisor), arguments[0])

    return build


def _date_add(sign: int) -> Build:
    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if (
            len(arguments) != 2
            or arguments[1].type not in INTEGERS[:3]
            or arguments[0].type
            not in (
                pa.date32(),
                TIMESTAMP,
            )
        ):
            raise _refused(name, arguments)

        def add(days: pa.Array, count: pa.Array) -> pa.Array:
            mask = pc.or_(days.is_null(), count.is_null())
            counts = pc.fill_null(count, 0).to_numpy(zero_copy_only=False).astype("int64")
            return calendar.dates_from(calendar.numbers(days) + sign * counts, mask)

        return applied(pa.date32(), add, cast(arguments[0], pa.date32(), False), arguments[1])

    return build


def _datediff(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 2 or any(a.type not in (pa.date32(), TIMESTAMP) for a in arguments):
        raise _refused(name, arguments)
    days = [cast(a, pa.date32(), False) for a in arguments]
    return applied(
        pa.int32(), lambda end, start: pc.subtract(end.cast(pa.int32()), start.cast(pa.int32())), *days
    )


def _abs(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in (*INTEGERS, *FLOATS):
        raise _refused(name, arguments)

    def absolute(values: pa.Array) -> pa.Array:
        try:
            return pc.abs_checked(values)
        except pa.ArrowInvalid as error:
            raise SqlError(f"abs: {error}") from error

    return applied(arguments[0].type, absolute, arguments[0], fails=True)


def _whole(function: Callable[[pa.Array], pa.Array]) -> Build:
    def build(name: str, arguments: list[Compiled]) -> Compiled:
        if len(arguments) != 1 or arguments[0].type != pa.float64():
            raise _refused(name, arguments)
        rounded = applied(pa.float64(), function, arguments[0])
        return Compiled(
            pa.int64(), lambda rows: _saturated(rounded.values(rows)), rounded.may_fail
        )  # Java's conversion: NaN is 0, what is too large is the limit

    return build


def _saturated(values: pa.Array) -> pa.Array:
    limit = float(1 << 63)
    inside = pc.and_(pc.less(values, limit), pc.greater_equal(values, -limit))
    numbers = pc.if_else(inside, values, 0.0).cast(pa.int64(), safe=False)
    over = pc.greater_equal(values, limit)
    under = pc.less(values, -limit)
    return pc.if_else(over, (1 << 63) - 1, pc.if_else(under, -(1 << 63), numbers))


def _nan(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in FLOATS:
        raise _refused(name, arguments)
    return applied(pa.bool_(), lambda values: pc.fill_null(pc.is_nan(values), False), arguments[0])


FUNCTIONS: Final[Mapping[str, Build]] = {
    "upper": _text(_case("ascii_upper", str.upper)),
    "ucase": _text(_case("ascii_upper", str.upper)),
    "lower": _text(_case("ascii_lower", str.lower)),
    "lcase": _text(_case("ascii_lower", str.lower)),
    "trim": _text(lambda values: pc.utf8_trim(values, " ")),
    "ltrim": _text(lambda values: pc.utf8_ltrim(values, " ")),
    "rtrim": _text(lambda values: pc.utf8_rtrim(values, " ")),
    "length": _length,
    "char_length": _length,
    "concat": _concat,
    "substring": _substring,
    "substr": _substring,
    "like": _match(pc.match_like),
    "startswith": _match(pc.starts_with),
    "endswith": _match(pc.ends_with),
    "contains": _match(pc.match_substring),
    "replace": _replace,
    "to_date": _to(pa.date32()),
    "date": _to(pa.date32()),
    "to_timestamp": _to(TIMESTAMP),
    "timestamp": _to(TIMESTAMP),
    "year": _part("year", True),
    "month": _part("month", True),
    "day": _part("day", True),
    "dayofmonth": _part("day", True),
    "dayofyear": _part("dayofyear", True),
    "quarter": _part("quarter", True),
    "hour": _part("hour", False),
    "minute": _part("minute", False),
    "second": _part("second", False),
    "date_trunc": _date_trunc,
    "date_format": _date_format,
    "timestamp_seconds": _epoch(1_000_000),
    "timestamp_millis": _epoch(1_000),
    "timestamp_micros": _epoch(1),
    "unix_seconds": _since_epoch(1_000_000),
    "unix_millis": _since_epoch(1_000),
    "unix_micros": _since_epoch(1),
    "date_add": _date_add(1),
    "date_sub": _date_add(-1),
    "datediff": _datediff,
    "abs": _abs,
    "ceil": _whole(pc.ceil),
    "ceiling": _whole(pc.ceil),
    "floor": _whole(pc.floor),
    "isnan": _nan,
}
"""Builders of the functions by name; operators and conditionals are in the compiler."""
