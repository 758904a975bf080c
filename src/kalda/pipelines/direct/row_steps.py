"""Transforms Arrow batches row by row and counts the rows that each step drops.

A row is followed through the steps by the offset of its record, in a hidden last column. So the rows that a
function of the user drops are counted by what is missing afterwards, and a function that invents rows or
loses track of them is an error instead of an account that does not balance.

A step sees the hidden column only if it takes the whole batch (a Python function), and no step's result is
accepted whose hidden column is not a strictly rising part of its input's.
"""

import importlib
import importlib.util
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

OFFSET_COLUMN: Final = "__kalda_offset"
"""The hidden column: the offset of the record that a row comes from."""


_FRAMES_MAX: Final = 5
"""A message is one line of a status and a header of a dead letter; a recursion has a thousand frames."""


class StepError(ValueError):
    """A step of a transform cannot be used: its function is missing, fails or returns something else."""


class FailedRowsError(StepError):
    """A function raised an error, perhaps because of one of the rows that it was given."""


class RowStep(Protocol):
    """A step that makes at most one row of each row; pickled to the executors."""

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that stay, in order, with the hidden column."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """Calls a Python function with each Arrow batch.

    The function takes a `pyarrow.RecordBatch` and returns a `RecordBatch` or a `Table`. Filtering with
    ``batch.filter(mask)`` keeps the hidden column. A function that builds a new batch of as many rows need
    not know of the column; the rows then correspond by position.
    """

    function: str
    """``package.module:name``."""

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Call the function.

        Raises:
            StepError: the function does not exist, fails, or returns no rows of these.
        """
        function = load_function(self.function)
        try:
            returned = function(rows)
        except (Exception, SystemExit) as error:  # the end of a worker would hide which step wanted it
            size = f"{rows.num_rows} rows" if rows.num_rows else "no rows, by which its columns are found"
            raise FailedRowsError(
                f"{self.function} raised {type(error).__name__}: {_one_line(error)}; its batch had {size}"
                f"{_where(error, self.function)}"
            ) from error
        if isinstance(returned, pa.Table):
            returned = _one_batch(returned)
        if not isinstance(returned, pa.RecordBatch):
            raise StepError(
                f"{self.function} returned {type(returned).__name__}; "
                "it must return a pyarrow.RecordBatch or a pyarrow.Table"
            )
        if OFFSET_COLUMN not in returned.schema.names:
            if returned.num_rows != rows.num_rows:
                raise StepError(
                    f"{self.function} made {returned.num_rows} rows of {rows.num_rows} without the column "
                    f"{OFFSET_COLUMN}; drop rows with batch.filter(mask), or carry the column over"
                )
            returned = returned.append_column(OFFSET_COLUMN, rows.column(OFFSET_COLUMN))
        return returned


def apply_steps(rows: pa.RecordBatch, steps: Sequence[RowStep]) -> tuple[pa.RecordBatch, int]:
    """Return the rows behind all steps, still with the hidden column, and how many were dropped on the way.

    Raises:
        StepError: a step returned rows that its input does not have.
    """
    dropped = 0
    for step in steps:
        if not rows.num_rows:
            break
        stayed = step.apply(rows)
        dropped += _count_dropped(rows.column(OFFSET_COLUMN), stayed.column(OFFSET_COLUMN), step)
        rows = stayed
    return rows, dropped


def without_offsets(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows as the target gets them."""
    return rows.drop_columns([OFFSET_COLUMN])


def load_function(name: str) -> Callable[[pa.RecordBatch], object]:
    """Import ``package.module:name``.

    Raises:
        StepError: there is no such module or function.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise StepError(f"{name!r} is not of the form package.module:function")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:  # whatever the module of the user does
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        reason = f"{kind}{_one_line(error)}{_where(error, name)}"
        raise StepError(f"the function {name} cannot be imported: {reason}") from error
    if not callable(function):
        raise StepError(f"{name} is no function, but {type(function).__name__}")
    return function  # type: ignore[no-any-return]  # the module decides what it is


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _where(error: BaseException, function: str) -> str:
    """Return the last frames of an error that are in the function's module or package."""
    name = function.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    directories = tuple(f"{each}{os.sep}" for each in spec.submodule_search_locations or ())
    frames = [
        f"{os.path.basename(each.filename)}:{each.lineno} in {each.name}"
        for each in traceback.extract_tb(error.__traceback__)
        if each.filename == spec.origin or each.filename.startswith(directories)
    ]
    return f"; at {', '.join(frames[-_FRAMES_MAX:])}" if frames else ""


def _count_dropped(before: pa.Int64Array, after: pa.Int64Array, step: RowStep) -> int:
    dropped = len(before) - len(after)
    if after is before or (not dropped and after.equals(before)):
        return 0
    left, right = before.to_numpy(), after.to_numpy(zero_copy_only=False)
    if len(right) > 1 and int(np.diff(right).min()) < 1:
        raise StepError(f"{step} repeats or reorders rows; it must return the rows that stay in their order")
    missing = int(np.isin(left, right, assume_unique=True, invert=True).sum())
    if missing != dropped:
        raise StepError(f"{step} returned rows that it did not get")
    return missing


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
