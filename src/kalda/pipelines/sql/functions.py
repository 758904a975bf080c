"""Implements SQL functions by the rules of Spark's functions of the same names.

A function is here only when its values are Spark's for all arguments of the types that it takes; what depends
on Java's formatting or regular expressions, on the clock or on chance is left to Spark.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.sql import calendar
from kalda.pipelines.sql.casts import cast
from kalda.pipelines.sql.nodes import InvalidSqlError, SqlError, UnsupportedSqlError
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


_REST: Final = (1 << 31) - 1
"""The length that Spark takes where none is given."""


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
            end = max(start + (_REST if length is None else length), 0)
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


def _like(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``like``; Spark refuses a pattern with a backslash before another sign than %, _ and itself."""
    pattern = arguments[1].constant if len(arguments) == 2 else None
    if pattern is not None and pattern.type == _STRING and pattern.is_valid:
        rest = re.sub(r"\\[%_\\]", "", pattern.as_py())
        if "\\" in rest:
            raise _refused(name, arguments)
    return _match(pc.match_like)(name, arguments)


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


_PATTERN: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
_RUN: Final = re.compile(r"([A-Za-z])\1*")
"""A letter and its repetitions, which are one field of a pattern: ``MMMM`` is not twice ``MM``."""


def _date_format(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``date_format`` for patterns of yyyy, MM, dd, HH, mm and signs."""
    if (
        len(arguments) != 2
        or arguments[1].constant is None
        or arguments[0].type not in (TIMESTAMP, pa.date32())
    ):
        raise _refused(name, arguments)
    given = str(arguments[1].constant.as_py())
    fields = {match[0] for match in _RUN.finditer(given)}
    if not fields <= _PATTERN.keys() or any(c.isalpha() or c in "'[]{}#%" for c in _RUN.sub("", given)):
        raise _refused(name, arguments)
    pattern = _RUN.sub(lambda match: _PATTERN[match[0]], given)
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

        def whole(values: pa.Array) -> pa.Array:
            rounded, limit = function(values), float(1 << 63)
            if pc.any(pc.or_(pc.greater_equal(rounded, limit), pc.less(rounded, -limit))).as_py():
                raise SqlError(f"{name}: a value does not fit bigint")
            return pc.if_else(pc.is_nan(rounded), 0.0, rounded).cast(pa.int64())

        return applied(pa.int64(), whole, arguments[0], fails=True)

    return build


def _nan(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in FLOATS:
        raise _refused(name, arguments)
    return applied(pa.bool_(), lambda values: pc.fill_null(pc.is_nan(values), False), arguments[0])


def _hash(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``md5``, ``sha``, ``sha1``, ``sha2(value, bits)`` and ``crc32`` of a text's or binary's bytes."""
    algorithm = {"md5": "md5", "sha": "sha1", "sha1": "sha1", "crc32": "crc32"}.get(name)
    if name == "sha2" and len(arguments) == 2 and arguments[1].constant is not None:
        bits = arguments.pop().constant
        assert bits is not None, "it was looked at"
        algorithm = _SHA2.get(bits.as_py())
    if len(arguments) != 1 or arguments[0].type not in (_STRING, pa.binary()) or algorithm is None:
        raise _refused(name, arguments)
    if algorithm == "crc32":
        return _each(pa.int64(), lambda value: zlib.crc32(value), _bytes(arguments[0]))
    new = partial(hashlib.new, algorithm, usedforsecurity=False)
    return _each(_STRING, lambda value: new(value).hexdigest(), _bytes(arguments[0]))


_SHA2: Final = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def _bytes(argument: Compiled) -> Compiled:
    return argument if argument.type == pa.binary() else cast(argument, pa.binary(), False)


def _each(kind: pa.DataType, function: Callable[..., object], *arguments: Compiled) -> Compiled:
    """Return an expression that calls a Python function for each row; null of any argument is null."""

    def convert(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], kind)

    return applied(kind, convert, *arguments)


def _hex(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in (_STRING, pa.binary(), *INTEGERS):
        raise _refused(name, arguments)
    if arguments[0].type in INTEGERS:
        return _each(
            _STRING, lambda value: f"{value & 0xFFFFFFFFFFFFFFFF:X}", converted(arguments[0], pa.int64())
        )
    return _each(_STRING, lambda value: value.hex().upper(), _bytes(arguments[0]))


def _base64(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in (_STRING, pa.binary()):
        raise _refused(name, arguments)
    return _each(_STRING, _base64_lines, _bytes(arguments[0]))


def _base64_lines(value: bytes) -> str:
    """Return base64 in lines of 76 signs, as MIME and Spark have it."""
    text = base64.b64encode(value).decode()
    return "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))


def _concat_ws(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``concat_ws(separator, text, …)``, which leaves nulls out."""
    if len(arguments) < 2 or any(argument.type != _STRING for argument in arguments):
        raise _refused(name, arguments)

    def join(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([_joined(separator, parts) for separator, *parts in rows], _STRING)

    return applied(_STRING, join, *arguments, takes_nulls=True)


def _joined(separator: str | None, parts: Sequence[str | None]) -> str | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def _extreme(function: Callable[..., pa.Array]) -> Build:
    """Return the builder of the least or the greatest of values of one type; nulls are left out."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        kinds = {argument.type for argument in arguments}
        kind = next(iter(kinds), None)
        if len(arguments) < 2 or len(kinds) != 1 or kind not in (*INTEGERS, pa.date32(), TIMESTAMP):
            raise _refused(name, arguments)

        def chosen(*columns: pa.Array) -> pa.Array:
            if kind != TIMESTAMP:
                return function(*columns)
            return function(*(column.cast(pa.int64()) for column in columns)).cast(kind)

        return applied(kind, chosen, *arguments, takes_nulls=True)

    return build


_BYTES_MAX: Final = 128 << 20
"""Bytes of the texts that a function makes of a batch; more fail, so that a batch is divided."""
_FOLDED_BYTES_MAX: Final = 1 << 16
"""Bytes of a text that is the same for all rows; each of them gets a copy."""


def _grown(
    name: str, text: Compiled, count: int, function: Callable[[str], str], size: Callable[[pa.Array], int]
) -> Compiled:
    """Return an expression that makes longer texts.

    Args:
        name: The name of the function.
        text: Its argument.
        count: The constant by which texts grow.
        function: Returns the text made of one.
        size: Returns how many bytes the texts of some rows have at most.
    """
    if count > _BYTES_MAX:
        raise InvalidSqlError(f"{name} with {count} is not evaluated: texts have up to {_BYTES_MAX} bytes")

    def convert(values: pa.Array) -> pa.Array:
        total = size(values)
        if total > _BYTES_MAX:
            raise SqlError(f"{name}: a text of {total} bytes; up to {_BYTES_MAX} are made at once")
        return pa.array([None if each is None else function(each) for each in values.to_pylist()], _STRING)

    constants = None if text.constant is None else pa.array([text.constant], _STRING)
    fails = constants is None or size(constants) > _FOLDED_BYTES_MAX
    return applied(_STRING, convert, text, fails=fails)


def _bytes_of(values: pa.Array) -> int:
    return pc.sum(pc.binary_length(values).cast(pa.int64())).as_py() or 0


def _count_of(name: str, arguments: list[Compiled]) -> int:
    """Return the second argument, a constant int."""
    count = arguments[1].constant if len(arguments) > 1 else None
    if count is None or arguments[0].type != _STRING or count.type != pa.int32() or not count.is_valid:
        raise _refused(name, arguments)
    number: int = count.as_py()
    return number


def _characters(function: Callable[[str, int], str]) -> Build:
    """Return the builder of a function of a text and a constant count, which makes no text longer."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        number = _count_of(name, arguments)
        if len(arguments) != 2:
            raise _refused(name, arguments)
        return _each(_STRING, lambda text: function(text, number), arguments[0])

    return build


def _repeat(name: str, arguments: list[Compiled]) -> Compiled:
    count = max(_count_of(name, arguments), 0)
    if len(arguments) != 2:
        raise _refused(name, arguments)
    return _grown(
        name, arguments[0], count, lambda text: text * count, lambda values: _bytes_of(values) * count
    )


def _padded(is_left: bool) -> Build:
    """Return the builder of ``lpad`` or ``rpad`` with constants; a longer text is cut."""

    def build(name: str, arguments: list[Compiled]) -> Compiled:
        length = max(_count_of(name, arguments), 0)
        filler = arguments[2].constant if len(arguments) == 3 else pa.scalar(" ")
        if len(arguments) > 3 or filler is None or filler.type != _STRING or not filler.is_valid:
            raise _refused(name, arguments)
        pad: str = filler.as_py()
        width = max((len(sign.encode()) for sign in pad), default=0)

        def padded(text: str) -> str:
            missing = length - len(text)
            if missing <= 0 or not pad:
                return text[:length]
            filler = (pad * (missing // len(pad) + 1))[:missing]
            return filler + text if is_left else text + filler

        return _grown(
            name,
            arguments[0],
            length,
            padded,
            lambda values: _bytes_of(values) + length * width * (len(values) - values.null_count),
        )

    return build


def _position(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``instr(text, part)`` and ``locate(part, text)``: positions count from 1, 0 is none."""
    if len(arguments) != 2 or any(argument.type != _STRING for argument in arguments):
        raise _refused(name, arguments)
    text, part = arguments if name == "instr" else reversed(arguments)
    return _each(pa.int32(), lambda text, part: text.find(part) + 1, text, part)


def _sign(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type not in (*INTEGERS[:3], pa.float64()):
        raise _refused(name, arguments)
    numbers = converted(arguments[0], pa.float64())
    # A zero keeps its sign.
    return applied(
        pa.float64(), lambda values: pc.if_else(pc.equal(values, 0.0), values, pc.sign(values)), numbers
    )


def _sqrt(name: str, arguments: list[Compiled]) -> Compiled:
    if len(arguments) != 1 or arguments[0].type != pa.float64():
        raise _refused(name, arguments)
    return applied(pa.float64(), pc.sqrt, arguments[0])


def _day_of_week(name: str, arguments: list[Compiled]) -> Compiled:
    """Build ``dayofweek`` (Sunday is 1) and ``weekday`` (Monday is 0)."""
    if len(arguments) != 1 or arguments[0].type not in (pa.date32(), TIMESTAMP):
        raise _refused(name, arguments)
    first, shift = (1, 4) if name == "dayofweek" else (0, 3)

    def count(days: pa.Array) -> pa.Array:
        mask = days.is_null().to_numpy(zero_copy_only=False)
        return pa.array((calendar.numbers(days) + shift) % 7 + first, pa.int32(), mask=mask)

    return applied(pa.int32(), count, cast(arguments[0], pa.date32(), False))


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
    "like": _like,
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
    "md5": _hash,
    "sha": _hash,
    "sha1": _hash,
    "sha2": _hash,
    "crc32": _hash,
    "hex": _hex,
    "base64": _base64,
    "concat_ws": _concat_ws,
    "greatest": _extreme(pc.max_element_wise),
    "least": _extreme(pc.min_element_wise),
    "left": _characters(lambda text, count: text[: max(count, 0)]),
    "right": _characters(lambda text, count: text[-count:] if count > 0 else ""),
    "repeat": _repeat,
    "lpad": _padded(is_left=True),
    "rpad": _padded(is_left=False),
    "instr": _position,
    "locate": _position,
    "position": _position,
    "reverse": _text(pc.utf8_reverse),
    "sign": _sign,
    "signum": _sign,
    "sqrt": _sqrt,
    "dayofweek": _day_of_week,
    "weekday": _day_of_week,
}
"""Builders of the functions by name; operators and conditionals are in the compiler."""
