"""Lists the fields of all messages that name something: `names_of`, and those texts that do not.

A path is that of the fields, with ``[]`` behind an array: ``topics[].name``. A test compares the lists with
the declarations, so that no text, no bytes and no id of a new message can be forgotten.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.protocol.namespaces.kinds import (
    ACL_CREATION,
    ACL_FILTER,
    ACL_RESOURCE,
    ASSIGNMENT,
    CONFIG_RESOURCE,
    COORDINATOR_KEY,
    GROUP,
    GROUP_OR_EMPTY,
    PATTERN,
    PRINCIPAL,
    QUOTA_ENTITY,
    QUOTA_MATCH,
    SUBSCRIPTION,
    TEXT,
    TOPIC,
    TOPIC_ID,
    TRANSACTIONAL_ID,
    USER,
    NameKind,
)

Paths = Mapping[str, NameKind]


class Names(NamedTuple):
    """The fields of an API's request and of its response."""

    request: Paths
    response: Paths


REFUSED: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.ALTER_NAMESPACES,
        ApiKey.DESCRIBE_EVENTS,
        ApiKey.DESCRIBE_PROCESS,
        ApiKey.ROUTE_NATS,
    )
)
"""Requests between brokers and their controller, for namespaces, and for events and processes, whose
details are those of all namespaces; no client of one may send them."""

_NONE: Final[Paths] = {}
_TOPICS: Final[Paths] = {"topics[].name": TOPIC}
_TOPICS_BY_NAME_OR_ID: Final[Paths] = {"topics[].name": TOPIC, "topics[].topic_id": TOPIC_ID}
_MEMBER: Final[Paths] = {"group_id": GROUP}

_NAMES: Final[Mapping[ApiKey, Names]] = {
    ApiKey.PRODUCE: Names(
        {
            "transactional_id": TRANSACTIONAL_ID,
            "topic_data[].name": TOPIC,
            "topic_data[].topic_id": TOPIC_ID,
        },
        {
            "responses[].name": TOPIC,
            "responses[].topic_id": TOPIC_ID,
            "responses[].partition_responses[].record_errors[].batch_index_error_message": TEXT,
            "responses[].partition_responses[].error_message": TEXT,
        },
    ),
    ApiKey.FETCH: Names(
        {
            "topics[].topic": TOPIC,
            "topics[].topic_id": TOPIC_ID,
            "forgotten_topics_data[].topic": TOPIC,
            "forgotten_topics_data[].topic_id": TOPIC_ID,
        },
        {"responses[].topic": TOPIC, "responses[].topic_id": TOPIC_ID},
    ),
    ApiKey.LIST_OFFSETS: Names(_TOPICS, _TOPICS),
    ApiKey.METADATA: Names(_TOPICS_BY_NAME_OR_ID, _TOPICS_BY_NAME_OR_ID),
    ApiKey.OFFSET_COMMIT: Names(
        {"group_id": GROUP_OR_EMPTY, **_TOPICS_BY_NAME_OR_ID},
        _TOPICS_BY_NAME_OR_ID,
    ),
    ApiKey.OFFSET_FETCH: Names(
        {
            "group_id": GROUP_OR_EMPTY,
            "topics[].name": TOPIC,
            "groups[].group_id": GROUP_OR_EMPTY,
            "groups[].topics[].name": TOPIC,
            "groups[].topics[].topic_id": TOPIC_ID,
        },
        {
            "topics[].name": TOPIC,
            "groups[].group_id": GROUP_OR_EMPTY,
            "groups[].topics[].name": TOPIC,
            "groups[].topics[].topic_id": TOPIC_ID,
        },
    ),
    ApiKey.FIND_COORDINATOR: Names(
        {"key": COORDINATOR_KEY, "coordinator_keys[]": COORDINATOR_KEY},
        {
            "error_message": TEXT,
            "coordinators[].key": COORDINATOR_KEY,
            "coordinators[].error_message": TEXT,
        },
    ),
    ApiKey.JOIN_GROUP: Names(
        {"group_id": GROUP, "protocols[].metadata": SUBSCRIPTION},
        {"members[].metadata": SUBSCRIPTION},
    ),
    ApiKey.HEARTBEAT: Names(_MEMBER, _NONE),
    ApiKey.LEAVE_GROUP: Names(_MEMBER, _NONE),
    ApiKey.SYNC_GROUP: Names(
        {"group_id": GROUP, "assignments[].assignment": ASSIGNMENT}, {"assignment": ASSIGNMENT}
    ),
    ApiKey.DESCRIBE_GROUPS: Names(
        {"groups[]": GROUP_OR_EMPTY},
        {
            "groups[].error_message": TEXT,
            "groups[].group_id": GROUP_OR_EMPTY,
            "groups[].members[].member_metadata": SUBSCRIPTION,
            "groups[].members[].member_assignment": ASSIGNMENT,
        },
    ),
    ApiKey.LIST_GROUPS: Names(_NONE, {"groups[].group_id": GROUP_OR_EMPTY}),
    ApiKey.SASL_HANDSHAKE: Names(_NONE, _NONE),
    ApiKey.API_VERSIONS: Names(_NONE, _NONE),
    ApiKey.CREATE_TOPICS: Names(_TOPICS, {**_TOPICS_BY_NAME_OR_ID, "topics[].error_message": TEXT}),
    ApiKey.DELETE_TOPICS: Names(
        {"topics[].name": TOPIC, "topics[].topic_id": TOPIC_ID, "topic_names[]": TOPIC},
        {
            "responses[].name": TOPIC,
            "responses[].topic_id": TOPIC_ID,
            "responses[].error_message": TEXT,
        },
    ),
    ApiKey.DELETE_RECORDS: Names(_TOPICS, _TOPICS),
    ApiKey.INIT_PRODUCER_ID: Names({"transactional_id": TRANSACTIONAL_ID}, _NONE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Names({"topics[].topic": TOPIC}, {"topics[].topic": TOPIC}),
    ApiKey.ADD_PARTITIONS_TO_TXN: Names(
        {
            "transactions[].transactional_id": TRANSACTIONAL_ID,
            "transactions[].topics[].name": TOPIC,
            "v3_and_below_transactional_id": TRANSACTIONAL_ID,
            "v3_and_below_topics[].name": TOPIC,
        },
        {
            "results_by_transaction[].transactional_id": TRANSACTIONAL_ID,
            "results_by_transaction[].topic_results[].name": TOPIC,
            "results_by_topic_v3_and_below[].name": TOPIC,
        },
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Names({"transactional_id": TRANSACTIONAL_ID, "group_id": GROUP}, _NONE),
    ApiKey.END_TXN: Names({"transactional_id": TRANSACTIONAL_ID}, _NONE),
    ApiKey.WRITE_TXN_MARKERS: Names({"markers[].topics[].name": TOPIC}, {"markers[].topics[].name": TOPIC}),
    ApiKey.TXN_OFFSET_COMMIT: Names(
        {"transactional_id": TRANSACTIONAL_ID, "group_id": GROUP, **_TOPICS_BY_NAME_OR_ID},
        _TOPICS_BY_NAME_OR_ID,
    ),
    ApiKey.DESCRIBE_ACLS: Names(
        {"resource_name_filter": ACL_FILTER, "principal_filter": PRINCIPAL},
        {
            "error_message": TEXT,
            "resources[].resource_name": ACL_RESOURCE,
            "resources[].acls[].principal": PRINCIPAL,
        },
    ),
    ApiKey.CREATE_ACLS: Names(
        {"creations[].resource_name": ACL_CREATION, "creations[].principal": PRINCIPAL},
        {"results[].error_message": TEXT},
    ),
    ApiKey.DELETE_ACLS: Names(
        {"filters[].resource_name_filter": ACL_FILTER, "filters[].principal_filter": PRINCIPAL},
        {
            "filter_results[].error_message": TEXT,
            "filter_results[].matching_acls[].error_message": TEXT,
            "filter_results[].matching_acls[].resource_name": ACL_RESOURCE,
            "filter_results[].matching_acls[].principal": PRINCIPAL,
        },
    ),
    ApiKey.DESCRIBE_CONFIGS: Names(
        {"resources[].resource_name": CONFIG_RESOURCE},
        {"results[].error_message": TEXT, "results[].resource_name": CONFIG_RESOURCE},
    ),
    ApiKey.ALTER_CONFIGS: Names(
        {"resources[].resource_name": CONFIG_RESOURCE},
        {"responses[].error_message": TEXT, "responses[].resource_name": CONFIG_RESOURCE},
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Names({"dirs[].topics[].name": TOPIC}, {"results[].topic_name": TOPIC}),
    ApiKey.DESCRIBE_LOG_DIRS: Names({"topics[].topic": TOPIC}, {"results[].topics[].name": TOPIC}),
    ApiKey.SASL_AUTHENTICATE: Names(_NONE, {"error_message": TEXT}),
    ApiKey.CREATE_PARTITIONS: Names(_TOPICS, {"results[].name": TOPIC, "results[].error_message": TEXT}),
    ApiKey.CREATE_DELEGATION_TOKEN: Names(
        {"owner_principal_name": USER, "renewers[].principal_name": USER},
        {"principal_name": USER, "token_requester_principal_name": USER},
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Names(_NONE, _NONE),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Names(_NONE, _NONE),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Names(
        {"owners[].principal_name": USER},
        {
            "tokens[].principal_name": USER,
            "tokens[].token_requester_principal_name": USER,
            "tokens[].renewers[].principal_name": USER,
        },
    ),
    ApiKey.DELETE_GROUPS: Names(
        {"groups_names[]": GROUP_OR_EMPTY},
        {"results[].group_id": GROUP_OR_EMPTY, "results[].error_message": TEXT},
    ),
    ApiKey.ELECT_LEADERS: Names(
        {"topic_partitions[].topic": TOPIC},
        {
            "replica_election_results[].topic": TOPIC,
            "replica_election_results[].partition_result[].error_message": TEXT,
        },
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Names(
        {"resources[].resource_name": CONFIG_RESOURCE},
        {"responses[].error_message": TEXT, "responses[].resource_name": CONFIG_RESOURCE},
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Names(
        _TOPICS,
        {
            "error_message": TEXT,
            "responses[].name": TOPIC,
            "responses[].partitions[].error_message": TEXT,
        },
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Names(_TOPICS, {"error_message": TEXT, **_TOPICS}),
    ApiKey.OFFSET_DELETE: Names({"group_id": GROUP_OR_EMPTY, **_TOPICS}, _TOPICS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Names(
        {"components[].match": QUOTA_MATCH},
        {"error_message": TEXT, "entries[].entity[].entity_name": QUOTA_ENTITY},
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Names(
        {"entries[].entity[].entity_name": QUOTA_ENTITY},
        {"entries[].error_message": TEXT, "entries[].entity[].entity_name": QUOTA_ENTITY},
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Names(
        {"users[].name": USER},
        {"error_message": TEXT, "results[].user": USER, "results[].error_message": TEXT},
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Names(
        {"deletions[].name": USER, "upsertions[].name": USER},
        {"results[].user": USER, "results[].error_message": TEXT},
    ),
    ApiKey.UPDATE_FEATURES: Names(_NONE, {"error_message": TEXT, "results[].error_message": TEXT}),
    ApiKey.DESCRIBE_CLUSTER: Names(_NONE, {"error_message": TEXT}),
    ApiKey.DESCRIBE_PRODUCERS: Names(_TOPICS, {**_TOPICS, "topics[].partitions[].error_message": TEXT}),
    ApiKey.DESCRIBE_TRANSACTIONS: Names(
        {"transactional_ids[]": TRANSACTIONAL_ID},
        {
            "transaction_states[].transactional_id": TRANSACTIONAL_ID,
            "transaction_states[].topics[].topic": TOPIC,
        },
    ),
    ApiKey.LIST_TRANSACTIONS: Names(
        {"transactional_id_pattern": PATTERN},
        {"transaction_states[].transactional_id": TRANSACTIONAL_ID},
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Names(
        {
            "group_id": GROUP,
            "subscribed_topic_names[]": TOPIC,
            "subscribed_topic_regex": PATTERN,
            "topic_partitions[].topic_id": TOPIC_ID,
        },
        {"error_message": TEXT, "assignment.topic_partitions[].topic_id": TOPIC_ID},
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Names(
        {"group_id": GROUP, "subscribed_topic_names[]": TOPIC},
        {"error_message": TEXT, "assignment.topic_partitions[].topic_id": TOPIC_ID},
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: Names(
        {"group_ids[]": GROUP},
        {
            "groups[].error_message": TEXT,
            "groups[].group_id": GROUP,
            "groups[].members[].subscribed_topic_names[]": TOPIC,
            "groups[].members[].assignment.topic_partitions[].topic_id": TOPIC_ID,
            "groups[].members[].assignment.topic_partitions[].topic_name": TOPIC,
        },
    ),
    ApiKey.SHARE_FETCH: Names(
        {
            "group_id": GROUP,
            "topics[].topic_id": TOPIC_ID,
            "forgotten_topics_data[].topic_id": TOPIC_ID,
        },
        {
            "error_message": TEXT,
            "responses[].topic_id": TOPIC_ID,
            "responses[].partitions[].error_message": TEXT,
            "responses[].partitions[].acknowledge_error_message": TEXT,
        },
    ),
    ApiKey.SHARE_ACKNOWLEDGE: Names(
        {"group_id": GROUP, "topics[].topic_id": TOPIC_ID},
        {
            "error_message": TEXT,
            "responses[].topic_id": TOPIC_ID,
            "responses[].partitions[].error_message": TEXT,
        },
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Names(
        {"groups[].group_id": GROUP, "groups[].topics[].topic_name": TOPIC},
        {
            "groups[].group_id": GROUP,
            "groups[].error_message": TEXT,
            "groups[].topics[].topic_name": TOPIC,
            "groups[].topics[].topic_id": TOPIC_ID,
            "groups[].topics[].partitions[].error_message": TEXT,
        },
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Names(
        {"group_id": GROUP, "topics[].topic_name": TOPIC},
        {
            "error_message": TEXT,
            "responses[].topic_name": TOPIC,
            "responses[].topic_id": TOPIC_ID,
            "responses[].partitions[].error_message": TEXT,
        },
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Names(
        {"group_id": GROUP, "topics[].topic_name": TOPIC},
        {
            "error_message": TEXT,
            "responses[].topic_name": TOPIC,
            "responses[].topic_id": TOPIC_ID,
            "responses[].error_message": TEXT,
        },
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Names(
        {"group_ids[]": GROUP},
        {
            "groups[].error_message": TEXT,
            "groups[].group_id": GROUP,
            "groups[].members[].subscribed_topic_names[]": TOPIC,
            "groups[].members[].subscribed_topic_regex": PATTERN,
            "groups[].members[].assignment.topic_partitions[].topic_id": TOPIC_ID,
            "groups[].members[].assignment.topic_partitions[].topic_name": TOPIC,
            "groups[].members[].target_assignment.topic_partitions[].topic_id": TOPIC_ID,
            "groups[].members[].target_assignment.topic_partitions[].topic_name": TOPIC,
        },
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Names(_NONE, _NONE),
    ApiKey.PUSH_TELEMETRY: Names(_NONE, _NONE),
    ApiKey.LIST_CONFIG_RESOURCES: Names(_NONE, {"config_resources[].resource_name": CONFIG_RESOURCE}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Names(
        {"topics[].name": TOPIC, "cursor.topic_name": TOPIC},
        {**_TOPICS_BY_NAME_OR_ID, "next_cursor.topic_name": TOPIC},
    ),
    ApiKey.ACQUIRE_READ_LEASE: Names(
        {"topics[].topic": TOPIC, "topics[].topic_id": TOPIC_ID},
        {
            "topics[].topic": TOPIC,
            "topics[].topic_id": TOPIC_ID,
            "topics[].partitions[].error_message": TEXT,
        },
    ),
    ApiKey.RELEASE_READ_LEASE: Names(_NONE, _NONE),
    ApiKey.ALTER_FAULTS: Names(_NONE, {"error_message": TEXT}),
}

NO_NAMES: Final = frozenset(
    (
        # Of clients and members; a client's id gets the prefix only where quotas are looked up.
        "client_host",
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "group_instance_id",
        "instance_id",
        "leader",
        "member_id",
        # Of brokers and the cluster.
        "cluster_id",
        "host",
        "host_filter",
        "rack",
        "rack_id",
        # States, types, protocols and assignors.
        "assignor_name",
        "entity_type",
        "group_state",
        "group_type",
        "mechanism",
        "mechanisms[]",
        "owner_principal_type",
        "principal_type",
        "protocol_data",
        "protocol_name",
        "protocol_type",
        "server_assignor",
        "state_filters[]",
        "states_filter[]",
        "token_requester_principal_type",
        "transaction_state",
        "types_filter[]",
        "unknown_state_filters[]",
        # Settings and features.
        "configuration_keys[]",
        "configs[].name",
        "configs[].synonyms[].name",
        "documentation",
        "feature",
        "finalized_features[].name",
        "ops[].key",
        "requested_metrics[]",
        "supported_features[].name",
        "value",
        "values[].key",
        # What clients wrote, and secrets.
        "auth_bytes",
        "committed_metadata",
        "fallback_reason",
        "hmac",
        "metrics",
        "partitions[].metadata",
        "plan",
        "protocols[].name",
        "reason",
        "reject_reason",
        "salt",
        "salted_password",
        "token_id",
        # Places on disks, where the stored names are.
        "directory",
        "dirs[].path",
        "file",
        "host_id",
        "log_dir",
        "nonce",
        "nonce_file",
        "replica_directory_id",
    )
)
"""Texts, bytes and ids that name nothing in a namespace, by the ends of their paths."""


def names_of(api_key: ApiKey) -> Names | None:
    """Return the fields of an API that name something; None if clients of a namespace may not use it."""
    return _NAMES.get(api_key)


def is_no_name(path: str) -> bool:
    """Return whether a path ends as one of `NO_NAMES`."""
    return any(path == end or path.endswith(f".{end}") for end in NO_NAMES)
