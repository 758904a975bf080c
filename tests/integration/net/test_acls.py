"""ACLs on a broker: each API by a client without, with exactly the needed, and with a denied permission."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.errors import BrokerResponseError
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.registry import spec
from kalda.protocol.schema import Message, Struct
from kalda.security.acl.model import CLUSTER_NAME
from kalda.security.sasl.plain import PlainClient
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports
from tests import forked_commands
from tests.integration.net.test_sasl import PLAIN, properties

ALICE = "User:alice"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} required username="admin" password="admin-secret" '
        'user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "transaction.two.phase.commit.enable": "true",
    "auto.create.topics.enable": "false",
}
TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
DENIED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TXN: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: CLUSTER_NAME, TXN: "x"}
Need = tuple[ResourceType, AclOperation]
COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    with KaldaProcess(tmp_path_factory.mktemp("acls") / "data", settings=SETTINGS) as process:
        with Admin.from_config(properties(process.bootstrap, user="admin")) as admin:
            admin.create_topics([NewTopic("t", 1, 1), NewTopic("hidden", 1, 1)])
        yield process


@pytest.fixture
def admin(broker: KaldaProcess) -> Iterator[Admin]:
    """An administrator, behind whose test no ACL is left."""
    with Admin.from_config(properties(broker.bootstrap, user="admin")) as client:
        yield client
        client.delete_acls([AclFilter()])


def binding(
    need: Need, permission: PermissionType = PermissionType.ALLOW, principal: str = ALICE
) -> AclBinding:
    kind, operation = need
    return AclBinding(
        ResourcePattern(kind, NAMES[kind]), AccessControlEntry(principal, "*", operation, permission)
    )


def message(key: ApiKey, **fields: Any) -> Message:
    return spec(key).request_class(**fields)


def struct(key: ApiKey, name: str, /, **fields: Any) -> Any:
    module = sys.modules[spec(key).request_class.__module__]
    return getattr(module, name)(**fields)


_ANY_ACL: dict[str, object] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
}

K = ApiKey
ROWS: list[tuple[ApiKey, Sequence[Need], Callable[[], Message]]] = [
    (
        K.LIST_OFFSETS,
        [(TOPIC, Op.DESCRIBE)],
        lambda: message(
            K.LIST_OFFSETS,
            replica_id=-1,
            topics=[
                struct(
                    K.LIST_OFFSETS,
                    "ListOffsetsTopic",
                    name="t",
                    partitions=[
                        struct(K.LIST_OFFSETS, "ListOffsetsPartition", partition_index=0, timestamp=-1)
                    ],
                )
            ],
        ),
    ),
    (
        K.METADATA,
        [(TOPIC, Op.DESCRIBE)],
        lambda: message(K.METADATA, topics=[struct(K.METADATA, "MetadataRequestTopic", name="t")]),
    ),
    (
        K.OFFSET_COMMIT,
        [(GROUP, Op.READ), (TOPIC, Op.READ)],
        lambda: message(
            K.OFFSET_COMMIT,
            group_id="g",
            topics=[
                struct(
                    K.OFFSET_COMMIT,
                    "OffsetCommitRequestTopic",
                    name="t",
                    partitions=[
                        struct(
                            K.OFFSET_COMMIT,
                            "OffsetCommitRequestPartition",
                            partition_index=0,
                            committed_offset=0,
                        )
                    ],
                )
            ],
        ),
    ),
    (
        K.OFFSET_FETCH,
        [(GROUP, Op.DESCRIBE), (TOPIC, Op.DESCRIBE)],
        lambda: message(
            K.OFFSET_FETCH,
            groups=[
                struct(
                    K.OFFSET_FETCH,
                    "OffsetFetchRequestGroup",
                    group_id="g",
                    topics=[
                        struct(K.OFFSET_FETCH, "OffsetFetchRequestTopics", name="t", partition_indexes=[0])
                    ],
                )
            ],
        ),
    ),
    (
        K.FIND_COORDINATOR,
        [(GROUP, Op.DESCRIBE)],
        lambda: message(K.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"]),
    ),
    (
        K.FIND_COORDINATOR,
        [(TXN, Op.DESCRIBE)],
        lambda: message(K.FIND_COORDINATOR, key_type=1, coordinator_keys=["x"]),
    ),
    (K.JOIN_GROUP, [(GROUP, Op.READ)], lambda: message(K.JOIN_GROUP, group_id="g", session_timeout_ms=10)),
    (K.HEARTBEAT, [(GROUP, Op.READ)], lambda: message(K.HEARTBEAT, group_id="g")),
    (K.LEAVE_GROUP, [(GROUP, Op.READ)], lambda: message(K.LEAVE_GROUP, group_id="g")),
    (K.SYNC_GROUP, [(GROUP, Op.READ)], lambda: message(K.SYNC_GROUP, group_id="g")),
    (K.DESCRIBE_GROUPS, [(GROUP, Op.DESCRIBE)], lambda: message(K.DESCRIBE_GROUPS, groups=["g"])),
    (
        K.CREATE_TOPICS,
        [(TOPIC, Op.CREATE)],
        lambda: message(
            K.CREATE_TOPICS,
            topics=[struct(K.CREATE_TOPICS, "CreatableTopic", name="t", num_partitions=1)],
            validate_only=True,
        ),
    ),
    (
        K.CREATE_TOPICS,
        [(CLUSTER, Op.CREATE)],
        lambda: message(
            K.CREATE_TOPICS,
            topics=[struct(K.CREATE_TOPICS, "CreatableTopic", name="t", num_partitions=1)],
            validate_only=True,
        ),
    ),
    (
        K.DELETE_RECORDS,
        [(TOPIC, Op.DELETE)],
        lambda: message(
            K.DELETE_RECORDS,
            topics=[
                struct(
                    K.DELETE_RECORDS,
                    "DeleteRecordsTopic",
                    name="t",
                    partitions=[struct(K.DELETE_RECORDS, "DeleteRecordsPartition", partition_index=0)],
                )
            ],
        ),
    ),
    (
        K.INIT_PRODUCER_ID,
        [(TXN, Op.WRITE)],
        lambda: message(K.INIT_PRODUCER_ID, transactional_id="x", transaction_timeout_ms=10_000),
    ),
    *(
        (
            K.INIT_PRODUCER_ID,
            [(TXN, Op.WRITE), (TXN, Op.TWO_PHASE_COMMIT)],
            partial(
                message,
                K.INIT_PRODUCER_ID,
                transactional_id="x",
                transaction_timeout_ms=10_000,
                **{field: True},
            ),
        )
        for field in ("enable2_pc", "keep_prepared_txn")
    ),
    (
        K.INIT_PRODUCER_ID,
        [(CLUSTER, Op.IDEMPOTENT_WRITE)],
        lambda: message(K.INIT_PRODUCER_ID, transactional_id=None),
    ),
    (
        K.OFFSET_FOR_LEADER_EPOCH,
        [(TOPIC, Op.DESCRIBE)],
        lambda: message(
            K.OFFSET_FOR_LEADER_EPOCH,
            replica_id=-1,
            topics=[
                struct(
                    K.OFFSET_FOR_LEADER_EPOCH,
                    "OffsetForLeaderTopic",
                    topic="t",
                    partitions=[struct(K.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderPartition")],
                )
            ],
        ),
    ),
    (
        K.ADD_OFFSETS_TO_TXN,
        [(TXN, Op.WRITE), (GROUP, Op.READ)],
        lambda: message(K.ADD_OFFSETS_TO_TXN, transactional_id="x", group_id="g"),
    ),
    (K.END_TXN, [(TXN, Op.WRITE)], lambda: message(K.END_TXN, transactional_id="x")),
    (
        K.TXN_OFFSET_COMMIT,
        [(TXN, Op.WRITE), (GROUP, Op.READ), (TOPIC, Op.READ)],
        lambda: message(
            K.TXN_OFFSET_COMMIT,
            transactional_id="x",
            group_id="g",
            topics=[
                struct(
                    K.TXN_OFFSET_COMMIT,
                    "TxnOffsetCommitRequestTopic",
                    name="t",
                    partitions=[struct(K.TXN_OFFSET_COMMIT, "TxnOffsetCommitRequestPartition")],
                )
            ],
        ),
    ),
    (K.DESCRIBE_ACLS, [(CLUSTER, Op.DESCRIBE)], lambda: message(K.DESCRIBE_ACLS, **_ANY_ACL)),
    (
        K.CREATE_ACLS,
        [(CLUSTER, Op.ALTER)],
        lambda: message(K.CREATE_ACLS, creations=[struct(K.CREATE_ACLS, "AclCreation")]),
    ),
    (
        K.DELETE_ACLS,
        [(CLUSTER, Op.ALTER)],
        lambda: message(K.DELETE_ACLS, filters=[struct(K.DELETE_ACLS, "DeleteAclsFilter")]),
    ),
    *(
        (
            K.DESCRIBE_CONFIGS,
            [(kind, Op.DESCRIBE_CONFIGS)],
            lambda number=number, name=name: message(
                K.DESCRIBE_CONFIGS,
                resources=[
                    struct(
                        K.DESCRIBE_CONFIGS,
                        "DescribeConfigsResource",
                        resource_type=number,
                        resource_name=name,
                    )
                ],
            ),
        )
        for kind, number, name in ((TOPIC, 2, "t"), (CLUSTER, 4, "0"))
    ),
    *(
        (
            key,
            [(kind, Op.ALTER_CONFIGS)],
            lambda key=key, number=number, name=name: message(
                key,
                resources=[struct(key, "AlterConfigsResource", resource_type=number, resource_name=name)],
                validate_only=True,
            ),
        )
        for key in (K.ALTER_CONFIGS, K.INCREMENTAL_ALTER_CONFIGS)
        for kind, number, name in ((TOPIC, 2, "t"), (CLUSTER, 4, "0"))
    ),
    (
        K.ALTER_REPLICA_LOG_DIRS,
        [(CLUSTER, Op.ALTER)],
        lambda: message(
            K.ALTER_REPLICA_LOG_DIRS,
            dirs=[
                struct(
                    K.ALTER_REPLICA_LOG_DIRS,
                    "AlterReplicaLogDir",
                    path="/none",
                    topics=[
                        struct(K.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirTopic", name="t", partitions=[0])
                    ],
                )
            ],
        ),
    ),
    (K.DESCRIBE_EVENTS, [(CLUSTER, Op.DESCRIBE_CONFIGS)], lambda: message(K.DESCRIBE_EVENTS)),
    (K.DESCRIBE_PROCESS, [(CLUSTER, Op.DESCRIBE)], lambda: message(K.DESCRIBE_PROCESS)),
    (K.DESCRIBE_LOG_DIRS, [(CLUSTER, Op.DESCRIBE)], lambda: message(K.DESCRIBE_LOG_DIRS, topics=None)),
    (
        K.CREATE_PARTITIONS,
        [(TOPIC, Op.ALTER)],
        lambda: message(
            K.CREATE_PARTITIONS,
            topics=[struct(K.CREATE_PARTITIONS, "CreatePartitionsTopic", name="t", count=2)],
            validate_only=True,
        ),
    ),
    (K.DELETE_GROUPS, [(GROUP, Op.DELETE)], lambda: message(K.DELETE_GROUPS, groups_names=["g"])),
    (K.ELECT_LEADERS, [(CLUSTER, Op.ALTER)], lambda: message(K.ELECT_LEADERS, topic_partitions=[])),
    (
        K.ALTER_PARTITION_REASSIGNMENTS,
        [(CLUSTER, Op.ALTER)],
        lambda: message(K.ALTER_PARTITION_REASSIGNMENTS, topics=[]),
    ),
    (
        K.LIST_PARTITION_REASSIGNMENTS,
        [(CLUSTER, Op.DESCRIBE)],
        lambda: message(K.LIST_PARTITION_REASSIGNMENTS, topics=None),
    ),
    (
        K.OFFSET_DELETE,
        [(GROUP, Op.DELETE), (TOPIC, Op.READ)],
        lambda: message(
            K.OFFSET_DELETE,
            group_id="g",
            topics=[
                struct(
                    K.OFFSET_DELETE,
                    "OffsetDeleteRequestTopic",
                    name="t",
                    partitions=[struct(K.OFFSET_DELETE, "OffsetDeleteRequestPartition")],
                )
            ],
        ),
    ),
    (
        K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        [(CLUSTER, Op.DESCRIBE)],
        lambda: message(K.DESCRIBE_USER_SCRAM_CREDENTIALS, users=None),
    ),
    (
        K.ALTER_USER_SCRAM_CREDENTIALS,
        [(CLUSTER, Op.ALTER)],
        lambda: message(
            K.ALTER_USER_SCRAM_CREDENTIALS,
            deletions=[
                struct(K.ALTER_USER_SCRAM_CREDENTIALS, "ScramCredentialDeletion", name="x", mechanism=1)
            ],
        ),
    ),
    (
        K.DESCRIBE_PRODUCERS,
        [(TOPIC, Op.READ)],
        lambda: message(
            K.DESCRIBE_PRODUCERS,
            topics=[struct(K.DESCRIBE_PRODUCERS, "TopicRequest", name="t", partition_indexes=[0])],
        ),
    ),
    (
        K.DESCRIBE_TRANSACTIONS,
        [(TXN, Op.DESCRIBE)],
        lambda: message(K.DESCRIBE_TRANSACTIONS, transactional_ids=["x"]),
    ),
    (
        K.CONSUMER_GROUP_HEARTBEAT,
        [(GROUP, Op.READ)],
        lambda: message(K.CONSUMER_GROUP_HEARTBEAT, group_id="g", member_id="m"),
    ),
    (
        K.CONSUMER_GROUP_DESCRIBE,
        [(GROUP, Op.DESCRIBE)],
        lambda: message(K.CONSUMER_GROUP_DESCRIBE, group_ids=["g"]),
    ),
    (
        K.SHARE_GROUP_HEARTBEAT,
        [(GROUP, Op.READ), (TOPIC, Op.DESCRIBE)],
        lambda: message(
            K.SHARE_GROUP_HEARTBEAT,
            group_id="g",
            member_id="m",
            member_epoch=5,
            subscribed_topic_names=["t"],
        ),
    ),
    (
        K.SHARE_GROUP_DESCRIBE,
        [(GROUP, Op.DESCRIBE)],
        lambda: message(K.SHARE_GROUP_DESCRIBE, group_ids=["g"]),
    ),
    *(
        (key, [(GROUP, Op.READ)], partial(message, key, group_id="g", member_id="m", share_session_epoch=5))
        for key in (K.SHARE_FETCH, K.SHARE_ACKNOWLEDGE)
    ),
    (
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        [(GROUP, Op.DESCRIBE), (TOPIC, Op.DESCRIBE)],
        lambda: message(
            K.DESCRIBE_SHARE_GROUP_OFFSETS,
            groups=[
                struct(
                    K.DESCRIBE_SHARE_GROUP_OFFSETS,
                    "RequestGroup",
                    group_id="g",
                    topics=[
                        struct(K.DESCRIBE_SHARE_GROUP_OFFSETS, "RequestTopic", topic_name="t", partitions=[0])
                    ],
                )
            ],
        ),
    ),
    *(
        (
            key,
            [(GROUP, operation), (TOPIC, Op.READ)],
            lambda key=key, fields=fields: message(
                key, group_id="g", topics=[struct(key, "RequestTopic", topic_name="t", **fields(key))]
            ),
        )
        for key, operation, fields in (
            (
                K.ALTER_SHARE_GROUP_OFFSETS,
                Op.READ,
                lambda key: {"partitions": [struct(key, "RequestPartition")]},
            ),
            (K.DELETE_SHARE_GROUP_OFFSETS, Op.DELETE, lambda _: {}),
        )
    ),
    *(
        (
            key,
            [(CLUSTER, Op.CLUSTER_ACTION)],
            lambda key=key, topic=topic: message(
                key, group_id="g", topics=[struct(key, topic, partitions=[struct(key, "PartitionData")])]
            ),
        )
        for key, topic in (
            (K.INITIALIZE_SHARE_GROUP_STATE, "InitializeStateData"),
            (K.READ_SHARE_GROUP_STATE, "ReadStateData"),
            (K.WRITE_SHARE_GROUP_STATE, "WriteStateData"),
            (K.DELETE_SHARE_GROUP_STATE, "DeleteStateData"),
            (K.READ_SHARE_GROUP_STATE_SUMMARY, "ReadStateSummaryData"),
        )
    ),
    (
        K.DESCRIBE_TOPIC_PARTITIONS,
        [(TOPIC, Op.DESCRIBE)],
        lambda: message(
            K.DESCRIBE_TOPIC_PARTITIONS,
            topics=[struct(K.DESCRIBE_TOPIC_PARTITIONS, "TopicRequest", name="t")],
        ),
    ),
    (K.WRITE_TXN_MARKERS, [(CLUSTER, Op.CLUSTER_ACTION)], lambda: message(K.WRITE_TXN_MARKERS, markers=[])),
]
WITHOUT_AN_ERROR = {K.WRITE_TXN_MARKERS}
"""An empty request has no place for an error in its response."""


def error_codes(value: object) -> set[int]:
    """Return every error code of a response, however deep."""
    if isinstance(value, list):
        return set().union(*map(error_codes, value)) if value else set()
    if not isinstance(value, Struct):
        return set()
    codes: set[int] = set()
    for field in type(value).FIELDS:
        found = getattr(value, field.name)
        codes |= {found} if field.name.endswith("error_code") else error_codes(found)
    return codes - {0}


T = TypeVar("T")


def as_alice(broker: KaldaProcess, use: Callable[[PeerConnection], Coroutine[Any, Any, T]]) -> T:
    """Return what came of the use of a connection on which alice is logged in."""

    async def run() -> T:
        host, _, port = broker.bootstrap.rpartition(":")
        options = DialOptions(
            client_id="t", timeout_seconds=10, login=lambda _: PlainClient("alice", "alice-secret")
        )
        connection = await TcpDialer().dial(host, int(port), options)
        try:
            return await use(connection)
        finally:
            connection.close()

    return asyncio.run(run())


_VERSIONS = {
    K.OFFSET_COMMIT: 9,
    K.OFFSET_FETCH: 9,
    K.TXN_OFFSET_COMMIT: 5,
    K.DESCRIBE_EVENTS: 0,
    K.DESCRIBE_PROCESS: 0,
}
"""Those with names of topics, whose ids only those who may describe them know, and those of Kalda's own APIs,
which are offered to its clients alone."""


def asked(broker: KaldaProcess, make: Callable[[], Message]) -> set[int]:
    """Return the error codes that alice gets."""

    async def ask(connection: PeerConnection) -> set[int]:
        request = make()
        version = _VERSIONS.get(request.SCHEMA.api_key or K.METADATA)
        return error_codes(await connection.request(request, timeout_seconds=10, version=version))

    return as_alice(broker, ask)


@pytest.mark.parametrize(("key", "needs", "make"), ROWS, ids=lambda value: getattr(value, "title", ""))
def test_each_api_needs_exactly_its_permissions(
    broker: KaldaProcess, admin: Admin, key: ApiKey, needs: Sequence[Need], make: Callable[[], Message]
) -> None:
    spec(key)
    refusals = {int(code) for code in DENIED.values()}
    if key not in WITHOUT_AN_ERROR:
        assert asked(broker, make) & refusals, "without any permission"
    admin.create_acls([binding(need) for need in needs])
    assert set() == asked(broker, make) & refusals, "with what is needed"
    if key in WITHOUT_AN_ERROR:
        return
    for need in needs:
        denial = binding(need, PermissionType.DENY)
        admin.create_acls([denial])
        expected = DENIED[need[0]]
        if need == (CLUSTER, Op.CREATE):
            expected = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert int(expected) in asked(broker, make), f"with {need} denied"
        pattern, each = denial.pattern, denial.entry
        admin.delete_acls(
            [
                AclFilter(
                    pattern.resource_type,
                    pattern.name,
                    pattern.pattern_type,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission,
                )
            ]
        )


def test_clients_see_and_use_only_what_they_may(broker: KaldaProcess, admin: Admin) -> None:
    alice = properties(broker.bootstrap, user="alice")
    denied = pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED")
    with Producer.from_config(alice) as producer, denied:
        producer.send("t", value=b"x", partition=0).result(60)
    admin.create_acls([binding((TOPIC, Op.WRITE)), binding((TOPIC, Op.READ))])
    with Admin.from_config(alice) as client:
        assert ["t"] == list(client.list_topics())
        assert not client.list_groups().results
        described = client.describe_topics(["t"], include_authorized_operations=True)["t"]
        assert frozenset({Op.READ, Op.WRITE, Op.DESCRIBE}) == described.authorized_operations
        assert (
            frozenset() == client.describe_cluster(include_authorized_operations=True).authorized_operations
        )
    with Producer.from_config(alice) as producer:
        producer.send("t", value=b"allowed", partition=0).result(60)
        with pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
            producer.send("hidden", value=b"x", partition=0).result(60)
    with Consumer.from_config({**alice, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert [b"allowed"] == [record.value for record in consumer.poll(timeout_s=10)]
    with Consumer.from_config({**alice, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(BrokerResponseError, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.poll(timeout_s=10)


def test_an_expression_does_not_show_hidden_topics(broker: KaldaProcess, admin: Admin) -> None:
    """A member that subscribes to everything would otherwise be assigned topics that it must not see."""
    admin.create_acls([binding((TOPIC, Op.READ)), binding((GROUP, Op.READ))])
    topic_id = admin.describe_topics(["t"])["t"].topic_id
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_regex": ".*",
        "topic_partitions": [],
    }

    async def join(connection: PeerConnection) -> set[Any]:
        epoch = 0
        while True:
            # It creates the topic of the groups if no test before did.
            await connection.request(message(K.FIND_COORDINATOR, coordinator_keys=["g"]), timeout_seconds=10)
            heartbeat = message(K.CONSUMER_GROUP_HEARTBEAT, member_epoch=epoch, **fields)
            answer: Any = await connection.request(heartbeat, timeout_seconds=10)
            assert answer.error_code in (0, *COORDINATOR_ERRORS)
            if answer.assignment is not None and answer.assignment.topic_partitions:
                leave = message(K.CONSUMER_GROUP_HEARTBEAT, member_epoch=-1, **fields)
                await connection.request(leave, timeout_seconds=10)
                return {each.topic_id for each in answer.assignment.topic_partitions}
            epoch = answer.member_epoch
            await asyncio.sleep(0.05)

    assert {topic_id} == as_alice(broker, lambda connection: asyncio.wait_for(join(connection), 60))


def test_acls_outlive_a_restart_and_the_tool_manages_them(tmp_path: Path) -> None:
    settings = {**SETTINGS, "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"}
    with KaldaProcess(tmp_path / "data", settings=settings) as process:
        file = tmp_path / "admin.properties"

        def run(*arguments: str) -> str:
            config = properties(process.bootstrap, user="admin")
            file.write_text("\n".join(f"{name}={value}" for name, value in config.items()))
            done = forked_commands.run(
                [sys.executable, "-m", "kalda", "acls", *arguments, "--command-config", str(file)],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            return str(done.stdout)

        prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
        run("add", "--producer", *prefixed, "--allow-principal", ALICE)
        denial = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1")
        run("add", "--cluster", "--operation", "alter", *denial)
        listed = run("list")
        assert ["Topic", "ord", "Prefixed", ALICE, "*", "Write", "Allow"] in [
            line.split() for line in listed.splitlines()
        ]
        process.stop()
        process.start()
        assert listed == run("list")
        assert "Create" in run("list", "--topic", "orders", "--resource-pattern-type", "match")
        run("remove", *prefixed, "--force")
        assert 2 == len(run("list").splitlines())


def test_every_row_is_an_api_that_the_broker_checks() -> None:
    """APIs of brokers have requests that a client cannot make by hand; those that only hide are above."""
    from kalda.broker.requests.handlers import HANDLERS

    tried = {key for key, _, _ in ROWS}
    elsewhere = {
        K.LEADER_AND_ISR,
        K.STOP_REPLICA,
        K.UPDATE_METADATA,
        K.ALTER_PARTITION,
        K.ALLOCATE_PRODUCER_IDS,
        K.CONTROLLED_SHUTDOWN,
        K.LIST_GROUPS,
        K.DELETE_TOPICS,
        K.ADD_PARTITIONS_TO_TXN,
        K.UPDATE_FEATURES,
        K.DESCRIBE_CLUSTER,
        K.LIST_TRANSACTIONS,
        K.ACQUIRE_READ_LEASE,
        K.DESCRIBE_CLIENT_QUOTAS,
        K.ALTER_CLIENT_QUOTAS,
        K.DESCRIBE_DELEGATION_TOKEN,
        K.CREATE_DELEGATION_TOKEN,
        K.LIST_CONFIG_RESOURCES,
    }
    assert tried | elsewhere == {handler.key for handler in HANDLERS if handler.access is not None}
