"""Defines the syntax tree of a SQL expression.

They know no types; `kalda.pipelines.sql.compiler` gives them meaning.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

INPUT: Final = "input"
"""The view that a query reads: the rows of the step before."""


class MalformedSqlError(ValueError):
    """A step is not SQL that a transform may have; the message says why and shows the place in the text."""


class SqlError(ValueError):
    """An expression fails for a row, as in Spark: overflow, division by zero, a bad cast."""


class UnsupportedSqlError(ValueError):
    """Kalda does not evaluate this SQL itself; the message names the part. Spark may know it."""


class InvalidSqlError(UnsupportedSqlError):
    """Spark does not evaluate this SQL either: a column is missing, or a condition is no boolean.

    Attributes:
        column: The missing column, or None.
    """

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct column: ``a``, ``a.b``."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; null has the type null."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator with its arguments; operators are named by their sign or word."""

    name: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """``cast(argument as type)``; with `lenient`, ``try_cast``: what cannot be converted is null."""

    argument: "Node"
    type: pa.DataType
    lenient: bool


@dataclass(frozen=True, slots=True)
class Case:
    """``case when condition then value … else value end``."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"


Node = Column | Literal | Call | Cast | Case


@dataclass(frozen=True, slots=True)
class Star:
    """``*`` in a list of columns, or ``* except (a, b)``."""

    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a list of columns."""

    node: Node
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A projection and a filter; the filter sees the columns before the projection."""

    items: tuple[Star | Item, ...]
    where: Node | None
