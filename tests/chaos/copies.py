"""Copiers under faults, and what must be true of their copies, offsets and group.

Copiers (`tests.chaos.copier`) are processes that copy a topic with transactions. What holds, whatever happens
to brokers and copiers: a read_committed reader of the copy sees each input record once, in order; committed
offsets never go back; the group is stable again within its session time-out plus two seconds; at the end no
transaction is left open.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from tests.chaos.copier import COMMON, GROUP, SESSION_TIMEOUT_MS
from tests.chaos.group_look import look
from tests.chaos.ordered_load import CheckingReader, Ledger

COPIES = "copied"
STABLE_SECONDS = SESSION_TIMEOUT_MS / 1000 + 2
RETURN_SECONDS = 60.0
END_SECONDS = 90.0
_POLL_SECONDS = 0.25


class CopierProcess:
    """One copier; killed and paused like a broker."""

    def __init__(self, number: int, arguments: list[str], log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.chaos.copier", "--id", str(number), *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it needs no time to be ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ.copy()
            )

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Have it stand still."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the copier was not started"
        self._process.send_signal(number)


class OffsetsWatch:
    """Sees that committed offsets never go back."""

    def __init__(self, bootstrap: str, source: str, partitions: int) -> None:
        self.violations: list[str] = []
        self._seen = [-1] * partitions
        self._source = source
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {**COMMON, "bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        )
        self._thread = threading.Thread(target=self._run, name="offsets watch")

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch. Twice is harmless."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        wanted = [confluent_kafka.TopicPartition(self._source, each) for each in range(len(self._seen))]
        while not self._stop.wait(_POLL_SECONDS):
            try:
                found = self._consumer.committed(wanted, timeout=5)
            except confluent_kafka.KafkaException:
                continue
            for each in found:
                if each.error is not None:
                    continue
                # Where nothing is committed the client says -1001.
                before, now = self._seen[each.partition], max(each.offset, -1)
                if now < before:
                    self.violations.append(
                        f"the committed offset of {self._source}-{each.partition} went back: {before}, {now}"
                    )
                self._seen[each.partition] = max(before, now)


class Copies:
    """Copiers, the reader of their copy, and the watch over their offsets."""

    def __init__(
        self,
        bootstrap: str,
        source: str,
        partitions: int,
        directory: Path,
        *,
        copiers: int,
        protocol: str,
        debug: str = "",
    ) -> None:
        self._bootstrap = bootstrap
        self._protocol = protocol
        self._partitions = partitions
        arguments = ["--bootstrap", bootstrap, "--source", source, "--target", COPIES, "--protocol", protocol]
        if debug:
            arguments += ["--debug", debug]
        self.copiers = [
            CopierProcess(number, arguments, directory / f"copier-{number}.stderr")
            for number in range(copiers)
        ]
        self.ledger = Ledger(partitions, is_dense=False)
        self.reader = CheckingReader(bootstrap, COPIES, self.ledger)
        self.offsets = OffsetsWatch(bootstrap, source, partitions)

    @property
    def problems(self) -> list[str]:
        """What must not be and is."""
        return [*self.ledger.violations, *self.reader.errors, *self.offsets.violations]

    def start(self) -> None:
        """Begin to copy, read and watch."""
        for copier in self.copiers:
            copier.start()
        self.reader.start()
        self.offsets.start()

    def wait_stable(self, since: float) -> float:
        """Wait until the group is stable and then for all its members; return how long after `since` it was.

        A copier may come later, and all of them may: librdkafka 2.16 hangs in `send_offsets_to_transaction`
        when the coordinator has left the metadata (its issues 5456 and 5511), and who does not poll is
        no member. A group without members is stable, too.

        Raises:
            TimeoutError: it took longer than the group's session time-out and two seconds, or a copier stays
                away.
        """
        stable = self._wait_members(0, since, since + STABLE_SECONDS)
        self._wait_members(len(self.copiers), since, since + RETURN_SECONDS)
        return stable

    def _wait_members(self, least: int, since: float, until: float) -> float:
        while True:
            # What is seen began before: a look that began in time counts.
            began = time.monotonic()
            state, members = look(self._bootstrap, GROUP, self._protocol)
            if state in ("Stable", "Empty") and members >= least:
                return began - since
            if began > until:
                raise TimeoutError(
                    f"the group has {members} members {began - since:.1f} s after the fault: {state}"
                )
            time.sleep(0.05)

    def wait_all_copied(self, numbers: list[int]) -> None:
        """Wait until each partition's copy has as many records as were produced.

        Raises:
            TimeoutError: names what is missing.
        """
        deadline = time.monotonic() + END_SECONDS
        while self.ledger.next_numbers != numbers and not self.problems:
            if time.monotonic() > deadline:
                raise TimeoutError(f"copied {self.ledger.next_numbers} of {numbers} in {END_SECONDS} s")
            time.sleep(0.1)

    def check_no_open_transaction(self) -> None:
        """See that a read_committed reader may read to the end of the copy."""
        ends = [self._ends(isolation) for isolation in ("read_committed", "read_uncommitted")]
        assert ends[0] == ends[1], f"open transactions: last stable offsets {ends[0]}, ends {ends[1]}"

    def stop(self) -> None:
        """End everything. Twice is harmless."""
        for copier in self.copiers:
            copier.kill()
        self.offsets.stop()
        self.reader.stop()

    def _ends(self, isolation: str) -> list[int]:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        level = (
            confluent_kafka.IsolationLevel.READ_COMMITTED
            if isolation == "read_committed"
            else confluent_kafka.IsolationLevel.READ_UNCOMMITTED
        )
        wanted = {
            confluent_kafka.TopicPartition(COPIES, each): confluent_kafka.admin.OffsetSpec.latest()
            for each in range(self._partitions)
        }
        futures = admin.list_offsets(wanted, isolation_level=level, request_timeout=10)
        return [futures[partition].result(15).offset for partition in wanted]
