"""`kalda mirror cutover` from the newest Apache Kafka (KRaft) to Kalda, with clients of librdkafka.

The source has an authorizer and SASL, so that writers are held by ACLs that its super user does not feel.
"""

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import confluent_kafka
import pytest

from benchmarks.apache_kafka import ApacheKafka, NotAvailableError
from kalda import Admin, NewTopic
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.common.types import TopicPartition
from kalda.testing import KaldaProcess
from tests.compat.newest_kafka import NEWEST
from tests.integration.cluster.helpers import wait_until

RECORDS = 1_000_000
ACLS = 50
PAUSE_MAX_S = 10.0
_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a" '
    'user_admin="a" user_app="b";'
)
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener has no login.
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
    "log.cleaner.backoff.ms": "500",
    "auto.create.topics.enable": "false",
}
ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": "a",
}
APP = {**ADMIN, "sasl.username": "app", "sasl.password": "b"}
TARGET = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Rows = dict[int, list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]]]


@pytest.fixture
def source() -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka(version=NEWEST, heap="512m", settings=SETTINGS, protocol="SASL_PLAINTEXT") as kafka:
            yield kafka
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def target(tmp_path: Path) -> Iterator[KaldaProcess]:
    with KaldaProcess(tmp_path / "data", settings=TARGET) as process:
        yield process


def admin_of(bootstrap: str) -> Admin:
    return Admin.from_config({"bootstrap.servers": bootstrap, **ADMIN})


def flow_file(directory: Path, source: str, target: str, topics: str) -> Path:
    file = directory / "mirror.properties"
    lines = [
        "clusters = old, new",
        f"old.bootstrap.servers = {source}",
        *(f"old.{name} = {value}" for name, value in ADMIN.items()),
        f"new.bootstrap.servers = {target}",
        "old->new.enabled = true",
        f"old->new.topics = {topics}",
        "replication.policy.class = IdentityReplicationPolicy",
        "replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def command(file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kalda", "mirror", "cutover", str(file), "--json", *arguments]


def cut_over(file: Path, *arguments: str, code: int = 0) -> dict[str, object]:
    done = subprocess.run(command(file, *arguments), capture_output=True, text=True, timeout=400, check=False)
    assert code == done.returncode, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def acl(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    principal: str = "User:app",
    prefixed: bool = False,
) -> AclBinding:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(
        ResourcePattern(kind, name, pattern),
        AccessControlEntry(principal, "*", operation, PermissionType.ALLOW),
    )


def fifty_acls() -> list[AclBinding]:
    found = [
        acl(ResourceType.TOPIC, "orders", AclOperation.READ),
        acl(ResourceType.TOPIC, "orders", AclOperation.WRITE),
        acl(ResourceType.TOPIC, "tx", AclOperation.READ),
        acl(ResourceType.TOPIC, "tx", AclOperation.WRITE),
        acl(ResourceType.TOPIC, "state", AclOperation.WRITE),
        acl(ResourceType.GROUP, "g", AclOperation.READ, prefixed=True),
        acl(ResourceType.TRANSACTIONAL_ID, "app-", AclOperation.WRITE, prefixed=True),
        acl(ResourceType.CLUSTER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
    ]
    found += [
        acl(ResourceType.TOPIC, "orders", AclOperation.DESCRIBE, principal=f"User:reader-{number}")
        for number in range(ACLS - len(found))
    ]
    return found


class Writers(threading.Thread):
    """Writes to a topic as `app` until it is stopped, and remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self.refused = 0
        self.last_acknowledged_s = 0.0
        self._ended = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 20_000,
                **APP,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            for _ in range(20):
                try:
                    self._producer.produce(self.topic, b"live-%d" % number, on_delivery=self._delivered)
                except confluent_kafka.KafkaException:
                    self.refused += 1
                number += 1
            self._producer.poll(0.01)
        self._producer.flush(30)

    def stop(self) -> None:
        self._ended.set()
        self.join(60)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
            self.last_acknowledged_s = time.monotonic()
        else:
            self.refused += 1


def write(producer: confluent_kafka.Producer, *arguments: object, **options: object) -> None:
    """Produce a record, and wait while the producer's queue is full."""
    while True:
        try:
            producer.produce(*arguments, **options)
            return
        except BufferError:
            producer.poll(0.1)


def fill(bootstrap: str, records: int) -> None:
    """Records of all kinds, of transactions that commit and that abort, and compacted ones."""
    plain = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4", **APP}
    )
    for number in range(records):
        kind = number % 10
        write(
            plain,
            "orders",
            None if kind == 9 else b"v%d-" % number + b"x" * 80,
            key=None if kind == 8 else b"k%d" % (number % 5_000),
            partition=number % 6,
            headers=[("h", b"%d" % number), ("none", None)] if kind == 7 else None,
            timestamp=1_700_000_000_000 + number,
        )
    for number in range(20_000):
        value = None if number % 97 == 0 else b"s%d" % number
        write(plain, "state", value, key=b"k%d" % (number % 200))
    write(plain, "orders", b"b" * 900_000, partition=0)
    assert 0 == plain.flush(120)
    transactional = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "app-1", **APP}
    )
    transactional.init_transactions(30)
    for part in range(300):
        transactional.begin_transaction()
        for number in range(5):
            transactional.produce("tx", b"t%d-%d" % (part, number), partition=part % 2)
        if part % 3 == 1:
            transactional.flush(30)
            transactional.abort_transaction(30)
        else:
            transactional.commit_transaction(30)


def rest(
    bootstrap: str, group: str, partitions: list[TopicPartition], config: Mapping[str, str]
) -> dict[str, str]:
    """What a group would read from its offsets on: by partition, the number of records and a hash of them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **config,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(each.topic, each.partition) for each in partitions])
    hashes = {str(each): hashlib.blake2b(digest_size=8) for each in partitions}
    counts = dict.fromkeys(hashes, 0)
    waiting = set(hashes)
    while waiting:
        for message in consumer.consume(2_000, 5):
            where = f"{message.topic()}-{message.partition()}"
            if message.error():
                assert confluent_kafka.KafkaError._PARTITION_EOF == message.error().code(), message.error()
                waiting.discard(where)
                continue
            counts[where] += 1
            row = (message.key(), message.value(), message.timestamp()[1], message.headers())
            hashes[where].update(repr(row).encode())
    consumer.close()
    return {each: f"{counts[each]} {hashes[each].hexdigest()}" for each in hashes}


PARTITIONS = [
    *(TopicPartition("orders", each) for each in range(6)),
    *(TopicPartition("tx", each) for each in range(2)),
    *(TopicPartition("state", each) for each in range(2)),
    *(TopicPartition("empty", each) for each in range(2)),
]


def prepare(kafka: ApacheKafka, records: int) -> None:
    with admin_of(kafka.bootstrap) as admin:
        admin.create_acls(fifty_acls())
        admin.create_topics(
            [
                NewTopic("orders", 6, 1, config={"retention.ms": "-1"}),
                NewTopic("tx", 2, 1, config={"message.timestamp.type": "LogAppendTime"}),
                NewTopic(
                    "state",
                    2,
                    1,
                    config={
                        "cleanup.policy": "compact",
                        "segment.ms": "1000",
                        "segment.bytes": "1048576",
                        "min.cleanable.dirty.ratio": "0.01",
                        "min.compaction.lag.ms": "0",
                    },
                ),
                NewTopic("empty", 2, 1),
                NewTopic("live", 3, 1),
            ]
        )
        admin.create_acls([acl(ResourceType.TOPIC, "live", AclOperation.WRITE)])
        admin.delete_acls(
            [
                AclFilter(ResourceType.TOPIC, "orders", principal=f"User:reader-{ACLS - 9}"),
            ]
        )
        admin.alter_client_quotas(
            [QuotaAlteration(quota_entity({"user": "app"}), {"producer_byte_rate": 1e9})]
        )
        admin.alter_user_scram_credentials(
            [
                ScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, "secret", 8192)
                for name in ("alice", "bob")
            ]
        )
    fill(kafka.bootstrap, records)


def commit_groups(kafka: ApacheKafka) -> None:
    """Groups at the beginning, in the middle, at the end, before the log's start and among markers."""
    with admin_of(kafka.bootstrap) as admin:
        ends = ends_of(admin)
        admin.delete_records({TopicPartition("orders", 5): 1_000})
        admin.alter_consumer_group_offsets(
            {
                "g-begin": dict.fromkeys(PARTITIONS, 0),
                "g-middle": {each: end // 2 for each, end in ends.items()},
                "g-end": ends,
                "g-before": {TopicPartition("orders", 5): 10},
                "g-markers": {each: max(end - 7, 0) for each, end in ends.items() if each.topic == "tx"},
            }
        )


def ends_of(admin: Admin) -> dict[TopicPartition, int]:
    from kalda.clients.admin.partitions import OffsetSpec

    found = admin.list_offsets(dict.fromkeys(PARTITIONS, OffsetSpec.latest()))
    return {each: answer.offset for each, answer in found.items()}


GROUPS = ("g-begin", "g-middle", "g-end", "g-before", "g-markers")


def offsets_of(admin: Admin, group: str) -> dict[TopicPartition, int]:
    found = admin.list_consumer_group_offsets([group])[group]
    return {each: answer.offset for each, answer in found.items() if answer is not None}


def check_groups(source: str, target: str) -> None:
    """Every group reads the same on both sides, from its offsets to the end."""
    with admin_of(source) as there, Admin(bootstrap_servers=target) as here:
        for group in GROUPS:
            known = sorted(offsets_of(there, group))
            assert known == sorted(offsets_of(here, group)), group
            partitions = [each for each in known if each.topic != "state"]
            assert rest(source, group, partitions, ADMIN) == rest(target, group, partitions, {}), group


def texts(bootstrap: str, topic: str, config: Mapping[str, str]) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "texts",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **config,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(3)])
    found: list[bytes] = []
    waiting = 3
    while waiting:
        for message in consumer.consume(2_000, 5):
            if message.error():
                waiting -= 1
            else:
                found.append(message.value())
    consumer.close()
    return found


def latest(bootstrap: str, config: Mapping[str, str]) -> dict[bytes, bytes | None]:
    """The newest value of each key of the compacted topic that has one."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **config,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("state", each, 0) for each in range(2)])
    found: dict[bytes, bytes | None] = {}
    waiting = 2
    while waiting:
        for message in consumer.consume(2_000, 5):
            if message.error():
                waiting -= 1
            else:
                found[message.key()] = message.value()
    consumer.close()
    return {key: value for key, value in found.items() if value is not None}


def check_settings(target: str) -> None:
    """What would have changed the timestamps of copies is set at the end."""
    resource = ConfigResource.topic("tx")
    with Admin(bootstrap_servers=target) as admin:
        entries = admin.describe_configs([resource])[resource]
    assert "LogAppendTime" == entries["message.timestamp.type"].value


@pytest.mark.timeout(900)
def test_a_million_records_move_with_groups_and_acls_under_writers(
    source: ApacheKafka, target: KaldaProcess, tmp_path: Path
) -> None:
    """Every group goes on at the exact record, and each acknowledged record is in the target once."""
    prepare(source, RECORDS)
    commit_groups(source)
    file = flow_file(tmp_path, source.bootstrap, target.bootstrap, "orders, tx, state, empty, live")
    passwords = tmp_path / "passwords"
    passwords.write_text("alice=secret\n")
    writers = Writers(source.bootstrap, "live")
    writers.start()
    try:
        wait_until(lambda: len(writers.acknowledged) > 1_000)
        report = cut_over(file, "--passwords", str(passwords))
    finally:
        writers.stop()
    assert "switched" == report["phase"]
    assert isinstance(report["pause_ms"], int)
    assert report["pause_ms"] < PAUSE_MAX_S * 1000
    assert writers.refused > 0
    assert sorted(writers.acknowledged) == sorted(texts(target.bootstrap, "live", {}))
    check_groups(source.bootstrap, target.bootstrap)
    check_settings(target.bootstrap)
    assert latest(source.bootstrap, ADMIN) == latest(target.bootstrap, {})
    groups = report["groups"]
    assert isinstance(groups, list)
    assert {"exact", "end"} == {each["next_record"] for each in groups if each["topic"] != "state"}
    carried, left = report["carried"], report["not_carried"]
    assert isinstance(carried, dict)
    assert isinstance(left, list)
    assert (ACLS, 1, 5) == (carried["ACLs"], carried["users"], carried["groups"])
    assert ["bob (SCRAM-SHA-256)"] == [each["name"] for each in left if each["kind"] == "user"]
    assert ["app-1"] == [each["name"] for each in left if each["kind"] == "transactional id"]
    with Admin(bootstrap_servers=target.bootstrap) as admin, admin_of(source.bootstrap) as there:
        own = {
            each for each in there.describe_acls(AclFilter()) if each.entry.permission is PermissionType.ALLOW
        }
        assert own == set(admin.describe_acls(AclFilter()))
        assert {"producer_byte_rate": 1e9} == admin.describe_client_quotas()[quota_entity({"user": "app"})]


PHASES = ("check", "prepare", "follow", "plan fence", "fence", "drain", "groups", "verify", "settle")


def kill_at(phase: str, file: Path, *arguments: str) -> None:
    """Start the command, and end it by SIGKILL when its journal is at a phase."""
    journal = file.with_name(f"{file.name}.old-new.cutover{'.back' if '--back' in arguments else ''}")
    process = subprocess.Popen(
        command(file, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(
            lambda: (
                process.poll() is not None
                or (journal.exists() and phase == json.loads(journal.read_text())["phase"])
            ),
            60,
        )
        time.sleep(PHASES.index(phase) / 20)
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(900)
def test_a_process_that_is_killed_at_each_step_goes_on_and_clients_come_back(
    source: ApacheKafka, target: KaldaProcess, tmp_path: Path
) -> None:
    """What was acknowledged is in the target once; on the way back, it is in the source once."""
    prepare(source, 20_000)
    commit_groups(source)
    file = flow_file(tmp_path, source.bootstrap, target.bootstrap, "orders, tx, state, empty, live")
    writers = Writers(source.bootstrap, "live")
    writers.start()
    try:
        wait_until(lambda: len(writers.acknowledged) > 1_000)
        for phase in PHASES:
            kill_at(phase, file)
        report = cut_over(file)
    finally:
        writers.stop()
    assert "switched" == report["phase"]
    assert sorted(writers.acknowledged) == sorted(texts(target.bootstrap, "live", {}))
    check_groups(source.bootstrap, target.bootstrap)
    check_settings(target.bootstrap)
    assert latest(source.bootstrap, ADMIN) == latest(target.bootstrap, {})
    later = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap})
    for number in range(1_000):
        later.produce("live", b"later-%d" % number)
        later.produce("orders", b"later-%d" % number)
    assert 0 == later.flush(60)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        begins = offsets_of(admin, "g-begin")
        admin.alter_consumer_group_offsets({"g-end": {each: begins[each] + 20 for each in PARTITIONS[:6]}})
    for phase in PHASES:
        kill_at(phase, file, "--back")
    report = cut_over(file, "--back")
    assert "switched" == report["phase"]
    expected = [*writers.acknowledged, *(b"later-%d" % number for number in range(1_000))]
    assert sorted(expected) == sorted(texts(source.bootstrap, "live", ADMIN))
    check_groups(source.bootstrap, target.bootstrap)
    with admin_of(source.bootstrap) as admin:
        denied = [
            each for each in admin.describe_acls(AclFilter()) if each.entry.permission is PermissionType.DENY
        ]
        assert [] == denied
