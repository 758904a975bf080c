"""Runs the pipelines of a file in one Spark application, and starts them again after failures.

Every pipeline that reads topics is a streaming query in its own fair-scheduler pool. One loop looks at all of
them; it owns their status. What a maintainer must not break: a stop request ends each pipeline after its
current batch, and one pipeline's failure does not stop the others.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kalda.pipelines.engine.batch_runner import BatchOutcome
from kalda.pipelines.engine.errors import PipelineStoppedError
from kalda.pipelines.engine.lag import lag_of
from kalda.pipelines.engine.pipeline_run import PipelineRun
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.restarts import Restarts, first_line
from kalda.pipelines.engine.status import PipelineStatus, RunState, StatusFiles
from kalda.pipelines.spec.model import PipelineFile, TriggerKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: Final = logging.getLogger(__name__)

POLL_S: Final = 0.1
STATUS_EVERY_MS: Final = 2_000
LAG_EVERY_MS: Final = 5_000
_RATE_WEIGHT: Final = 0.3
"""Of the newest batch in the moving average of the rate."""


class Managed:
    """One pipeline under supervision."""

    def __init__(
        self, session: "SparkSession", plan: TopicPlan, file: PipelineFile, *, is_once: bool
    ) -> None:
        self._session: Final = session
        self._plan: Final = plan
        self._file: Final = file
        self._is_once: Final = is_once
        self._run: PipelineRun | None = None
        self._restarts: Final = Restarts(plan.spec.name, plan.spec.restart)
        self._next_start_ms = 0
        self._lag_ms = 0
        spec = plan.spec
        self.status: Final = PipelineStatus(
            spec.name, spec.kind.value, plan.execution.value, spec.target_name, started_ms=_now_ms()
        )
        self.error: Exception | None = None
        """Why the pipeline stopped for good."""

    @property
    def is_done(self) -> bool:
        """Whether the pipeline ended, well or not."""
        return self.status.state in (RunState.STOPPED, RunState.FAILED)

    def step(self, now_ms: int) -> None:
        """Start, restart or look at the pipeline."""
        if self.is_done:
            return
        if self._run is None:
            if now_ms >= self._next_start_ms:
                self._start()
            return
        if self._run.is_active:
            self._look_at_lag(now_ms)
            return
        error = self._run.error()
        batch_id = self._run.batch_id
        self._run.close()
        self._run = None
        if error is not None:
            self._failed(error, batch_id, now_ms)
        elif self._is_once or self._plan.spec.trigger.kind is TriggerKind.AVAILABLE_NOW:
            self._look_at_lag(now_ms + LAG_EVERY_MS)
            self.status.state = RunState.STOPPED
        else:
            self._next_start_ms = max(self._started_ms + self._plan.spec.trigger.interval_ms, now_ms)
            self.status.state = RunState.WAITING

    def stop(self) -> None:
        """End the pipeline after its current batch."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()
            run.close()
        if not self.is_done:
            self.status.state = RunState.STOPPED

    def _start(self) -> None:
        self._started_ms = _now_ms()
        try:
            self._run = PipelineRun(
                self._session, self._plan, self._file, is_once=self._is_once, report=self._report
            )
            self._run.start()
            self.status.state = RunState.RUNNING
        except Exception as error:
            if self._run is not None:
                self._run.close()
                self._run = None
            self._failed(error, None, _now_ms())

    def _failed(self, error: Exception, batch_id: int | None, now_ms: int) -> None:
        self.status.error = first_line(error)
        try:
            wait_ms = self._restarts.wait_ms(error, batch_id)
        except PipelineStoppedError as stopped:
            self.error = stopped
            self.status.error = str(stopped)
            self.status.state = RunState.FAILED
            return
        name, reason = self._plan.spec.name, first_line(error)
        logger.warning("%s failed and starts again in %.1f s: %s", name, wait_ms / 1000, reason)
        self.status.restarts += 1
        self.status.state = RunState.RESTARTING
        self._next_start_ms = now_ms + wait_ms

    def _report(self, outcome: BatchOutcome) -> None:
        """Take the outcome of a batch; called in the query's thread."""
        status, account = self.status, outcome.account
        status.batch_id, status.batch_ms, status.batch_seconds = account.batch_id, _now_ms(), outcome.seconds
        status.error = None
        if outcome.is_replay:
            return
        status.batches += 1
        for name in ("records", "rows_out", "dlq", "filtered", "late"):
            setattr(status, name, getattr(status, name) + account.total(name))
        status.bytes_read += outcome.bytes_read
        rate = account.total("records") / max(outcome.seconds, 1e-6)
        status.records_per_second += (rate - status.records_per_second) * (
            1.0 if status.batches == 1 else _RATE_WEIGHT
        )
        times = [each.event_time_max for each in account.ranges if each.event_time_max is not None]
        status.freshness_seconds = (status.batch_ms - max(times)) / 1000 if times else None

    def _look_at_lag(self, now_ms: int) -> None:
        if now_ms - self._lag_ms < LAG_EVERY_MS:
            return
        self._lag_ms = now_ms
        try:
            lags = lag_of(self._plan, self._file)
        except Exception as error:
            logger.warning("the lag of %s is not known: %s", self._plan.spec.name, first_line(error))
            self.status.lag = None
        else:
            self.status.lag = sum(each.lag for each in lags)


class Supervisor:
    """Runs pipelines until all have ended or a stop is requested."""

    def __init__(
        self,
        session: "SparkSession",
        plans: Sequence[TopicPlan],
        file: PipelineFile,
        *,
        is_once: bool,
        show: Callable[[Sequence[PipelineStatus]], None] = lambda _: None,
    ) -> None:
        self.managed: Final = [Managed(session, plan, file, is_once=is_once) for plan in plans]
        self._files: Final = StatusFiles(file.storage)
        self._show: Final = show
        self._is_stopping = False

    def request_stop(self) -> None:
        """Let `run` end each pipeline after its current batch; may be called from a signal handler."""
        self._is_stopping = True

    def statuses(self) -> list[PipelineStatus]:
        """Return the status of each pipeline."""
        return [each.status for each in self.managed]

    def run(self) -> list[Exception]:
        """Run the pipelines; return the errors of those that stopped for good."""
        shown_ms = 0
        try:
            while not self._is_stopping and not all(each.is_done for each in self.managed):
                now_ms = _now_ms()
                for each in self.managed:
                    each.step(now_ms)
                if now_ms - shown_ms >= STATUS_EVERY_MS:
                    shown_ms = now_ms
                    self._publish()
                time.sleep(POLL_S)
        finally:
            for each in self.managed:
                each.stop()
            self._publish()
        return [each.error for each in self.managed if each.error is not None]

    def _publish(self) -> None:
        for status in self.statuses():
            status.updated_ms = _now_ms()
            try:
                self._files.write(status)
            except OSError as error:
                logger.warning("the status of %s cannot be written: %s", status.pipeline, error)
        self._show(self.statuses())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
