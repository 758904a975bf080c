"""Registers the messages with their versions, and every exception to the rules of the wire format.

A message module is imported when its API is first used, so a broker's start does not pay for it. Every
special case of the protocol (a header, an answer in another version, no answer at all) is an entry of a
table at the top of this module, never a condition in the code that meets it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import VERSION_MAX, Message, VersionRange

_MODULES: Final[dict[ApiKey, str]] = {
    key: f"kalda.protocol.messages.{key.name.lower()}"
    for key in (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_PARTITION,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.ACQUIRE_READ_LEASE,
        ApiKey.RELEASE_READ_LEASE,
    )
}
"""A new API is one line here and one module named after its key."""

_REQUEST_HEADER_EXCEPTIONS: Final[dict[tuple[int, int], int]] = {
    # The only header without a client id; brokers of Kafka 0.8 sent it.
    (ApiKey.CONTROLLED_SHUTDOWN, 0): 0,
}

_RESPONSE_HEADER_EXCEPTIONS: Final[dict[int, int]] = {
    # A client that probes an older broker must be able to read the answer whatever the version (KIP-511).
    ApiKey.API_VERSIONS: 0,
}

UNKNOWN_VERSION_ANSWERS: Final[dict[ApiKey, int]] = {
    # Asked in a version that it does not know, a broker answers in this one, with UNSUPPORTED_VERSION
    # (KIP-511). For every other API the connection is closed.
    ApiKey.API_VERSIONS: 0,
}

_SILENT_REQUESTS: Final[dict[ApiKey | None, Callable[[Message], bool]]] = {
    # With acks=0 not even an error is sent; the broker closes the connection instead.
    ApiKey.PRODUCE: lambda request: getattr(request, "acks", None) == 0,
}

_FLEXIBLE_FROM: Final[dict[int, int]] = {}
"""The cached results of `flexible_from`: one look-up per request instead of a call of `spec`."""


class ApiSpec(NamedTuple):
    """One API as declared; a broker may serve fewer versions than exist here."""

    api_key: ApiKey
    request_class: type[Message]
    response_class: type[Message]
    versions: VersionRange
    flexible_from: int
    """The first flexible version (KIP-482); above `versions.highest` when there is none."""


def declared_keys() -> tuple[ApiKey, ...]:
    """Every API that has a declaration, in order of key."""
    return tuple(sorted(_MODULES))


@cache
def spec(api_key: ApiKey | int) -> ApiSpec:
    """Look an API up, importing its module the first time.

    Raises:
        KeyError: no such API is declared.
    """
    key = ApiKey(api_key) if api_key in _MODULES else None
    if key is None:
        raise KeyError(f"API key {api_key} is not declared")
    module = import_module(_MODULES[key])
    request_class: type[Message] = getattr(module, f"{key.title}Request")
    response_class: type[Message] = getattr(module, f"{key.title}Response")
    schema = request_class.SCHEMA
    return ApiSpec(key, request_class, response_class, schema.versions, _flexible_from(request_class))


def flexible_from(api_key: ApiKey | int) -> int:
    """The first flexible version of an API; above every version for one that is not declared."""
    first = _FLEXIBLE_FROM.get(api_key)
    if first is None:
        first = spec(api_key).flexible_from if api_key in _MODULES else VERSION_MAX + 1
        if api_key in _MODULES:
            _FLEXIBLE_FROM[ApiKey(api_key)] = first
    return first


def request_header_version(api_key: ApiKey | int, version: int) -> int:
    """The version of the header that a request of this version has: 2 when flexible, else 1.

    Version 0, without a client id, belongs to ControlledShutdown v0 alone.
    """
    exception = _REQUEST_HEADER_EXCEPTIONS.get((api_key, version))
    if exception is not None:
        return exception
    return 2 if version >= spec(api_key).flexible_from else 1


def response_header_version(api_key: ApiKey | int, version: int) -> int:
    """The version of the header that the response to a request of this version has."""
    exception = _RESPONSE_HEADER_EXCEPTIONS.get(api_key)
    if exception is not None:
        return exception
    return 1 if version >= spec(api_key).flexible_from else 0


def expects_response(request: Message) -> bool:
    """Whether a broker answers this request at all."""
    is_silent = _SILENT_REQUESTS.get(request.SCHEMA.api_key)
    return is_silent is None or not is_silent(request)


def _flexible_from(message_class: type[Message]) -> int:
    schema = message_class.SCHEMA
    flexible = schema.flexible
    return flexible.lowest if flexible.lowest <= flexible.highest else schema.versions.highest + 1
