"""Parses Spark SQL's expressions, and queries that are a projection and a filter, for Kalda's own compiler.

sqlglot reads the text; this module takes over the parts of its tree that mean the same in Spark, and refuses
the rest with `UnsupportedSqlError`, so that the planner leaves the query to Spark. The parser guesses
nothing: it refuses a node with an argument that is not named here, and an operator whose operands Spark's
precedence would group in another way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from kalda.formats.ddl import parse_type
from kalda.formats.spec import FormatError
from kalda.pipelines.sql.nodes import (
    INPUT,
    Call,
    Case,
    Cast,
    Column,
    Item,
    Literal,
    Node,
    Select,
    Star,
    UnsupportedSqlError,
)

TEXT_MAX: Final = 100_000

_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _UNARY = range(7)
_BINARY: Final[dict[type[exp.Expression], tuple[str, int]]] = {
    exp.Or: ("or", _OR),
    exp.And: ("and", _AND),
    exp.EQ: ("=", _PREDICATE),
    exp.NEQ: ("<>", _PREDICATE),
    exp.LT: ("<", _PREDICATE),
    exp.LTE: ("<=", _PREDICATE),
    exp.GT: (">", _PREDICATE),
    exp.GTE: (">=", _PREDICATE),
    exp.NullSafeEQ: ("<=>", _PREDICATE),
    exp.Add: ("+", _SUM),
    exp.Sub: ("-", _SUM),
    exp.DPipe: ("concat", _SUM),
    exp.Mul: ("*", _PRODUCT),
    exp.Div: ("/", _PRODUCT),
    exp.Mod: ("%", _PRODUCT),
    exp.IntDiv: ("div", _PRODUCT),
}
_LEVELS: Final[dict[type[exp.Expression], int]] = {
    **{kind: level for kind, (_, level) in _BINARY.items()},
    exp.Not: _NOT,
    exp.Is: _PREDICATE,
    exp.In: _PREDICATE,
    exp.Between: _PREDICATE,
    exp.Like: _PREDICATE,
    exp.ILike: _PREDICATE,
    exp.Neg: _UNARY,
}
_SUFFIXES: Final = (pa.int8(), pa.int16(), pa.int64(), pa.float32(), pa.float64())
"""Types of numbers with a suffix, as in ``-7L``, which sqlglot reads as a cast."""
_SILENT: Final = frozenset(["safe", "_type"])
"""Arguments of sqlglot's nodes that add nothing to their class."""


_CAST_PARSERS: Final = {name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")}


class _PlainSpark(Spark):  # type: ignore[misc]  # sqlglot has no types here
    """Spark's grammar with every function as the user named it; sqlglot would replace many by others."""

    class Parser(Spark.Parser):  # type: ignore[misc]
        STRICT_CAST: ClassVar = True
        FUNCTIONS: ClassVar[dict[str, object]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, object]] = _CAST_PARSERS


def parse_expression(text: str) -> Node:
    """Return a parsed expression.

    Raises:
        UnsupportedSqlError: It is malformed, or has a part that only Spark knows.
    """
    with _reading(text):
        (trees,) = _arguments(_parse(f"select {text}"), "expressions")
        if len(trees) != 1:
            raise UnsupportedSqlError(f"{text!r} is not one expression")
        return _node(trees[0])


def parse_select(text: str) -> Select:
    """Return a parsed step of a pipeline: ``select … [from input] [where …]`` or ``where …``.

    Raises:
        UnsupportedSqlError: It is malformed, or has a part that only Spark knows.
    """
    with _reading(text):
        tree = _parse(f"select * {text}" if text.lstrip()[:5].lower() == "where" else text)
        items, source, where = _arguments(tree, "expressions", "from_", "where")
        if source is not None and source != exp.From(this=exp.to_table(INPUT)):
            raise _unsupported(source)
        condition = None if where is None else _node(*_arguments(where, "this"))
        return Select(tuple(_item(item) for item in items), condition)


@contextmanager
def _reading(text: str) -> Iterator[None]:
    if len(text) > TEXT_MAX:
        raise UnsupportedSqlError(f"the SQL has {len(text)} characters; at most {TEXT_MAX} are read")
    try:
        yield
    except SqlglotError as error:
        raise UnsupportedSqlError(f"{text!r} is not read: {error}") from error
    except RecursionError:
        raise UnsupportedSqlError(f"{text[:60]!r}... is nested too deeply") from None


def _parse(sql: str) -> exp.Expression:
    trees = [tree for tree in sqlglot.parse(sql, dialect=_PlainSpark) if tree is not None]
    if len(trees) != 1 or not isinstance(trees[0], exp.Select) or not trees[0].expressions:
        raise UnsupportedSqlError(f"{sql!r} is not one `select ...` or `where ...`")
    return trees[0]


def _arguments(tree: exp.Expression, *names: str) -> list[Any]:
    """Return arguments of a node by name, and refuse a node that has others."""
    if any(value for name, value in tree.args.items() if name not in (*names, *_SILENT)):
        raise _unsupported(tree)
    return [tree.args.get(name) for name in names]


def _unsupported(tree: exp.Expression) -> UnsupportedSqlError:
    return UnsupportedSqlError(f"{tree.sql(dialect=_PlainSpark)!r} is not evaluated by Kalda")


def _item(tree: exp.Expression) -> Star | Item:
    match tree:
        case exp.Star():
            (left_out,) = _arguments(tree, "except_")
            return Star(tuple(name for column in left_out or () for name in _path(column)))
        case exp.Alias():
            node, alias = _arguments(tree, "this", "alias")
            return Item(_node(node), alias.name)
        case exp.Column() | exp.Dot():
            path = _path(tree)
            return Item(Column(path), path[-1])
    raise UnsupportedSqlError(f"{tree.sql(dialect=_PlainSpark)!r} has no name (add: as name)")


def _node(tree: exp.Expression) -> Node:
    binary = _BINARY.get(type(tree))
    if binary is not None:
        return Call(binary[0], _operands(tree, "this", "expression"))
    match tree:
        case exp.Column() | exp.Dot():
            return Column(_path(tree))
        case exp.Paren():
            return _node(_arguments(tree, "this")[0])
        case exp.Literal() | exp.Boolean() | exp.Null():
            return Literal(_constant(tree, 1))
        case exp.Neg():
            return _negative(tree)
        case exp.Not():
            return Call("not", _operands(tree, "this"))
        case exp.Is():
            return _is(tree)
        case exp.In():
            node, options = _arguments(tree, "this", "expressions")
            return Call("in", (_operand(tree, node), *map(_node, options)))
        case exp.Between():
            node, low, high = _operands(tree, "this", "low", "high")
            return Call("and", (Call(">=", (node, low)), Call("<=", (node, high))))
        case exp.Like() | exp.ILike():
            return _like(tree)
        case exp.Cast():
            return Cast(
                _operands(tree, "this", beside=("to",))[0], _type(tree), isinstance(tree, exp.TryCast)
            )
        case exp.Case():
            return _case(tree)
        case exp.If():
            parts = _arguments(tree, "this", "true", "false")
            return Call("if", tuple(_node(part) for part in parts if part is not None))
        case exp.Anonymous():
            name, arguments = _arguments(tree, "this", "expressions")
            return Call(name.lower(), tuple(map(_node, arguments or ())))
    raise _unsupported(tree)


def _operands(tree: exp.Expression, *names: str, beside: tuple[str, ...] = ()) -> tuple[Node, ...]:
    operands = _arguments(tree, *names, *beside)[: len(names)]
    return tuple(_operand(tree, operand, index > 0) for index, operand in enumerate(operands))


def _operand(tree: exp.Expression, operand: exp.Expression, is_right: bool = False) -> Node:
    """Return an operand, if Spark's precedence and its grouping from the left give it to this operator."""
    level, inner = _LEVELS.get(type(tree), _UNARY), _LEVELS.get(type(operand), _UNARY)
    if inner < level or (
        inner == level and (level == _PREDICATE or (is_right and level in (_SUM, _PRODUCT)))
    ):
        raise UnsupportedSqlError(f"{tree.sql(dialect=_PlainSpark)!r} is ambiguous; add parentheses")
    return _node(operand)


def _path(tree: exp.Expression) -> tuple[str, ...]:
    if isinstance(tree, exp.Dot):
        node, field = _arguments(tree, "this", "expression")
        if isinstance(field, exp.Identifier):
            return (*_path(node), field.name)
    elif isinstance(tree, exp.Column):
        parts = [part for part in _arguments(tree, "catalog", "db", "table", "this") if part is not None]
        if all(isinstance(part, exp.Identifier) for part in parts):
            return tuple(part.name for part in parts)
    raise _unsupported(tree)


def _negative(tree: exp.Neg) -> Node:
    """Return a negated expression; the sign of a number is a part of it, so that the least number fits.

    The least number with a suffix, as ``-128Y``, is left to Spark: sqlglot reads ``-cast(128 as tinyint)``,
    which fails.
    """
    (argument,) = _arguments(tree, "this")
    if isinstance(argument, exp.Literal) and not argument.is_string:
        return Literal(_constant(argument, -1))
    if isinstance(argument, exp.Cast) and isinstance(argument.this, exp.Literal):
        kind = _type(argument)
        if argument.this.is_string or kind not in _SUFFIXES:
            raise _unsupported(tree)
        try:
            return Literal(pc.negate_checked(_constant(argument.this, 1).cast(kind)))
        except pa.ArrowInvalid as error:
            raise _unsupported(tree) from error
    return Call("negate", (_operand(tree, argument),))


def _constant(tree: exp.Expression, sign: int) -> pa.Scalar:
    match tree:
        case exp.Null():
            return pa.scalar(None, pa.null())
        case exp.Boolean():
            return pa.scalar(tree.this)
        case exp.Literal() if tree.is_string:
            return pa.scalar(tree.this, pa.string())
    text: str = tree.this
    try:
        if "e" in text.lower():
            return pa.scalar(sign * float(text), pa.float64())
        if "." in text:
            value = Decimal(text).copy_sign(sign)  # a product would be rounded to 28 digits
            _, numerals, exponent = value.as_tuple()
            scale = -int(exponent)
            return pa.scalar(value, pa.decimal128(max(len(numerals), scale, 1), scale))
        number = sign * int(text)
        return pa.scalar(number, pa.int32() if -(1 << 31) <= number < 1 << 31 else pa.int64())
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise _unsupported(tree) from error


def _type(tree: exp.Cast) -> pa.DataType:
    try:
        return parse_type(tree.to.sql(dialect=_PlainSpark))
    except FormatError as error:
        raise UnsupportedSqlError(str(error)) from error


def _is(tree: exp.Is) -> Node:
    node, what = _operands(tree, "this", "expression")
    match what:
        case Literal(value) if pa.types.is_null(value.type):
            return Call("isnull", (node,))
        case Literal(value) if pa.types.is_boolean(value.type):
            return Call("<=>", (node, what))
    raise _unsupported(tree)


def _like(tree: exp.Like | exp.ILike) -> Node:
    node, pattern = _operands(tree, "this", "expression", beside=("negate",))
    if isinstance(tree, exp.ILike):
        node, pattern = Call("lower", (node,)), Call("lower", (pattern,))
    like = Call("like", (node, pattern))
    return Call("not", (like,)) if tree.args.get("negate") else like


def _case(tree: exp.Case) -> Node:
    subject, branches, otherwise = _arguments(tree, "this", "ifs", "default")
    parts: list[tuple[Node, Node]] = []
    for branch in branches:
        condition, value = map(_node, _arguments(branch, "this", "true"))
        if subject is not None:
            condition = Call("=", (_node(subject), condition))
        parts.append((condition, value))
    return Case(tuple(parts), None if otherwise is None else _node(otherwise))
