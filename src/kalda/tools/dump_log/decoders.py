"""Decodes the records of the internal topics for a dump, in the text forms of ``kafka-dump-log``.

A decoder never fails: a record that cannot be read gives a key that says so, because the reason to dump an
internal topic is often that one of its records is damaged.
"""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from kalda.coordinator.coordinator_record import (
    NewerRecordError,
    RecordTypes,
    decode_key,
    decode_value,
    read_version,
)
from kalda.coordinator.transaction.transaction_log import RECORD_TYPES as TRANSACTION_RECORD_TYPES
from kalda.protocol import codec
from kalda.protocol.messages import consumer_group_records as consumers
from kalda.protocol.messages import group_records as groups
from kalda.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message
from kalda.records.record import Record
from kalda.tools.bytes_text import JsonValue
from kalda.tools.dump_log.message_json import message_json

Decoded: TypeAlias = tuple[JsonValue, JsonValue]
"""Key and value of a record in JSON form; text where Kafka's tool prints text."""

Decoder: TypeAlias = Callable[[Record], Decoded]

DELETE: Final = "<DELETE>"
"""The value of a tombstone."""

_CONSUMER_PROTOCOL_VERSION_MAX: Final = 3

OFFSETS_RECORD_TYPES: Final[RecordTypes] = {
    0: (groups.OffsetCommitKey, groups.OffsetCommitValue),
    1: (groups.OffsetCommitKey, groups.OffsetCommitValue),
    2: (groups.GroupMetadataKey, groups.GroupMetadataValue),
    3: (consumers.ConsumerGroupMetadataKey, consumers.ConsumerGroupMetadataValue),
    4: (consumers.ConsumerGroupPartitionMetadataKey, consumers.ConsumerGroupPartitionMetadataValue),
    5: (consumers.ConsumerGroupMemberMetadataKey, consumers.ConsumerGroupMemberMetadataValue),
    6: (
        consumers.ConsumerGroupTargetAssignmentMetadataKey,
        consumers.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (consumers.ConsumerGroupTargetAssignmentMemberKey, consumers.ConsumerGroupTargetAssignmentMemberValue),
    8: (
        consumers.ConsumerGroupCurrentMemberAssignmentKey,
        consumers.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: (consumers.ConsumerGroupRegularExpressionKey, consumers.ConsumerGroupRegularExpressionValue),
}
"""The records of ``__consumer_offsets`` by the version of their key."""


def decode_offsets(record: Record) -> Decoded:
    """Decode a record of ``__consumer_offsets``."""
    return _decode(OFFSETS_RECORD_TYPES, record)


def decode_transactions(record: Record) -> Decoded:
    """Decode a record of ``__transaction_state``."""
    return _decode(TRANSACTION_RECORD_TYPES, record)


def _decode(types: RecordTypes, record: Record) -> Decoded:
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key.", None
    try:
        version = read_version(record.key)
        found = decode_key(types, record.key)
        if found is None:
            return f"Unknown record type {version} at offset {record.offset}, skipping.", None
        key: JsonValue = {"type": str(version), "data": message_json(found[1], version)}
        if record.value is None:
            return key, DELETE
        return key, _value(types[version][1], record.value)
    except NewerRecordError as error:
        return f"Error at offset {record.offset}, skipping. {error.message}", None
    except ProtocolError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _value(value_class: type[Message], data: bytes) -> JsonValue:
    version = read_version(data)
    message = decode_value(value_class, data)
    fields = message_json(message, version)
    if isinstance(message, groups.GroupMetadataValue) and message.protocol_type == "consumer":
        assert isinstance(fields, dict), "a message is an object"
        members = fields["members"]
        assert isinstance(members, list), "members are an array"
        for member, shown in zip(message.members, members, strict=True):
            assert isinstance(shown, dict), "a member is an object"
            _replace(shown, "subscription", ConsumerProtocolSubscription, member.subscription)
            _replace(shown, "assignment", ConsumerProtocolAssignment, member.assignment)
    return {"version": str(version), "data": fields}


def _replace(shown: dict[str, JsonValue], name: str, kind: type[Message], data: bytes) -> None:
    """Show the consumer's own protocol decoded; keep base64 for bytes of another client's protocol."""
    try:
        version = min(read_version(data), _CONSUMER_PROTOCOL_VERSION_MAX)
        shown[name] = message_json(codec.decode(kind, version, data[2:], allow_excess=True), version)
    except ProtocolError:
        return


def decoded_text(value: JsonValue) -> str:
    """Return the plain form of a decoded key or value: text as it is, an object as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
