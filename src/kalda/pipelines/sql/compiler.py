"""Compiles parsed SQL to functions on Arrow batches, with Spark's types, three-valued logic and ANSI errors.

An expression that compiles has Spark's value for every row, or fails where Spark fails; everything else
raises `UnsupportedSqlError` before a row is read. The session's time zone is UTC.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.sql.casts import cast
from kalda.pipelines.sql.functions import FUNCTIONS, call
from kalda.pipelines.sql.nodes import (
    Call,
    Case,
    Cast,
    Column,
    InvalidSqlError,
    Literal,
    Node,
    SqlError,
    UnsupportedSqlError,
)
from kalda.pipelines.sql.values import (
    FLOATS,
    INTEGERS,
    TIMESTAMP,
    Compiled,
    applied,
    common_type,
    constant,
    converted,
    is_true,
    type_name,
    values_where,
)

_COMPARE: Final = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_ARITHMETIC: Final = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}

_OPERATORS: Final = frozenset(
    [
        *_COMPARE,
        *_ARITHMETIC,
        *("and", "or", "not", "isnull", "isnotnull", "<=>", "in", "/", "div", "%", "mod", "negate"),
        *("if", "coalesce", "nvl", "ifnull", "nvl2", "nullif"),
    ]
)
_UNTYPED: Final = frozenset(["and", "or", "not", "isnull", "isnotnull"])
"""Operators that are evaluated for every type that Spark takes there."""

_FUNCTIONS: Final = frozenset(
    [
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtimestamp",
        "session_user",
        "user",
    ]
)
"""Functions of Spark that need no parentheses, so that they look like columns."""


_WITH_UNIT: Final = frozenset(("date_add", "datediff"))
"""Functions whose first of three arguments is a word, which looks like a column."""


def compile_node(node: Node, schema: pa.Schema) -> Compiled:
    """Return the compiled form of an expression over the columns of a schema.

    Raises:
        UnsupportedSqlError: Kalda does not evaluate a part of it.
    """
    match node:
        case Column(path):
            return _column(path, schema)
        case Literal(value):
            return constant(value)
        case Cast(argument, kind, lenient):
            return cast(compile_node(argument, schema), kind, lenient)
        case Case(branches, otherwise):
            conditions = [_boolean(compile_node(condition, schema), "when") for condition, _ in branches]
            values = [compile_node(value, schema) for _, value in branches]
            last = (
                constant(pa.scalar(None, pa.null())) if otherwise is None else compile_node(otherwise, schema)
            )
            return _conditional(conditions, [*values, last])
        case Call(name, arguments):
            if name in _WITH_UNIT and len(arguments) == 3:
                raise UnsupportedSqlError(f"{name} with a unit is not evaluated by Kalda")
            return _call(name, [compile_node(argument, schema) for argument in arguments])
        case _:
            assert_never(node)


def check_functions(node: Node) -> None:
    """Check that Kalda knows the functions of an expression, which shows without its columns.

    Raises:
        UnsupportedSqlError: It does not know one.
    """
    for each in _walk(node):
        if isinstance(each, Call) and each.name not in _OPERATORS and each.name not in FUNCTIONS:
            raise UnsupportedSqlError(f"the function {each.name} is not evaluated by Kalda")


def depends_on_types(node: Node) -> bool:
    """Return whether Kalda evaluates an expression for some types of its columns and not for others."""
    return any(
        not isinstance(each, Column)
        and not (isinstance(each, Literal) and not pa.types.is_null(each.value.type))
        and not (isinstance(each, Call) and each.name in _UNTYPED)
        for each in _walk(node)
    )


def _walk(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Call(_, arguments):
            parts = list(arguments)
        case Cast(argument, _, _):
            parts = [argument]
        case Case(branches, otherwise):
            parts = [each for branch in branches for each in branch]
            parts += [] if otherwise is None else [otherwise]
        case _:
            return
    for part in parts:
        yield from _walk(part)


def find_column(name: str, schema: pa.Schema) -> int:
    """Return the index of a column; case counts only when two names differ in nothing else.

    Raises:
        InvalidSqlError: There is none.
        UnsupportedSqlError: There are two, or the name is one of Spark's functions without parentheses.
    """
    matches = [index for index, other in enumerate(schema.names) if other.lower() == name.lower()]
    if len(matches) != 1:
        problem = "is not a column" if not matches else "names two columns"
        message = f"{name!r} {problem}; the columns are {', '.join(schema.names)}"
        if matches or name.lower() in _FUNCTIONS:
            raise UnsupportedSqlError(message)
        raise InvalidSqlError(message, name)
    return matches[0]


def _column(path: tuple[str, ...], schema: pa.Schema) -> Compiled:
    if len(path) > 1 and path[0].lower() == "input" and "input" not in map(str.lower, schema.names):
        path = path[1:]
    first = find_column(path[0], schema)
    kind = schema.field(first).type
    steps: list[int] = []
    for name in path[1:]:
        if not pa.types.is_struct(kind):
            raise UnsupportedSqlError(f"{'.'.join(path)}: {type_name(kind)} has no field {name!r}")
        fields = pa.schema(list(kind))
        steps.append(find_column(name, fields))
        kind = fields.field(steps[-1]).type

    def values(rows: pa.RecordBatch) -> pa.Array:
        column = rows.column(first)
        for step in steps:
            column = pc.struct_field(column, [step])
        return column

    return Compiled(kind, values)


def _call(name: str, arguments: list[Compiled]) -> Compiled:
    count = len(arguments)
    match name:
        case "and" | "or" if count == 2:
            return _logic(name, _boolean(arguments[0], name), _boolean(arguments[1], name))
        case "not" if count == 1:
            return applied(pa.bool_(), pc.invert, _boolean(arguments[0], name))
        case "isnull" | "isnotnull" if count == 1:
            return _null_test(name, arguments[0])
        case "=" | "<>" | "<" | "<=" | ">" | ">=" if count == 2:
            return _comparison(name, *_alike(arguments))
        case "<=>" if count == 2:
            return _null_safe(*_alike(arguments))
        case "in" if count >= 2:
            tests = [_comparison("=", *_alike([arguments[0], option])) for option in arguments[1:]]
            return reduce(lambda one, other: _logic("or", one, other), tests)
        case "+" | "-" | "*" if count == 2:
            return _arithmetic(name, arguments)
        case "/" | "div" | "%" | "mod" if count == 2:
            return _division("%" if name == "mod" else name, arguments)
        case "negate" if count == 1 and arguments[0].type in (*INTEGERS, *FLOATS):
            return applied(arguments[0].type, _safely(pc.negate_checked, name), arguments[0], fails=True)
        case "if" if count == 3:
            return _conditional([_boolean(arguments[0], name)], arguments[1:])
        case "coalesce" | "nvl" | "ifnull" if count >= 1:
            return _conditional([_null_test("isnotnull", a) for a in arguments[:-1]], arguments)
        case "nvl2" if count == 3:
            return _conditional([_null_test("isnotnull", arguments[0])], arguments[1:])
        case "nullif" if count == 2:
            equal = _comparison("=", *_alike(arguments))
            return _conditional([equal], [constant(pa.scalar(None, arguments[0].type)), arguments[0]])
    return call(name, arguments)


def _boolean(expression: Compiled, place: str) -> Compiled:
    if pa.types.is_null(expression.type) and place != "when":
        return constant(pa.scalar(None, pa.bool_()))
    if expression.type != pa.bool_():
        raise UnsupportedSqlError(f"{place} needs a boolean, and {type_name(expression.type)} is none")
    return expression


def _null_test(name: str, argument: Compiled) -> Compiled:
    test: Callable[[pa.Array], pa.Array] = pc.is_null if name == "isnull" else pc.is_valid
    return applied(pa.bool_(), test, argument)


def _logic(name: str, left: Compiled, right: Compiled) -> Compiled:
    """Return ``and`` or ``or``; the right side is computed where the left one does not decide."""
    combine = pc.and_kleene if name == "and" else pc.or_kleene
    decided = name == "or"

    def values(rows: pa.RecordBatch) -> pa.Array:
        first = left.values(rows)
        open_rows = pc.fill_null(pc.not_equal(first, decided), True)
        return combine(first, values_where(right, rows, open_rows))

    return Compiled(pa.bool_(), values, left.may_fail or right.may_fail)


def _alike(arguments: list[Compiled]) -> tuple[Compiled, Compiled]:
    """Return two expressions as their common type; a constant text becomes the date beside it."""
    one, other = arguments
    kinds = (pa.date32(), TIMESTAMP)
    if one.type in kinds and other.type == pa.string() and other.constant is not None:
        other = cast(other, one.type if one.type == TIMESTAMP else _moment_type(other), False)
    elif other.type in kinds and one.type == pa.string() and one.constant is not None:
        one = cast(one, other.type if other.type == TIMESTAMP else _moment_type(one), False)
    kind = common_type(one.type, other.type)
    if {one.type, other.type} == {pa.date32(), TIMESTAMP}:
        return cast(one, kind, False), cast(other, kind, False)
    return converted(one, kind), converted(other, kind)


def _moment_type(text: Compiled) -> pa.DataType:
    assert text.constant is not None
    if len(str(text.constant.as_py())) > len("yyyy-mm-dd"):
        raise UnsupportedSqlError("a date with a text that has a time is not evaluated by Kalda; add a cast")
    return pa.date32()


def _comparison(name: str, one: Compiled, other: Compiled) -> Compiled:
    kind = one.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise UnsupportedSqlError(f"comparing {type_name(kind)} is not evaluated by Kalda")
    if _has_null(one, other):
        return constant(pa.scalar(None, pa.bool_()))
    function: Callable[..., pa.Array] = getattr(pc, _COMPARE[name])
    return applied(pa.bool_(), _with_nan(name, function) if kind in FLOATS else function, one, other)


def _has_null(*operands: Compiled) -> bool:
    """Return whether an operand is null in all rows: Spark then does not evaluate the other one."""
    return any(each.constant is not None and not each.constant.is_valid for each in operands)


def _with_nan(name: str, function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Return a comparison where NaN equals NaN and is greater than every other number."""

    def compare(one: pa.Array, other: pa.Array) -> pa.Array:
        found = function(one, other)
        left, right = pc.is_nan(one), pc.is_nan(other)
        if not (pc.any(left).as_py() or pc.any(right).as_py()):
            return found
        both, only_left, only_right = pc.and_(left, right), pc.and_not(left, right), pc.and_not(right, left)
        nan = {
            "=": both,
            "<>": pc.invert(both),
            "<": only_right,
            "<=": right,
            ">": only_left,
            ">=": left,
        }[name]
        return pc.if_else(pc.or_(left, right), nan, found)

    return compare


def _null_safe(one: Compiled, other: Compiled) -> Compiled:
    equal = _comparison("=", one, other)

    def values(rows: pa.RecordBatch) -> pa.Array:
        both_null = pc.and_(pc.is_null(one.values(rows)), pc.is_null(other.values(rows)))
        return pc.or_(both_null, pc.fill_null(equal.values(rows), False))

    return Compiled(pa.bool_(), values, equal.may_fail)


def _arithmetic(name: str, arguments: list[Compiled]) -> Compiled:
    one, other = _numbers(name, arguments)
    if _has_null(one, other):
        return constant(pa.scalar(None, one.type))
    return applied(one.type, _safely(_ARITHMETIC[name], name), one, other, fails=one.type in INTEGERS)


def _division(name: str, arguments: list[Compiled]) -> Compiled:
    one, other = _numbers(name, arguments)
    if _has_null(one, other):
        kinds = {"/": pa.float64(), "div": pa.int64()}
        return constant(pa.scalar(None, kinds.get(name, one.type)))
    if name == "/":
        one, other = (
            applied(pa.float64(), lambda values: values.cast(pa.float64(), safe=False), a)
            for a in (one, other)
        )

        def divide(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
            _refuse_zero(dividend, divisor, name)
            return pc.divide(dividend, divisor)

        return applied(pa.float64(), divide, one, other, fails=True, is_reversed=True)
    if one.type not in INTEGERS:
        raise UnsupportedSqlError(f"{name} of {type_name(one.type)} is not evaluated by Kalda")
    if name == "div":
        one, other = converted(one, pa.int64()), converted(other, pa.int64())

    def whole(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
        _refuse_zero(dividend, divisor, name)
        if name == "div":
            return pc.divide_checked(dividend, divisor)
        minus_one = pc.equal(divisor, pa.scalar(-1, divisor.type))
        quotient = pc.divide(dividend, pc.if_else(minus_one, pa.scalar(1, divisor.type), divisor))
        rest = pc.subtract(dividend, pc.multiply(quotient, divisor))
        return pc.if_else(pc.and_(minus_one, dividend.is_valid()), pa.scalar(0, divisor.type), rest)

    return applied(one.type, _safely(whole, name), one, other, fails=True, is_reversed=True)


def _refuse_zero(dividend: pa.Array, divisor: pa.Array, name: str) -> None:
    zero = pc.and_(pc.equal(divisor, pa.scalar(0, divisor.type)), dividend.is_valid())
    if pc.any(zero, skip_nulls=True).as_py():
        raise SqlError(f"division by zero in {name}")


def _numbers(name: str, arguments: list[Compiled]) -> tuple[Compiled, Compiled]:
    one, other = arguments
    kinds = {one.type, other.type}
    exact = all(a.type in INTEGERS or pa.types.is_decimal128(a.type) for a in arguments)
    if any(a.type not in (*INTEGERS, *FLOATS) for a in arguments) and (exact or pa.float64() not in kinds):
        raise UnsupportedSqlError(
            f"{type_name(one.type)} {name} {type_name(other.type)} is not evaluated by Kalda; add casts"
        )
    kind = common_type(one.type, other.type)
    if kind not in (*INTEGERS, *FLOATS):
        raise UnsupportedSqlError(f"{name} of {type_name(kind)} is not evaluated by Kalda")
    return converted(one, kind), converted(other, kind)


def _safely(function: Callable[..., pa.Array], name: str) -> Callable[..., pa.Array]:
    def run(*values: pa.Array) -> pa.Array:
        try:
            return function(*values)
        except pa.ArrowInvalid as error:
            raise SqlError(f"{name}: {error}") from error

    return run


def _conditional(conditions: Sequence[Compiled], values: Sequence[Compiled]) -> Compiled:
    """Return the first value whose condition is true, else the last; each is computed where wanted."""
    kind = reduce(common_type, [value.type for value in values])
    if {pa.date32(), TIMESTAMP} <= {value.type for value in values}:
        raise UnsupportedSqlError("dates and timestamps in one column are not evaluated by Kalda; add a cast")
    results = [converted(value, kind) for value in values]

    def choose(rows: pa.RecordBatch) -> pa.Array:
        left = pa.repeat(pa.scalar(True), rows.num_rows)
        masks: list[pa.BooleanArray] = []
        for condition in conditions:
            found = is_true(values_where(condition, rows, left))
            masks.append(pc.and_(left, found))
            left = pc.and_not(left, found)
        chosen = values_where(results[-1], rows, left)
        for mask, result in zip(masks, results, strict=False):
            chosen = pc.if_else(mask, values_where(result, rows, mask), chosen)
        return chosen

    return Compiled(kind, choose, any(part.may_fail for part in (*conditions, *results)))
