"""The steps of a transform: which are row-wise, and what they consist of."""

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.sql.nodes import MalformedSqlError
from kalda.pipelines.sql.steps import BatchSql, Projection, RowSql, parse_step

STAR = Projection("*", is_star=True, except_columns=())


def column(text: str) -> Projection:
    return Projection(text, is_star=False, except_columns=())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select *, to_date(ts) dt", RowSql((STAR, column("to_date(ts) dt")), None)),
        ("where amount is not null;", RowSql((), "amount is not null")),
        (
            "SELECT key, to_json(struct(*)) value WHERE amount>1000",
            RowSql((column("key"), column("to_json(struct(*)) value")), "amount>1000"),
        ),
        (
            "select a, b as c from input where x is distinct from y and z = 'a, from b'",
            RowSql((column("a"), column("b as c")), "x is distinct from y and z = 'a, from b'"),
        ),
        ("select extract(year from ts) y from input", RowSql((column("extract(year from ts) y"),), None)),
        (
            "select * except (a, b), c",
            RowSql(
                (Projection("* except (a, b)", is_star=True, except_columns=("a", "b")), column("c")), None
            ),
        ),
    ],
)
def test_a_row_wise_step_is_divided_as_it_is_written(text: str, expected: RowSql) -> None:
    """Spark gets the user's own text, not what a parser makes of it."""
    assert expected == parse_step(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("select sum(x) s from input", "sum"),
        ("select a from input group by a", "the clause group"),
        ("select distinct a from input", "the clause distinct"),
        ("select a from input order by a", "the clause order"),
        ("select i.a from input i", "an alias of the view"),
        ("select a, d.b from input join d on input.k = d.k", "the clause joins"),
        ("with q as (select * from input) select * from q", "the clause with"),
        ("select explode(a) b from input", "explode"),
        ("select a, row_number() over (order by b) n from input", "window"),
        ("select a from input union all select a from input", "a set operation"),
        ("select (select max(x) from d) m from input", "subquery"),
    ],
)
def test_other_queries_need_the_whole_batch(text: str, reason: str) -> None:
    """A step counts as row-wise only if each row of its result comes from one row."""
    parsed = parse_step(text)
    assert isinstance(parsed, BatchSql)
    assert (text, reason) == (parsed.text, parsed.reason)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selec x", "a step begins with select or where"),
        ("drop table x", "a step begins with select or where"),
        ("select a; select b", "has 2 statements; a step is one"),
        ("select x+1", "'x+1' has no name: write `x+1 as name`"),
        ("where x >", "'x >' is not SQL"),
        ("select x from", "is not SQL: Expected table name near 'from'"),
        ("where sum(x) > 1", "sum needs more than one row"),
        ("select sum(x) s", "reads nothing of the batch: sum needs `from input`"),
        ("select 1 as x from other", "reads nothing of the batch: the table other needs `from input`"),
        ("", "an empty step is not allowed"),
    ],
)
def test_a_wrong_step_is_refused_with_its_text(text: str, message: str) -> None:
    """The message must be understood without the parser's words."""
    with pytest.raises(MalformedSqlError, match=r".*") as raised:
        parse_step(text)
    assert message in str(raised.value)
