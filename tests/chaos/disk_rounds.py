"""Fill the disks of a cluster of three brokers again and again under load, and account for every record.

Run ``python -m tests.chaos.disk_rounds --rounds 50``, as root where tmpfs can be mounted: each broker has two
log directories, each a small tmpfs of its own, and a ballast file takes all that is left in one of them.
Elsewhere it says so and checks nothing. The seed is printed and ``--seed`` replays the faults.

Replication 3, ``min.insync.replicas`` 2, idempotent producers with acks=all. While the disks of one broker
are full every partition must acknowledge, none may be led by a replica in a full directory or have one in its
ISR, and those in its other directory stay as they were. Readers are served while all disks are full. With
room again all replicas are in sync and the preferred ones lead. At the end: no acknowledged record lost, none
twice, no gap; replicas byte-identical; what transactional copiers copied is there once.
"""

import contextlib
import ctypes
import ctypes.util
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from kalda.testing import ProcessCluster
from tests.chaos.cluster_rounds import (
    BROKERS,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    create_topics,
    wait_in_sync,
)
from tests.chaos.command_line import cluster_parser
from tests.chaos.copier_clients import copier_command
from tests.chaos.copies import COPIES, Copies
from tests.chaos.ordered_load import Ledger, OrderedLoad
from tests.chaos.replica_check import check_replicas
from tests.chaos.rounds_clients import CLIENTS, RoundsClients
from tests.integration import real_zookeeper

DISKS = 2
DISK_BYTES = 96 * 1024 * 1024
RECORDS_PER_SECOND = 600
PROGRESS_SECONDS = 30.0
"""How long a partition may take to acknowledge again; where leaderships stay on a full disk it never does."""
MOVE_SECONDS = 20.0
BALANCE_SECONDS = 60.0
DISK_SETTINGS = {
    **SETTINGS,
    # Kafka's default, so that nothing but the full disk takes a replica out of the ISR.
    "replica.lag.time.max.ms": "30000",
    "leader.imbalance.check.interval.seconds": "2",
    "leader.imbalance.per.broker.percentage": "0",
}


class Disk:
    """One log directory on a file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Take all the space there is."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        """Give the space back; harmless on a disk that has it."""
        self._ballast.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """Which disks are filled and what else happens meanwhile; the rounds give all space back."""

    name: str
    weight: int
    run: Callable[["Disks"], None]


class Disks:
    """The cluster, its disks, and the dice."""

    def __init__(
        self,
        cluster: ProcessCluster,
        disks: Sequence[Sequence[Disk]],
        load: OrderedLoad,
        choice: random.Random,
    ) -> None:
        self.cluster = cluster
        self.disks = disks
        self.load = load
        self.choice = choice
        self.gaps: list[float] = []
        """How long after a disk was full every partition acknowledged a record produced since."""

    def any_broker(self) -> int:
        """Choose a victim."""
        return self.choice.randrange(BROKERS)

    def controller(self) -> int:
        """Return the controller's id."""
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": self.cluster.bootstrap, "log_level": 0}
        )
        found = admin.list_topics(timeout=10).controller_id
        return found if found in range(BROKERS) else self.any_broker()

    def fill(self, broker: int, which: Sequence[int] = range(DISKS)) -> None:
        """Fill disks of a broker."""
        for number in which:
            self.disks[broker][number].fill()

    def empty(self) -> None:
        """Give all space back."""
        for disks in self.disks:
            for disk in disks:
                disk.empty()

    def wait(self, least: float, most: float) -> None:
        """Let some time go by."""
        time.sleep(self.choice.uniform(least, most))

    def serve_on(self, broker: int, which: Sequence[int] = range(DISKS)) -> None:
        """See that every partition acknowledges although disks of one broker are full, and why it can."""
        self.gaps.append(self.load.wait_progress(PROGRESS_SECONDS))
        full = {
            number
            for number in range(PARTITIONS)
            if any((self.disks[broker][each].path / f"{TOPIC}-{number}").exists() for each in which)
        }
        wait_until(lambda: self._misplaced(broker, full), MOVE_SECONDS)

    def _misplaced(self, broker: int, full: set[int]) -> str:
        for number, (leader, isr) in partitions_of(self.cluster.bootstrap).items():
            if number in full and broker in (leader, *isr):
                return f"broker {broker}, whose disk is full, is in {leader}, {isr} of partition {number}"
            if number not in full and broker not in isr:
                return f"broker {broker}, which has room, is not in {isr} of partition {number}"
        return ""

    def check_reads(self) -> None:
        """Read a record of each partition, as a reader that comes now."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            for number in range(PARTITIONS):
                consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0)])
                message = consumer.poll(PROGRESS_SECONDS)
                assert message is not None, f"partition {number} cannot be read while all disks are full"
                assert message.error() is None, f"partition {number}: {message.error()}"
        finally:
            consumer.close()


def _fill_one_disk(disks: Disks, broker: int) -> None:
    which = [disks.choice.randrange(DISKS)]
    disks.fill(broker, which)
    disks.serve_on(broker, which)


def _fill_a_broker(disks: Disks, broker: int) -> None:
    disks.fill(broker)
    disks.serve_on(broker)
    disks.wait(0.0, 2.0)


def _fill_and_change_the_controller(disks: Disks) -> None:
    controller = disks.controller()
    broker = disks.choice.choice([each for each in range(BROKERS) if each != controller])
    disks.fill(broker)
    disks.wait(0.0, 0.5)
    disks.cluster.kill(controller)
    disks.wait(0.0, 3.0)
    disks.cluster.start(controller)
    wait_until(lambda: _missing_from_isrs(disks, controller), BALANCE_SECONDS)
    disks.serve_on(broker)


def _fill_and_restart(disks: Disks) -> None:
    broker = disks.any_broker()
    disks.fill(broker)
    disks.serve_on(broker)
    disks.cluster.stop(broker)
    disks.load.wait_progress(PROGRESS_SECONDS)
    disks.cluster.start(broker)
    disks.load.wait_progress(PROGRESS_SECONDS)


def _fill_and_kill(disks: Disks) -> None:
    broker = disks.any_broker()
    disks.fill(broker)
    disks.wait(0.0, 1.0)
    disks.cluster.kill(broker)
    disks.load.wait_progress(PROGRESS_SECONDS)
    disks.empty()
    disks.cluster.start(broker)


def _fill_while_coordination_is_away(disks: Disks) -> None:
    broker = disks.any_broker()
    disks.cluster.pause_coordinator()
    disks.fill(broker)
    disks.wait(0.0, 1.5)
    disks.cluster.resume_coordinator()
    disks.serve_on(broker)


def _fill_two_brokers(disks: Disks) -> None:
    for broker in disks.choice.sample(range(BROKERS), 2):
        disks.fill(broker)
        disks.wait(0.0, 0.5)
    disks.wait(1.0, 3.0)


def _fill_all_brokers(disks: Disks) -> None:
    for broker in range(BROKERS):
        disks.fill(broker)
    disks.wait(1.0, 3.0)
    disks.check_reads()
    # One after the other, in any order: nobody may wait for the one that led last.
    for broker in disks.choice.sample(range(BROKERS), BROKERS):
        for disk in disks.disks[broker]:
            disk.empty()
        disks.wait(0.0, 1.5)


FAULTS = (
    Fault("fill one disk of a broker", 5, lambda disks: _fill_one_disk(disks, disks.any_broker())),
    Fault("fill a broker", 5, lambda disks: _fill_a_broker(disks, disks.any_broker())),
    Fault("fill the controller", 3, lambda disks: _fill_a_broker(disks, disks.controller())),
    Fault("fill a broker, kill the controller", 3, _fill_and_change_the_controller),
    Fault("fill a broker and restart it", 3, _fill_and_restart),
    Fault("fill a broker and kill it", 2, _fill_and_kill),
    Fault("fill a broker while coordination is away", 2, _fill_while_coordination_is_away),
    Fault("fill two brokers", 2, _fill_two_brokers),
    Fault("fill all brokers", 2, _fill_all_brokers),
)


def partitions_of(bootstrap: str) -> dict[int, tuple[int, list[int]]]:
    """Return leader and ISR of each partition."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return {number: (each.leader, each.isrs) for number, each in found.items()}


def wait_until(problem: Callable[[], str], seconds: float) -> None:
    """Poll until there is no problem any more."""
    deadline = time.monotonic() + seconds
    while found := problem():
        assert time.monotonic() < deadline, f"after {seconds} s: {found}"
        time.sleep(0.1)


def _missing_from_isrs(disks: Disks, broker: int) -> str:
    missing = [n for n, (_, isr) in partitions_of(disks.cluster.bootstrap).items() if broker not in isr]
    return f"broker {broker} is not in sync for {missing}" if missing else ""


def _unbalanced(bootstrap: str) -> str:
    led = Counter(leader for leader, _ in partitions_of(bootstrap).values())
    share = PARTITIONS // BROKERS
    return "" if all(led[broker] == share for broker in range(BROKERS)) else f"leaders are {dict(led)}"


def run(
    rounds: int, seed: int, directory: Path, copiers: int, *, is_zookeeper_real: bool, client: str
) -> None:
    """Run the rounds; an AssertionError or TimeoutError names what went wrong."""
    with contextlib.ExitStack() as stack:
        zookeeper = None
        if is_zookeeper_real:
            reason = real_zookeeper.missing()
            assert reason is None, reason
            zookeeper = stack.enter_context(real_zookeeper.RealZooKeeper(directory / "zookeeper"))
        disks = [
            [stack.enter_context(_mounted(directory / f"disk-{broker}-{number}")) for number in range(DISKS)]
            for broker in range(BROKERS)
        ]
        cluster = ProcessCluster(
            directory,
            brokers=BROKERS,
            settings=DISK_SETTINGS,
            zookeeper=f"{zookeeper.hosts}/chaos" if zookeeper else None,
        )
        for broker, own in enumerate(disks):
            cluster.broker(broker).settings["log.dirs"] = ",".join(str(disk.path) for disk in own)
        stack.enter_context(cluster)
        faults = [each for each in FAULTS if not (zookeeper and "coordination" in each.name)]
        _run(rounds, seed, directory, cluster, disks, copiers, faults, CLIENTS[client])


def _run(
    rounds: int,
    seed: int,
    directory: Path,
    cluster: ProcessCluster,
    every_disk: Sequence[Sequence[Disk]],
    copiers: int,
    faults: Sequence[Fault],
    clients: RoundsClients,
) -> None:
    ledger = Ledger(PARTITIONS)
    create_topics(cluster.bootstrap)
    load = clients.load(cluster.bootstrap, TOPIC, ledger, records_per_second=RECORDS_PER_SECOND)
    reader = clients.reader(cluster.bootstrap, TOPIC, ledger)
    commands = [copier_command(clients.name)] * copiers
    copies = Copies(
        cluster.bootstrap,
        TOPIC,
        PARTITIONS,
        directory,
        commands=commands,
        protocol="classic",
        reader=clients.reader,
    )
    disks = Disks(cluster, every_disk, load, random.Random(seed))
    counts: Counter[str] = Counter()
    returns: list[float] = []
    try:
        reader.start()
        load.start()
        load.wait_progress(PROGRESS_SECONDS)
        if copiers:
            copies.start()
        for number in range(rounds):
            fault = disks.choice.choices(faults, [each.weight for each in faults])[0]
            counts[fault.name] += 1
            print(f"{number + 1:>4} {fault.name}:", end=" ", flush=True)
            fault.run(disks)
            disks.empty()
            load.wait_progress(PROGRESS_SECONDS)
            begin = time.monotonic()
            wait_in_sync(cluster.bootstrap)
            wait_until(lambda: _unbalanced(cluster.bootstrap), BALANCE_SECONDS)
            returns.append(time.monotonic() - begin)
            print(f"in sync and balanced after {returns[-1]:.1f} s", flush=True)
            problems = [*ledger.violations, *reader.errors, *copies.problems]
            assert not problems, f"round {number + 1}: {problems}"
            if copiers:
                copies.wait_progress(lambda: load.produced)
        load.stop()
        assert not load.errors, str(load.errors[:3])
        reader.wait_all_read()
        if copiers:
            copies.wait_all_copied(load.produced)
            copies.check_no_open_transaction()
        copies.stop()
        reader.stop()
        for broker in range(BROKERS):
            cluster.stop(broker)
    finally:
        load.abandon()
        copies.stop()
        reader.stop()
    ledger.check_all_read()
    problems = [*ledger.violations, *reader.errors, *copies.problems]
    assert not problems, str(problems)
    _check_logs(every_disk, ledger, has_copies=copiers > 0)
    for name, count in sorted(counts.items()):
        print(f"{count:>5} x {name}")
    gaps = disks.gaps or [0.0]
    print(
        f"{rounds} rounds: {ledger.acknowledged_count} acknowledged records, none lost, doubled or moved; "
        f"replicas identical; with one broker full all partitions acknowledged after "
        f"{statistics.median(gaps):.2f} s (median), {max(gaps):.2f} s (worst); with room again in sync and "
        f"balanced after {statistics.median(returns):.1f} s (median), {max(returns):.1f} s (worst)"
    )


def _check_logs(every_disk: Sequence[Sequence[Disk]], ledger: Ledger, *, has_copies: bool) -> None:
    for partition in range(PARTITIONS):
        for topic in (TOPIC, COPIES) if has_copies else (TOPIC,):
            name = f"{topic}-{partition}"
            where = [disk.path for own in every_disk for disk in own if (disk.path / name).exists()]
            assert BROKERS == len(where), f"{name} is in {where}"
            committed = check_replicas(where, topic, partition)
            if topic == TOPIC:
                assert committed == ledger.next_offsets[partition], f"{name}: {committed} committed"


# Mounting, by the system's own call: the command is not everywhere.

_LIBC = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
_DETACH = 2


@contextlib.contextmanager
def _mounted(path: Path) -> Iterator[Disk]:
    path.mkdir(parents=True)
    options = f"size={DISK_BYTES}".encode()
    _call(_LIBC.mount(b"tmpfs", os.fsencode(path), b"tmpfs", ctypes.c_ulong(0), options), "mount", path)
    try:
        yield Disk(path)
    finally:
        _call(_LIBC.umount2(os.fsencode(path), _DETACH), "unmount", path)


def _call(result: int, what: str, path: Path) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise PermissionError(number, f"cannot {what}: {os.strerror(number)}", str(path))


def why_not() -> str | None:
    """Return why small disks cannot be had here, None where they can."""
    with tempfile.TemporaryDirectory(prefix="kalda-mount-") as temporary:
        try:
            with _mounted(Path(temporary) / "disk"):
                return None
        except OSError as error:
            return str(error)


def main() -> None:
    """Run from the command line."""
    parser = cluster_parser(
        __doc__, rounds=50, copiers=2, copiers_help="how many transactional copiers (0: none)"
    )
    given = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(f"*** FULL DISKS ARE NOT TESTED: small tmpfs file systems cannot be mounted here: {reason} ***")
        return
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kalda-disk-chaos-") as temporary:
        run(
            given.rounds,
            given.seed,
            given.keep or Path(temporary),
            given.copiers,
            is_zookeeper_real=given.real_zookeeper,
            client=given.client,
        )


if __name__ == "__main__":
    main()
