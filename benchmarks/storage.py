"""The partition log alone: no sockets, no protocol. Rates are those of one core."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kalda.common.types import TopicPartition
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.system.clock import SystemClock
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import UnifiedLog

_SECONDS = 0.7
_PARTITIONS = 4000


def run() -> list[tuple[str, float, str]]:
    """Measure appends, tail reads, recovery and the start with many partitions."""
    directory = tempfile.mkdtemp(prefix="kalda-bench-")
    try:
        return [*_appends(directory), _idempotent(directory), *_reads(directory), *_starts(directory)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _batch(size: int) -> bytes:
    """Build a batch of about `size` bytes: as many 100 B records as fit, at least one."""
    builder = RecordBatchBuilder()
    for _ in range(max(1, size // 110)):
        builder.append(None, b"x" * min(100, size), int(time.time() * 1000))
    return bytes(builder.build())


def _open(directory: str, name: str) -> tuple[LogManager, UnifiedLog]:
    manager = LogManager([f"{directory}/{name}"], lambda _: LogConfig(), SystemClock())
    manager.load()
    return manager, manager.get_or_create(TopicPartition(name, 0))


def _rate(action: Callable[[], object]) -> float:
    for _ in range(200):
        action()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < _SECONDS:
        for _ in range(200):
            action()
        count += 200
    return count / (time.perf_counter() - started)


def _appends(directory: str) -> list[tuple[str, float, str]]:
    figures = []
    for size in (100, 1024, 16 * 1024):
        manager, log = _open(directory, f"append-{size}")
        source = _batch(size)
        buffer = bytearray(source)
        view = memoryview(buffer)

        def append(
            log: UnifiedLog = log, view: memoryview = view, source: bytes = source, buffer: bytearray = buffer
        ) -> None:
            buffer[:8] = source[:8]
            log.append_as_leader(view, 0)
            log.advance_high_watermark(log.log_end_offset)

        figures.append((f"storage: append, {size} B batches", _rate(append), "batches/s"))
        manager.close()
        shutil.rmtree(f"{directory}/append-{size}")
    return figures


def _idempotent(directory: str) -> tuple[str, float, str]:
    manager, log = _open(directory, "idempotent")
    sources = []
    for sequence in range(1000):
        builder = RecordBatchBuilder(producer_id=1, producer_epoch=0, base_sequence=sequence)
        builder.append(None, b"x" * 100, int(time.time() * 1000))
        sources.append(builder.build())
    started = time.perf_counter()
    for source in sources:
        log.append_as_leader(source, 0)
    rate = len(sources) / (time.perf_counter() - started)
    manager.close()
    return "storage: append, idempotent, 100 B batches", rate, "batches/s"


def _reads(directory: str) -> list[tuple[str, float, str]]:
    manager, log = _open(directory, "read")
    source = _batch(1024)
    for _ in range(20_000):
        log.append_as_leader(bytearray(source), 0)
    log.advance_high_watermark(log.log_end_offset)
    records = log.log_end_offset // 20_000
    tail = log.log_end_offset - records
    middle = log.log_end_offset // 2 // records * records
    figures = [
        ("storage: read at the tail", _rate(lambda: log.read(tail, 1 << 20)), "reads/s"),
        (
            "storage: read in the middle, through the index",
            _rate(lambda: log.read(middle, 1 << 20)),
            "reads/s",
        ),
    ]
    size = log.size
    manager.close()
    Path(f"{directory}/read/.kafka_cleanshutdown").unlink()
    started = time.perf_counter()
    _open(directory, "read")[0].close()
    figures.append(("storage: recovery after a crash", size / (time.perf_counter() - started) / 1e6, "MB/s"))
    return figures


def _starts(directory: str) -> list[tuple[str, float, str]]:
    manager = LogManager([f"{directory}/many"], lambda _: LogConfig(), SystemClock())
    manager.load()
    source = _batch(1024)
    started = time.perf_counter()
    for partition in range(_PARTITIONS):
        log = manager.get_or_create(TopicPartition(f"topic-{partition % 1000}", partition // 1000))
        log.append_as_leader(bytearray(source), 0)
    created = time.perf_counter() - started
    started = time.perf_counter()
    manager.close()
    closed = time.perf_counter() - started
    manager = LogManager([f"{directory}/many"], lambda _: LogConfig(), SystemClock())
    started = time.perf_counter()
    manager.load()
    loaded = time.perf_counter() - started
    started = time.perf_counter()
    manager.close()
    return [
        (f"storage: create {_PARTITIONS} partitions", created, "s"),
        (f"storage: close {_PARTITIONS} partitions, all written to", closed, "s"),
        (f"storage: start with {_PARTITIONS} partitions", loaded, "s"),
        (f"storage: close {_PARTITIONS} idle partitions", time.perf_counter() - started, "s"),
    ]


if __name__ == "__main__":
    for name, value, unit in run():
        print(f"{name}: {value:,.2f} {unit}")
