"""Hurt a cluster of three brokers again and again under load, and account for every record.

Run ``python -m tests.chaos.cluster_rounds --rounds 100``; the seed is printed and ``--seed`` replays the
faults, their victims and pauses (not the scheduling of processes). Replication 3, ``min.insync.replicas`` 2,
idempotent producers with acks=all, unclean election off. A round is one fault, or two that overlap, then
quiet until every partition acknowledges again. In the end every process gets SIGTERM at the same moment and
must end within `END_SECONDS`. What must hold after all of it: no acknowledged record lost,
none twice, no gap, no other order; the logs of all replicas byte-identical up to the high watermark.

Transactional copiers (``--copiers`` on librdkafka, and one on each client of ``--peers``) copy the records
meanwhile as members of a group, and are killed and paused too; `tests.chaos.copies` describes what must be
true of their copies.

With ``--etcd`` three etcd servers coordinate. The coordinator that is killed or paused is their leader, and
etcd is compacted, defragmented and filled, and loses members for good.
"""

import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import confluent_kafka
import confluent_kafka.admin

from benchmarks.apache_kafka import NotAvailableError
from kalda import Admin
from kalda.faults import FaultPlan
from kalda.testing import ProcessCluster
from kalda.testing.process import CommandProcess
from kalda.testing.process_faults import ProcessFaults
from tests.chaos.command_line import cluster_parser
from tests.chaos.copier import HEARTBEAT_INTERVAL_MS as COPIER_HEARTBEAT_INTERVAL_MS
from tests.chaos.copier import SESSION_TIMEOUT_MS as COPIER_SESSION_TIMEOUT_MS
from tests.chaos.copier_clients import LIBRDKAFKA, PEERS, copier_command
from tests.chaos.copies import COPIES, CopierProcess, Copies
from tests.chaos.etcd_coordinator import OPTIONS, EtcdCoordinator
from tests.chaos.ordered_load import Ledger, OrderedLoad
from tests.chaos.replica_check import check_replicas
from tests.chaos.rounds_clients import CLIENTS
from tests.integration import etcd_servers, real_zookeeper

TOPIC = "ordered"
BROKERS = 3
PARTITIONS = 6
RECORDS_PER_SECOND = 3_000
SEGMENT_BYTES = 1_048_576
SESSION_TIMEOUT_MS = 2_000
PROGRESS_SECONDS = 60.0
START_SECONDS = 30.0
IN_SYNC_SECONDS = 60.0
END_SECONDS = 5.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "log.segment.bytes": str(SEGMENT_BYTES),
    "replica.lag.time.max.ms": "5000",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    # Members of groups of the consumer protocol are told these by the broker.
    "group.consumer.min.session.timeout.ms": str(COPIER_SESSION_TIMEOUT_MS),
    "group.consumer.session.timeout.ms": str(COPIER_SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(COPIER_HEARTBEAT_INTERVAL_MS),
    "group.consumer.heartbeat.interval.ms": str(COPIER_HEARTBEAT_INTERVAL_MS),
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did and found."""

    seed: int
    faults: Counter[str]
    acknowledged: int
    recovery_seconds: list[float]
    """How long after the end of each round's faults every partition acknowledged again."""
    stable_seconds: list[float]
    """How long after it the group of the copiers was stable again; empty without copiers."""
    late_seconds: list[float]
    """The same where a copier's client hung and made it late."""
    hangs: Counter[str]
    """The calls of the copiers' clients that outlasted their own time-out."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is run, and where."""

    rounds: int
    seed: int
    directory: Path
    is_zookeeper_real: bool = False
    is_on_etcd: bool = False
    """Coordinate through three etcd servers."""
    copiers: tuple[tuple[str, ...], ...] = ()
    """The command of each copier; their stderr is kept beside the brokers'."""
    protocol: str = "classic"
    client: str = LIBRDKAFKA
    """What the load and the readers run on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to the cluster and is over, processes running again, when `run` returns."""

    name: str
    weight: int
    run: Callable[["Chaos"], None]


class Coordinator(Protocol):
    """The coordination server's process: ours, a real ZooKeeper, or the leader of etcd."""

    def start(self) -> None:
        """Start it again after a kill."""

    def kill(self) -> None:
        """End it at once."""

    def pause(self) -> None:
        """Have it stand still."""

    def resume(self) -> None:
        """Have it go on."""


class Brokers(Protocol):
    """The brokers' processes."""

    def broker(self, broker_id: int) -> CommandProcess:
        """Return the process of one."""


class Chaos:
    """The cluster as plans of faults see it, and the dice."""

    def __init__(
        self,
        cluster: Brokers,
        coordinator: Coordinator,
        copiers: Sequence[CopierProcess],
        choice: random.Random,
        open_admin: Callable[[int | None], Admin],
    ) -> None:
        """`open_admin` is that of `ProcessFaults`."""
        self.copiers = copiers
        self.choice = choice
        self._brokers = [cluster.broker(broker_id) for broker_id in range(BROKERS)]
        self.coordinator = coordinator
        self._is_coordinator_down = False
        self._faults = ProcessFaults(self, self._brokers, open_admin)

    def wait(self, least: float, most: float) -> None:
        """Let some time go by."""
        time.sleep(self.choice.uniform(least, most))

    def suffer(self, plan: str) -> None:
        """Put a plan in force for about as often shorter as longer than a session, and end it.

        In the plan ``{broker}`` and ``{other}`` are two brokers, and ``{soon}`` is a time before the end.
        """
        broker, other = self.choice.sample(range(BROKERS), 2)
        absence = self.choice.uniform(0.05, 2 * SESSION_TIMEOUT_MS / 1000 + 1)
        soon = f"{round(1000 * self.choice.uniform(0.0, min(absence, 1.0)))}ms"
        self._faults.begin(FaultPlan.parse(plan.format(broker=broker, other=other, soon=soon)))
        time.sleep(absence)
        self._faults.end()
        if self._is_coordinator_down:
            self.start_coordinator()
        for broker_id, process in enumerate(self._brokers):
            if not process.is_running:
                self.start(broker_id)

    # What a plan does.

    def start(self, broker_id: int) -> None:
        """Start a broker that is down."""
        self._brokers[broker_id].start()

    def stop(self, broker_id: int) -> None:
        """Shut a broker down."""
        self._brokers[broker_id].stop()

    def kill(self, broker_id: int) -> None:
        """End a broker at once."""
        self._brokers[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """Suspend a broker."""
        self._brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker."""
        self._brokers[broker_id].resume()

    def start_coordinator(self) -> None:
        """Start the coordination server that is down."""
        self.coordinator.start()
        self._is_coordinator_down = False

    def kill_coordinator(self) -> None:
        """End the coordination server at once."""
        self._is_coordinator_down = True
        self.coordinator.kill()

    def pause_coordinator(self) -> None:
        """Suspend the coordination server."""
        self.coordinator.pause()

    def resume_coordinator(self) -> None:
        """Resume the coordination server."""
        self.coordinator.resume()


def address_of(bootstrap: str, broker_id: int | None) -> str:
    """Return the address of one broker, or those of all."""
    return bootstrap if broker_id is None else bootstrap.split(",")[broker_id]


def _planned(name: str, weight: int, plan: str) -> Fault:
    return Fault(name, weight, lambda chaos: chaos.suffer(plan))


def _kill_copier(chaos: Chaos) -> None:
    victim = chaos.choice.choice(chaos.copiers)
    victim.kill()
    chaos.wait(0.0, SESSION_TIMEOUT_MS / 1000)
    victim.start()


def _pause_copier(chaos: Chaos) -> None:
    victim = chaos.choice.choice(chaos.copiers)
    victim.pause()
    chaos.wait(0.1, COPIER_SESSION_TIMEOUT_MS / 1000 + 2)
    victim.resume()


def _etcd(chaos: Chaos) -> EtcdCoordinator:
    assert isinstance(chaos.coordinator, EtcdCoordinator)
    return chaos.coordinator


def _compact_unseen(chaos: Chaos) -> None:
    """Compact while the paused brokers have not read the changes."""
    # A controller that is killed meanwhile makes changes.
    paused, killed = chaos.choice.sample(range(BROKERS), 2)
    chaos.pause(paused)
    chaos.kill(killed)
    chaos.wait(0.1, 2 * SESSION_TIMEOUT_MS / 1000)
    _etcd(chaos).compact()
    chaos.resume(paused)
    chaos.start(killed)


FAULTS = (
    _planned("kill a broker", 6, "broker:kill@{broker}"),
    _planned("pause a broker", 6, "broker:pause@{broker}"),
    _planned("restart a broker", 3, "broker:stop@{broker}"),
    _planned("kill the controller", 4, "broker:kill@controller"),
    _planned("pause the controller", 4, "broker:pause@controller"),
    _planned("kill the coordinator", 3, "broker:kill@coordinator"),
    _planned("pause the coordinator", 3, "broker:pause@coordinator"),
    _planned("kill two brokers", 2, "broker:kill@{broker}; broker:kill@{other}"),
    _planned("kill all brokers", 1, "broker:kill@all"),
    _planned("pause one broker, kill another", 2, "broker:pause@{broker}; broker:kill@{other},after={soon}"),
    _planned(
        "kill a broker and the coordinator", 2, "broker:kill@{broker}; broker:kill@coordinator,after={soon}"
    ),
)
"""Faults of processes, by signals."""


OWN_FAULTS = (
    _planned("cut a broker off", 3, "link:cut@{broker}-all"),
    _planned("cut a broker off from the coordinator", 3, "link:cut@{broker}-coordinator"),
    _planned("cut a broker off from all", 2, "link:cut@{broker}-all; link:cut@{broker}-coordinator"),
    _planned("cut a link one way", 2, "link:cut@{broker}>{other}"),
    _planned("lose requests between brokers", 2, "link:loss=20%@{broker}-all"),
    _planned("fill a disk", 3, "disk:full@{broker}"),
    _planned("expire a session", 3, "session:expire@{broker}"),
    _planned("set a clock back", 1, "clock:jump=-1h@{broker}"),
    _planned("lose answers of producers", 2, "produce:lose~20%"),
    _planned("move coordinators", 2, "group+txn:move~20%"),
)
"""Faults that brokers carry out themselves, where ``kalda.faults.api.enable`` is set."""


ETCD_FAULTS = (
    Fault("compact etcd behind a paused broker", 3, _compact_unseen),
    Fault("defragment etcd", 3, lambda chaos: _etcd(chaos).defragment()),
    Fault("replace a member of etcd", 2, lambda chaos: _etcd(chaos).replace(chaos.choice)),
    Fault("fill etcd", 2, lambda chaos: _etcd(chaos).fill(lambda: chaos.wait(0.0, 3.0))),
)
"""Faults and maintenance of etcd, for a run on it."""


COPIER_FAULTS = (
    Fault("kill a copier", 4, _kill_copier),
    Fault("pause a copier", 4, _pause_copier),
)


def run(options: Options) -> Report:
    """Run the rounds; an AssertionError or TimeoutError names what went wrong."""
    directory = options.directory
    settings = {**SETTINGS, "kalda.faults.api.enable": "true"}
    if options.is_on_etcd:
        with (
            etcd_servers.EtcdCluster(directory / "etcd", servers=3, options=OPTIONS) as etcd,
            ProcessCluster(
                directory, brokers=BROKERS, settings=settings, zookeeper=f"etcd://{etcd.hosts}/chaos"
            ) as cluster,
        ):
            return _run(options, cluster, EtcdCoordinator(etcd))
    if not options.is_zookeeper_real:
        with ProcessCluster(directory, brokers=BROKERS, settings=settings) as cluster:
            return _run(options, cluster, cluster.coordinator)
    reason = real_zookeeper.missing()
    assert reason is None, reason
    with (
        real_zookeeper.RealZooKeeper(directory / "zookeeper") as zookeeper,
        ProcessCluster(
            directory, brokers=BROKERS, settings=settings, zookeeper=f"{zookeeper.hosts}/chaos"
        ) as cluster,
    ):
        return _run(options, cluster, zookeeper)


def _run(options: Options, cluster: ProcessCluster, coordinator: Coordinator) -> Report:
    ledger = Ledger(PARTITIONS)
    create_topics(cluster.bootstrap)
    clients = CLIENTS[options.client]
    load = clients.load(cluster.bootstrap, TOPIC, ledger, records_per_second=RECORDS_PER_SECOND)
    reader = clients.reader(cluster.bootstrap, TOPIC, ledger)
    copies = Copies(
        cluster.bootstrap,
        TOPIC,
        PARTITIONS,
        options.directory,
        commands=options.copiers,
        protocol=options.protocol,
        reader=clients.reader,
    )
    report = Report(options.seed, Counter(), 0, [], [], copies.late_seconds, Counter())
    chaos = Chaos(
        cluster,
        coordinator,
        copies.copiers,
        random.Random(options.seed),
        lambda broker_id: Admin(bootstrap_servers=address_of(cluster.bootstrap, broker_id)),
    )
    try:
        reader.start()
        load.start()
        load.wait_progress(PROGRESS_SECONDS)
        if options.copiers:
            copies.start()
            copies.wait_stable(time.monotonic() + START_SECONDS)
        for number in range(options.rounds):
            _round(number, chaos, load, copies, report)
            problems = [*ledger.violations, *reader.errors, *copies.problems]
            assert not problems, f"round {number + 1}: {problems}"
            if options.copiers:
                copies.wait_progress(lambda: load.produced)
        load.stop()
        assert not load.errors, str(load.errors[:3])
        reader.wait_all_read()
        if options.copiers:
            copies.wait_all_copied(load.produced)
            copies.check_no_open_transaction()
        wait_in_sync(cluster.bootstrap)
        # Clients may wait for their brokers; they go first.
        copies.stop()
        reader.stop()
        # Coordination goes at the same moment, so nobody can hand over; all must end soon and cleanly anyway.
        cluster.stop_all(END_SECONDS)
    finally:
        load.abandon()
        copies.stop()
        reader.stop()
    ledger.check_all_read()
    problems = [*ledger.violations, *reader.errors, *copies.problems]
    assert not problems, str(problems)
    for partition in range(PARTITIONS):
        committed = check_replicas(cluster.log_directories, TOPIC, partition)
        assert committed == ledger.next_offsets[partition], f"partition {partition}: {committed} committed"
        if options.copiers:
            check_replicas(cluster.log_directories, COPIES, partition)
    return replace(report, acknowledged=ledger.acknowledged_count, hangs=copies.hangs)


def _round(number: int, chaos: Chaos, load: OrderedLoad, copies: Copies, report: Report) -> None:
    """Let one fault happen and wait until all is well again."""
    faults = FAULTS + OWN_FAULTS + (COPIER_FAULTS if copies.copiers else ())
    faults += ETCD_FAULTS if isinstance(chaos.coordinator, EtcdCoordinator) else ()
    fault = chaos.choice.choices(faults, [each.weight for each in faults])[0]
    report.faults[fault.name] += 1
    chaos.wait(0.0, 0.5)
    fault.run(chaos)
    ended = time.monotonic()
    line = f"{number + 1:>4} {fault.name}:"
    try:
        report.recovery_seconds.append(load.wait_progress(PROGRESS_SECONDS))
        line += f" serves again after {report.recovery_seconds[-1]:.2f} s"
        if copies.copiers:
            seconds = copies.wait_stable(ended)
            if seconds is not None:
                report.stable_seconds.append(seconds)
                line += f", the group is stable after {seconds:.2f} s"
            else:
                line += f", the group is stable after {copies.late_seconds[-1]:.2f} s: a client hung"
    finally:
        print(line, flush=True)


def create_topics(
    bootstrap: str,
    topics: Sequence[str] = (TOPIC, COPIES),
    client_settings: Mapping[str, str] | None = None,
) -> None:
    """Create the topics of the load and of its copy."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, **(client_settings or {})})
    config = {"min.insync.replicas": "2", "segment.bytes": str(SEGMENT_BYTES)}
    new = [confluent_kafka.admin.NewTopic(topic, PARTITIONS, BROKERS, config=config) for topic in topics]
    for future in admin.create_topics(new).values():
        future.result(30)


def wait_in_sync(bootstrap: str, client_settings: Mapping[str, str] | None = None) -> None:
    """Wait until every replica of every partition is in sync, as every broker says.

    A broker whose session has expired answers from metadata of before, until it is registered again.
    """
    deadline = time.monotonic() + IN_SYNC_SECONDS
    addresses = bootstrap.split(",")
    while True:
        behind: dict[str, object] = {}
        for address in addresses:
            # A new client asks the broker that it is given, and no other, for its first metadata.
            admin = confluent_kafka.admin.AdminClient(
                {"bootstrap.servers": address, **(client_settings or {})}
            )
            partitions = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
            missing = {number: p.isrs for number, p in partitions.items() if len(p.isrs) < BROKERS}
            if len(partitions) != PARTITIONS or missing:
                behind[address] = missing
        if not behind:
            return
        assert time.monotonic() < deadline, f"not in sync after {IN_SYNC_SECONDS} s: {behind}"
        time.sleep(0.2)


def copier_commands(client: str, count: int, peers: Sequence[str], debug: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands of `count` copiers on `client` and one on each available client of `peers`."""
    command = (*copier_command(client), *(("--debug", debug) if debug else ()))
    commands = [command] * count
    for peer in peers:
        try:
            commands.append(tuple(copier_command(peer)))
        except NotAvailableError as error:
            print(f"SKIPPED: no copier on {peer}: {error}", flush=True)
    return tuple(commands)


def main() -> None:
    """Run from the command line."""
    parser = cluster_parser(__doc__, rounds=100, copiers=3, copiers_help="how many copiers on the client")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help="other clients, with one copier on each (empty: none)"
    )
    parser.add_argument("--etcd", action="store_true", help="coordinate through three etcd servers")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--copier-debug", default="", help="librdkafka's debug contexts, e.g. eos,cgrp,fetch")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    peers = [each for each in given.peers.split(",") if each]
    copiers = copier_commands(given.client, given.copiers, peers, given.copier_debug)
    with tempfile.TemporaryDirectory(prefix="kalda-cluster-chaos-") as temporary:
        report = run(
            Options(
                given.rounds,
                given.seed,
                given.keep or Path(temporary),
                given.real_zookeeper,
                given.etcd,
                copiers,
                given.protocol,
                given.client,
            )
        )
    for name, count in sorted(report.faults.items()):
        print(f"{count:>5} x {name}")
    print(
        f"{given.rounds} rounds: {report.acknowledged} acknowledged records, none lost, doubled or moved; "
        f"replicas identical; serves again after {statistics.median(report.recovery_seconds):.2f} s "
        f"(median), {max(report.recovery_seconds):.2f} s (worst)"
    )
    if report.stable_seconds:
        print(
            "each record copied once, no offset went back, no transaction left open; group stable after "
            f"{statistics.median(report.stable_seconds):.2f} s (median), "
            f"{max(report.stable_seconds):.2f} s (worst)"
        )
        hangs = ", ".join(f"{count} x {call}" for call, count in report.hangs.items()) or "none"
        late = ", ".join(f"{seconds:.1f} s" for seconds in report.late_seconds) or "never"
        print(f"client calls that outlasted their own time-out: {hangs}; the group was late for it: {late}")


if __name__ == "__main__":
    main()
