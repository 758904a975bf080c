"""Finds in the tokens of a step what Spark's parser refuses and sqlglot reads.

Typed literals are the main case: ``date'2026-02-30'`` is no SQL for Spark, while sqlglot makes the cast of a
text of it, which fails row by row.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

import numpy as np
from sqlglot.tokens import Token, TokenType

from kalda.pipelines.sql.casts import BLANKS, date_of_text, is_special_moment, timestamp_of_text
from kalda.pipelines.sql.nodes import MalformedSqlError

_MOMENTS: Final[dict[str, Callable[[str], object | None]]] = {
    "date": date_of_text,
    "timestamp": timestamp_of_text,
    "timestamp_ltz": timestamp_of_text,
}
_WHOLE_BITS: Final = {"y": 8, "s": 16, "l": 64}
_DECIMAL_DIGITS: Final = 38
_LISTS: Final = frozenset({TokenType.GROUP_BY, TokenType.PARTITION_BY})
"""Clauses that sqlglot takes without an expression."""
_ENDS: Final = frozenset(
    {
        TokenType.R_PAREN,
        TokenType.HAVING,
        TokenType.ORDER_BY,
        TokenType.SORT_BY,
        TokenType.CLUSTER_BY,
        TokenType.DISTRIBUTE_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
        TokenType.UNION,
        TokenType.EXCEPT,
        TokenType.INTERSECT,
        TokenType.WINDOW,
        TokenType.ROWS,
        TokenType.RANGE,
    }
)


def check_tokens(text: str, tokens: Sequence[Token]) -> None:
    """Check the tokens of a statement for clauses and literals that Spark refuses.

    Raises:
        MalformedSqlError: One of them is no SQL in Spark.
    """
    for before, token, behind in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.token_type in _LISTS and (behind is None or behind.token_type in _ENDS):
            raise MalformedSqlError(
                f"{text!r} is not SQL: an expression is missing behind {token.text.lower()!r}"
            )
        if behind is None:
            continue
        if token.token_type is TokenType.IN and behind.token_type is TokenType.L_PAREN:
            following = next((each for each in tokens if each.start > behind.start), None)
            if following is not None and following.token_type is TokenType.R_PAREN:
                raise MalformedSqlError(f"{text!r} is not SQL: `in ()` has no value")
        if behind.token_type is TokenType.STRING:
            _check_moment(token, behind)
        if token.token_type is TokenType.NUMBER:
            is_negative = before is not None and before.token_type is TokenType.DASH
            _check_number(token, behind, text[token.start : token.end + 1], is_negative)


def _check_moment(kind: Token, literal: Token) -> None:
    read = _MOMENTS.get(kind.text.lower())
    value = literal.text.strip(BLANKS)
    if read is not None and read(value) is None and not is_special_moment(value):
        raise MalformedSqlError(f"{kind.text}{literal.text!r} is no {kind.text.lower()}")


def _check_number(number: Token, behind: Token, written: str, is_negative: bool) -> None:
    """Check a number, whose suffix the tokens have as a cast behind it."""
    has_suffix = behind.token_type is TokenType.DCOLON and behind.start == number.start
    suffix = written[len(number.text) :].lower() if has_suffix else ""
    value = Decimal(number.text)
    bits = _WHOLE_BITS.get(suffix)
    if bits is not None:
        limit = 1 << (bits - 1)
        fits = value == int(value) and (value <= limit if is_negative else value < limit)
    elif suffix == "bd" or (not suffix and "e" not in number.text.lower()):
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        fits = max(len(digits) + max(-scale, 0), scale) <= _DECIMAL_DIGITS
    else:
        double = float(value)
        with np.errstate(over="ignore"):
            fits = math.isfinite(np.float32(double) if suffix == "f" else double)
    if not fits:
        raise MalformedSqlError(f"the number {written} is too large for its type")
