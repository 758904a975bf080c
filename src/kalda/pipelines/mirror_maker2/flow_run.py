"""Runs one replication flow in a thread, and starts it again after failures.

A failure that may not recur is retried without a limit, because clusters come back; a failure that recurs
ends the flow. What brokers refuse can change, for example with the number of live brokers, so a refusal ends
only a flow that runs once, and only when it was refused twice. A damaged batch ends a flow when it is read
twice: one response can be damaged in transit.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kalda.clients.errors import ClientConfigError, ClientError, UnsupportedApiError
from kalda.common.backoff import ExponentialBackoff
from kalda.pipelines.engine.status import PipelineStatus, RunState
from kalda.pipelines.mirror.mirror import Mirror, MirrorOptions, MirrorStatistics
from kalda.pipelines.mirror.policy import MirrorError
from kalda.pipelines.mirror_maker2.flow_file import Flow
from kalda.records.errors import RecordsError
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

IDLE_S: Final = 0.1
"""Between two looks for new records when there were none."""
BACKOFF: Final = ExponentialBackoff(1_000, 30_000, SYSTEM_RANDOM.uniform)
"""The waits before a new start."""
CONNECTING_STOP_WAIT_S: Final = 1.0
"""How long a stop waits for a flow that still connects: it has no transaction, and a cluster may be away."""

_PERMANENT: Final = (MirrorError, ClientConfigError, UnsupportedApiError)


class Due:
    """Says when something that is done in intervals is due; the first time at once."""

    def __init__(self, interval_s: float | None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take the interval; with None, only the first time is due."""
        self._interval_s: Final = interval_s
        self._monotonic: Final = monotonic
        self._at: float | None = None
        self._was_due = False

    def is_due(self) -> bool:
        """Return whether it is due; the next interval begins if so."""
        now = self._monotonic()
        if self._was_due and (self._at is None or now < self._at):
            return False
        self._was_due = True
        self._at = None if self._interval_s is None else now + self._interval_s
        return True


class FlowRun:
    """One flow that copies records."""

    def __init__(self, flow: Flow, options: MirrorOptions, *, is_once: bool) -> None:
        self._flow: Final = flow
        self._options: Final = options
        self._is_once: Final = is_once
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._main, name=f"flow-{flow.name}", daemon=True)
        self._mirror: Mirror | None = None
        self.status: Final = PipelineStatus(flow.name, "mirror", "direct", flow.target, started_ms=_now_ms())
        self.error: Exception | None = None
        """Why the flow ended; None while it runs, and for a regular end."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._flow.name

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def request_stop(self) -> None:
        """End behind the transaction under way; callable from a signal handler."""
        self._stop.set()
        mirror = self._mirror
        if mirror is not None:
            mirror.stop()

    def stop(self, wait_s: float) -> None:
        """End behind the transaction under way, and wait for that."""
        self.request_stop()
        self._thread.join(min(wait_s, CONNECTING_STOP_WAIT_S))
        if self._mirror is None:
            return
        self._thread.join(wait_s)
        if self._thread.is_alive():
            logger.warning("the transaction of %s is interrupted; the next start repeats it", self._flow.name)

    def _main(self) -> None:
        failures = 0
        while not self._stop.is_set():
            records = self.status.records
            try:
                self._run()
            except _PERMANENT as error:
                self._fail(error)
                return
            except (ClientError, RecordsError, TimeoutError) as error:
                if self._ends_at(error):
                    self._fail(error)
                    return
                failures = 1 if self.status.records > records else failures + 1
                wait_s = BACKOFF.seconds(failures)
                logger.warning("%s failed and starts again in %.0f s: %s", self._flow.name, wait_s, error)
                self.status.error = str(error)
                self.status.restarts += 1
                self.status.state = RunState.RESTARTING
                self._stop.wait(wait_s)
            except Exception as error:
                self._fail(error)
                raise
            else:
                break
        self.status.state = RunState.STOPPED

    def _ends_at(self, error: ClientError | RecordsError | TimeoutError) -> bool:
        """Return whether an error ends the flow because it is the same as that of the last try."""
        if str(error) != self.status.error:
            return False
        if isinstance(error, ClientError):
            return self._is_once and not error.is_retriable
        return isinstance(error, RecordsError)

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.status.error = str(error)
        self.status.state = RunState.FAILED

    def _run(self) -> None:
        """Run the flow until it is stopped, or has copied what there is if it runs once."""
        status = self.status
        base = MirrorStatistics(
            records=status.records, transactions=status.batches, read_bytes=status.bytes_read
        )
        with Mirror(self._options) as mirror:
            self._mirror = mirror
            try:
                if not self._stop.is_set():
                    self._copy(mirror, base)
            finally:
                self._mirror = None

    def _copy(self, mirror: Mirror, base: MirrorStatistics) -> None:
        if self._is_once:
            mirror.run_once()
            self._report(base, mirror.statistics())
            if self.status.error is not None:
                raise MirrorError(self.status.error)
            return
        topics = Due(self._flow.topics_interval_s)
        groups = Due(self._flow.groups_interval_s)
        while not self._stop.is_set():
            if topics.is_due():
                mirror.look_for_topics()
            has_copied = mirror.copy_next()
            if groups.is_due():
                mirror.carry_groups()
            self._report(base, mirror.statistics())
            if not has_copied:
                self._stop.wait(IDLE_S)

    def _report(self, base: MirrorStatistics, now: MirrorStatistics) -> None:
        status, now_ms = self.status, _now_ms()
        status.state = RunState.RUNNING
        status.error = "; ".join(now.refused) or None
        status.updated_ms, status.lag = now_ms, now.lag
        records = base.records + now.records - status.records
        if records:
            seconds = max((now_ms - (status.batch_ms or status.started_ms)) / 1000, 1e-3)
            status.records_per_second = records / seconds
            status.records += records
            status.rows_out = status.records
            status.batches = base.transactions + now.transactions
            status.bytes_read = base.read_bytes + now.read_bytes
        status.batch_ms = now_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
