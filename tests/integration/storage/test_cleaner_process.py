"""The cleaner's child process: started on demand, killed by an abort, gone with its parent."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kalda.common.types import TopicPartition
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.job import CleanedGroup, CleaningJob, encode_job
from kalda.storage.cleaner.job_planning import plan_job
from kalda.storage.cleaner.log_to_clean import measure_log
from kalda.storage.cleaner.runner import CleaningAbortedError, CleaningError, ProcessRunner, WorkerDiedError
from kalda.storage.log_config import CleanupPolicy, LogConfig
from kalda.storage.log_manager import LogManager

CONFIG = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_bytes=100_000)
WAIT_SECONDS = 60


def make_job(directory: Path, *, bytes_per_second: float = 0.0) -> CleaningJob:
    """A log of ten segments and the job that cleans it."""
    manager = LogManager([str(directory)], lambda _: CONFIG, SystemClock())
    manager.load()
    log = manager.get_or_create(TopicPartition("orders", 0))
    for number in range(100):
        builder = RecordBatchBuilder()
        for key in range(10):
            builder.append(b"%d" % (number % 30 + key), b"v" * 1000, 1)
        log.append_as_leader(builder.build(), 0)
    log.advance_high_watermark(log.log_end_offset)
    log.roll()
    config = CleanerConfig(io_bytes_per_second=bytes_per_second)
    return asyncio.run(plan_job(measure_log(log, None, 1), config, 1))


async def ignore(_: CleanedGroup) -> None:
    """Take note of nothing."""


async def started(runner: ProcessRunner) -> int:
    while (pid := runner.pid) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"{pid} lives on"
        time.sleep(0.01)


def wait_at_work(pid: int, directory: str) -> None:
    """Return when the process has a segment open; what it may read in a second is far less than that."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not any(file.path.startswith(directory) for file in psutil.Process(pid).open_files()):
        assert time.monotonic() < deadline, "the job does not begin"
        time.sleep(0.01)


def test_one_process_does_several_jobs_and_ends_when_there_are_none(tmp_path: Path) -> None:
    """Groups are told in order, each complete on disk; after a rest there is no process."""
    job = make_job(tmp_path)

    async def run() -> None:
        runner = ProcessRunner(EventLoopExecutor(asyncio.get_running_loop()))
        groups: list[CleanedGroup] = []

        async def on_group(group: CleanedGroup) -> None:
            path = Path(job.directory) / f"{group.base_offset:020d}.log.cleaned"
            assert group.size == path.stat().st_size
            groups.append(group)

        first = await runner.run(job, on_group)
        pid = await started(runner)
        second = await runner.run(job, on_group)
        assert pid == await started(runner)
        assert first.end_offset == second.end_offset == job.first_uncleanable_offset
        assert groups[: len(groups) // 2] == groups[len(groups) // 2 :]
        await runner.rest()
        assert runner.pid is None
        wait_gone(pid)

    asyncio.run(run())


def test_an_abort_kills_the_process_and_the_next_job_gets_a_new_one(tmp_path: Path) -> None:
    """When `run` has raised, nothing writes into the directory any more."""
    slow = make_job(tmp_path / "slow", bytes_per_second=10_000)
    quick = make_job(tmp_path / "quick")

    async def run() -> None:
        runner = ProcessRunner(EventLoopExecutor(asyncio.get_running_loop()))
        running = asyncio.create_task(runner.run(slow, ignore))
        pid = await started(runner)
        runner.abort()
        with pytest.raises(CleaningAbortedError):
            await running
        assert not is_alive(pid)
        await runner.run(quick, ignore)
        await runner.rest()

    asyncio.run(run())


def test_a_process_that_is_killed_fails_its_job(tmp_path: Path) -> None:
    """By the system, for want of memory; the runner goes on with a new one."""
    slow = make_job(tmp_path, bytes_per_second=10_000)

    async def run() -> None:
        runner = ProcessRunner(EventLoopExecutor(asyncio.get_running_loop()))
        running = asyncio.create_task(runner.run(slow, ignore))
        os.kill(await started(runner), 9)
        with pytest.raises(WorkerDiedError, match="exit code -9"):
            await running
        assert runner.pid is None

    asyncio.run(run())


def test_a_bad_log_fails_its_job_only(tmp_path: Path) -> None:
    """Content and disk are told apart by the error number; the process stays."""
    bad, gone, good = (make_job(tmp_path / name) for name in ("bad", "gone", "good"))
    path = Path(bad.directory) / f"{bad.segments[2].base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    (Path(gone.directory) / f"{gone.segments[1].base_offset:020d}.log").unlink()

    async def run() -> None:
        runner = ProcessRunner(EventLoopExecutor(asyncio.get_running_loop()))
        with pytest.raises(CleaningError, match="CRC") as content:
            await runner.run(bad, ignore)
        assert 0 == content.value.errno
        pid = runner.pid
        # As whoever cleans up after a failure does: there is nothing to abort any more.
        runner.abort()
        with pytest.raises(CleaningError, match="No such file") as disk:
            await runner.run(gone, ignore)
        assert 2 == disk.value.errno
        await runner.run(good, ignore)
        assert pid == runner.pid
        await runner.rest()

    asyncio.run(run())


def test_the_process_ends_with_its_parent_in_the_middle_of_a_job(tmp_path: Path) -> None:
    """A broker that was killed may be started again at once; nobody else may write into its directories."""
    job = make_job(tmp_path, bytes_per_second=1_000)
    command = [sys.executable, "-m", "kalda.storage.cleaner.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        for line in encode_job(job):
            process.stdin.write(line)
        process.stdin.flush()
        wait_at_work(process.pid, job.directory)
        process.stdin.close()
        assert 0 == process.wait(WAIT_SECONDS)
