"""Holds the check of each API: which permission its requests need, as in Kafka's ``KafkaApis``."""

from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from kalda.broker.access.authorizer import Authorizer
from kalda.broker.requests.access import configs, delegation_tokens, groups, topics, transactions
from kalda.broker.requests.access.check import Call, Check, cluster, in_turn
from kalda.broker.requests.api import RequestContext
from kalda.common.api_keys import ApiKey
from kalda.common.turns import Steps, result_of
from kalda.security.acl.model import AclOperation

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices

_BROKERS: Final = cluster(AclOperation.CLUSTER_ACTION)
_DESCRIBE: Final = cluster(AclOperation.DESCRIBE)
_ALTER: Final = cluster(AclOperation.ALTER)
_MEMBERS: Final = groups.of_request(AclOperation.READ)

CHECKS: Final[dict[ApiKey, Check]] = {
    ApiKey.LIST_OFFSETS: topics.by_name(AclOperation.DESCRIBE),
    ApiKey.METADATA: topics.metadata,
    ApiKey.LEADER_AND_ISR: _BROKERS,
    ApiKey.STOP_REPLICA: _BROKERS,
    ApiKey.UPDATE_METADATA: _BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _BROKERS,
    ApiKey.ALTER_PARTITION: _BROKERS,
    ApiKey.ALLOCATE_PRODUCER_IDS: _BROKERS,
    ApiKey.OFFSET_COMMIT: in_turn(_MEMBERS, topics.named_from(10), topics.by_name(AclOperation.READ)),
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.JOIN_GROUP: _MEMBERS,
    ApiKey.HEARTBEAT: _MEMBERS,
    ApiKey.LEAVE_GROUP: _MEMBERS,
    ApiKey.SYNC_GROUP: _MEMBERS,
    ApiKey.DESCRIBE_GROUPS: groups.described("groups"),
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DELETE_RECORDS: topics.by_name(AclOperation.DELETE),
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: in_turn(transactions.of_request(), _MEMBERS),
    ApiKey.END_TXN: transactions.of_request(),
    ApiKey.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: in_turn(
        transactions.of_request(), _MEMBERS, topics.named_from(6), topics.by_name(AclOperation.READ)
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.DESCRIBE_CONFIGS: configs.of_resources(AclOperation.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: configs.of_resources(AclOperation.ALTER_CONFIGS, "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.of_resources(AclOperation.ALTER_CONFIGS, "responses"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE,
    ApiKey.CREATE_PARTITIONS: topics.by_name(AclOperation.ALTER, results="results"),
    ApiKey.DELETE_GROUPS: groups.named(AclOperation.DELETE, "groups_names", "results"),
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.OFFSET_DELETE: in_turn(groups.of_request(AclOperation.DELETE), topics.by_name(AclOperation.READ)),
    ApiKey.CREATE_DELEGATION_TOKEN: delegation_tokens.create,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: delegation_tokens.describe,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.DESCRIBE_CLUSTER: topics.describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: topics.by_name(AclOperation.READ),
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    ApiKey.ACQUIRE_READ_LEASE: topics.read_leases,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster(AclOperation.ALTER_CONFIGS),
    ApiKey.LIST_CONFIG_RESOURCES: cluster(AclOperation.DESCRIBE_CONFIGS),
}
"""The check of each API whose requests the dispatcher decodes."""

UNCHECKED: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        # The handlers ask whether a client is owner or renewer of the token.
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.RELEASE_READ_LEASE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.SASL_HANDSHAKE,
    }
)
"""APIs that every client may use."""


class RequestAccess:
    """Checks the requests of one broker."""

    def __init__(self, services: "BrokerServices", authorizer: Authorizer) -> None:
        self._services: Final = services
        self._authorizer: Final = authorizer

    def before(self, context: RequestContext) -> Any:
        """Check the decoded request of a context; return a response if it is refused, else None.

        The request may be replaced by one without what is denied, and what `after` must do is kept. Where
        the check has many names, the result is steps that return the response or None.
        """
        check = CHECKS.get(context.api.handler.key)
        if check is None:
            return None
        call = Call(self._services, self._authorizer, context, context.message, [])
        refused = check(call)
        if isinstance(refused, GeneratorType):
            return _rest(call, refused)
        return _checked(call, refused)

    def after(self, context: RequestContext, response: object) -> None:
        """Complete the response of the handler."""
        if getattr(context, "amends", None):
            result_of(self.after_in_steps(context, response))

    def after_in_steps(self, context: RequestContext, response: object) -> Steps[None]:
        """Do what `after` does in steps."""
        amends = getattr(context, "amends", None)
        if amends:
            context.amends = None
            for amend in amends:
                steps = amend(response)
                if steps is not None:
                    yield from steps


def _rest(call: Call, check: Steps[Any]) -> Steps[Any]:
    return _checked(call, (yield from check))


def _checked(call: Call, refused: Any) -> Any:
    call.context.message = call.request
    call.context.amends = call.amends if refused is None else None
    return refused
