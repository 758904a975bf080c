"""Runs the Spark application of a pipeline file: session, supervisor, metrics.

Plans are made, and faults of the file reported, before Spark starts. The session ends with the application.
"""

import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from kalda.pipelines.engine.metrics import MetricsEndpoint
from kalda.pipelines.engine.planner import plans_of
from kalda.pipelines.engine.restarts import first_line
from kalda.pipelines.engine.run_lock import RunLock
from kalda.pipelines.engine.source_settings import quick_discovery
from kalda.pipelines.engine.status import PipelineStatus
from kalda.pipelines.engine.supervisor import Supervisor
from kalda.pipelines.spec.model import PipelineFile, PipelineSpec, TopicSource
from kalda.spark.java_output import JavaStartError
from kalda.spark.session import build_session, exit_code_of_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: Final = logging.getLogger(__name__)

Note = Callable[[str], None]

_PYSPARK_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They print an error of SQL, with all frames of Java, on one line of JSON whenever one is raised."""
_ANSWER_MS_MAX: Final = "30000"
"""How long a cluster may take to answer before `once` gives up: a scheduler tries again."""
_JAVA_END_WAIT_S: Final = 10.0
"""Java has broken its connections, and runs its shutdown hooks."""


class Application:
    """Runs some pipelines of one file.

    Raises:
        PipelineFileError: a plan is not possible.
    """

    def __init__(
        self,
        file: PipelineFile,
        specs: Sequence[PipelineSpec],
        *,
        master: str | None = None,
        metrics_port: int | None = None,
        is_once: bool = False,
    ) -> None:
        self._file: Final = file
        self._specs: Final = list(specs)
        # Faults of the file show before Spark starts.
        self._plans: Final = plans_of(file, [each.name for each in specs])
        self._master: Final = master or file.spark.master
        self._metrics_port: Final = metrics_port
        self._is_once: Final = is_once
        self._supervisor: Supervisor | None = None
        self._is_stopping = False

    def request_stop(self) -> None:
        """Make `run` end after the current batches."""
        self._is_stopping = True
        if self._supervisor is not None:
            self._supervisor.request_stop()

    def statuses(self) -> list[PipelineStatus]:
        """Return the status of each pipeline."""
        return [] if self._supervisor is None else self._supervisor.statuses()

    def run(self, show: Callable[[Sequence[PipelineStatus]], None], *, note: Note) -> list[Exception]:
        """Run until all pipelines have ended; return the errors of those that stopped for good.

        Raises:
            RunLockError: another process runs one of the pipelines, or the storage cannot be written; none is
                started here.
            JavaStartError: Spark does not start.
            ClientError: a cluster that `once` reads cannot be reached; nothing is started.
        """
        with ExitStack() as stack:
            for each in self._specs:
                stack.enter_context(RunLock(self._file.storage, each.name))
            if self._is_once:
                self._require_clusters()
            session: SparkSession | None = None
            if any(isinstance(each.source, TopicSource) for each in self._specs):
                session = self._start_session()
                stack.callback(_stop_session, session)
            self._supervisor = Supervisor(session, self._file, self._specs, is_once=self._is_once, show=show)
            for managed in self._supervisor.managed:
                note(managed.description)
            if self._is_stopping:
                self._supervisor.request_stop()
            if self._metrics_port is not None:
                endpoint = stack.enter_context(MetricsEndpoint(self._supervisor.statuses, self._metrics_port))
                note(f"metrics on http://127.0.0.1:{endpoint.port}/metrics")
            return self._supervisor.run()

    def _require_clusters(self) -> None:
        """Ask each cluster that is read for topics: restarts would keep a scheduler waiting for minutes."""
        plans = {
            plan.spec.source.cluster: plan
            for plan in self._plans
            if isinstance(plan.spec.source, TopicSource)
        }
        for plan in plans.values():
            discovery = quick_discovery(plan.options, _ANSWER_MS_MAX)
            try:
                discovery.find_partitions()
            finally:
                discovery.close()

    def _start_session(self) -> "SparkSession":
        # In the main thread, PySpark takes SIGINT for itself: its handler cancels the jobs of all batches and
        # raises KeyboardInterrupt. Who called `run` decides what Ctrl-C means.
        before = signal.getsignal(signal.SIGINT)
        try:
            return start_session(self._file, self._master)
        finally:
            if signal.getsignal(signal.SIGINT) is not before:
                signal.signal(signal.SIGINT, before)


def start_session(file: PipelineFile, master: str) -> "SparkSession":
    """Return a session with the settings of a file, whose virtual machine is quiet unless debug is logged.

    Raises:
        JavaStartError: Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # Spark and Py4J print pages about a failed batch, which the supervisor reports in one line.
    is_quiet = not logger.isEnabledFor(logging.DEBUG)
    if is_quiet:
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        for name in _PYSPARK_LOGGERS:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return build_session(file.name, master, session_settings(file), is_quiet=is_quiet)
    except (PySparkException, Py4JError) as error:
        raise JavaStartError(f"Spark does not start: {first_line(error)}") from error


def _stop_session(session: "SparkSession") -> None:
    try:
        session.stop()
    except Exception:
        # A signal to all processes of the application ends Java while Python still waits for the batches.
        if exit_code_of_java(session, _JAVA_END_WAIT_S) is None:
            raise


_RETAINED: Final = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
"""What Spark keeps of jobs that have ended, also without its user interface: by default the plans of 1,000
queries, so that the driver grows for the first thousand batches."""


def session_settings(file: PipelineFile) -> dict[str, str]:
    """Return the settings of the session beside those that Kalda recommends; the file's win."""
    has_ui = file.spark.settings.get("spark.ui.enabled", "false").lower() == "true"
    return {
        **({} if has_ui else _RETAINED),
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",  # also where the environment sets SPARK_ANSI_SQL_MODE
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stopTimeout": "5s",
        **file.spark.settings,
    }
