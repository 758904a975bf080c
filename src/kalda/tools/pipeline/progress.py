"""Shows the progress of running pipelines: lines on stderr now and then, and a result at the end."""

from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Final

from kalda.command.output import Output
from kalda.tools.pipeline.status_table import status_table

if TYPE_CHECKING:
    from kalda.pipelines.engine.status import PipelineStatus

_LINES_EVERY_S: Final = 5.0


class ProgressView:
    """The view of one command."""

    def __init__(self, output: Output) -> None:
        self._output: Final = output
        self._next_s = monotonic() + _LINES_EVERY_S
        self._seen: dict[str, tuple[object, ...]] = {}

    def show(self, statuses: "Sequence[PipelineStatus]") -> None:
        """Write a line for each pipeline that has news, at most every five seconds."""
        now = monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _LINES_EVERY_S
        for each in statuses:
            news = (each.state, each.batches, each.lag, each.error)
            if self._seen.get(each.pipeline) != news:
                self._seen[each.pipeline] = news
                self._output.note(progress_line(each))

    def finish(self, statuses: "Sequence[PipelineStatus]") -> None:
        """Write the result."""
        self._output.result(
            {"pipelines": [asdict(each) for each in statuses]}, status_table(statuses, now_ms=None)
        )


def progress_line(status: "PipelineStatus") -> str:
    """Return what a pipeline does in one line."""
    lag = "unknown" if status.lag is None else f"{status.lag:,}"
    parts = [
        f"{status.pipeline}: {status.state}",
        f"{status.records:,} records in {status.batches:,} {'batch' if status.batches == 1 else 'batches'}",
        f"{status.records_per_second:,.0f} records/s",
        f"lag {lag}",
    ]
    if status.dlq:
        parts.append(f"{status.dlq:,} dead letters")
    if status.error is not None:
        parts.append(status.error)
    return ", ".join(parts)
