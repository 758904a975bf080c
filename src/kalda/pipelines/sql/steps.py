"""Reads the SQL of a transform's steps: what kind of step it is, and its parts as the user wrote them.

Spark runs the SQL, and what it gets is the user's own text: nothing is generated from a syntax tree, because
a parser's idea of a function or a cast may differ from Spark's. The tree only answers questions. A step
counts as row-wise only if each row of its result comes from one row.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from kalda.pipelines.sql.nodes import INPUT, MalformedSqlError
from kalda.pipelines.sql.token_checks import check_tokens

_MISSING: Final = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+'>")
_TOKEN: Final = re.compile(r" but got <Token .*>", re.DOTALL)
_DIALECT: Final = "spark"
_CLAUSES: Final = ("joins", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset")
_MORE_CLAUSES: Final = (
    "distinct",
    "laterals",
    "pivots",
    "windows",
    "qualify",
    "with_",
    "with",
    "sample",
    "hint",
)
_NOT_ROW_WISE: Final = (exp.AggFunc, exp.Window, exp.Join, exp.Subquery, exp.Select, exp.UDTF, exp.Explode)
_OPEN: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSE: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


@dataclass(frozen=True, slots=True)
class Projection:
    """One entry of a select list."""

    text: str
    """As written, with its alias."""
    is_star: bool
    except_columns: tuple[str, ...]
    """With a star: the columns of ``* except (a, b)``."""


@dataclass(frozen=True, slots=True)
class RowSql:
    """A step that makes at most one row of each row: ``select <list>``, ``where <condition>``, or both."""

    projections: tuple[Projection, ...]
    """Empty where the step is only a condition."""
    condition: str | None


@dataclass(frozen=True, slots=True)
class BatchSql:
    """A query over all rows of a batch, for example an aggregation or a join."""

    text: str
    reason: str
    """Why the step is not row-wise, for `validate`."""


def parse_step(text: str) -> RowSql | BatchSql:
    """Return the kind and the parts of a step.

    Raises:
        MalformedSqlError: it is no such SQL.
    """
    text = text.strip().rstrip(";").strip()
    if text[:5].lower() == "where" and not text[5:6].isidentifier():
        condition = text[5:].strip()
        check_condition(condition)
        return RowSql((), condition)
    tree = _parse(text, text)
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise MalformedSqlError(f"{text!r} is not allowed: a step begins with select or where")
    reason = _batch_reason(tree)
    if reason is not None:
        if not any(each.name.lower() == INPUT for each in tree.find_all(exp.Table)):
            raise MalformedSqlError(f"{text!r} reads nothing of the batch: {reason} needs `from {INPUT}`")
        return BatchSql(text, reason)
    return _row_sql(text, tree)


def check_condition(text: str) -> None:
    """Check a boolean expression on one row, of a where clause or an expectation.

    Raises:
        MalformedSqlError: it is no expression, or needs more than one row.
    """
    tree = _parse(f"select {text}", text)
    if (
        not isinstance(tree, exp.Select)
        or len(tree.expressions) != 1
        or _used_clauses(tree) - {"expressions"}
    ):
        raise MalformedSqlError(f"{text!r} is not allowed: it takes one expression")
    found = next(tree.expressions[0].find_all(*_NOT_ROW_WISE), None)
    if found is not None:
        raise MalformedSqlError(f"{text!r} is not allowed: {found.key} needs more than one row")


def expand_stars(text: str, columns: Sequence[str]) -> str:
    """Return an expression with each ``*`` among arguments, as in ``struct(*)``, replaced by columns."""
    tokens = sqlglot.tokenize(text, read=_DIALECT)
    stars = [
        token
        for before, token, behind in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.token_type is TokenType.STAR
        and before.token_type in (TokenType.L_PAREN, TokenType.COMMA)
        and behind.token_type in (TokenType.R_PAREN, TokenType.COMMA)
    ]
    listed = ", ".join("`" + name.replace("`", "``") + "`" for name in columns)
    for token in reversed(stars):
        text = f"{text[: token.start]}{listed}{text[token.end + 1 :]}"
    return text


def _parse(sql: str, shown: str) -> exp.Expression:
    try:
        tokens = sqlglot.tokenize(sql, read=_DIALECT)
        trees = [each for each in sqlglot.parse(sql, dialect=_DIALECT) if each is not None]
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        # sqlglot names its own classes: of the operator where an operand is missing, and of what it met.
        message = _MISSING.sub("an operand is missing", details[0].get("description") or str(error))
        message = _TOKEN.sub("", message)
        where = details[0].get("highlight")
        near = f" near {where!r}" if where else ""
        raise MalformedSqlError(f"{shown!r} is not SQL: {message.rstrip('.')}{near}") from None
    except RecursionError:
        raise MalformedSqlError(f"{shown[:60]!r}... is nested too deeply") from None
    if not trees:
        raise MalformedSqlError("an empty step is not allowed: it takes `select ...` or `where ...`")
    if len(trees) != 1:
        raise MalformedSqlError(f"{shown!r} has {len(trees)} statements; a step is one")
    check_tokens(sql, tokens)
    return trees[0]


def _used_clauses(tree: exp.Expression) -> set[str]:
    return {name for name, value in tree.args.items() if value}


def _batch_reason(tree: exp.Expression) -> str | None:
    if not isinstance(tree, exp.Select):
        return "a set operation"
    used = _used_clauses(tree)
    for clause in (*_CLAUSES, *_MORE_CLAUSES):
        if clause in used:
            return f"the clause {clause.rstrip('_')}"
    for node in tree.find_all(*_NOT_ROW_WISE):
        if node is not tree:
            return f"{node.key}"
    tables = list(tree.find_all(exp.Table))
    for table in tables:
        if table.name.lower() != INPUT or table.db:
            return f"the table {table.sql()}"
        if table.alias:
            return "an alias of the view"
    return None


def _row_sql(text: str, tree: exp.Select) -> RowSql:
    tokens = sqlglot.tokenize(text, read=_DIALECT)
    assert tokens[0].token_type is TokenType.SELECT, text
    end = len(text)
    where = _top_level(tokens, TokenType.WHERE)
    condition = None
    if where is not None:
        condition = text[tokens[where].end + 1 : end].strip()
        end = tokens[where].start
    source = _top_level(tokens[:where], TokenType.FROM)
    if source is not None:
        end = tokens[source].start
        behind = tokens[source + 2 : where]
        if behind:
            raise MalformedSqlError(f"{text!r} is not SQL: {behind[0].text!r} stands behind `from {INPUT}`")
    listed = [token for token in tokens[1:] if token.start < end]
    if not listed:
        raise MalformedSqlError(f"{text!r} is not SQL: the select list is empty")
    return RowSql(tuple(_projections(text, listed, end, tree)), condition)


def _top_level(tokens: Sequence[Token], kind: TokenType) -> int | None:
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        # `a is distinct from b` has no clause.
        if depth == 0 and token.token_type is kind and tokens[index - 1].token_type is not TokenType.DISTINCT:
            return index
    return None


def _projections(text: str, tokens: Sequence[Token], end: int, tree: exp.Select) -> list[Projection]:
    starts, depth = [tokens[0].start], 0
    ends = []
    for token in tokens:
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if depth == 0 and token.token_type is TokenType.COMMA:
            ends.append(token.start)
            starts.append(token.end + 1)
    ends.append(end)
    parts = [text[start:stop].strip() for start, stop in zip(starts, ends, strict=True)]
    if len(parts) != len(tree.expressions):
        raise MalformedSqlError(
            f"{text!r}: the select list cannot be divided; put expressions in parentheses"
        )
    return [_projection(part, node) for part, node in zip(parts, tree.expressions, strict=True)]


def _projection(part: str, node: exp.Expression) -> Projection:
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        star = node if isinstance(node, exp.Star) else node.this
        if star.args.get("replace") or star.args.get("rename"):
            raise MalformedSqlError(
                f"{part!r} is not allowed: name the columns, or use * and * except (a, b)"
            )
        if isinstance(node, exp.Column) and node.table.lower() != INPUT:
            return Projection(part, is_star=False, except_columns=())
        excepted = star.args.get("except_") or star.args.get("except") or ()
        return Projection(part, is_star=True, except_columns=tuple(each.name for each in excepted))
    if not isinstance(node, exp.Alias | exp.Column | exp.Dot):
        raise MalformedSqlError(f"{part!r} has no name: write `{part} as name`")
    return Projection(part, is_star=False, except_columns=())
