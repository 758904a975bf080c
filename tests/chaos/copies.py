"""Copiers under faults, and what must be true of their copies, offsets and group.

Copiers are processes that copy a topic with transactions; `tests.chaos.copier_clients` lists their clients.
What holds, whatever happens to brokers and copiers: a read_committed reader of the copy sees each input
record once, in order; committed offsets never go back; the group is stable again within its session time-out
plus two seconds, its members the copiers that live and nobody else; no partition's copy stands still; at the
end no transaction is left open. A client that hangs is the one excuse for a group that is late, and it is
counted.
"""

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from tests.chaos.copier import COMMON, GROUP, HANG_SECONDS, HANGS, SESSION_TIMEOUT_MS, client_id
from tests.chaos.group_look import look
from tests.chaos.ordered_load import CheckingReader, Ledger, LibrdkafkaReader

COPIES = "copied"
STABLE_SECONDS = SESSION_TIMEOUT_MS / 1000 + 2
RETURN_SECONDS = 60.0
END_SECONDS = 90.0
STANDSTILL_SECONDS = 30.0
QUIET_SECONDS = 40.0
"""More than a copier that hangs costs: its client's call, a session, a transaction's time-out."""
EXCUSED_CALL = "send_offsets_to_transaction"
"""librdkafka 2.16 hangs in it, past its own time-out, when the coordinator has left the metadata (its issues
5456 and 5511). Who does not poll is no member, so the group is late then."""
CONFIRM_SECONDS = 0.5
"""How long it must stay so: a coordinator that just woke up may tell what was."""
_POLL_SECONDS = 0.25


class CopierProcess:
    """One copier; killed and paused like a broker."""

    def __init__(self, number: int, command: Sequence[str], arguments: Sequence[str], log: Path) -> None:
        self._number = number
        self._life = 0
        self._command = [*command, "--number", str(number), *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client_id(self) -> str:
        """How its member of the group is called."""
        return client_id(self._number, self._life)

    def start(self) -> None:
        """Start it; it needs no time to be ready."""
        self._life += 1
        command = [*self._command, "--life", str(self._life)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ.copy()
            )

    def hangs(self) -> Counter[str]:
        """Return which calls of its client did not return in their time, and how often."""
        return hangs_in(self._log.read_text(errors="replace")) if self._log.exists() else Counter()

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


def hangs_in(log: str) -> Counter[str]:
    """Count the calls that a copier's log says its client hung in."""
    return Counter(
        line.split(f" {HANGS} ")[1].split(":")[0] for line in log.splitlines() if f" {HANGS} " in line
    )


def is_whole(state: str, members: Sequence[str], wanted: Sequence[str]) -> bool:
    """Tell whether a group is stable with these members and nobody else."""
    return state == "Stable" and members == wanted


def is_stable(
    state: str, members: Sequence[str], wanted: Sequence[str], after: float, *, has_hung: bool
) -> bool:
    """Judge one look at the group, `after` so many seconds since the fault; tell whether to stop looking.

    Whatever makes it late began before it was late: a client that hung has said so `HANG_SECONDS` later.

    Raises:
        TimeoutError: it is, or was, late without a client that hung, or for too long with one.
    """
    stable = is_whole(state, members, wanted)
    if after <= STABLE_SECONDS or (stable and has_hung):
        return stable
    if stable or after > (RETURN_SECONDS if has_hung else STABLE_SECONDS + HANG_SECONDS + 1):
        raise TimeoutError(
            f"{after:.1f} s after the fault the group is {state} with {members}; {wanted} live, "
            f"{STABLE_SECONDS} s are allowed, {'a' if has_hung else 'no'} client hung"
        )
    return False


class Standstill:
    """Finds partitions whose copy does not go on although there is more to copy."""

    def __init__(self, partitions: int) -> None:
        self._copied = [-1] * partitions
        self._since = [0.0] * partitions

    def look(self, copied: Sequence[int], produced: Sequence[int], now: float) -> list[str]:
        """Take note of what is copied by `now`; return what has stood still for too long."""
        found = []
        for partition, (count, wanted) in enumerate(zip(copied, produced, strict=True)):
            if count != self._copied[partition] or count >= wanted:
                self._copied[partition], self._since[partition] = count, now
            elif now - self._since[partition] > STANDSTILL_SECONDS:
                still = now - self._since[partition]
                found.append(
                    f"the copy of partition {partition} stands at {count} of {wanted} for {still:.0f} s"
                )
        return found


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
        commands: Sequence[Sequence[str]],
        protocol: str,
        reader: Callable[..., CheckingReader] = LibrdkafkaReader,
    ) -> None:
        """`commands` are those of the copiers, one each; see `tests.chaos.copier_clients.copier_command`."""
        self._bootstrap = bootstrap
        self._protocol = protocol
        self._partitions = partitions
        arguments = ["--bootstrap", bootstrap, "--source", source, "--target", COPIES, "--protocol", protocol]
        self.copiers = [
            CopierProcess(number, command, arguments, directory / f"copier-{number}.stderr")
            for number, command in enumerate(commands)
        ]
        self.late_seconds: list[float] = []
        """How long after a fault the group was stable where a client that hung made it late."""
        self._hangs_excused = 0
        self._standstill = Standstill(partitions)
        self.ledger = Ledger(partitions, is_dense=False)
        self.reader = reader(bootstrap, COPIES, self.ledger)
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

    def wait_stable(self, since: float) -> float | None:
        """Wait until the group is stable with the copiers that live; return how long after `since` it was.

        None if it was late because a client hung; `late_seconds` and `hangs` tell of it.

        Raises:
            TimeoutError: as `is_stable`.
        """
        wanted = sorted(copier.client_id for copier in self.copiers)
        whole_since: float | None = None
        while True:
            # What is seen began before: a look that began in time counts.
            now = time.monotonic() - since
            state, members = look(self._bootstrap, GROUP, self._protocol)
            has_hung = now > STABLE_SECONDS and self.hangs[EXCUSED_CALL] > self._hangs_excused
            after = whole_since if whole_since is not None and is_whole(state, members, wanted) else now
            if not is_stable(state, members, wanted, after, has_hung=has_hung):
                whole_since = None
            elif now - after >= CONFIRM_SECONDS:
                break
            else:
                whole_since = after
            time.sleep(0.05)
        self._hangs_excused = self.hangs[EXCUSED_CALL]
        if after <= STABLE_SECONDS:
            return after
        self.late_seconds.append(after)
        return None

    @property
    def hangs(self) -> Counter[str]:
        """Which calls of the copiers' clients outlasted their own time-out, and how often."""
        return sum((copier.hangs() for copier in self.copiers), Counter[str]())

    def wait_progress(self, produced: Callable[[], Sequence[int]]) -> None:
        """See that a partition whose copy has stood still for long goes on once there are no faults.

        Under one fault after the other a copier may get nothing done: if the coordinator moved, members may
        be a session apart from the next generation, and the next fault comes as soon as that is there.

        Raises:
            TimeoutError: names what does not go on.
        """
        deadline = time.monotonic() + QUIET_SECONDS
        while True:
            now = time.monotonic()
            found = self._standstill.look(self.ledger.next_numbers, produced(), now)
            if not found or self.problems:
                return
            if now > deadline:
                raise TimeoutError(f"{QUIET_SECONDS} s without faults, but {found}")
            time.sleep(0.2)

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
