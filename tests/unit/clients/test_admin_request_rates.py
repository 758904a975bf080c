"""How often each call of `AsyncAdmin` asks a broker that answers with one error for ever, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.clusters import FeatureUpdate
from kalda.clients.admin.configs import AlterConfigOp, AlterConfigOpType, ConfigResource, ConfigResourceType
from kalda.clients.admin.groups import MemberToRemove
from kalda.clients.admin.log_dirs import TopicPartitionReplica
from kalda.clients.admin.partitions import ElectionType, OffsetSpec
from kalda.clients.admin.quotas import QuotaAlteration
from kalda.clients.admin.topics import NewTopic
from kalda.clients.admin.transactions import AbortTransactionSpec
from kalda.clients.admin.users import ScramCredentialDeletion, ScramMechanism
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.unit.clients.erring_broker import TOPIC, USER_PAUSE_S, Broker, Connection, places, turns, virtual
from tests.virtual_time import run_virtual

__all__ = ["virtual"]

pytestmark = pytest.mark.usefixtures("virtual")

Call = Callable[[AsyncAdmin], Awaitable[Any]]
PARTITION = TopicPartition(TOPIC, 0)
REPLICA = TopicPartitionReplica(TOPIC, 0, 0)
RESOURCE = ConfigResource(ConfigResourceType.TOPIC, TOPIC)

CALLS: list[tuple[ApiKey, Call]] = [
    (ApiKey.METADATA, lambda admin: admin.list_topics()),
    (ApiKey.METADATA, lambda admin: admin.describe_topics([UUID(int=77)])),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda admin: admin.describe_topics([TOPIC])),
    (ApiKey.CREATE_TOPICS, lambda admin: admin.create_topics([NewTopic(TOPIC, 1, 1)])),
    (ApiKey.DELETE_TOPICS, lambda admin: admin.delete_topics([TOPIC])),
    (ApiKey.CREATE_PARTITIONS, lambda admin: admin.create_partitions({TOPIC: 3})),
    (ApiKey.DESCRIBE_CLUSTER, lambda admin: admin.describe_cluster()),
    (ApiKey.API_VERSIONS, lambda admin: admin.describe_api_versions([0])),
    (ApiKey.API_VERSIONS, lambda admin: admin.describe_features()),
    (ApiKey.UPDATE_FEATURES, lambda admin: admin.update_features({TOPIC: FeatureUpdate(1)})),
    (ApiKey.DESCRIBE_LOG_DIRS, lambda admin: admin.describe_log_dirs([0])),
    (ApiKey.DESCRIBE_LOG_DIRS, lambda admin: admin.describe_replica_log_dirs([REPLICA])),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, lambda admin: admin.alter_replica_log_dirs({REPLICA: "/d"})),
    (ApiKey.DESCRIBE_CONFIGS, lambda admin: admin.describe_configs([RESOURCE])),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda admin: admin.incremental_alter_configs(
            {RESOURCE: [AlterConfigOp("retention.ms", AlterConfigOpType.SET, "1")]}
        ),
    ),
    (ApiKey.LIST_CONFIG_RESOURCES, lambda admin: admin.list_config_resources()),
    (ApiKey.CREATE_DELEGATION_TOKEN, lambda admin: admin.create_delegation_token()),
    (ApiKey.RENEW_DELEGATION_TOKEN, lambda admin: admin.renew_delegation_token(b"h")),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, lambda admin: admin.expire_delegation_token(b"h")),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, lambda admin: admin.describe_delegation_tokens()),
    (ApiKey.LIST_GROUPS, lambda admin: admin.list_groups()),
    (ApiKey.FIND_COORDINATOR, lambda admin: admin.describe_consumer_groups([TOPIC])),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, lambda admin: admin.describe_consumer_groups([TOPIC])),
    (ApiKey.DESCRIBE_GROUPS, lambda admin: admin.describe_classic_groups([TOPIC])),
    (ApiKey.DELETE_GROUPS, lambda admin: admin.delete_consumer_groups([TOPIC])),
    (
        ApiKey.LEAVE_GROUP,
        lambda admin: admin.remove_members_from_consumer_group({TOPIC: [MemberToRemove(TOPIC)]}),
    ),
    (ApiKey.OFFSET_FETCH, lambda admin: admin.list_consumer_group_offsets([TOPIC])),
    (ApiKey.OFFSET_COMMIT, lambda admin: admin.alter_consumer_group_offsets({TOPIC: {PARTITION: 1}})),
    (ApiKey.OFFSET_DELETE, lambda admin: admin.delete_consumer_group_offsets({TOPIC: [PARTITION]})),
    (ApiKey.LIST_OFFSETS, lambda admin: admin.list_offsets({PARTITION: OffsetSpec.latest()})),
    (ApiKey.METADATA, lambda admin: admin.list_offsets({PARTITION: OffsetSpec.latest()})),
    (ApiKey.DELETE_RECORDS, lambda admin: admin.delete_records({PARTITION: 1})),
    (ApiKey.ELECT_LEADERS, lambda admin: admin.elect_leaders(ElectionType.PREFERRED, [PARTITION])),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda admin: admin.alter_partition_reassignments({PARTITION: [0]}),
    ),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda admin: admin.list_partition_reassignments()),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda admin: admin.describe_client_quotas()),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        lambda admin: admin.alter_client_quotas([QuotaAlteration((("user", TOPIC),), {"q": 1.0})]),
    ),
    (ApiKey.DESCRIBE_ACLS, lambda admin: admin.describe_acls()),
    (ApiKey.LIST_TRANSACTIONS, lambda admin: admin.list_transactions()),
    (ApiKey.DESCRIBE_TRANSACTIONS, lambda admin: admin.describe_transactions([TOPIC])),
    (ApiKey.DESCRIBE_PRODUCERS, lambda admin: admin.describe_producers([PARTITION])),
    (
        ApiKey.WRITE_TXN_MARKERS,
        lambda admin: admin.abort_transaction([AbortTransactionSpec(PARTITION, 0, 0, 0)]),
    ),
    (ApiKey.INIT_PRODUCER_ID, lambda admin: admin.fence_producers([TOPIC])),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda admin: admin.describe_user_scram_credentials()),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda admin: admin.alter_user_scram_credentials(
            [ScramCredentialDeletion(TOPIC, ScramMechanism.SCRAM_SHA_256)]
        ),
    ),
]


@pytest.mark.parametrize(("api", "call"), CALLS, ids=lambda value: getattr(value, "name", ""))
def test_no_error_makes_an_admin_call_ask_without_pauses(api: ApiKey, call: Call) -> None:
    """A script in cron that meets a broker with a problem must not make the problem larger."""
    storms = {}
    unasked = []

    async def scenario() -> None:
        admin = AsyncAdmin(
            bootstrap_servers="b:9092", enable_metrics_push=False, default_api_timeout_ms=2_000
        )

        async def turn() -> None:
            await call(admin)
            await asyncio.sleep(USER_PAUSE_S)

        await turns(turn)
        await admin.close(0.0)

    for code in (*ErrorCode, None):
        for at_top in places(api, code):
            broker = Connection.broker = Broker(api, code, at_top=at_top)
            run_virtual(scenario())
            if most := broker.most():
                storms[code, at_top] = most
            if not broker.counts[api]:
                unasked.append(code)
    assert ({}, []) == (storms, unasked)
