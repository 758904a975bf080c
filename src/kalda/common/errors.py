"""Lists Kafka's error codes, the only source of the codes in responses; the counterpart of Kafka's `Errors`.

Numbers and retriability are the protocol's; the messages are Kalda's. Exceptions of single layers (storage,
codecs) are not here; they are defined in those layers.
"""

from enum import IntEnum
from typing import Final

from kalda.common.public import public


@public
class ErrorCode(IntEnum):
    """An error code of a response. 0 is success, -1 an unexpected error."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def of(cls, number: int) -> "ErrorCode":
        """Return the code with this number; UNKNOWN_SERVER_ERROR for a number that Kalda does not know."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed when a client sends it again."""
        return self in _RETRIABLE

    @property
    def message(self) -> str:
        """The error in one sentence."""
        return _MESSAGES[self]


_MESSAGE_MAX: Final = 8_000
"""Characters of a message. It may quote what a request named, and a response can carry 32,767 bytes: with
more it could not be encoded, and its connection would be closed."""


class ApiError(Exception):
    """A request cannot be served; the response carries `code` and, where it has room, `message`.

    Raised by the broker's operations and turned into a response by the handler, never shown to a peer as
    a traceback.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code: Final = code
        self.message: Final = (message if message is not None else code.message)[:_MESSAGE_MAX]
        super().__init__(f"{code.name}: {self.message}")


_MESSAGES: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server met an unexpected error.",
    ErrorCode.NONE: "No error.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside the range that the partition's log holds.",
    ErrorCode.CORRUPT_MESSAGE: "The message failed its CRC check or is otherwise corrupt.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This broker does not host this topic-partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is invalid.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker is not the leader (or not a replica) of the partition.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available on this broker.",
    ErrorCode.MESSAGE_TOO_LARGE: "The message is larger than the broker accepts.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The controller moved to another broker.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata field of the offset commit is too large.",
    ErrorCode.NETWORK_EXCEPTION: "The connection ended before a response was received.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and cannot serve requests yet.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This broker is not the right coordinator.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic name is invalid, or the topic may not be used this way.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record batch is larger than a segment may be.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Too few replicas are in sync (min.insync.replicas); nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "The records were written to too few in-sync replicas.",
    ErrorCode.INVALID_REQUIRED_ACKS: "The produce request's acks is not one of -1, 0, 1.",
    ErrorCode.ILLEGAL_GENERATION: "The group generation is not the current one.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member's protocol type or protocols do not fit the group.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside what the broker allows.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member must rejoin.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The committed offset data is too large.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorised to access the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorised to access the group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorised for this operation on the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "The record's timestamp is out of the accepted range.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request is not valid in the current SASL state.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of the API is not supported.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name exists already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is below 1 or otherwise invalid.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1 or above the number of brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is invalid.",
    ErrorCode.INVALID_CONFIG: "The configuration is invalid.",
    ErrorCode.NOT_CONTROLLER: "This broker is not the controller.",
    ErrorCode.INVALID_REQUEST: "The request is malformed, or the API cannot be used like this.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The topic's message format does not support the request.",
    ErrorCode.POLICY_VIOLATION: "The request violates a policy of the cluster.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The batch's first sequence number does not follow the last one.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The batch's sequence number was seen before.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer's epoch is older than the current one.",
    ErrorCode.INVALID_TXN_STATE: "The operation is not allowed in the transaction's state.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id is not the one of the transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is above what the broker allows.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "Another operation on the same transaction is under way.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "The transaction coordinator was replaced by a newer one.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorised for the transactional id.",
    ErrorCode.SECURITY_DISABLED: "Security features are disabled.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not attempted because an earlier operation of the batch failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker could not read or write the log on disk.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The log directory is not one of the broker's.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SASL authentication failed.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker has no state for the producer id.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "A reassignment of the partition is under way.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The delegation token does not exist.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal is neither owner nor renewer of the token.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation token requests are not allowed here.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not authorised for the delegation token.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The principal type is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker does not know the fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session epoch is not the expected one.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener that matches the one of the request.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The client's version does not support the compression type.",
    ErrorCode.STALE_BROKER_EPOCH: "The broker epoch has changed.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The leader's high watermark has not caught up after an election.",
    ErrorCode.MEMBER_ID_REQUIRED: "The member must join again with the id it was given.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group is full.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member registered with the same group.instance.id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No eligible leader is available.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition needs no election.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No reassignment of the partition is under way.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to the topic.",
    ErrorCode.INVALID_RECORD: "The record failed the broker's validation.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "Offsets of a pending transaction are not stable yet.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The throttling quota was exceeded.",
    ErrorCode.PRODUCER_FENCED: "A newer producer with the same transactional id fenced this one.",
    ErrorCode.RESOURCE_NOT_FOUND: "The resource does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "The resource exists already.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the requirements.",
    ErrorCode.INCONSISTENT_VOTER_SET: "The voter set is inconsistent.",
    ErrorCode.INVALID_UPDATE_VERSION: "The update version is invalid.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The feature could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The principal could not be deserialised.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "The snapshot does not exist.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position is out of range.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker does not host a topic with this id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "The broker id is in use.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "The broker id is not registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic id in the request is not the one of the log.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The cluster id in the request is not this cluster's.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The transactional id is not known.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session met inconsistent topic ids.",
    ErrorCode.INELIGIBLE_REPLICA: "The new ISR holds a replica that is not eligible.",
    ErrorCode.NEW_LEADER_ELECTED: "The leader changed while the ISR was being changed.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is in tiered storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member's epoch was fenced by the coordinator.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member still holds the instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The assignor, or its version range, is not supported.",
    ErrorCode.STALE_MEMBER_EPOCH: "The member's epoch is stale.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was sent to an endpoint of the wrong type.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This endpoint type is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "The controller id is not known.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription id is not the current one.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry data is too large.",
    ErrorCode.INVALID_REGISTRATION: "The registration is invalid.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction met an error and must be aborted.",
    ErrorCode.INVALID_RECORD_STATE: "The record is not in the state that the operation needs.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The share session was not found.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session epoch is invalid.",
    ErrorCode.FENCED_STATE_EPOCH: "The share coordinator's state epoch did not match.",
    ErrorCode.INVALID_VOTER_KEY: "The voter key does not match the receiving replica's.",
    ErrorCode.DUPLICATE_VOTER: "The voter is part of the voter set already.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not part of the voter set.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client has to connect to its bootstrap servers again.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has no room for another share session.",
}

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)
