"""Lists hints for the error codes that a setting or a permission can resolve.

A broker's own text replaces these: it knows more. Each hint has to be right for every request that can get
the code.
"""

from collections.abc import Mapping
from typing import Final

from kalda.common.errors import ErrorCode

_ACCESS: Final = (
    "Grant the right to the client's principal, or use another one (`security.protocol`, `sasl.*`)."
)
_REPLICAS: Final = "Bring the failed replicas back, or lower `min.insync.replicas` of the topic"

REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CORRUPT_MESSAGE: (
        "The records were damaged on the way or on disk, or one for a compacted topic has no key."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Check the name, and whether the topic was deleted.",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "Send smaller records, or raise `max.message.bytes` of the topic (`message.max.bytes` of brokers)."
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "Lower `batch.size`, or raise `segment.bytes` of the topic.",
    ErrorCode.NOT_ENOUGH_REPLICAS: f"{_REPLICAS}.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: f"{_REPLICAS}; sending again can write the records twice.",
    ErrorCode.INVALID_REQUIRED_ACKS: "Set `acks` to 0, 1 or all.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _ACCESS,
    ErrorCode.INVALID_TIMESTAMP: (
        "Correct the record's timestamp, or raise `message.timestamp.before.max.ms` or "
        "`message.timestamp.after.max.ms` of the topic."
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        "Set another `compression.type`; zstd needs brokers from 2.1 on."
    ),
    ErrorCode.UNSUPPORTED_VERSION: "Upgrade the broker, or do without the feature.",
    ErrorCode.REQUEST_TIMED_OUT: "Look whether the replicas keep up, or raise `request.timeout.ms`.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Look at the broker's log and disks.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "Commit shorter metadata, or raise `offset.metadata.max.bytes` of the brokers."
    ),
}
"""The remedies by error code; a code without an entry explains itself or has none."""


def explained(code: ErrorCode) -> str:
    """Return the general text of a code, with its remedy."""
    remedy = REMEDIES.get(code)
    return code.message if remedy is None else f"{code.message} {remedy}"
