"""Stores the status of running pipelines in files, which `kalda pipeline status` reads.

Each pipeline has one file, replaced every few seconds by the driver that runs it. The lock of the run says at
once that a driver on this host is dead; of another host's driver only a file that is not replaced does.
Reading needs neither Spark nor the driver's address.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Final

from kalda.pipelines.engine.run_lock import is_locked
from kalda.pipelines.tables.storage import TableStorage

STALE_MS: Final = 30_000
"""A driver writes every few seconds; one that did not for so long is gone, or hangs."""


class RunState(StrEnum):
    """The state of a pipeline."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """For the next time of `every`."""
    RESTARTING = "restarting"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class PipelineStatus:
    """The status of one pipeline."""

    pipeline: str
    kind: str
    execution: str
    target: str
    state: str = RunState.STARTING
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started_ms: int = 0
    updated_ms: int = 0
    batch_id: int | None = None
    """The last batch that was committed."""
    batch_ms: int | None = None
    """When it was."""
    batch_seconds: float | None = None
    batches: int = 0
    """Since the start of this run, as the sums below."""
    records: int = 0
    rows_out: int = 0
    dlq: int = 0
    filtered: int = 0
    late: int = 0
    bytes_read: int = 0
    bytes_in_place: int = 0
    """Of these: bytes from segment files, not over the network."""
    ledger_breaks: int = 0
    """Gaps and overlaps between batches: offsets in no batch, or in two."""
    decode_microseconds: float | None = None
    """Time to decode one record of the last batch to columns."""
    records_per_second: float = 0.0
    lag: int | None = None
    """Offsets that exist and are not in a committed batch."""
    freshness_seconds: float | None = None
    """The age of the newest event in the target at the commit of its batch."""
    restarts: int = 0
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the driver wrote that the pipeline has ended."""
        return self.state in (RunState.STOPPED, RunState.FAILED)

    def is_stale(self, now_ms: int) -> bool:
        """Return whether the driver stopped writing although it did not end."""
        return not self.has_ended and now_ms - self.updated_ms > STALE_MS


class StatusFiles:
    """The status files of a storage."""

    def __init__(self, storage: str) -> None:
        self._uri: Final = storage
        self._storage: Final = TableStorage(f"{storage}/status")

    def write(self, status: PipelineStatus) -> None:
        """Replace the file of a pipeline."""
        self._storage.replace(f"{status.pipeline}.json", json.dumps(asdict(status)).encode())

    def read(self, pipeline: str) -> PipelineStatus | None:
        """Return the status of a pipeline; None if it never ran, or for a file of another version."""
        content = self._storage.read(f"{pipeline}.json")
        if content is None:
            return None
        try:
            document = json.loads(content)
            known = {each.name for each in fields(PipelineStatus)}
            return PipelineStatus(**{name: value for name, value in document.items() if name in known})
        except (ValueError, TypeError, AttributeError):
            return None

    def is_dead(self, status: PipelineStatus) -> bool:
        """Return whether a driver on this host was killed: it is gone, and it wrote no last status."""
        if status.has_ended or status.host != socket.gethostname():
            return False
        is_running = is_locked(self._uri, status.pipeline)
        if is_running is None:
            is_running = _exists(status.pid)
        # A driver that ends writes its last status before it releases the lock.
        return not is_running and self.read(status.pipeline) == status


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        pass
    return True
