"""Makes the condition of a search from what a visitor entered. No I/O.

What is entered in fields goes into parameters of the statement; only the SQL condition is a part of its text.
Nothing but the records of one topic can be reached by it: DuckDB has no other table, no files and no network.
"""

import re
from dataclasses import dataclass
from typing import Final

from kalda.http.console.record_views import RecordQuery, time_ms_of

_TOKEN: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|.""", re.DOTALL)
_OTHER_LITERALS: Final = re.compile(r"\$|\b[eEuUxX]&?'")
_GROWING: Final = re.compile(
    r"\b(repeat|lpad|rpad|printf|format|bar|range|generate_series|list_resize|array_resize|list_pad_\w+)\b",
    re.IGNORECASE,
)
"""Functions that make a large value of a small one. DuckDB ends no call of a function in its middle, and its
limit of memory does not hold there."""


class ConditionError(Exception):
    """The entered text is not a valid condition; the message is for the visitor."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL over the columns of a topic, with the values of its parameters."""

    text: str
    values: tuple[str | bytes | int, ...]


def condition_of(query: RecordQuery) -> Condition:
    """Return the condition of a search.

    Raises:
        ConditionError: a time is no time, or a field's path does not begin with ``$``.
    """
    parts: list[str] = []
    values: list[str | bytes | int] = []
    if query.key:
        parts.append("contains(key, ?)")
        values.append(query.key)
    if query.value:
        parts.append("contains(value, ?)")
        values.append(query.value)
    if query.header:
        name, equals, wanted = query.header.partition("=")
        test = "h.key = ?" + (" AND h.value = ?" if equals else "")
        parts.append(f"len(list_filter(headers, lambda h: {test})) > 0")
        values += [name, wanted.encode()] if equals else [name]
    if query.field:
        if not query.field.startswith("$"):
            raise ConditionError(f"JSON field: {query.field!r} does not begin with $, as $.customer.id does")
        # Values that are no JSON do not match; without the first test they would end the statement.
        parts.append("CASE WHEN json_valid(value) THEN json_extract_string(value, ?) = ? END")
        values += [query.field, query.equals]
    if query.until:
        until = time_ms_of(query.until)
        if until is None:
            raise ConditionError(f"Before: {query.until!r} is no time; write 2026-11-22T14:30 (UTC)")
        parts.append("timestamp < make_timestamp(? * 1000) AT TIME ZONE 'UTC'")
        values.append(until)
    if query.where:
        _check(query.where)
        # A comment at its end must not reach what follows.
        parts.append(f"(\n{query.where}\n)")
    return Condition(" AND ".join(parts) or "true", tuple(values))


def _check(where: str) -> None:
    """Refuse a condition that could take unbounded time or memory.

    Raises:
        ConditionError: it calls such a function, or has a kind of literal that could hide the call.
    """
    # Each text in single quotes becomes an empty one, and comments end; what is left is what DuckDB runs.
    code = "".join(_code_of(each[0]) for each in _TOKEN.finditer(where))
    if _OTHER_LITERALS.search(code):
        raise ConditionError("SQL condition: write texts in single quotes, without a letter or $ before them")
    found = _GROWING.search(code)
    if found is not None:
        raise ConditionError(f"SQL condition: {found[0]} is not allowed in a search")


def _code_of(token: str) -> str:
    if len(token) == 1 or token[0] == '"':
        return token  # a name in double quotes is a name of a function, too
    return "''" if token[0] == "'" else " "


def statement_of(condition: Condition, *, is_backward: bool) -> str:
    """Return the statement that finds records; its last parameter is how many.

    The order is by time, but never against the offsets of a partition: a record counts as not older than
    those before it, whatever its producer says. So a search can go on at the offset at which it ended.
    """
    order = "DESC" if is_backward else "ASC"
    return (
        'SELECT partition, "offset", timestamp, key_bytes, value_bytes, headers, '
        'max(timestamp) OVER (PARTITION BY partition ORDER BY "offset") AS reached '
        f"FROM records WHERE {condition.text}\n"
        f'ORDER BY reached {order}, "offset" {order}, partition LIMIT ?'
    )


def equivalent_command(topic: str, query: RecordQuery) -> str:
    """Return the statement that `kalda sql` takes for the same search, with its values in the text."""
    condition = condition_of(query)
    text = condition.text
    for value in condition.values:
        text = text.replace("?", _literal(value), 1)
    table = '"' + topic.replace('"', '""') + '"'
    where = " ".join(text.split())
    if query.partition is not None:
        where = f"partition = {query.partition} AND {where}"
    return f'SELECT partition, "offset", timestamp, key, value FROM {table} WHERE {where} LIMIT {query.limit}'


def _literal(value: str | bytes | int) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f"encode({_literal(value.decode())})"
    return "'" + value.replace("'", "''") + "'"
