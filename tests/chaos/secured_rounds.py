"""Hurt a secured cluster of three brokers, and replace its certificates and passwords, all under load.

Run ``python -m tests.chaos.secured_rounds --rounds 50``; the seed is printed and ``--seed`` replays faults,
rotations, victims and pauses (not the scheduling of processes). Clients and brokers use SASL_SSL, the
connections to ZooKeeper TLS and SASL DIGEST-MD5, ACLs are on, sessions end after ten seconds. A round is
faults, a rotation, or a rotation during faults, then quiet until every partition acknowledges again and an
administrator gets through.

What must hold: no acknowledged record lost, twice or moved; no gap for the members of two groups; no client
reports a refused login, certificate or permission; no stranger gets in; the replicas are byte-identical; no
log has a secret, and audit lines keep their limit; the brokers' memory is bounded.
"""

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from tests.chaos.cluster_operator import Operator
from tests.chaos.cluster_rounds import (
    FAULTS,
    PARTITIONS,
    PROGRESS_SECONDS,
    SETTINGS,
    Chaos,
    create_topics,
    wait_in_sync,
)
from tests.chaos.command_line import rounds_parser
from tests.chaos.copier_clients import LIBRDKAFKA
from tests.chaos.replica_check import check_replicas
from tests.chaos.rotations import BROKERS_USER, Rotations
from tests.chaos.secured_checks import RSS_BYTES_MAX, Audit, rss_bytes, secrets_in
from tests.chaos.secured_clients import ROLES, TOPIC, Fleet
from tests.chaos.secured_cluster import ADMINISTRATOR, BROKERS, SecuredBrokers
from tests.chaos.strangers import Strangers
from tests.integration import real_zookeeper

RECORDS_PER_SECOND: Final = 1_000
END_SECONDS: Final = 30.0
QUOTA: Final = 1e12
"""Of every user, far above what clients do: quotas are in force and slow nothing down."""

_FAULT, _ROTATION, _BOTH, _BROKERS_USER = "a fault", "a rotation", "both", BROKERS_USER
_KINDS: Final = {_FAULT: 3, _ROTATION: 4, _BOTH: 5, _BROKERS_USER: 1}
_SHORT_KINDS: Final = {_FAULT: 1, _ROTATION: 1, _BOTH: 2}
"""Those that take seconds: the brokers change their user by a rolling restart."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is run, and where."""

    rounds: int
    seed: int
    directory: Path
    client: str = LIBRDKAFKA
    is_zookeeper_real: bool = False
    is_short: bool = False
    """Whether only what takes seconds is done."""

    @property
    def kinds(self) -> Mapping[str, int]:
        """What a round can be, with its weight."""
        return _SHORT_KINDS if self.is_short else _KINDS

    @property
    def replay(self) -> str:
        """The command that makes the same choices again."""
        real = " --real-zookeeper" if self.is_zookeeper_real else ""
        short = " --short" if self.is_short else ""
        return (
            f"python -m tests.chaos.secured_rounds --rounds {self.rounds} --seed {self.seed} "
            f"--client {self.client}{real}{short}"
        )


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    acknowledged: int = 0
    repeated: int = 0
    """Records that members of groups read again after a rebalance."""
    faults: Counter[str] = field(default_factory=Counter)
    rotations: Counter[str] = field(default_factory=Counter)
    logins: Counter[str] = field(default_factory=Counter)
    """By outcome, as the audit log counts them."""
    refused: int = 0
    """Attempts of strangers."""
    probes: int = 0
    """Topics that the administrator created and deleted."""
    rss_bytes: int = 0
    """The most memory that a broker had at the end of a round."""
    recovery_seconds: list[float] = field(default_factory=list)


class _Background(threading.Thread):
    """A rotation that runs beside faults; `finish` raises what it raised."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__(name="rotation")
        self._work = run
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error

    def finish(self) -> None:
        """Wait until it is over."""
        self.join()
        if self._failure is not None:
            raise self._failure


class _Run:
    """One run over a cluster that serves."""

    def __init__(self, options: Options, cluster: SecuredBrokers) -> None:
        self.report: Final = Report()
        self._options: Final = options
        self._cluster: Final = cluster
        self._choice: Final = random.Random(options.seed)
        self._administrator: Final = {
            **cluster.client_settings(LIBRDKAFKA, ADMINISTRATOR),
            "log_level": "0",
        }
        self._operator: Final = Operator(cluster)
        self._chaos: Final = Chaos(
            cluster, cluster.coordinator, (), self._choice, lambda _: self._operator.open_admin()
        )
        self._rotations: Final = Rotations(
            # Of its own, so that what a rotation draws during faults does not change what the faults draw.
            self._operator,
            random.Random(options.seed + 1),
            options.client,
            self._restart_all,
        )

    def run(self) -> None:
        """Make the rounds and all checks."""
        cluster = self._cluster
        create_topics(cluster.bootstrap, [TOPIC], self._administrator)
        settings = self._rotations.first_users(ROLES)
        self._set_quotas()
        password = cluster.secrets.new("stranger")
        self._operator.set_user("stranger", password)
        strangers = Strangers(cluster, "stranger", password)
        fleet = Fleet.make(self._options.client, PARTITIONS, RECORDS_PER_SECOND, settings)
        self._rotations.attach(fleet)
        try:
            strangers.start()
            fleet.start()
            fleet.load.wait_progress(PROGRESS_SECONDS)
            for number in range(self._options.rounds):
                self._round(number, fleet)
                problems = [*fleet.problems(), *strangers.violations]
                assert not problems, f"round {number + 1}: {problems}"
            wait_in_sync(cluster.bootstrap, self._administrator)
            fleet.wait_all_read()
            strangers.stop()
            fleet.stop()
            for broker_id in range(BROKERS):
                cluster.stop(broker_id, END_SECONDS)
        finally:
            strangers.stop()
            fleet.stop()
        self._check(fleet, strangers)

    def _round(self, number: int, fleet: Fleet) -> None:
        kind = self._choice.choices(list(self._options.kinds), list(self._options.kinds.values()))[0]
        name = kind
        begin = time.monotonic()
        try:
            if kind == _BROKERS_USER:
                self._rotations.brokers_user()
                self.report.rotations[kind] += 1
            elif kind == _FAULT:
                name = self._fault()
            else:
                rotation, run = self._rotations.choose()
                name = rotation
                background = _Background(run)
                background.start()
                try:
                    if kind == _BOTH:
                        self._chaos.wait(0.0, 2.0)
                        name += f", {self._fault()}"
                finally:
                    background.finish()
                self.report.rotations[rotation] += 1
            self.report.recovery_seconds.append(fleet.load.wait_progress(PROGRESS_SECONDS))
            fleet.prober.wait_progress(PROGRESS_SECONDS)
        finally:
            print(f"{number + 1:>4} {name}: {time.monotonic() - begin:.1f} s", flush=True)
        rss = max(map(rss_bytes, self._cluster.broker_pids), default=0)
        self.report.rss_bytes = max(self.report.rss_bytes, rss)

    def _fault(self) -> str:
        fault = self._choice.choices(FAULTS, [each.weight for each in FAULTS])[0]
        fault.run(self._chaos)
        self.report.faults[fault.name] += 1
        return fault.name

    def _set_quotas(self) -> None:
        names = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
        change = QuotaAlteration(quota_entity({"user": None}), dict.fromkeys(names, QUOTA))
        self._operator.do(lambda admin: admin.alter_client_quotas([change]))

    def _restart_all(self) -> None:
        for broker_id in range(BROKERS):
            self._cluster.stop(broker_id)
            self._cluster.start(broker_id)
            wait_in_sync(self._cluster.bootstrap, self._administrator)

    def _check(self, fleet: Fleet, strangers: Strangers) -> None:
        cluster, report = self._cluster, self.report
        logs = list(cluster.logs())
        audit = Audit(logs)
        problems = [
            *fleet.problems(),
            *strangers.violations,
            *secrets_in(logs, cluster.secrets.ever),
            *audit.problems,
        ]
        if report.rss_bytes > RSS_BYTES_MAX:
            problems.append(f"a broker had {report.rss_bytes} bytes of memory; {RSS_BYTES_MAX} are allowed")
        assert not problems, f"{len(problems)} problems: {problems[:10]}"
        for partition in range(PARTITIONS):
            committed = check_replicas(cluster.log_directories, TOPIC, partition)
            read = fleet.ledger.next_offsets[partition]
            assert committed == read, f"partition {partition}: {committed} committed, {read} read"
        report.acknowledged = fleet.ledger.acknowledged_count
        report.repeated = sum(ledger.repeated for ledger in fleet.group_ledgers.values())
        report.logins += audit.logins
        report.refused = strangers.refused.total()
        report.probes = fleet.prober.succeeded


def run(options: Options) -> Report:
    """Run the rounds; an error names what went wrong and the command that makes the same choices again."""
    try:
        with SecuredBrokers(
            options.directory, SETTINGS, is_zookeeper_real=options.is_zookeeper_real
        ) as cluster:
            this_run = _Run(options, cluster)
            this_run.run()
    except BaseException as error:
        error.add_note(f"replay: {options.replay}")
        raise
    return this_run.report


def main() -> None:
    """Run from the command line."""
    parser = rounds_parser(__doc__, 50)
    parser.add_argument("--real-zookeeper", action="store_true", help="coordinate through a real ZooKeeper")
    parser.add_argument("--short", action="store_true", help="without rolling restarts")
    parser.add_argument("--keep", type=Path, help="a directory to leave logs and data in")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    reason = real_zookeeper.missing() if given.real_zookeeper else None
    assert reason is None, reason
    with tempfile.TemporaryDirectory(prefix="kalda-secured-chaos-") as temporary:
        report = run(
            Options(
                given.rounds,
                given.seed,
                given.keep or Path(temporary),
                given.client,
                given.real_zookeeper,
                given.short,
            )
        )
    for name, count in sorted((report.faults + report.rotations).items()):
        print(f"{count:>5} x {name}")
    print(
        f"{given.rounds} rounds on {given.client}: {report.acknowledged} acknowledged records, none lost, "
        f"doubled or moved; {report.repeated} read again by members of groups, none left out; "
        f"{report.rotations.total()} rotations, {report.faults.total()} faults, {report.probes} topics "
        f"created and deleted; no client was refused"
    )
    print(
        f"{report.logins['success']} logins, {report.logins['failure']} refused; {report.refused} attempts "
        f"of strangers; no secret in a log; at most {report.rss_bytes / 2**20:.0f} MB in a broker; serves "
        f"again {max(report.recovery_seconds):.1f} s after the worst round"
    )


if __name__ == "__main__":
    main()
