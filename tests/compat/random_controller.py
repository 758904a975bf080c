"""Random administration and faults under a Kalda controller, and the same under one of Apache Kafka.

Brokers 1 and 2 are of Apache Kafka 3.9 both times. After each round, when the cluster is at rest, all znodes
are written down; at the end the two series must be equal, save for what is random or differs by design (see
`znode_snapshot`). Run it as a program:

    python -m tests.compat.random_controller --seed 7 --minutes 15 --directory /tmp/random-controller

The same seed gives the same operations. `--only kalda` or `--only kafka` runs one side, for as many rounds as
the other one has done, and compares where both are there.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from kalda import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ElectionType,
    NewPartitions,
    NewTopic,
    PatternType,
    PermissionType,
    Producer,
    QuotaAlteration,
    ResourcePattern,
    ResourceType,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramMechanism,
    TopicPartitionReplica,
)
from kalda.clients.admin.quotas import quota_entity
from kalda.clients.errors import ClientError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.compat.mixed_cluster import (
    ADMINISTRATOR,
    KAFKA,
    KALDA,
    OTHER_IDS,
    PASSWORD,
    WAIT_SECONDS,
    MixedCluster,
)
from tests.compat.znode_snapshot import differences, log_directories, znode_snapshot

OPERATIONS_PER_ROUND: Final = 12
OPERATIONS_IN_FAULT: Final = 5
TOPICS_MAX: Final = 14
USERS: Final = ("alice", "bob", "carol")
MECHANISM: Final = ScramMechanism.SCRAM_SHA_256
TOPIC_SETTINGS: Final = {
    "retention.ms": ("3600000", "7200000"),
    "cleanup.policy": ("compact", "delete"),
    "max.message.bytes": ("100000", "200000"),
    "min.insync.replicas": ("1",),
}
BROKER_SETTINGS: Final = {
    "log.retention.ms": ("3600000", "7200000"),
    "message.max.bytes": ("900000", "1000000"),
    "leader.replication.throttled.rate": ("100000000",),
}

Do = Callable[[MixedCluster, Admin], None]


@dataclass
class Plan:
    """What the operations so far lead to, by the seed alone: operations are drawn from it."""

    seed: int
    topics: dict[str, list[list[int]]] = field(default_factory=dict)
    """The replicas of each partition of the topics whose replicas were chosen here."""
    placed: dict[str, int] = field(default_factory=dict)
    """The number of partitions of the topics whose replicas the controller chose."""
    records: dict[TopicPartition, int] = field(default_factory=dict)
    tokens: int = 0
    hmacs: list[bytes] = field(default_factory=list)
    created: int = 0

    def round(self, number: int) -> tuple[list[tuple[str, Do]], tuple[str, int], list[tuple[str, Do]]]:
        """Draw the operations of a round, its fault with a broker, and the operations during the fault."""
        random = Random(f"{self.seed}-{number}")
        before = [self._draw(random, down=None) for _ in range(OPERATIONS_PER_ROUND)]
        fault = random.choice(("stop", "kill", "pause", "none")), random.choice(OTHER_IDS)
        down = fault[1] if fault[0] in ("stop", "kill") else None
        during = []
        if fault[0] == "pause":
            during += [each for each in [self._cancelled(random, fault[1])] if each]
        elif fault[0] != "none":
            during = [self._draw(random, down) for _ in range(OPERATIONS_IN_FAULT)]
        return before, fault, during

    def _draw(self, random: Random, down: int | None) -> tuple[str, Do]:
        kinds = [
            self._create,
            self._configure_topic,
            self._configure_broker,
            self._acl,
            self._user,
            self._quota,
        ]
        kinds += [self._delete, self._grow, self._elect, self._token, self._refused]
        if down is None:
            kinds += [self._place, self._reassign, self._reassign, self._move, self._create]
        while True:
            made = random.choice(kinds)(random, down)
            if made is not None:
                return made

    def _replicas(self, random: Random, down: int | None, count: int | None = None) -> list[int]:
        live = [each for each in (1, 2, 3) if each != down]
        return random.sample(live, count if count is not None else random.randint(1, len(live)))

    def _create(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        if len(self.topics) >= TOPICS_MAX:
            return None
        self.created += 1
        name, factor = f"t{self.created}", random.randint(1, 2 if down else 3)
        replicas = [self._replicas(random, down, factor) for _ in range(random.randint(1, 4))]
        config = {
            each: random.choice(TOPIC_SETTINGS[each]) for each in random.sample(sorted(TOPIC_SETTINGS), 1)
        }
        self.topics[name] = replicas
        new = NewTopic(name, replica_assignments=dict(enumerate(replicas)), config=config)
        return f"create {name} {replicas} {config}", lambda _, admin: _first(admin.create_topics([new]))

    def _place(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        if len(self.placed) >= TOPICS_MAX // 3:
            return None
        self.created += 1
        name, count = f"placed{self.created}", random.randint(1, 5)
        self.placed[name] = count
        new = NewTopic(name, partitions=count, replication_factor=random.randint(1, 3))
        return f"place {name} {count}", lambda _, admin: _first(admin.create_topics([new]))

    def _delete(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        known = [*self.topics, *self.placed]
        if len(known) < TOPICS_MAX // 2:
            return None
        name = random.choice(known)
        self.topics.pop(name, None)
        self.placed.pop(name, None)
        self.records = {p: count for p, count in self.records.items() if p.topic != name}

        def do(cluster: MixedCluster, admin: Admin) -> None:
            admin.delete_topics([name])
            if down is None:
                cluster.wait(lambda: name not in cluster.children("/brokers/topics"))

        return f"delete {name}", do

    def _grow(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        # The answer waits for the leaders of all partitions, which would be in vain where all are down.
        growing = [
            name
            for name, each in self.topics.items()
            if len(each) < 6 and all(set(replicas) != {down} for replicas in each)
        ]
        if not growing:
            return None
        name = random.choice(growing)
        replicas = self.topics[name]
        factor = len(replicas[0])
        # Reassignments give partitions other numbers of replicas; Apache Kafka compares with the first one.
        if factor > (2 if down else 3):
            return None
        added = [self._replicas(random, down, factor) for _ in range(random.randint(1, 2))]
        replicas += added
        wanted = NewPartitions(len(replicas), added)
        return f"grow {name} {added}", lambda _, admin: _first(admin.create_partitions({name: wanted}))

    def _configure_topic(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        if not self.topics:
            return None
        name = random.choice([*self.topics])
        return self._configure(random, ConfigResource(ConfigResourceType.TOPIC, name), TOPIC_SETTINGS)

    def _configure_broker(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        resource = ConfigResource(ConfigResourceType.BROKER, random.choice(("", "3")))
        settings = dict(BROKER_SETTINGS)
        if not resource.name:
            del settings["leader.replication.throttled.rate"]
        return self._configure(random, resource, settings)

    def _configure(
        self, random: Random, resource: ConfigResource, settings: dict[str, tuple[str, ...]]
    ) -> tuple[str, Do]:
        key = random.choice(sorted(settings))
        change = (
            AlterConfigOp.delete(key)
            if random.random() < 0.3
            else AlterConfigOp.set(key, random.choice(settings[key]))
        )
        return f"configure {resource} {change}", lambda _, admin: _first(
            admin.incremental_alter_configs({resource: [change]})
        )

    def _acl(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        user = f"User:{random.choice(USERS)}"
        if random.random() < 0.25:
            wanted = AclFilter(principal=user)
            return f"delete ACLs of {user}", lambda _, admin: _first(admin.delete_acls([wanted]))
        pattern = ResourcePattern(
            random.choice((ResourceType.TOPIC, ResourceType.GROUP)),
            random.choice(("orders", "invoices")),
            random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        )
        operation = random.choice((AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE))
        if pattern.resource_type is ResourceType.GROUP:
            operation = AclOperation.READ
        permission = random.choice((PermissionType.ALLOW, PermissionType.DENY))
        binding = AclBinding(pattern, AccessControlEntry(user, "*", operation, permission))
        return f"create {binding}", lambda _, admin: _first(admin.create_acls([binding]))

    def _user(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        user = random.choice(USERS)
        change: ScramCredentialUpsertion | ScramCredentialDeletion = (
            ScramCredentialDeletion(user, MECHANISM)
            if random.random() < 0.3
            else ScramCredentialUpsertion(user, MECHANISM, "secret", iterations=random.choice((4096, 8192)))
        )
        return f"{type(change).__name__} {user}", lambda _, admin: _first(
            admin.alter_user_scram_credentials([change])
        )

    def _quota(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        user, client = random.choice((*USERS, None)), random.choice(("app", None))
        names: tuple[dict[str, str | None], ...] = (
            {"user": user},
            {"client-id": client},
            {"user": user, "client-id": client},
        )
        entity = quota_entity(random.choice(names))
        value = None if random.random() < 0.3 else random.choice((1e6, 2e6))
        key = random.choice(("producer_byte_rate", "consumer_byte_rate", "request_percentage"))
        alteration = QuotaAlteration(entity, {key: value})
        return f"quota {entity} {key} {value}", lambda _, admin: _first(
            admin.alter_client_quotas([alteration])
        )

    def _token(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        expires = self.tokens > 0 and random.random() < 0.5
        self.tokens += -1 if expires else 1

        def do(cluster: MixedCluster, _: Admin) -> None:
            with Admin.from_config(cluster.login(3, ADMINISTRATOR, PASSWORD)) as admin:
                if expires:
                    hmac = self.hmacs.pop(0)
                    cluster.wait(lambda: _is_expired(admin, hmac))
                else:
                    self.hmacs.append(admin.create_delegation_token().hmac)

        return "expire a token" if expires else "create a token", do

    def _elect(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        partition = self._partition(random)
        if partition is None or down is not None:
            return None

        def do(cluster: MixedCluster, admin: Admin) -> None:
            admin.elect_leaders(ElectionType.PREFERRED, [partition], outcomes=True)

        return f"elect the preferred leader of {partition}", do

    def _partition(self, random: Random) -> TopicPartition | None:
        if not self.topics:
            return None
        name = random.choice([*self.topics])
        return TopicPartition(name, random.randrange(len(self.topics[name])))

    def _reassign(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        partition = self._partition(random)
        if partition is None:
            return None
        target = self._replicas(random, None)
        self.topics[partition.topic][partition.partition] = target

        def do(cluster: MixedCluster, admin: Admin) -> None:
            cluster.wait_settled()
            admin.alter_partition_reassignments({partition: target})
            cluster.wait_settled()

        return f"reassign {partition} to {target}", do

    def _cancelled(self, random: Random, paused: int) -> tuple[str, Do] | None:
        """A replica that is added to a paused broker cannot catch up, so the cancellation comes in time."""
        movable = [
            (name, number)
            for name, each in self.topics.items()
            for number, replicas in enumerate(each)
            if paused not in replicas
        ]
        if not movable:
            return None
        partition = TopicPartition(*random.choice(movable))
        target = [paused, *self.topics[partition.topic][partition.partition]]

        def do(_: MixedCluster, admin: Admin) -> None:
            admin.alter_partition_reassignments({partition: target})
            admin.alter_partition_reassignments({partition: None})

        return f"reassign {partition} to {target}, and cancel", do

    def _move(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        partition = self._partition(random)
        if partition is None:
            return None
        broker_id = random.choice(self.topics[partition.topic][partition.partition])

        def do(cluster: MixedCluster, admin: Admin) -> None:
            cluster.wait_settled()
            name = f"{partition.topic}-{partition.partition}"
            dirs = cluster.log_dirs(broker_id)
            # A new replica is in sync in ZooKeeper before its broker has made the log.
            cluster.wait(lambda: any((each / name).exists() for each in dirs))
            (target,) = [each for each in dirs if not (each / name).exists()]
            replica = TopicPartitionReplica(partition.topic, partition.partition, broker_id)
            admin.alter_replica_log_dirs({replica: str(target)})
            cluster.wait((target / name).exists)

        return f"move the log of {partition} on broker {broker_id}", do

    def _refused(self, random: Random, down: int | None) -> tuple[str, Do] | None:
        if not self.topics:
            return None
        name = random.choice([*self.topics])
        first = TopicPartition(name, 0)
        topic = ConfigResource(ConfigResourceType.TOPIC, name)
        ghost = TopicPartition("ghost", 0)
        calls: dict[str, Do] = {
            "create it again": lambda _, admin: _first(admin.create_topics([NewTopic(name, partitions=1)])),
            "bad name": lambda _, admin: _first(admin.create_topics([NewTopic("a/b", partitions=1)])),
            "no partitions": lambda _, admin: _first(admin.create_topics([NewTopic("none", partitions=0)])),
            "too many replicas": lambda _, admin: _first(
                admin.create_topics([NewTopic("wide", partitions=1, replication_factor=7)])
            ),
            "a gap": lambda _, admin: _first(
                admin.create_topics([NewTopic("gap", replica_assignments={0: [1], 2: [1]})])
            ),
            "twice": lambda _, admin: _first(
                admin.create_topics([NewTopic("twice", replica_assignments={0: [3, 3]})])
            ),
            "unknown setting": lambda _, admin: _first(
                admin.create_topics([NewTopic("odd", partitions=1, config={"no.such": "1"})])
            ),
            "bad setting": lambda _, admin: _first(
                admin.incremental_alter_configs({topic: [AlterConfigOp.set("retention.ms", "soon")]})
            ),
            "setting of no topic": lambda _, admin: _first(
                admin.incremental_alter_configs(
                    {
                        ConfigResource(ConfigResourceType.TOPIC, "ghost"): [
                            AlterConfigOp.set("retention.ms", "1")
                        ]
                    }
                )
            ),
            "shrink": lambda _, admin: _first(admin.create_partitions({name: NewPartitions(1)})),
            "grow nothing": lambda _, admin: _first(admin.create_partitions({"ghost": NewPartitions(3)})),
            "grow by others": lambda _, admin: _first(
                admin.create_partitions({name: NewPartitions(50, [[1]])})
            ),
            "delete nothing": lambda _, admin: _first(admin.delete_topics(["ghost"])),
            "reassign nothing": lambda _, admin: _first(admin.alter_partition_reassignments({ghost: [1]})),
            "reassign nowhere": lambda _, admin: _first(admin.alter_partition_reassignments({first: [9]})),
            "reassign to none": lambda _, admin: _first(admin.alter_partition_reassignments({first: []})),
            "reassign twice": lambda _, admin: _first(admin.alter_partition_reassignments({first: [3, 3]})),
            "cancel nothing": lambda _, admin: _first(admin.alter_partition_reassignments({ghost: None})),
            "elect nothing": lambda _, admin: _first(admin.elect_leaders(ElectionType.PREFERRED, [ghost])),
            "delete no user": lambda _, admin: _first(
                admin.alter_user_scram_credentials([ScramCredentialDeletion("nobody", MECHANISM)])
            ),
            "bad quota": lambda _, admin: _first(
                admin.alter_client_quotas(
                    [QuotaAlteration(quota_entity({"user": "alice"}), {"no.such": 1.0})]
                )
            ),
        }
        which = random.choice(sorted(calls))
        return f"refused: {which} ({name})", calls[which]


def _is_expired(admin: Admin, hmac: bytes) -> bool:
    """Try to expire a token; the broker that is asked may not have heard of it yet."""
    try:
        admin.expire_delegation_token(hmac)
    except ClientError as error:
        if error.code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            raise
        return False
    return True


def _first(outcomes: object) -> None:
    """Take a result of which only the errors count; they were raised."""


class Side:
    """One cluster that goes through the rounds, and writes down what it saw."""

    def __init__(self, controller: str, seed: int, directory: Path) -> None:
        self.cluster: Final = MixedCluster(directory / controller, controller=controller, others=KAFKA)
        self.plan: Final = Plan(seed)
        self.rounds: Final[list[dict[str, Any]]] = []
        self._name: Final = controller

    def run(self, is_over: Callable[[int], bool]) -> list[dict[str, Any]]:
        """Run rounds until `is_over` says so; return what each led to."""
        with self.cluster as cluster:
            with cluster.admin() as admin:
                admin.alter_user_scram_credentials(
                    [ScramCredentialUpsertion(ADMINISTRATOR, MECHANISM, PASSWORD)]
                )
            while not is_over(len(self.rounds)):
                self.rounds.append(self._round(len(self.rounds)))
        return self.rounds

    def _round(self, number: int) -> dict[str, Any]:
        before, (fault, broker_id), during = self.plan.round(number)
        begin = time.monotonic()
        outcomes = [self._do(*each) for each in before]
        outcomes.append(f"{fault} {broker_id}")
        broker = self.cluster.brokers[broker_id]
        if fault in ("stop", "kill"):
            broker.stop() if fault == "stop" else broker.kill()
            self.cluster.wait(lambda: broker_id not in self.cluster.live_brokers())
        elif fault == "pause":
            broker.pause()
        outcomes += [self._do(*each) for each in during]
        if fault in ("stop", "kill"):
            broker.start()
        elif fault == "pause":
            self._write(acks=1, without=broker_id)
            time.sleep(3)
            broker.resume()
        self._settle()
        self._write(acks="all")
        self._settle()
        snapshot = znode_snapshot(self.cluster)
        self._check_data()
        self._log(number, f"{time.monotonic() - begin:.0f} s, {len(snapshot)} znodes, {fault} {broker_id}")
        return {"outcomes": outcomes, "znodes": snapshot, "logs": log_directories(self.cluster)}

    def _do(self, what: str, do: Do) -> str:
        with self.cluster.admin() as admin:
            try:
                do(self.cluster, admin)
            except ClientError as error:
                return f"{what}: {ErrorCode(error.code).name if error.code is not None else error}"
        return what

    def _settle(self) -> None:
        """Wait until all is in sync, and let the first replica of each partition lead."""
        cluster = self.cluster
        cluster.wait_settled()
        cluster.elect_preferred()
        states = cluster.assignments()
        for name, assignment in states.items():
            for each, replicas in assignment.partitions.items():
                cluster.wait_leader(TopicPartition(name, each), replicas.replicas[0])
        cluster.wait_settled()

    def _write(self, acks: Any, without: int | None = None) -> None:
        """Add three records to the first partition of each topic, except of those that a broker leads."""
        partitions = [TopicPartition(name, 0) for name in (*self.plan.topics, *self.plan.placed)]
        if without is not None:
            states = self.cluster.states()
            partitions = [each for each in partitions if states[each].leader != without]
        idempotent = acks == "all"
        with Producer(
            bootstrap_servers=self.cluster.bootstrap, acks=acks, enable_idempotence=idempotent
        ) as producer:
            sent = [
                (each, producer.send(each.topic, key=b"%d" % number, value=b"v", partition=0))
                for each in partitions
                for number in range(3)
            ]
            for partition, future in sent:
                future.result(WAIT_SECONDS)
                self.plan.records[partition] = self.plan.records.get(partition, 0) + 1

    def _check_data(self) -> None:
        wanted = self.plan.records
        with Consumer(bootstrap_servers=self.cluster.bootstrap) as consumer:
            found = consumer.end_offsets(list(wanted), timeout_s=WAIT_SECONDS)
        assert wanted == dict(found), {p: (wanted[p], found[p]) for p in wanted if wanted[p] != found[p]}

    def _log(self, number: int, text: str) -> None:
        print(f"{self._name} round {number}: {text}", flush=True)


def main() -> int:
    """Run both sides, or one, and compare; return the exit code."""
    parser = argparse.ArgumentParser(description="Random administration under two controllers.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the first side runs")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--only", choices=(KALDA, KAFKA))
    options = parser.parse_args()
    files = {side: options.directory / f"{side}-{options.seed}.json" for side in (KALDA, KAFKA)}
    options.directory.mkdir(parents=True, exist_ok=True)
    for side in [options.only] if options.only else [KALDA, KAFKA]:
        other = files[KAFKA if side == KALDA else KALDA]
        rounds = len(json.loads(other.read_text())) if other.exists() else None
        end = time.monotonic() + options.minutes * 60
        found = Side(side, options.seed, options.directory / str(options.seed)).run(
            lambda done: done >= rounds if rounds is not None else time.monotonic() > end  # noqa: B023
        )
        files[side].write_text(json.dumps(found, indent=1, sort_keys=True))
    if not all(each.exists() for each in files.values()):
        return 0
    ours, theirs = (json.loads(files[side].read_text()) for side in (KALDA, KAFKA))
    differing = differences(ours, theirs)
    for line in differing:
        print(line)
    print(f"{min(len(ours), len(theirs))} rounds compared, {len(differing)} differences")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
