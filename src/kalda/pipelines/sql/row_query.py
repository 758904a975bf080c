"""Runs a projection and a filter in SQL as a step on Arrow batches, and a condition as a mask.

Both are picklable values: they hold the parsed text, and compile it for the schema of the first batch that
they see. Only the process that creates them imports the parser, which takes longer than a small task.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from kalda.pipelines.sql.compiler import check_functions, compile_node, depends_on_types, find_column
from kalda.pipelines.sql.nodes import (
    Column,
    InvalidSqlError,
    Item,
    Node,
    SqlError,
    Star,
    UnsupportedSqlError,
)
from kalda.pipelines.sql.values import Compiled, is_true, type_name


class RowQuery:
    """A step ``select … where …`` that makes at most one row of each row.

    Args:
        text: The SQL.
        carried: Hidden columns that the query does not see and that stay in the rows, behind the others.

    Raises:
        UnsupportedSqlError: The text is not a projection and a filter that Kalda evaluates.
    """

    def __init__(self, text: str, carried: Sequence[str] = ()) -> None:
        from kalda.pipelines.sql.parser import parse_select

        self.text = text
        self._carried = tuple(carried)
        self._select = parse_select(text)
        self._compiled: _Query | None = None
        for node in self._nodes():
            check_functions(node)

    def __getstate__(self) -> dict[str, object]:
        """Return the parsed query; functions are compiled again where they are used."""
        return self.__dict__ | {"_compiled": None}

    @property
    def depends_on_types(self) -> bool:
        """Whether only the columns show if Kalda evaluates the query."""
        return any(map(depends_on_types, self._nodes()))

    def _nodes(self) -> list[Node]:
        nodes = [item.node for item in self._select.items if isinstance(item, Item)]
        return nodes if self._select.where is None else [*nodes, self._select.where]

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that the step makes of the given ones.

        Raises:
            UnsupportedSqlError: Kalda does not evaluate the query on these columns.
        """
        return self._for(schema).schema

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay, in their order.

        Raises:
            SqlError: An expression fails for a row.
            UnsupportedSqlError: Kalda does not evaluate the query on these columns.
        """
        query = self._for(rows.schema)
        with _failures_of_rows():
            if query.where is not None:
                rows = rows.filter(is_true(query.where.values(rows)))
            if query.columns is None:
                return rows
            return pa.RecordBatch.from_arrays(
                [column.values(rows) for column in query.columns], schema=query.schema
            )

    def _for(self, schema: pa.Schema) -> "_Query":
        if self._compiled is None or not self._compiled.input.equals(schema):
            self._compiled = _Query(self, schema)
        return self._compiled


class _Query:
    """A query that is compiled for a schema."""

    def __init__(self, query: RowQuery, schema: pa.Schema) -> None:
        self.input = schema
        carried = query._carried
        seen = pa.schema([field for field in schema if field.name not in carried])
        where = query._select.where
        self.where: Compiled | None = None
        if where is not None:
            self.where = _condition(compile_node(where, schema), query.text)
        self.columns: list[Compiled] | None = None
        self.schema = schema
        if query._select.items == (Star(),):
            return
        self.columns = []
        names: list[str] = []
        for item in query._select.items:
            parts = _starred(item, seen) if isinstance(item, Star) else [item.name]
            names += parts
            if isinstance(item, Item):
                self.columns.append(_item_column(query, item, seen))
            else:
                self.columns += [_whole_column(schema, name) for name in parts]
        for name in names:
            if names.count(name) > 1:
                raise UnsupportedSqlError(f"the column {name!r} is made twice in {query.text!r}")
        fields = [pa.field(n, c.type) for n, c in zip(names, self.columns, strict=True)]
        for field in fields:
            if pa.types.is_null(field.type):
                raise UnsupportedSqlError(f"the column {field.name!r} is null without a type; add a cast")
        present = [name for name in carried if name in schema.names]
        self.columns += [_whole_column(schema, name) for name in present]
        self.schema = pa.schema([*fields, *[schema.field(name) for name in present]])


class RowCondition:
    """A condition in SQL, for example the check of an expectation.

    Raises:
        UnsupportedSqlError: Kalda does not evaluate the expression.
    """

    def __init__(self, text: str) -> None:
        from kalda.pipelines.sql.parser import parse_expression

        self.text = text
        self._node = parse_expression(text)
        check_functions(self._node)
        self._compiled: tuple[pa.Schema, Compiled] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the parsed condition; functions are compiled again where they are used."""
        return self.__dict__ | {"_compiled": None}

    @property
    def depends_on_types(self) -> bool:
        """Whether only the columns show if Kalda evaluates the condition."""
        return depends_on_types(self._node)

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedSqlError` when Kalda does not evaluate the condition on these columns."""
        self._for(schema)

    def met(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the condition is true; null is not true.

        Raises:
            SqlError: The condition fails for a row.
            UnsupportedSqlError: Kalda does not evaluate the condition on these columns.
        """
        condition = self._for(rows.schema)
        with _failures_of_rows():
            return is_true(condition.values(rows))

    def _for(self, schema: pa.Schema) -> Compiled:
        if self._compiled is None or not self._compiled[0].equals(schema):
            self._compiled = schema, _condition(compile_node(self._node, schema), self.text)
        return self._compiled[1]


@contextmanager
def _failures_of_rows() -> Iterator[None]:
    """Raise what Arrow refuses as an error of some of the rows, so that the others can be computed."""
    try:
        yield
    except (pa.ArrowException, OverflowError, MemoryError) as error:
        raise SqlError(f"{type(error).__name__}: {error}".rstrip(": ")) from error


def _starred(star: Star, schema: pa.Schema) -> list[str]:
    left_out = {find_column(name, schema) for name in star.left_out}
    return [name for index, name in enumerate(schema.names) if index not in left_out]


def _item_column(query: RowQuery, item: Item, schema: pa.Schema) -> Compiled:
    try:
        return compile_node(item.node, schema)
    except InvalidSqlError as error:
        # Spark also looks for a name among those that the same list gives to other expressions.
        if error.column is not None and any(_gives(each, error.column) for each in query._select.items):
            raise UnsupportedSqlError(str(error)) from error
        raise


def _gives(item: Star | Item, name: str) -> bool:
    """Whether an item gives a name to something else than the column of that name."""
    if isinstance(item, Star) or item.name.lower() != name.lower():
        return False
    return not (isinstance(item.node, Column) and item.node.path[-1].lower() == name.lower())


def _condition(compiled: Compiled, text: str) -> Compiled:
    if compiled.type != pa.bool_():
        kind = UnsupportedSqlError if pa.types.is_null(compiled.type) else InvalidSqlError
        raise kind(f"{text!r} is {type_name(compiled.type)}; a boolean is expected")
    return compiled


def _whole_column(schema: pa.Schema, name: str) -> Compiled:
    index = schema.names.index(name)
    return Compiled(schema.field(index).type, lambda rows: rows.column(index))
