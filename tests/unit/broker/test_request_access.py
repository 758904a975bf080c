"""What each API declares: a check unless everybody may use it, quotas, the audit log, when it is served."""

from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import ApiKey

IN_THE_HANDLER = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
}
"""The raw handlers check topics, and those of tokens ask whether a client is owner or renewer."""

OF_EVERY_CLIENT = {
    ApiKey.API_VERSIONS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RELEASE_READ_LEASE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
}


OF_BROKERS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ALTER_PARTITION,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
}
"""Brokers send one at a time; these do not wait for requests of clients."""

SERVED_EARLY = {
    ApiKey.API_VERSIONS,
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
}
"""A broker that has just started serves these before it has the cluster's metadata."""

AUDITED = {
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_ACLS,
    ApiKey.DELETE_GROUPS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ELECT_LEADERS,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.UPDATE_FEATURES,
}
"""By these, administrators change a cluster."""


def test_every_other_api_is_checked() -> None:
    assert IN_THE_HANDLER | OF_EVERY_CLIENT == {handler.key for handler in HANDLERS if handler.access is None}


def test_quotas_bound_all_but_brokers_and_logins() -> None:
    free = OF_BROKERS | {ApiKey.WRITE_TXN_MARKERS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert free == {handler.key for handler in HANDLERS if not handler.is_throttled}


def test_requests_of_brokers_early_ones_and_changes_are_these() -> None:
    """A handler that lost its mark would wait behind clients, or leave no trace in the audit log."""
    assert OF_BROKERS == {handler.key for handler in HANDLERS if handler.is_of_brokers}
    assert SERVED_EARLY == {handler.key for handler in HANDLERS if handler.is_served_early}
    assert AUDITED == {handler.key for handler in HANDLERS if handler.audit is not None}
