"""SQL steps give the values and the types that Spark gave, without Spark."""

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.sql.row_query import RowCondition, RowQuery
from tests.golden.pipelines.sql_expressions import (
    EXPRESSIONS,
    FAILING,
    SCHEMA,
    SparkValues,
    batch,
    shown,
    spark_values,
    split,
)


def test_the_file_has_each_expression() -> None:
    assert split(EXPRESSIONS) == [each.text for each in spark_values()]


@pytest.mark.parametrize("expected", spark_values(), ids=lambda each: each.text)
def test_an_expression_has_sparks_type_and_values(expected: SparkValues) -> None:
    query = RowQuery(f"select {expected.text} as r")
    (column,) = query.apply(batch()).columns
    assert expected == SparkValues(expected.text, str(column.type), tuple(shown(column.to_pylist())))
    assert column.type == query.output_schema(SCHEMA).field(0).type


@pytest.mark.parametrize("expected", spark_values(), ids=lambda each: each.text)
def test_each_row_is_evaluated_by_itself(expected: SparkValues) -> None:
    """How a batch is cut must not show: neither in a row alone nor in none."""
    query = RowQuery(f"select {expected.text} as r")
    alone = [query.apply(batch().slice(index, 1)).column(0).to_pylist() for index in range(batch().num_rows)]
    assert list(expected.values) == shown([value for (value,) in alone])
    assert [] == query.apply(batch().slice(0, 0)).column(0).to_pylist()


@pytest.mark.parametrize("text", split(FAILING))
def test_an_expression_fails_where_spark_fails(text: str) -> None:
    """ANSI mode: a value that does not fit is an error and never null."""
    with pytest.raises(SqlError):
        RowQuery(f"select {text} as r").apply(batch())


def test_conditions_keep_the_rows_for_which_spark_has_true() -> None:
    """Null is not true, in a filter as in an expectation."""
    for expected in spark_values():
        if expected.type != "bool":
            continue
        met = [value == "True" for value in expected.values]
        assert (expected.text, met) == (expected.text, RowCondition(expected.text).met(batch()).to_pylist())
        kept = RowQuery(f"select s where {expected.text}").apply(batch())
        rows = pa.array(met)
        assert (expected.text, batch().filter(rows).column("s").to_pylist()) == (
            expected.text,
            kept.column(0).to_pylist(),
        )
