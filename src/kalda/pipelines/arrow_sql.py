"""Translates simple SQL to Arrow expressions, so that a pipeline needs no SQL engine.

The subset is small and exact: columns, literals, comparisons, ``and``, ``or``, ``not``, ``is null``, ``in``,
``between``, and some functions of timestamps. What a maintainer must not break: a translated expression has
the value that Spark gives it, for null, NaN and every type; what might differ raises `NotDirectError`, and
the pipeline then runs in Spark. The session's time zone is UTC.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FilterStep, ProjectStep, RowStep
from kalda.pipelines.sql_text import Projection, RowSql, parse_expression, parse_projection

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class NotDirectError(ValueError):
    """An expression is outside the subset; the message says which part and why."""


class Typed:
    """An expression with the type of its value."""

    __slots__ = ("expression", "type")

    def __init__(self, expression: pc.Expression, type_: pa.DataType) -> None:
        self.expression: Final = expression
        self.type: Final = type_


def row_steps(sql: RowSql, schema: pa.Schema) -> tuple[tuple[RowStep, ...], pa.Schema]:
    """Return the steps on Arrow batches for a step in SQL, and the columns behind them.

    Raises:
        NotDirectError: the step is outside the subset.
    """
    steps: list[RowStep] = []
    if sql.condition is not None:
        steps.append(FilterStep(condition(sql.condition, schema)))
    if sql.projections:
        columns = [column for each in sql.projections for column in _columns(each, schema)]
        names = [name.lower() for name, _ in columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise NotDirectError(f"the column {twice} occurs twice in the result")
        steps.append(ProjectStep(tuple((name, typed.expression) for name, typed in columns)))
        schema = pa.schema([pa.field(name, typed.type) for name, typed in columns])
    return tuple(steps), schema


def condition(text: str, schema: pa.Schema) -> pc.Expression:
    """Return a boolean expression.

    Raises:
        NotDirectError: it is outside the subset, or not boolean.
    """
    typed = _Translator(schema).typed(parse_expression(text))
    if not pa.types.is_boolean(typed.type):
        raise NotDirectError(f"{text!r} is {typed.type}, not boolean")
    return typed.expression


def _columns(projection: Projection, schema: pa.Schema) -> list[tuple[str, Typed]]:
    if projection.is_star:
        left_out = {name.lower() for name in projection.except_columns}
        absent = left_out - {name.lower() for name in schema.names}
        if absent:
            raise NotDirectError(f"there is no column {min(absent)} to leave out")
        return [
            (field.name, Typed(pc.field(field.name), field.type))
            for field in schema
            if field.name.lower() not in left_out and field.name != OFFSET_COLUMN
        ]
    node = parse_projection(projection)
    value = node.this if isinstance(node, exp.Alias) else node
    name = node.alias if isinstance(node, exp.Alias) else value.name
    return [(name, _Translator(schema).typed(value))]


class _Translator:
    """Translates the expressions of one step."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema: Final = schema

    def typed(self, node: exp.Expression) -> Typed:
        """Return the translation of a node; each kind has a method."""
        for kind, method in _METHODS:
            if isinstance(node, kind):
                return method(self, node)
        raise NotDirectError(f"{node.key} needs Spark")

    def boolean(self, node: exp.Expression) -> pc.Expression:
        """Return the translation of a node that must be boolean."""
        typed = self.typed(node)
        if not pa.types.is_boolean(typed.type):
            raise NotDirectError(f"{node.sql()} is {typed.type}, not boolean")
        return typed.expression

    def column(self, node: exp.Expression) -> Typed:
        """Return a column or a field of a structure."""
        parts = [part.name for part in node.parts]
        if len(parts) > 1 and parts[0].lower() == "input" and parts[0] not in self._schema.names:
            parts = parts[1:]
        type_: pa.DataType = pa.struct(list(self._schema))
        for part in parts:
            if not pa.types.is_struct(type_):
                raise NotDirectError(f"{'.'.join(parts)}: {part} is no field of {type_}")
            near = [field for field in type_ if field.name.lower() == part.lower()]
            if len(near) != 1 or near[0].name != part:
                raise NotDirectError(f"there is no column {'.'.join(parts)} of exactly this name")
            type_ = near[0].type
        return Typed(pc.field(*parts), type_)

    def literal(self, node: exp.Expression) -> Typed:
        """Return a text or a whole number; other numbers are decimals in Spark."""
        if node.is_string:
            return Typed(pc.scalar(str(node.this)), pa.string())
        if not str(node.this).isdecimal() or int(node.this) > INT64_MAX:
            raise NotDirectError(f"the number {node.this} needs Spark here")
        return _whole_number(int(node.this))

    def negative(self, node: exp.Expression) -> Typed:
        """Return a negative whole number; a negated column may overflow, which Spark reports."""
        value = node.this
        if not isinstance(value, exp.Literal) or value.is_string or not str(value.this).isdecimal():
            raise NotDirectError(f"{node.sql()} needs Spark")
        return _whole_number(-int(value.this))

    def true_or_false(self, node: exp.Expression) -> Typed:
        """Return true or false."""
        return Typed(pc.scalar(bool(node.this)), pa.bool_())

    def paren(self, node: exp.Expression) -> Typed:
        """Return what is in parentheses."""
        return self.typed(node.this)

    def both(self, node: exp.Expression) -> Typed:
        """Return ``a and b`` in three-valued logic."""
        return Typed(self.boolean(node.this) & self.boolean(node.expression), pa.bool_())

    def either(self, node: exp.Expression) -> Typed:
        """Return ``a or b`` in three-valued logic."""
        return Typed(self.boolean(node.this) | self.boolean(node.expression), pa.bool_())

    def negation(self, node: exp.Expression) -> Typed:
        """Return ``not a``."""
        return Typed(~self.boolean(node.this), pa.bool_())

    def is_null(self, node: exp.Expression) -> Typed:
        """Return ``a is null``, ``a is true`` and ``a is false``."""
        if isinstance(node.expression, exp.Null):
            return Typed(self.typed(node.this).expression.is_null(), pa.bool_())
        raise NotDirectError(f"{node.sql()} needs Spark")

    def comparison(self, node: exp.Expression) -> Typed:
        """Return a comparison of two values."""
        name = next(name for kind, name in _COMPARISONS.items() if isinstance(node, kind))
        return Typed(self.compared(name, node.this, node.expression), pa.bool_())

    def between(self, node: exp.Expression) -> Typed:
        """Return ``a between b and c``."""
        low = self.compared("greater_equal", node.this, node.args["low"])
        return Typed(low & self.compared("less_equal", node.this, node.args["high"]), pa.bool_())

    def one_of(self, node: exp.Expression) -> Typed:
        """Return ``a in (b, c)``: equal to one of them, null where that is not known."""
        if node.args.get("query") or node.args.get("unnest") or not node.expressions:
            raise NotDirectError(f"{node.sql()} needs Spark")
        result = self.compared("equal", node.this, node.expressions[0])
        for each in node.expressions[1:]:
            result = result | self.compared("equal", node.this, each)
        return Typed(result, pa.bool_())

    def compared(self, name: str, left: exp.Expression, right: exp.Expression) -> pc.Expression:
        """Return a comparison with Spark's common type of both sides and its order of NaN."""
        one, other = self.operand(left, right), self.operand(right, left)
        type_ = _common_type(one.type, other.type)
        a, b = one.expression.cast(type_, safe=False), other.expression.cast(type_, safe=False)
        plain = _call(name, a, b)
        if not pa.types.is_floating(type_):
            return plain
        # In Spark, NaN equals NaN and is greater than any other number.
        a_nan, b_nan = _call("is_nan", a), _call("is_nan", b)
        match name:
            case "equal":
                return plain | (a_nan & b_nan)
            case "not_equal":
                return plain & ~(a_nan & b_nan)
            case "greater":
                return plain | (a_nan & ~b_nan)
            case "greater_equal":
                return plain | a_nan
            case "less":
                return plain | (b_nan & ~a_nan)
            case _:
                return plain | b_nan

    def operand(self, node: exp.Expression, other: exp.Expression) -> Typed:
        """Return one side of a comparison; beside a double, a literal such as 1.5 is a double."""
        sign, value = (-1.0, node.this) if isinstance(node, exp.Neg) else (1.0, node)
        is_number = isinstance(value, exp.Literal) and not value.is_string
        is_exact = is_number and len(str(value.this)) <= _DIGITS_MAX
        if (
            is_exact
            and not isinstance(other, exp.Literal | exp.Neg)
            and self.typed(other).type == pa.float64()
        ):
            return Typed(pc.scalar(sign * float(value.this)), pa.float64())
        return self.typed(node)

    def date(self, node: exp.Expression) -> Typed:
        """Return ``to_date(ts)`` of a timestamp."""
        return Typed(self.timestamp(node).cast(pa.date32(), safe=False), pa.date32())

    def timestamp(self, node: exp.Expression) -> pc.Expression:
        """Return the argument of a function of timestamps, without its zone, which is UTC."""
        inner = node.this
        if isinstance(node, exp.Year | exp.Month | exp.Day) and isinstance(inner, exp.TsOrDsToDate):
            inner = inner.this  # the parser's own; the value is the same
        typed = self.typed(inner)
        if not pa.types.is_timestamp(typed.type) or typed.type.tz not in ("UTC", None):
            raise NotDirectError(f"{node.key} of {typed.type} needs Spark")
        return typed.expression.cast(pa.timestamp("us"), safe=False)

    def part(self, node: exp.Expression) -> Typed:
        """Return ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``, ``minute(ts)``."""
        name = next(name for kind, name in _PARTS.items() if isinstance(node, kind))
        return Typed(_call(name, self.timestamp(node)).cast(pa.int32()), pa.int32())

    def truncated(self, node: exp.Expression) -> Typed:
        """Return ``date_trunc('hour', ts)``."""
        unit = str(node.args["unit"].name).lower() if node.args.get("unit") is not None else ""
        if unit not in ("second", "minute", "hour", "day"):
            raise NotDirectError(f"date_trunc to {unit or 'that unit'} needs Spark")
        options = pc.RoundTemporalOptions(1, unit)
        expression = pc.Expression._call("floor_temporal", [self.timestamp(node)], options)
        zone = pa.timestamp("us", tz="UTC")
        return Typed(expression.cast(zone, safe=False), zone)


_DIGITS_MAX: Final = 15
"""A literal with more digits is a decimal that a double does not hold exactly."""

_COMPARISONS: Final[dict[type, str]] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
}
_PARTS: Final[dict[type, str]] = {
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
}
_METHODS: Final[Sequence[tuple[type | tuple[type, ...], Callable[[_Translator, exp.Expression], Typed]]]] = (
    (exp.Column, _Translator.column),
    (exp.Dot, _Translator.column),
    (exp.Literal, _Translator.literal),
    (exp.Neg, _Translator.negative),
    (exp.Boolean, _Translator.true_or_false),
    (exp.Paren, _Translator.paren),
    (exp.And, _Translator.both),
    (exp.Or, _Translator.either),
    (exp.Not, _Translator.negation),
    (exp.Is, _Translator.is_null),
    (tuple(_COMPARISONS), _Translator.comparison),
    (exp.Between, _Translator.between),
    (exp.In, _Translator.one_of),
    (exp.TsOrDsToDate, _Translator.date),
    (tuple(_PARTS), _Translator.part),
    (exp.TimestampTrunc, _Translator.truncated),
)


def _whole_number(value: int) -> Typed:
    type_ = pa.int32() if -INT32_MAX - 1 <= value <= INT32_MAX else pa.int64()
    return Typed(pc.scalar(pa.scalar(value, type_)), type_)


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return pa.int64()
    numbers = (pa.types.is_integer(each) or each == pa.float64() for each in (one, other))
    if all(numbers):
        return pa.float64()
    if one == other and (one in (pa.string(), pa.bool_(), pa.date32()) or pa.types.is_timestamp(one)):
        return one
    raise NotDirectError(f"comparing {one} with {other} needs Spark")


def _call(name: str, *arguments: pc.Expression) -> pc.Expression:
    return pc.Expression._call(name, list(arguments))
