"""Applies the steps of a transform to a DataFrame in Spark's SQL engine.

Row by row, as long as steps allow it: a row that a step drops stays, without its columns, until the task that
writes counts it. So the number of filtered records is counted by tasks, and every record is accounted for.
A step that needs all rows of a batch ends this; the rows before it are counted, and it sees the good ones.

The hidden columns pass through every row-wise step, and no expression of the user is evaluated for a row that
an earlier step dropped.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kalda.pipelines.spec.model import PythonStep, SqlStep, TransformStep
from kalda.pipelines.sql.nodes import INPUT
from kalda.pipelines.sql.steps import Projection, RowSql, expand_stars, parse_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW: Final = "__kalda_row"
"""A structure with the columns of the row; null for a row that was dropped or is bad."""
OFFSET: Final = "__kalda_offset"
STATE: Final = "__kalda_state"
ERROR: Final = "__kalda_error"
TOMBSTONE: Final = "__kalda_tombstone"
HIDDEN: Final = (OFFSET, STATE, ERROR, TOMBSTONE)

GOOD: Final = 0
BAD: Final = 1
FILTERED: Final = 2

HIDDEN_DDL: Final = (
    f"{OFFSET} bigint, {STATE} int, {ERROR} struct<class: string, message: string, schema_id: int, "
    f"stage: string>, "
    f"{TOMBSTONE} boolean"
)
_KEEP: Final = "__kalda_keep"
_VIEW: Final = "__kalda_rows"


def is_row_wise(step: TransformStep) -> bool:
    """Return whether each row of a step's result comes from one row."""
    return isinstance(step, PythonStep) or isinstance(parse_step(step.text), RowSql)


def apply_row_sql(session: "SparkSession", frame: "DataFrame", step: RowSql) -> "DataFrame":
    """Return the rows behind a row-wise step, with all hidden columns."""
    columns = _row_columns(frame)
    seen = [f"{ROW}.{_quoted(name)} AS {_quoted(name)}" for name in columns]
    flat = frame.selectExpr(*seen, *HIDDEN)
    condition = "true" if step.condition is None else f"coalesce(({step.condition}\n), false)"
    kept = _query(
        session,
        flat,
        f"SELECT *, CASE WHEN {STATE} = {GOOD} THEN {condition} ELSE false END AS {_KEEP} FROM",
    )
    listed = ", ".join(_listed(each, columns) for each in step.projections or (_STAR,))
    state = f"CASE WHEN {STATE} = {GOOD} AND NOT {_KEEP} THEN {FILTERED} ELSE {STATE} END AS {STATE}"
    others = ", ".join(name for name in HIDDEN if name != STATE)
    return _query(
        session, kept, f"SELECT CASE WHEN {_KEEP} THEN struct({listed}) END AS {ROW}, {others}, {state} FROM"
    )


def add_columns(session: "SparkSession", frame: "DataFrame", added: Mapping[str, str]) -> "DataFrame":
    """Return rows with more columns, each with the value of an expression on the row."""
    if not added:
        return frame
    projections = [_STAR, *(Projection(f"({text}\n) AS {name}", False, ()) for name, text in added.items())]
    return apply_row_sql(session, frame, RowSql(tuple(projections), None))


def apply_batch_steps(
    session: "SparkSession", rows: "DataFrame", steps: Sequence[SqlStep], views: Mapping[str, "DataFrame"]
) -> "DataFrame":
    """Return the result of steps that see all rows of the batch.

    Names in the SQL are those of the session's temporary views, so the batch has a session of its own: other
    pipelines of the application use the same names.
    """
    for step in steps:
        parsed = parse_step(step.text)
        if isinstance(parsed, RowSql):
            listed = ", ".join(each.text for each in parsed.projections) or "*"
            where = "" if parsed.condition is None else f" WHERE {parsed.condition}"
            rows = _query(session, rows, f"SELECT {listed} FROM", where)
            continue
        for name, frame in {INPUT: rows, **views}.items():
            frame.createOrReplaceTempView(name)
        rows = session.sql(parsed.text)
    return rows


def _query(session: "SparkSession", rows: "DataFrame", head: str, tail: str = "") -> "DataFrame":
    """Return the result of a query whose `from` clause, between the two texts, is the rows."""
    rows.createOrReplaceTempView(_VIEW)
    # The plan refers to the rows themselves as soon as it is analyzed, so the name can be used again.
    return session.sql(f"{head} {_VIEW} AS {INPUT}{tail}")


def _row_columns(frame: "DataFrame") -> list[str]:
    from pyspark.sql.types import StructType

    row = frame.schema[ROW].dataType
    assert isinstance(row, StructType), row
    return row.names


def _listed(projection: Projection, columns: Sequence[str]) -> str:
    if not projection.is_star:
        return expand_stars(projection.text, columns)
    left_out = {name.lower() for name in projection.except_columns}
    return ", ".join(_quoted(name) for name in columns if name.lower() not in left_out)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_STAR: Final = Projection("*", is_star=True, except_columns=())
