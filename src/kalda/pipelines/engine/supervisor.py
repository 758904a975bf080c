"""Runs the pipelines of a file in one Spark application, and starts them again after failures.

Every pipeline that reads topics is a streaming query in its own fair-scheduler pool. One loop looks at all of
them; it owns their status. A stop request ends each pipeline after its current batch, and one pipeline's
failure does not stop the others.
"""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kalda.pipelines.engine.batch_runner import BatchOutcome
from kalda.pipelines.engine.errors import PipelineStoppedError, SparkEndedError
from kalda.pipelines.engine.lag import lag_of
from kalda.pipelines.engine.pipeline_run import PipelineRun
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.engine.restarts import Restarts, first_line
from kalda.pipelines.engine.run_order import writers_before
from kalda.pipelines.engine.status import PipelineStatus, RunState, StatusFiles
from kalda.pipelines.engine.unstreamed_runs import CopyRun
from kalda.pipelines.engine.user_modules import ship_modules
from kalda.pipelines.spec.model import Execution, PipelineFile, PipelineSpec, TopicSource, TriggerKind
from kalda.spark.session import exit_code_of_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: Final = logging.getLogger(__name__)

POLL_S: Final = 0.1
STATUS_EVERY_MS: Final = 2_000
LAG_EVERY_MS: Final = 5_000
START_MS_MAX: Final = 15_000
"""The longest wait for a pipeline's first batch before the next pipeline starts; there may be no batch."""
STOP_WAIT_S: Final = 20.0
"""How long a stop waits for the batches that run. Kubernetes kills what has not ended after thirty seconds; a
batch that is interrupted is repeated by the next start."""
_JAVA_END_WAIT_S: Final = 1.0
"""Between the end of the virtual machine's connections and that of its process."""
_RATE_WEIGHT: Final = 0.3
"""Of the newest batch in the moving average of the rate."""


class Run(Protocol):
    """A pipeline that runs until it ends, fails or is stopped."""

    batch_id: int | None
    """The batch that runs or ran last; None without batches."""

    def start(self) -> None:
        """Start the run; returns at once."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        ...

    def error(self) -> Exception | None:
        """Return why it ended; None for a regular end."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until the run has ended, for at most `seconds`."""
        ...

    def request_stop(self) -> None:
        """Start no further batch or transaction."""
        ...

    def stop(self, wait_s: float) -> None:
        """End the run after its current batch or transaction, or after `wait_s` seconds."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class Managed:
    """One pipeline under supervision."""

    def __init__(
        self, session: "SparkSession | None", spec: PipelineSpec, file: PipelineFile, *, is_once: bool
    ) -> None:
        """Plan the pipeline.

        Raises:
            PipelineFileError: the plan is not possible.
        """
        self._session: Final = session
        self._spec: Final = spec
        self._file: Final = file
        self._is_once: Final = is_once
        self._plan: Final = plan_topic_pipeline(spec, file) if isinstance(spec.source, TopicSource) else None
        self._run: Run | None = None
        self._restarts: Final = Restarts(spec.name, spec.restart)
        self._logged: Final[set[str]] = set()
        """Errors whose traceback is in the log, for the runs; a run lasts from one failure to the next."""
        self._started_ms = 0
        self._next_start_ms = 0
        self._lag_ms = 0
        execution = Execution.DIRECT if self._plan is None else self._plan.execution
        self.status: Final = PipelineStatus(
            spec.name, spec.kind.value, execution.value, spec.target_name, started_ms=_now_ms()
        )
        self.error: Exception | None = None
        """Why the pipeline stopped for good."""

    @property
    def description(self) -> str:
        """The execution of the pipeline (direct or Spark), in one line."""
        reason = "" if self._plan is None else f": {self._plan.reason}"
        return f"{self._spec.name}: {self._spec.kind.value}, {self.status.execution} execution{reason}"

    @property
    def is_done(self) -> bool:
        """Whether the pipeline ended, well or not."""
        return self.status.state in (RunState.STOPPED, RunState.FAILED)

    def is_starting(self, now_ms: int) -> bool:
        """Return whether the pipeline was started a moment ago and has not come to a batch."""
        run = self._run
        is_young = now_ms - self._started_ms < START_MS_MAX
        return run is not None and self._plan is not None and run.batch_id is None and is_young

    def step(self, now_ms: int, *, may_start: bool) -> None:
        """Start, restart or look at the pipeline."""
        if self.is_done:
            return
        if self._run is None:
            if may_start and now_ms >= self._next_start_ms:
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
        elif self._is_once or self._spec.trigger.kind is TriggerKind.AVAILABLE_NOW:
            self._look_at_lag(now_ms + LAG_EVERY_MS)
            self.status.state = RunState.STOPPED
        else:
            self._next_start_ms = max(self._started_ms + self._spec.trigger.interval_ms, now_ms)
            self.status.state = RunState.WAITING

    def fail(self, error: Exception) -> None:
        """Take it that the pipeline cannot go on, whatever it was doing."""
        if not self.is_done:
            self.error = error
            self.status.error = first_line(error)
            self.status.state = RunState.FAILED

    def wait(self, seconds: float) -> None:
        """Wait until the pipeline may need another look, or the time is over."""
        if self._run is None:
            time.sleep(seconds)
        else:
            self._run.wait(seconds)

    def request_stop(self) -> None:
        """Start no further batch or transaction."""
        if self._run is not None:
            self._run.request_stop()

    def stop(self, wait_s: float) -> None:
        """End the pipeline after its current batch, or within this time."""
        run, self._run = self._run, None
        if run is not None:
            run.stop(wait_s)
            run.close()
        if not self.is_done:
            self.status.state = RunState.STOPPED

    def _start(self) -> None:
        self._started_ms = _now_ms()
        try:
            self._run = self._new_run()
            self._run.start()
            self.status.state = RunState.RUNNING
        except Exception as error:
            if self._run is not None:
                self._run.close()
                self._run = None
            self._failed(error, None, _now_ms())

    def _new_run(self) -> Run:
        if self._plan is None:
            return CopyRun(self._spec, self._file, is_once=self._is_once, report=self._report_copies)
        assert self._session is not None, "a pipeline that reads topics needs Spark"
        return PipelineRun(
            self._session,
            self._plan,
            self._file,
            is_once=self._is_once,
            report=self._report,
            logged=self._logged,
        )

    def _failed(self, error: Exception, batch_id: int | None, now_ms: int) -> None:
        self.status.error = first_line(error)
        try:
            wait_ms = self._restarts.wait_ms(error, batch_id, now_ms - self._started_ms)
        except PipelineStoppedError as stopped:
            self.error = stopped
            self.status.error = str(stopped)
            self.status.state = RunState.FAILED
            return
        name, reason = self._spec.name, first_line(error)
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
        status.bytes_in_place += outcome.bytes_in_place
        status.ledger_breaks += len(outcome.breaks)
        records = account.total("records")
        status.decode_microseconds = outcome.decode_seconds * 1e6 / records if records else None
        rate = account.total("records") / max(outcome.seconds, 1e-6)
        status.records_per_second += (rate - status.records_per_second) * (
            1.0 if status.batches == 1 else _RATE_WEIGHT
        )
        times = [each.event_time_max for each in account.ranges if each.event_time_max is not None]
        status.freshness_seconds = (status.batch_ms - max(times)) / 1000 if times else None

    def _report_copies(self, records: int, lag: int) -> None:
        """Take what a mirror or publisher has copied since the last call; called in its thread."""
        status, now_ms = self.status, _now_ms()
        self._restarts.made_progress()
        status.error = None
        status.lag = lag
        if records:
            status.batches += 1
            status.records += records
            status.rows_out += records
            seconds = max((now_ms - (status.batch_ms or self._started_ms)) / 1000, 1e-3)
            status.records_per_second = records / seconds
        status.batch_ms = now_ms

    def _look_at_lag(self, now_ms: int) -> None:
        if self._plan is None:
            return
        if now_ms - self._lag_ms < LAG_EVERY_MS:
            return
        self._lag_ms = now_ms
        try:
            lags = lag_of(self._plan, self._file)
        except Exception as error:
            logger.warning("the lag of %s is not known: %s", self._spec.name, first_line(error))
            self.status.lag = None
        else:
            self.status.lag = sum(each.lag for each in lags)


class Supervisor:
    """Runs pipelines until all have ended or a stop is requested."""

    def __init__(
        self,
        session: "SparkSession | None",
        file: PipelineFile,
        specs: Sequence[PipelineSpec],
        *,
        is_once: bool,
        show: Callable[[Sequence[PipelineStatus]], None] = lambda _: None,
    ) -> None:
        """Take the pipelines to run; the session may be None if none of them reads topics.

        Raises:
            PipelineFileError: the file is wrong.
        """
        if session is not None:
            ship_modules(session, file, specs)
        self.managed: Final = [Managed(session, spec, file, is_once=is_once) for spec in specs]
        self._writers_before: Final = writers_before(specs) if is_once else {}
        self._session: Final = session
        self._files: Final = StatusFiles(file.storage)
        self._show: Final = show
        self._is_stopping = False

    def request_stop(self) -> None:
        """Make `run` end each pipeline after its current batch; may be called from a signal handler."""
        self._is_stopping = True

    def statuses(self) -> list[PipelineStatus]:
        """Return the status of each pipeline."""
        return [each.status for each in self.managed]

    def run(self) -> list[Exception]:
        """Run the pipelines; return the errors of those that stopped for good."""
        try:
            self._run()
        except Exception as error:
            # Without its virtual machine, PySpark raises whatever the broken connection makes it raise.
            ended = self._spark_end(_JAVA_END_WAIT_S)
            # Systemd and `timeout` send SIGTERM to all processes of a run: the end of Java is no fault then.
            if ended is None or not self._is_stopping:
                for each in self.managed:
                    each.fail(ended or error)
            if ended is None:
                raise
        finally:
            for each in self.managed:
                each.request_stop()
            deadline = time.monotonic() + STOP_WAIT_S
            for each in self.managed:
                each.stop(max(deadline - time.monotonic(), 0.0))
            self._publish()
        return [each.error for each in self.managed if each.error is not None]

    def _run(self) -> None:
        shown_ms = 0
        while not self._is_stopping and not all(each.is_done for each in self.managed):
            if (ended := self._spark_end(0.0)) is not None:
                raise ended
            now_ms = _now_ms()
            for each in self.managed:
                # One after the other: each starts Python processes, and Spark waits ten seconds for them.
                is_another_starting = any(other.is_starting(now_ms) for other in self.managed)
                each.step(now_ms, may_start=not is_another_starting and not self._is_waiting(each))
            if now_ms - shown_ms >= STATUS_EVERY_MS:
                shown_ms = now_ms
                self._publish()
            waiting = [each for each in self.managed if not each.is_done]
            if waiting:
                waiting[0].wait(POLL_S)

    def _is_waiting(self, managed: Managed) -> bool:
        """Return whether a pipeline that runs once reads what another one has yet to write."""
        writers = self._writers_before.get(managed.status.pipeline, frozenset())
        return any(each.status.pipeline in writers and not each.is_done for each in self.managed)

    def _spark_end(self, wait_s: float) -> SparkEndedError | None:
        """Return an error if Spark's virtual machine has ended; None while it runs, or if none is needed."""
        code = None if self._session is None else exit_code_of_java(self._session, wait_s)
        if code is None:
            return None
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code} ({signal.strsignal(-code)})"
        return SparkEndedError(
            f"Spark's Java virtual machine ended {how}, as when memory runs out; start the command again, "
            "each pipeline goes on behind its last batch"
        )

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
