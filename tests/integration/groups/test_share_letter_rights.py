"""Who needs which rights for dead letters: the brokers Write on their topic, the members nothing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kalda import (
    AcknowledgeType,
    Admin,
    AlterConfigOp,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ShareConsumer,
)
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.security.acl.model import CLUSTER_NAME
from kalda.testing import KaldaProcess
from tests.integration.net.test_sasl import PLAIN, properties

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} required username="broker" password="broker-secret" '
        'user_broker="broker-secret" user_admin="admin-secret" user_alice="alice-secret";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "false",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "1",
}
SECONDS = 60.0
LETTERS, GROUP = "dlq.work", "workers"


def allowed(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    entry = AccessControlEntry(f"User:{user}", "*", operation, PermissionType.ALLOW)
    return AclBinding(ResourcePattern(kind, name), entry)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KaldaProcess]:
    """A broker that is no super user, and a group of alice's whose dead letters have a topic."""
    with KaldaProcess(tmp_path / "data", settings=SETTINGS) as process:
        with Admin.from_config(properties(process.bootstrap, user="admin")) as admin:
            enable = {"errors.deadletterqueue.group.enable": "true"}
            admin.create_topics([NewTopic("work", 1, 1), NewTopic(LETTERS, 1, 1, config=enable)])
            settings = {
                "share.auto.offset.reset": "earliest",
                "errors.deadletterqueue.topic.name": LETTERS,
            }
            operations = [AlterConfigOp.set(*each) for each in settings.items()]
            admin.incremental_alter_configs({ConfigResource.group(GROUP): operations})
            admin.create_acls(
                [
                    allowed("broker", ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CLUSTER_ACTION),
                    allowed("alice", ResourceType.TOPIC, "work", AclOperation.READ),
                    allowed("alice", ResourceType.GROUP, GROUP, AclOperation.READ),
                ]
            )
        with Producer.from_config(properties(process.bootstrap, user="admin")) as producer:
            producer.send("work", value=b"bad").result(SECONDS)
        yield process


def member_options(bootstrap: str) -> dict[str, str]:
    user = properties(bootstrap, user="alice")
    return {**user, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}


def reject_one(bootstrap: str) -> None:
    """Have alice, who has no right on the topic for letters, reject a record."""
    with ShareConsumer.from_config(member_options(bootstrap), "work") as consumer:
        wait_until(lambda: _reject(consumer))


def _reject(consumer: ShareConsumer[Any, Any]) -> bool:
    records = consumer.poll(1.0)
    for record in records:
        consumer.acknowledge(record, AcknowledgeType.REJECT)
    assert {None} >= set(consumer.commit(SECONDS).values())
    return bool(records)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = threading.Event()
    timer = threading.Timer(SECONDS, deadline.set)
    timer.start()
    try:
        while not holds():
            assert not deadline.is_set(), "the time is up"
    finally:
        timer.cancel()


def letters(bootstrap: str, count: int) -> list[bytes | None]:
    """Return the messages of so many letters."""
    found: list[bytes | None] = []
    options = {**properties(bootstrap, user="admin"), "auto.offset.reset": "earliest"}
    with Consumer.from_config(options, LETTERS) as reader:

        def has_all() -> bool:
            found.extend(dict(each.headers).get("__dlq.errors.message") for each in reader.poll(1.0))
            return len(found) >= count

        wait_until(has_all)
    return found


def test_letters_wait_for_the_right_of_the_brokers_and_members_need_none(broker: KaldaProcess) -> None:
    reject_one(broker.bootstrap)
    wait_until(lambda: "dead letters wait" in broker.log())
    (reason,) = {line for line in broker.log().splitlines() if "dead letters wait" in line}
    assert f"{LETTERS}-0 refuses letters" in reason
    with Admin.from_config(properties(broker.bootstrap, user="admin")) as admin:
        (offset,) = admin.list_share_group_offsets([GROUP])[GROUP].values()
        assert offset is not None
        assert (0, 1) == (offset.start_offset, offset.lag), "no record is done without its letter"
        admin.create_acls([allowed("broker", ResourceType.TOPIC, LETTERS, AclOperation.WRITE)])
        # Letters are written while a session of the group names the partition.
        with ShareConsumer.from_config(member_options(broker.bootstrap), "work") as consumer:

            def is_done() -> bool:
                consumer.poll(0.5)
                (offset,) = admin.list_share_group_offsets([GROUP])[GROUP].values()
                return offset is not None and offset.start_offset == 1

            wait_until(is_done)
    assert [b"Offset rejected by client."] == letters(broker.bootstrap, 1)
