"""Kills workers of Celery, taskiq or `kalda.worker`, and brokers, under load; each task that was sent runs.

Run ``python -m tests.chaos.task_rounds --system celery --rounds 100``. One program sends tasks, every tenth
of them with a delay, and processes of `celery worker`, `taskiq worker` or a `kalda.worker` run them; a task
notes its number before it is acknowledged. Each round kills a worker's processes with SIGKILL and starts
another; with ``--brokers 3``, each fifth round kills a broker as well: the leader of the queue or the
coordinator of its share group. In the end each number that the sending program got an acknowledgement for was
noted, and the group has no lag.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from kalda import Admin
from kalda.testing import ProcessCluster
from tests.chaos.command_line import rounds_parser
from tests.chaos.task_notes import BOOTSTRAP_VARIABLE, DIRECTORY_VARIABLE, QUEUE, TOPICS_REPLICATION, Notes

WORKERS: Final = 3
BROKER_EVERY: Final = 5
PROGRESS: Final = 20
"""So many tasks run between two kills."""
PROGRESS_SECONDS: Final = 180.0
SYSTEMS: Final = {
    "celery": (
        ("tests.chaos.celery_tasks",),
        ("-m", "celery", "-A", "tests.chaos.celery_tasks", "worker", "--concurrency", "2"),
    ),
    "taskiq": (
        ("tests.chaos.taskiq_tasks",),
        ("-m", "taskiq", "worker", "tests.chaos.taskiq_tasks:broker", "--workers", "1"),
    ),
    "worker": (("tests.chaos.worker_tasks", "send"), ("-m", "tests.chaos.worker_tasks")),
}
SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}


class Programs:
    """The sending program and the workers."""

    def __init__(self, system: str, bootstrap: str, directory: Path, replication: int) -> None:
        self._sender_words, self._worker_words = SYSTEMS[system]
        self._notes: Final = directory / "notes"
        self._notes.mkdir()
        self._log: Final[IO[bytes]] = (directory / "programs.log").open("ab")
        self._environment: Final = {
            **os.environ,
            BOOTSTRAP_VARIABLE: bootstrap,
            DIRECTORY_VARIABLE: str(self._notes),
            TOPICS_REPLICATION: str(replication),
        }
        self._sender: subprocess.Popen[bytes] | None = None
        self._workers: Final[list[subprocess.Popen[bytes]]] = []
        self._count = 0
        self.notes: Final = Notes(self._notes)

    def start(self) -> None:
        """Start all."""
        self._sender = self._start("-m", *self._sender_words)
        for _ in range(WORKERS):
            self._workers.append(self._start_worker())

    def kill_worker(self, index: int) -> None:
        """Kill a worker with all its processes, and start another."""
        self._kill(self._workers[index])
        self._workers[index] = self._start_worker()

    def stop_sender(self) -> None:
        """End the sending program; a number that it was about to note may have been sent, too."""
        if self._sender is not None:
            assert self._sender.poll() is None, "the sending program has ended by itself"
            self._kill(self._sender)

    def close(self) -> None:
        """Kill all."""
        for process in [*self._workers, *([] if self._sender is None else [self._sender])]:
            self._kill(process)
        self._log.close()

    def ended(self) -> list[int]:
        """Return the exit codes of workers that ended by themselves."""
        return [each.returncode for each in self._workers if each.poll() is not None]

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        self._count += 1
        # Celery wants a name of its own for each worker of a machine.
        name = ("--hostname", f"worker{self._count}@%h") if "celery" in self._worker_words else ()
        return self._start(*self._worker_words, *name)

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @staticmethod
    def _kill(process: "subprocess.Popen[bytes]") -> None:
        # Also where the first process has ended: its children may live.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did and found."""

    worker_kills: int
    broker_kills: int
    sent: int
    runs: int
    repeated: int
    slowest_seconds: float
    """The longest time that `PROGRESS` tasks took after a kill."""


def run(system: str, rounds: int, brokers: int, seed: int, directory: Path) -> Report:
    """Run the rounds; an AssertionError names what was lost, and the seed."""
    choice = random.Random(seed)
    settings = {**SETTINGS, **({"min.insync.replicas": "2"} if brokers > 2 else {})}
    with ProcessCluster(
        directory / "cluster", brokers=brokers, settings=settings, start_timeout_seconds=300.0
    ) as cluster:
        programs = Programs(system, cluster.bootstrap, directory, min(brokers, 3))
        broker_kills = 0
        slowest = 0.0
        try:
            programs.start()
            _wait_progress(programs, seed)
            for number in range(rounds):
                time.sleep(choice.uniform(0.0, 0.5))
                programs.kill_worker(choice.randrange(WORKERS))
                if brokers > 1 and number % BROKER_EVERY == BROKER_EVERY - 1:
                    broker_id = _broker_of_queue(cluster, choice)
                    cluster.kill(broker_id)
                    time.sleep(choice.uniform(0.0, 2.0))
                    cluster.start(broker_id)
                    broker_kills += 1
                slowest = max(slowest, _wait_progress(programs, seed))
                if number % 10 == 9:
                    print(f"{number + 1} kills, {len(programs.notes.done)} tasks done", flush=True)
            programs.stop_sender()
            _wait_done(programs, cluster, seed)
        finally:
            programs.close()
        notes = programs.notes
        return Report(
            rounds,
            broker_kills,
            len(notes.sent),
            sum(notes.done.values()),
            sum(count > 1 for count in notes.done.values()),
            slowest,
        )


def _broker_of_queue(cluster: ProcessCluster, choice: random.Random) -> int:
    topic = choice.choice((QUEUE, f"{QUEUE}.delayed", "__share_group_state"))
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        described = admin.describe_topics([topic])[topic]
    return choice.choice([each.leader_id for each in described.partitions if each.has_leader] or [0])


def _wait_progress(programs: Programs, seed: int) -> float:
    """Wait until tasks ran; return how long it took."""
    notes = programs.notes
    notes.read()
    before, begin = len(notes.done), time.monotonic()
    while len(notes.done) < before + PROGRESS:
        ended = programs.ended()
        assert not ended, f"seed {seed}: workers have ended: {ended}"
        seconds = time.monotonic() - begin
        assert seconds < PROGRESS_SECONDS, (
            f"seed {seed}: no progress: {len(notes.done)} of {len(notes.sent)} tasks are done"
        )
        time.sleep(0.05)
        notes.read()
    return time.monotonic() - begin


def _wait_done(programs: Programs, cluster: ProcessCluster, seed: int) -> None:
    notes = programs.notes
    deadline = time.monotonic() + PROGRESS_SECONDS
    while True:
        notes.read()
        missing = sorted(notes.sent - notes.done.keys())
        lags = _lags(cluster)
        if not missing and not any(lags.values()):
            return
        assert time.monotonic() < deadline, (
            f"seed {seed}: {len(missing)} of {len(notes.sent)} tasks did not run, such as {missing[:5]}; "
            f"lags {lags}"
        )
        time.sleep(0.5)


def _lags(cluster: ProcessCluster) -> dict[str, int | None]:
    """Return the lags of the queue's partitions; none of one that no worker has read yet."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        offsets = admin.list_share_group_offsets([QUEUE])[QUEUE]
    return {
        f"{partition.topic}-{partition.partition}": each.lag
        for partition, each in offsets.items()
        if each is not None
    }


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="kalda-tasks-") as directory:
        yield Path(directory)


def main() -> None:
    """Run from the command line."""
    parser = rounds_parser(__doc__, 100)
    parser.add_argument("--system", choices=sorted(SYSTEMS), default="celery")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory to leave logs and data in")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with _directory(options.keep) as directory:
        report = run(options.system, options.rounds, options.brokers, options.seed, directory)
    print(
        f"{options.system}: {report.worker_kills} kills of workers and {report.broker_kills} of brokers "
        f"under {report.sent} tasks: none lost, {report.runs} runs, {report.repeated} tasks ran again; "
        f"{PROGRESS} tasks took {report.slowest_seconds:.1f} s at most after a kill"
    )


if __name__ == "__main__":
    main()
