"""Compaction: how fast logs are cleaned, and what that does to the event loop beside it.

A rate is bytes of the log, on disk, over the processor time of the whole cleaning, both walks through the
log, on one core. The other side is Apache Kafka's cleaner thread with the same records. Run by hand,
`python -m benchmarks.cleaner`, it also compares a thread with a child process.
"""

import asyncio
import gc
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import apache_kafka_cleaner
from kalda.common.types import TopicPartition
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.cleaner.cleaner import Cleaner
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.job import CleaningJob, CleaningResult
from kalda.storage.cleaner.job_planning import plan_job
from kalda.storage.cleaner.log_cleaner import LogCleaner
from kalda.storage.cleaner.log_to_clean import measure_log
from kalda.storage.cleaner.runner import ProcessRunner
from kalda.storage.log_config import CleanupPolicy, LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import UnifiedLog

Figure = tuple[str, float, str]

_LOG_BYTES = 60 * 1024 * 1024
_CONFIG = LogConfig(
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    segment_bytes=16 * 1024 * 1024,
    min_cleanable_dirty_ratio=0.0,
)
_RUNS = 3
_CASES = (
    ("1 KB records", 1000, 0, 16, Compression.NONE),
    ("1 KB records of many sizes", 1000, 300, 16, Compression.NONE),
    ("100 B records", 100, 0, 150, Compression.NONE),
    ("100 B records of many sizes", 100, 40, 150, Compression.NONE),
    ("100 B records, one a batch", 100, 0, 1, Compression.NONE),
    ("1 KB records, one a batch", 1000, 0, 1, Compression.NONE),
    ("1 KB records, lz4", 1000, 0, 16, Compression.LZ4),
    ("100 B records, lz4", 100, 0, 150, Compression.LZ4),
    ("100 B records, zstd", 100, 0, 150, Compression.ZSTD),
)


def run() -> list[Figure]:
    """Measure every case with 90 % and with 10 % of the records surviving, and the loop's delay."""
    figures: list[Figure] = []
    for label, make in _logs():
        with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
            job = make(directory)
            figures.append((label, statistics.median(_clean(job) for _ in range(_RUNS)), "MB/s"))
    figures += asyncio.run(_loop_delays("process"))
    return figures


def run_apache_kafka() -> list[Figure]:
    """Let Apache Kafka clean the same logs.

    Raises:
        NotAvailableError: it cannot be had here.
    """
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as root:
        logs = {}
        for number, (label, make) in enumerate(_logs()):
            directory = Path(root, str(number))
            directory.mkdir()
            logs[label] = Path(make(str(directory)).directory)
        rates = apache_kafka_cleaner.rates(logs, _CONFIG.segment_bytes)
    return [(label, rate, "MB/s") for label, rate in rates.items()]


def _logs() -> Iterator[tuple[str, Callable[[str], CleaningJob]]]:
    """Yield a name for each log and what makes it in a directory."""
    for name, size, spread, count, codec in _CASES:
        for survive in (90, 10):
            make = partial(_make, size=size, spread=spread, count=count, codec=codec, survive=survive)
            yield f"cleaner: {name}, {survive} % survive", make


def _make(
    directory: str, size: int, spread: int, count: int, codec: Compression, survive: int
) -> CleaningJob:
    """Fill a log and return the job that cleans it."""
    manager = LogManager([directory], lambda _: _CONFIG, SystemClock())
    manager.load()
    log = _fill(manager, size, spread, count, codec, survive)
    now_ms = int(time.time() * 1000)
    return asyncio.run(plan_job(measure_log(log, None, now_ms), CleanerConfig(), now_ms))


def _fill(
    manager: LogManager, size: int, spread: int, count: int, codec: Compression, survive: int
) -> UnifiedLog:
    """Fill a log with records of `size` bytes, `spread` more or less, `count` to a batch."""
    chance = random.Random(1)
    # So many keys that the given share of all records is the last of its key; words compress as text does.
    records = _LOG_BYTES // (size + 10)
    keys = records * survive // 100
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]
    text = b" ".join(chance.choices(words, k=200_000))
    log = manager.get_or_create(TopicPartition("bench", 0))
    order = [*range(keys), *(chance.randrange(keys) for _ in range(records - keys))]
    chance.shuffle(order)
    now_ms = int(time.time() * 1000)
    for start in range(0, records, count):
        builder = RecordBatchBuilder(compression=codec)
        for number in order[start : start + count]:
            length = size - 20 + (chance.randint(-spread, spread) if spread else 0)
            at = chance.randrange(len(text) - 2 * size)
            builder.append(b"key-%010d" % number, text[at : at + length], now_ms + start)
        log.append_as_leader(builder.build(), 0)
    log.advance_high_watermark(log.log_end_offset)
    log.roll()
    return log


def _clean(job: CleaningJob) -> float:
    """Clean the log and return the rate; its segments stay, so that it can be cleaned again."""
    started = time.process_time()
    *_, result = Cleaner(job, OsFileSystem()).run()
    seconds = time.process_time() - started
    assert isinstance(result, CleaningResult), f"a cleaning ends with its result, not {result}"
    assert result.end_offset == job.first_uncleanable_offset, "the keys did not fit into the table"
    return result.bytes_read / 1e6 / seconds


@contextmanager
def watched_steps() -> Iterator[list[float]]:
    """Note the processor time of each callback of the loop, in ms: other processes do not count in it."""
    run = asyncio.Handle._run
    steps: list[float] = []

    def timed(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        steps.append(1000 * (time.thread_time() - started))

    asyncio.Handle._run = timed  # type: ignore[method-assign,assignment] # for the benchmark only
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign] # as it was


async def _loop_delays(where: str) -> list[Figure]:
    """Clean while the loop is asked 1,000 times a second how late it is; return the delays.

    In a process it is all that a broker does: choosing, the process from its start to its end, every swap.
    """
    directory = tempfile.mkdtemp(prefix="kalda-bench-")
    executor = EventLoopExecutor(asyncio.get_running_loop())
    try:
        manager = LogManager([directory], lambda _: _CONFIG, SystemClock(), executor=executor)
        manager.load()
        log = _fill(manager, 100, 40, 150, Compression.NONE, 50)
        now_ms = int(time.time() * 1000)
        job = await plan_job(measure_log(log, None, now_ms), CleanerConfig(), now_ms)
        delays: list[float] = []
        steps: list[float] = []

        async def watch() -> None:
            while True:
                due = time.perf_counter() + 0.001
                await asyncio.sleep(0.001)
                # As a broker does between two requests, let go of the interpreter's lock.
                os.sched_yield()
                delays.append(1000 * (time.perf_counter() - due))

        # What filling the log has left to the collector is not the cleaner's.
        gc.collect()
        gc.freeze()
        watcher = asyncio.create_task(watch())
        if where == "process":
            runner = ProcessRunner(EventLoopExecutor(asyncio.get_running_loop()))
            cleaner = LogCleaner(manager, CleanerConfig, lambda: runner)
            with watched_steps() as steps:
                assert await cleaner.clean_filthiest(runner), "the log is dirty"
                await runner.rest()
        elif where == "thread":
            thread = threading.Thread(target=lambda: list(Cleaner(job, OsFileSystem()).run()))
            thread.start()
            while thread.is_alive():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        else:
            await asyncio.sleep(2)
        watcher.cancel()
        delays.sort()
        return [
            *([("cleaner: longest step on the loop, processor time", max(steps), "ms")] if steps else []),
            (f"cleaner: delay of the loop, {where}, p50", delays[len(delays) // 2], "ms"),
            (f"cleaner: delay of the loop, {where}, p99", delays[len(delays) * 99 // 100], "ms"),
            (f"cleaner: delay of the loop, {where}, longest", delays[-1], "ms"),
        ]
    finally:
        executor.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    for place in ("idle", "thread", "process"):
        for figure in asyncio.run(_loop_delays(place)):
            print(*figure)
    for figure in run():
        print(*figure)
