"""Makes Spark show an error of ours as one line instead of a traceback of its Python worker.

Spark formats an exception that leaves a Python source in the worker process, with its whole traceback, and
puts the text into its own exception. For an error that names what to do, the traceback hides the message.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from kalda.clients.errors import ClientError
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.value_columns import BadValueError

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""The variable by which PySpark decides, when it formats an exception, whether to leave the traceback out."""
_WORKER_VARIABLES: Final = "PYTHON_WORKER_FACTORY_"
"""How the variables of a worker that Spark started begin. A worker ends after an error, so the variable that
is set here does not outlive it."""


def one_line_errors(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T]:
    """Decorate a method that Spark calls: the errors that users cause or can cure lose their traceback."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _hiding_traceback():
            return method(self, *args, **kwargs)

    return call


def one_line_rows(rows: Iterator[T]) -> Iterator[T]:
    """Yield the rows of a task; an error on the way loses its traceback as in `one_line_errors`."""
    with _hiding_traceback():
        yield from rows


@contextmanager
def _hiding_traceback() -> Iterator[None]:
    try:
        yield
    except (OptionError, DataLossError, BadValueError, ClientError):
        if any(name.startswith(_WORKER_VARIABLES) for name in os.environ):
            os.environ[HIDE_TRACEBACK] = "1"
        raise
