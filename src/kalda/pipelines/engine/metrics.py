"""Serves the status of running pipelines to Prometheus, on a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from kalda.common.config_def import ConfigError
from kalda.common.metrics import Metrics
from kalda.net.metrics_http import MetricsServer
from kalda.pipelines.engine.status import PipelineStatus, RunState

_START_TIMEOUT_S: Final = 10.0

_COUNTERS: Final = {
    "records": "Records read by committed batches.",
    "rows_out": "Rows written by committed batches.",
    "dlq": "Records in the dead-letter queue, or skipped.",
    "filtered": "Records dropped by the transform or an expectation.",
    "late": "Rows later than the pipeline allows.",
    "bytes_read": "Bytes read from the log.",
    "bytes_in_place": "Bytes read from segment files instead of over the network.",
    "ledger_breaks": "Gaps and overlaps between batches: offsets in no batch, or in two.",
    "batches": "Committed batches.",
    "restarts": "Restarts after failures.",
}
_GAUGES: Final = {
    "lag": "Offsets that no committed batch covers.",
    "freshness_seconds": "Age of the newest event when its batch was committed.",
    "batch_seconds": "Time of the last batch.",
    "decode_microseconds": "Time to decode one record of the last batch to columns.",
    "records_per_second": "Records per second while batches run, a moving average.",
}


class MetricsEndpoint:
    """The HTTP endpoint, for a ``with`` block.

    Raises:
        ConfigError: on entry, if the port cannot be used.
    """

    def __init__(self, statuses: Callable[[], Sequence[PipelineStatus]], port: int) -> None:
        self._metrics: Final = Metrics()
        self._requested_port: Final = port
        self.port = port
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(
            target=self._loop.run_forever, name="pipeline-metrics", daemon=True
        )
        self._server: Final = MetricsServer(self._metrics)
        for status in statuses():
            self._register(status)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = self._server.listen("127.0.0.1", self._requested_port)
        try:
            self.port = asyncio.run_coroutine_threadsafe(listening, self._loop).result(_START_TIMEOUT_S)
        except OSError as error:
            self._end_thread()
            raise ConfigError(
                "metrics-port",
                f"--metrics-port={self._requested_port} cannot be used: {os.strerror(error.errno or 0)}; "
                "name another port, or 0 for a free one",
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(_START_TIMEOUT_S)
        self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_S)
        self._loop.close()

    def _register(self, status: PipelineStatus) -> None:
        name = status.pipeline
        for field, text in _COUNTERS.items():
            self._metrics.counter_function(
                f"kalda_pipeline_{field}", text, _reader(status, field), pipeline=name
            )
        for field, text in _GAUGES.items():
            self._metrics.gauge(f"kalda_pipeline_{field}", text, _reader(status, field), pipeline=name)
        self._metrics.gauge(
            "kalda_pipeline_running",
            "Whether the pipeline runs.",
            lambda: float(status.state in (RunState.RUNNING, RunState.WAITING)),
            pipeline=name,
        )


def _reader(status: PipelineStatus, field: str) -> Callable[[], float]:
    def read() -> float:
        value = getattr(status, field)
        return float("nan") if value is None else float(value)

    return read
