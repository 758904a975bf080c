"""Runs one pipeline that reads topics as a Structured Streaming query.

The query's checkpoint has the progress; each batch is handed to a `BatchRunner`. The same checkpoint serves
direct execution and Spark's. A stop waits for the batch that is being processed, for a bounded time; a crash
at any moment only repeats a batch.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kalda.clients.errors import ClientError
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.pipelines.engine.batch_runner import BatchOutcome, BatchRunner
from kalda.pipelines.engine.errors import PipelineStoppedError
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.restarts import first_line, is_explained
from kalda.pipelines.spec.model import PipelineFile, TableSpec, TopicSource, TriggerKind
from kalda.pipelines.tables import TableError
from kalda.spark.session import exit_code_of_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger: Final = logging.getLogger(__name__)

_POOL: Final = "spark.scheduler.pool"
_NO_SPACE: Final = os.strerror(errno.ENOSPC)
_JAVA_END_WAIT_S: Final = 1.0
"""Between the end of Java's connections and that of its process."""
_FULL_BATCH_OFFSETS: Final = 1_000_000
"""So many records fill a file of the usual size; a batch of them does not wait."""


class _StoppingError(Exception):
    """A batch is not started, because the pipeline stops."""


class PipelineRun:
    """One run of a pipeline, from `start` to the end of its query."""

    def __init__(
        self,
        session: "SparkSession",
        plan: TopicPlan,
        file: PipelineFile,
        *,
        is_once: bool,
        report: Callable[[BatchOutcome], None],
        logged: set[str],
    ) -> None:
        """Take what to run.

        Args:
            session: Where it runs.
            plan: How.
            file: The pipeline file.
            is_once: Whether the run ends with what is there now.
            report: Gets the outcome of each batch.
            logged: The errors whose traceback is in the log since the last batch that succeeded; kept by the
                caller from one run to the next.
        """
        self._session: Final = session
        self._plan: Final = plan
        self._file: Final = file
        self._is_once: Final = is_once
        self._report: Final = report
        self._logged: Final = logged
        self._runner: Final = BatchRunner(plan, file)
        self._idle: Final = threading.Event()
        self._idle.set()
        self._is_stopping = False
        self._query: StreamingQuery | None = None
        self.failure: Exception | None = None
        """The exception of the last batch; None if it succeeded."""
        self.batch_id: int | None = None
        """The batch that runs or ran last."""

    def start(self) -> None:
        """Start the query; returns when Spark has taken it.

        Raises:
            ProgressLostError: the query would not go on where the target is.
        """
        spec = self._plan.spec
        self._runner.check_start()
        self._runner.open()
        options = self._plan.options | self._execution_options()
        # Streams of one application share its cores fairly; the query's thread inherits the pool.
        self._session.sparkContext.setLocalProperty(_POOL, spec.name)
        reader = self._session.readStream.format("kalda").options(**options)
        if not self._plan.is_direct:
            reader = reader.schema(source_columns(self._plan.rows))
        frame = reader.load()
        writer = (
            frame.writeStream.queryName(spec.name)
            .option("checkpointLocation", self._file.checkpoint(spec.name))
            .foreachBatch(self._batch)
        )
        if self._is_once or spec.trigger.kind is not TriggerKind.INTERVAL:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{spec.trigger.interval_ms} milliseconds")
        self._query = writer.start()

    def _execution_options(self) -> dict[str, str]:
        waiting = self._waiting_options()
        if self._plan.is_direct:
            return {"rows": "ranges", **waiting}
        # A task reads one range, so that it can account for it; without the option, short ones share a task.
        return waiting if "minPartitions" in self._plan.options else {"minPartitions": "1", **waiting}

    def _waiting_options(self) -> dict[str, str]:
        """Make batches wait for more records, up to `max_latency`, so that files are not small."""
        spec = self._plan.spec
        target, source = spec.target, spec.source
        is_waiting = isinstance(target, TableSpec) and target.max_latency_ms is not None
        if not is_waiting or self._is_once or spec.trigger.kind is not TriggerKind.INTERVAL:
            return {}
        assert isinstance(target, TableSpec), spec.kind
        assert isinstance(source, TopicSource), spec.kind
        offsets_min = min(_FULL_BATCH_OFFSETS, source.records_per_batch_max or _FULL_BATCH_OFFSETS)
        delay_s = max((target.max_latency_ms or 0) // 1000, 1)
        return {"minOffsetsPerTrigger": str(offsets_min), "maxTriggerDelay": f"{delay_s}s"}

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return self._query is not None and self._query.isActive

    def error(self) -> Exception | None:
        """Return why the query ended; None for a regular end, and while it runs."""
        assert self._query is not None, "start is called first"
        if self._query.isActive or self._is_stopping:
            return None
        if self.failure is not None:
            return self.failure
        error: Exception | None = self._query.exception()
        if error is not None and _NO_SPACE in str(error):  # Spark's own files; it does not say where
            return OSError(errno.ENOSPC, _NO_SPACE, self._file.checkpoint(self._plan.spec.name))
        return error

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended, or the time is over."""
        from pyspark.errors import StreamingQueryException

        assert self._query is not None, "start is called first"
        # Spark raises the query's failure here, which `error` returns.
        with contextlib.suppress(StreamingQueryException):
            self._query.awaitTermination(seconds)  # type: ignore[arg-type]  # it takes fractions

    def request_stop(self) -> None:
        """Start no further batch."""
        self._is_stopping = True

    def stop(self, wait_s: float) -> None:
        """End the query after the batch that is being processed; interrupt that if it takes longer."""
        self.request_stop()
        if self._query is None:
            return
        name = self._plan.spec.name
        if not self._idle.wait(wait_s):
            logger.warning("batch %s of %s is interrupted; the next start repeats it", self.batch_id, name)
        try:
            self._query.stop()
        except Exception as error:
            if exit_code_of_java(self._session, _JAVA_END_WAIT_S) is not None:
                # A signal to all processes of the application has ended Java first.
                logger.warning("%s ended with Java; the next start repeats the batch that ran", name)
            else:  # its thread does not end in time; the end of the process ends it
                logger.warning("%s does not stop: %s", name, first_line(error))

    def close(self) -> None:
        """Close connections."""
        self._runner.close()

    def _batch(self, frame: "DataFrame", batch_id: int) -> None:
        if self._is_stopping:
            raise _StoppingError
        self._idle.clear()
        self.batch_id = batch_id
        try:
            outcome = self._runner.run(frame, batch_id)
            self.failure = None
            self._logged.clear()
            if outcome is not None:
                self._report(outcome)
        except Exception as error:
            self.failure = error
            self._log(error, batch_id)
            raise
        finally:
            self._idle.set()

    def _log(self, error: Exception, batch_id: int) -> None:
        """Log the traceback of an error that needs one, once, unless the batch was interrupted by a stop."""
        # The supervisor reports each failure in one line, which is enough for these and for repeats.
        reason = first_line(error)
        is_one_line = isinstance(error, (PipelineStoppedError, TableError, ClientError, OSError))
        if self._is_stopping or is_one_line or is_explained(error) or reason in self._logged:
            return
        self._logged.add(reason)
        # Nine tenths of a traceback of Spark are frames of Java and of its Python workers.
        level = logging.DEBUG if is_of_spark(error) else logging.ERROR
        logger.log(level, "batch %d of %s failed", batch_id, self._plan.spec.name, exc_info=error)


def is_of_spark(error: Exception) -> bool:
    """Return whether Spark raised an error, also one that happened in a task."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JError | PySparkException)


def source_columns(rows: RowPlan) -> str:
    """Return the columns that tasks decode, as a schema for the source: it reads and copies no others."""
    types = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key: string, value: binary>>",
    }
    wanted = {"value", "offset", *rows.keep}
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if name in wanted)
