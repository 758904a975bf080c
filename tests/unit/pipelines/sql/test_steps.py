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
        ("select a from input group by", "an expression is missing behind 'group by'"),
        ("select max(a) m from input group by having a > 1", "an expression is missing behind 'group by'"),
        ("with q as (select * from input group by) select * from q", "missing behind 'group by'"),
        ("select sum(a) over (partition by) s from input", "missing behind 'partition by'"),
        ("select a from input,", "',' stands behind `from input`"),
        ("select a from input tablesample", "'tablesample' stands behind `from input`"),
        ("select from input", "the select list is empty"),
        ("where a in ()", "`in ()` has no value"),
        ("select date'2026-02-30' d", "date'2026-02-30' is no date"),
        ('select Date "now UTC" d', "Date'now UTC' is no date"),
        ("where ts > timestamp '2026-01-01 25:00'", "timestamp'2026-01-01 25:00' is no timestamp"),
        ("select 128Y n", "the number 128Y is too large for its type"),
        ("select -129Y n", "the number 129Y is too large for its type"),
        ("select 1e400 n", "the number 1e400 is too large for its type"),
        ("select 1e39F n", "the number 1e39F is too large for its type"),
        ("select 1e38BD n", "the number 1e38BD is too large for its type"),
    ],
)
def test_a_wrong_step_is_refused_with_its_text(text: str, message: str) -> None:
    """The message must be understood without the parser's words."""
    with pytest.raises(MalformedSqlError, match=r".*") as raised:
        parse_step(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "select date'2026-2-1' a, date ' today UTC' b, timestamp'12:30' c, timestamp'epoch' d, 'date' || x e",
        "select -128Y a, 127Y b, 9223372036854775807L c, 1e308 d, 1e-400 e, 3.4e38F f, 1e37BD g, 1.5D h",
        "select 99999999999999999999999999999999999999 a, cast('2026-02-30' as date) b, `date` c, a as date",
        "select sum(a) over (partition by b order by c) s from `input` -- group by",
        "select max(a) m from input group by ()",
    ],
)
def test_literals_and_lists_of_spark_are_taken(text: str) -> None:
    """A check that is stricter than Spark would refuse pipelines that run."""
    parse_step(text)
