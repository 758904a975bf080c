"""Decides whether a failed pipeline starts again, and when.

A decision without clock or threads. Failures are counted for each batch, so that a pipeline which makes
progress between failures is restarted for ever, and one that cannot pass a batch is not. Mirrors, publishers
and pipelines of a quiet topic have no batches that would show progress: theirs is a pass that ended well, or
a long time without a failure.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from kalda.pipelines.direct.range_job import BadRecordError
from kalda.pipelines.direct.row_steps import StepError
from kalda.pipelines.engine.errors import (
    NotThereYetError,
    PipelineStoppedError,
    PoisonBatchError,
    SourceLostError,
)
from kalda.pipelines.spec.model import Restart
from kalda.pipelines.tables import SchemaRefusedError, TableSpecError
from kalda.spark.source.data_loss import RecordsGoneError

_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?:: |$)")
"""The line of a traceback that names the exception."""
_CHAINED: Final = ("The above exception was the direct cause", "During handling of the above exception")
_JAVA: Final = re.compile(r"at [\w.$]+|Driver stacktrace|Caused by: ")
"""A line that ends a Python traceback."""
_OURS: Final = re.compile(r"\b(?P<name>kalda(?:\.\w+)+\.\w+(?:Error|Exception)): (?P<text>.+)")
"""An error of ours without its traceback, behind what Spark says of the call that raised it."""
_RECORDS_GONE: Final = f"{RecordsGoneError.__module__}.{RecordsGoneError.__qualname__}"
_EXPLAINED: Final = (
    f"{RecordsGoneError.__module__}.",
    "kalda.clients.",
    f"{StepError.__module__}.",  # names the lines of the user's module; the other frames are ours and Spark's
    f"{BadRecordError.__module__}.{BadRecordError.__qualname__}",
)
"""Errors whose message says all that a user needs, and modules that define such errors."""

_PERMANENT: Final = (SchemaRefusedError.__name__, TableSpecError.__name__)
"""The errors with which a table refuses rows permanently."""

HEALTHY_MS: Final = 600_000
"""A run of this length was healthy, and its end is a first failure: ten minutes, as Kubernetes has for its
restarts. Shorter than that, a run may only have waited for a broker, which clients do for a minute."""


@dataclass(slots=True)
class Restarts:
    """The failures of one pipeline."""

    pipeline: str
    policy: Restart
    batch_id: int | None = None
    """The batch that failed last; None for a failure before any batch."""
    failures: int = 0
    """The number of times in a row that the batch failed."""

    def made_progress(self) -> None:
        """Begin the count again: the next failure is of something else."""
        self.failures = 0

    def wait_ms(self, error: Exception, batch_id: int | None, ran_ms: int = 0) -> int:
        """Return the delay before the next start, after a failure of a run that lasted `ran_ms`.

        Raises:
            PipelineStoppedError: the pipeline must not start again; the message says why.
        """
        if isinstance(error, PipelineStoppedError):
            raise error
        name, reason = _name_and_text(error)
        if name == _RECORDS_GONE:
            raise SourceLostError(f"{self.pipeline}: {reason}") from error
        if batch_id != self.batch_id or ran_ms >= HEALTHY_MS:
            self.batch_id, self.failures = batch_id, 0
        self.failures += 1
        # The batch has the same columns at each try.
        is_permanent = name.rpartition(".")[2] in _PERMANENT
        is_last = self.failures >= self.policy.tries and not isinstance(error, NotThereYetError)
        if is_permanent or is_last:
            what = "before its first batch" if batch_id is None else f"in batch {batch_id}"
            is_once = is_permanent or self.failures == 1
            how = "failed" if is_once else f"failed {self.failures} times"
            last = "with" if is_once else "last with"
            passing = "" if is_permanent else "; `kalda pipeline pass` passes over a record"
            raise PoisonBatchError(
                f"{self.pipeline} {how} {what}, {last}: {reason.rstrip('.')}. It stays stopped; "
                f"correct the cause and start it again, it goes on with the same batch{passing}"
            ) from error
        return min(self.policy.backoff_ms << min(self.failures - 1, 30), self.policy.backoff_max_ms)


def first_line(error: BaseException) -> str:
    """Return an error's text in one line: of a worker's traceback, the last line."""
    return _name_and_text(error)[1]


def is_explained(error: BaseException) -> bool:
    """Return whether an error needs no traceback, such as that of a client or of a Python step."""
    return _name_and_text(error)[0].startswith(_EXPLAINED)


def _name_and_text(error: BaseException) -> tuple[str, str]:
    """Return the name of an error's class, of a worker's with its module, and what it says in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__, type(error).__name__
    # Spark puts the traceback of a Python worker into the message, before Java's. Its last line is the error
    # itself; of errors that were raised from each other, Python prints the cause first.
    for index, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            named = None
            for each in takewhile(lambda text: not _JAVA.match(text), lines[index + 1 :]):
                if each.startswith(_CHAINED):
                    named = None
                elif named is None and _ERROR.match(each):
                    named = each
            if named is not None:
                name, _, text = named.partition(": ")
                return name, text or named
        elif (found := _OURS.search(line)) is not None:
            return found["name"], found["text"]
    return type(error).__name__, lines[0]
