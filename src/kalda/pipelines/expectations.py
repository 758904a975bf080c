"""Checks rows against the conditions of a pipeline (`expect`), before Spark or Kalda writes them.

A row meets an expectation when its condition is true; null is not true. Rows that fail one with ``drop`` are
left out, with ``dlq`` they become dead letters, with ``fail`` they stop the batch. A row is counted under the
first expectation that it fails, in the order of the file, with ``fail`` before ``dlq`` before ``drop``, so
that the numbers do not depend on how rows are spread over batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.spec.model import Expectation, OnFail
from kalda.pipelines.sql.nodes import InvalidSqlError, SqlError
from kalda.pipelines.sql.row_query import RowCondition

ERROR_CLASS: Final = "ExpectationFailed"
_ORDER: Final = (OnFail.FAIL, OnFail.DLQ, OnFail.DROP)


class CheckError(SqlError):
    """A condition fails for a row; the message names the expectation."""


class ExpectationFailedError(ValueError):
    """A row fails an expectation whose `on_fail` is `fail`; the message names the expectation and the row."""


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that becomes a dead letter.

    Args:
        row: Its index in the rows that were checked.
        expectation: The name of the expectation.
        message: The condition, for the header of the dead letter.
    """

    row: int
    expectation: str
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of the rows of a batch; each row is in exactly one of the three."""

    good: pa.BooleanArray
    """For each row whether it goes on."""
    dead: tuple[FailedRow, ...]
    """Ordered by row."""
    dropped: int


class Expectations:
    """The expectations of a pipeline; picklable.

    Raises:
        UnsupportedSqlError: Kalda does not evaluate a condition.
    """

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        ordered = sorted(expectations, key=lambda each: _ORDER.index(each.on_fail))
        self._checks: Final = [(each, RowCondition(each.check)) for each in ordered]

    def __bool__(self) -> bool:
        return bool(self._checks)

    @property
    def untyped_text(self) -> str | None:
        """The first condition of which only the columns show if Kalda evaluates it."""
        return next((condition.text for _, condition in self._checks if condition.depends_on_types), None)

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedSqlError` when a condition does not fit the columns."""
        for expectation, condition in self._checks:
            try:
                condition.check(schema)
            except InvalidSqlError as error:
                raise InvalidSqlError(f"expectation {expectation.name}: {error}") from error

    def check(self, rows: pa.RecordBatch, exempt: pa.BooleanArray | None = None) -> Checked:
        """Check each row but those that are `exempt`: a row that deletes another has no values but its keys.

        Raises:
            ExpectationFailedError: A row fails an expectation with `fail`.
            CheckError: A condition fails for a row, for example by a division by zero.
        """
        good = pa.repeat(pa.scalar(True), rows.num_rows)
        dead: list[FailedRow] = []
        dropped = 0
        for expectation, condition in self._checks:
            try:
                met = condition.met(rows)
            except SqlError as error:
                raise CheckError(f"expectation {expectation.name} ({expectation.check}): {error}") from error
            failed = pc.and_not(good, met if exempt is None else pc.or_(met, exempt))
            indices: list[int] = pc.indices_nonzero(failed).to_pylist()
            if not indices:
                continue
            match expectation.on_fail:
                case OnFail.FAIL:
                    raise ExpectationFailedError(
                        f"{len(indices)} of {rows.num_rows} rows fail the expectation {expectation.name} "
                        f"({expectation.check}), first {_shown(rows, indices[0])}; "
                        "set on_fail to dlq or drop to go on without such rows"
                    )
                case OnFail.DLQ:
                    message = f"{expectation.name}: {expectation.check} is not true"
                    dead += [FailedRow(index, expectation.name, message) for index in indices]
                case OnFail.DROP:
                    dropped += len(indices)
            good = pc.and_not(good, failed)
        return Checked(good, tuple(sorted(dead, key=lambda each: each.row)), dropped)


def _shown(rows: pa.RecordBatch, index: int) -> str:
    return str(rows.slice(index, 1).to_pylist()[0])[:300]
