"""A Spark application that kill rounds start, damage, and start again.

The application is any command with a driver in Python. Damage is either done from outside, with ``kill -9``
of the driver, of a Python worker or of a broker that leads a partition, or armed as a file that the first
process takes which comes to a place (`tests.chaos.spark_faults`).
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kalda import Admin
from kalda.testing import ProcessCluster

_FAULTS: Final = Path(__file__).parent / "spark_faults"
WEIGHTS: Final = {
    "error": 30,
    "worker": 30,
    # A driver takes ten seconds to start, and a minute on a loaded machine, so its deaths are fewer.
    "driver": 3,
    "kill worker": 12,
    "kill driver": 2,
    "kill leader": 15,
}
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class Damage:
    """What a round does: a kill from outside, or a failure at a place.

    Attributes:
        kind: "kill worker", "kill driver" or "kill leader"; or what happens at `place`: "error" is raised
            there, "worker" kills the process that comes to it, "driver" kills the driver.
        place: "before" or "after", and the name of a step in `spark_faults`; empty for a kill from outside.
    """

    kind: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}".strip()


def choose_damage(rng: random.Random, steps: Sequence[str], weights: Mapping[str, int]) -> Damage:
    """Return the damage of a round: at one of these steps, or a kill from outside."""
    (kind,) = rng.choices(list(weights), list(weights.values()))
    if kind.startswith("kill"):
        return Damage(kind)
    return Damage(kind, f"{rng.choice(['before', 'after'])} {rng.choice(steps)}")


class SparkApplication:
    """The processes of one application."""

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        self.log: Final = directory / "driver.log"
        self.starts = 0
        self._fault: Final = directory / "fault"
        self._taken: Final = directory / "fault.taken"
        self._command: Final = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self, *options: str) -> None:
        """Start it, with further options, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        self.starts += 1
        environment = os.environ | {
            "KALDA_FAULT": str(self._fault),
            "PYTHONPATH": f"{_FAULTS}:{os.environ.get('PYTHONPATH', '')}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            # The virtual machine lives for seconds: optimizing its code takes more time than it saves.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        # The shell's pid is the group, which the faults need to know.
        shell = ["sh", "-c", 'KALDA_FAULT_DRIVER=$$ exec "$@"', "sh", *self._command, *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                shell, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def arm(self, damage: Damage) -> None:
        """Let the first process fail that comes to a place; replaces what no process has come to."""
        self._fault.write_text(json.dumps({"kind": damage.kind, "place": damage.place}))

    def disarm(self) -> None:
        """Take away what no process has come to."""
        self._fault.unlink(missing_ok=True)

    def taken(self) -> Damage | None:
        """Return the failure that a process has come to since the last call."""
        if not self._taken.exists():
            return None
        fault = json.loads(self._taken.read_text())
        self._taken.unlink()
        return Damage(fault["kind"], fault["place"])

    def kill_driver(self) -> None:
        """Kill the driver's Python and the JVM; the workers end by themselves."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill_worker(self, rng: random.Random) -> bool:
        """Kill one Python worker; return whether there was one."""
        # The daemon has the lowest pid; without it all workers end.
        workers = sorted(self._workers())[1:]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
        return True

    def kill(self) -> None:
        """Kill the driver and wait for its end."""
        self.kill_driver()
        if self._process is not None:
            self._process.wait(30)
            self._process = None

    def terminate(self, timeout_s: float) -> int:
        """Send SIGTERM and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it did not end.
        """
        assert self._process is not None, "the application runs"
        self._process.terminate()
        return self._process.wait(timeout_s)

    def _workers(self) -> Iterator[int]:
        assert self._process is not None, "the application runs"
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                with contextlib.suppress(OSError):
                    is_own = os.getsid(int(each.name)) == self._process.pid
                    if is_own and b"pyspark.daemon" in (each / "cmdline").read_bytes():
                        yield int(each.name)


class Attack:
    """Damages an application and its cluster, one round after the other."""

    def __init__(
        self,
        application: SparkApplication,
        cluster: ProcessCluster,
        rng: random.Random,
        steps: Sequence[str],
        *,
        weights: Mapping[str, int] = WEIGHTS,
    ) -> None:
        """Take what to damage; `weights` says how often each kind is chosen."""
        self.happened: Final[Counter[str]] = Counter()
        """How often each damage happened."""
        self._application: Final = application
        self._cluster: Final = cluster
        self._rng: Final = rng
        self._steps: Final = tuple(steps)
        self._weights: Final = weights

    def prepare(self) -> Damage:
        """Choose the damage of a round, before its records are produced; arm it where it has a place."""
        damage = choose_damage(self._rng, self._steps, self._weights)
        if damage.place:
            self._application.arm(damage)
        return damage

    def strike(self, damage: Damage, topic: str) -> None:
        """Kill from outside, a moment after the records were produced."""
        if damage.place:
            return
        time.sleep(self._rng.uniform(0.0, 0.6))
        if damage.kind == "kill worker" and not self._application.kill_worker(self._rng):
            return
        if damage.kind == "kill driver":
            self._application.kill_driver()
        elif damage.kind == "kill leader":
            broker = self._leader(topic)
            self._cluster.kill(broker)
            time.sleep(self._rng.uniform(0.5, 3.0))
            self._cluster.start(broker)
        self.happened[str(damage)] += 1

    def wait(self, arrived: Callable[[], int], wanted: int, timeout_s: float) -> float | None:
        """Wait until so many records arrived, and start the application again where it died.

        Returns:
            The seconds; None if some did not come in time.
        """
        began = time.monotonic()
        while arrived() < wanted:
            if time.monotonic() - began > timeout_s:
                return None
            self._application.ensure()
        self.note()
        return time.monotonic() - began

    def end(self, timeout_s: float) -> Iterator[str]:
        """Do no more damage, stop the application by SIGTERM, and yield what is wrong with its end."""
        self._application.disarm()
        # What a batch leaves behind its decision comes after its rows.
        deadline = time.monotonic() + timeout_s
        while (left := open_transactions(self._cluster.bootstrap)) and time.monotonic() < deadline:
            self._application.ensure()
            time.sleep(0.5)
        if left:
            yield f"open transactions: {left}"
        self._application.ensure()
        if code := self._application.terminate(timeout_s):
            yield f"the application ended with {code} after SIGTERM"
        self.note()

    def note(self) -> None:
        """Count the failure that a process has come to; one behind the last step may come a round later."""
        taken = self._application.taken()
        if taken is not None:
            self.happened[str(taken)] += 1

    def _leader(self, topic: str) -> int:
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            partitions = admin.describe_topics([topic])[topic].partitions
        return self._rng.choice([each.leader_id for each in partitions if each.leader_id >= 0])


def open_transactions(bootstrap: str) -> list[str]:
    """Return the transactional ids whose transactions are open or are being ended."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        listed = admin.list_transactions().all()
    return [each.transactional_id for each in listed if each.state.value in _OPEN]
