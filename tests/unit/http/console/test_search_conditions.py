"""Searches: what is entered in fields is a value and never a part of the statement."""

import pytest

from kalda.http.console.record_views import RecordQuery
from kalda.http.console.search_conditions import (
    ConditionError,
    condition_of,
    equivalent_command,
    statement_of,
)


def query(**parameters: str) -> RecordQuery:
    return RecordQuery.of("/topics/t/records", parameters)


@pytest.mark.parametrize("name", ["key", "value", "header", "equals"])
def test_values_are_parameters(name: str) -> None:
    hostile = "x' OR 1=1; DROP TABLE records; --"
    given = {name: hostile, "field": "$.a"}
    condition = condition_of(query(**given))

    assert "DROP" not in condition.text
    assert "DROP" not in statement_of(condition, is_backward=True)


def test_all_conditions_must_hold() -> None:
    condition = condition_of(
        query(key="a", value="b", header="h=v", field="$.x", equals="1", until="1000", where="true")
    )

    assert 5 == condition.text.replace("h.key = ? AND", "").count(" AND ")
    assert ("a", "b", "h", b"v", "$.x", "1", 1000) == condition.values


def test_a_comment_in_a_condition_ends_with_it() -> None:
    text = statement_of(condition_of(query(where="key = 'a' -- or so")), is_backward=True)

    assert "LIMIT ?" in text.splitlines()[-1]
    assert not text.splitlines()[-1].startswith("--")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"field": "customer.id", "equals": "1"}, "does not begin with"),
        ({"until": "soon"}, "is no time"),
    ],
)
def test_what_is_no_condition_is_said(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        condition_of(query(**parameters))


@pytest.mark.parametrize(
    "where",
    [
        "length(repeat('x', 4000000000)) > 0",
        "length(REPEAT/**/('x', 4000000000)) > 0",
        "length(\"repeat\"('x', 4000000000)) > 0",
        "key = 'it''s' AND length(lpad('x', 1000000000, 'y')) > 0",
        "(SELECT count(*) FROM range(1000000000000)) > 0",
        "key = \"a--b\" || repeat('x', 4000000000)",
        "$$'$$ || repeat('x', 4000000000) || $$'$$ = key",
        "E'\\'' || repeat('x', 4000000000) || '' = key",
    ],
)
def test_what_makes_a_large_value_of_a_small_one_is_refused(where: str) -> None:
    """DuckDB cannot interrupt such a call, so it would hold a thread and memory beyond all limits."""
    with pytest.raises(ConditionError, match="SQL condition"):
        condition_of(query(where=where))


@pytest.mark.parametrize(
    "where",
    [
        "value LIKE '%repeat(%'",
        "value->>'$.a' = 'it''s' AND key = '$x$'",
        "json_extract_string(value, '$.range') = 'x'",
    ],
)
def test_the_same_words_in_texts_are_allowed(where: str) -> None:
    assert where in condition_of(query(where=where)).text


def test_the_command_for_a_search_has_the_values() -> None:
    assert (
        'SELECT partition, "offset", timestamp, key, value FROM "my-topic" WHERE partition = 1 AND '
        "contains(key, 'it''s') LIMIT 50"
    ) == equivalent_command("my-topic", query(key="it's", partition="1"))
