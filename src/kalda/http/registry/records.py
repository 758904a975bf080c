"""Encodes the records of the topic ``_schemas``, in the JSON of Confluent's registry.

Keys are compared byte by byte by the cleaner of a log, so the order of the fields counts:

    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    {"subject":"orders-value","version":1,"id":1,"schemaType":"AVRO","schema":"\\"string\\"","deleted":false}

Older registries and other implementations write the same keys in other forms. They are read all the same, and
`topic_log` keeps those forms in order to delete them as well.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kalda.common.received_json import loads_received
from kalda.http.registry.contents import Content, Json, is_int32, read_references, reference_json
from kalda.schemas.errors import SchemaError


class RecordError(ValueError):
    """A record cannot be read; the message names what is wrong with it."""


class KeyType(StrEnum):
    """The type of a record's key."""

    SCHEMA = "SCHEMA"
    CONFIG = "CONFIG"
    MODE = "MODE"
    NOOP = "NOOP"
    DELETE_SUBJECT = "DELETE_SUBJECT"
    CLEAR_SUBJECT = "CLEAR_SUBJECT"
    CONTEXT = "CONTEXT"


ASSOCIATION: Final = "ASSOC"
"""The type of a key that Confluent's registry writes for an association, and that this one only reads."""


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a record.

    >>> Key.schema("a", 2).encode()
    b'{"keytype":"SCHEMA","subject":"a","version":2,"magic":1}'
    """

    type: KeyType
    subject: str | None = None
    """The subject; of a `CONTEXT` the context; None for the whole registry."""
    version: int | None = None

    @classmethod
    def schema(cls, subject: str, version: int) -> "Key":
        """Return the key of a version."""
        return cls(KeyType.SCHEMA, subject, version)

    def encode(self) -> bytes:
        """Return the bytes of the key."""
        fields: Json = {"keytype": self.type.value}
        if self.type is KeyType.CONTEXT:
            fields |= {"tenant": "default", "context": self.subject}
        elif self.subject is not None:
            fields["subject"] = self.subject
        if self.version is not None:
            fields["version"] = self.version
        fields["magic"] = 1 if self.type is KeyType.SCHEMA else 0
        return encode_json(fields)


NOOP: Final = Key(KeyType.NOOP)


@dataclass(frozen=True, slots=True)
class SchemaValue:
    """The value of a version."""

    subject: str
    version: int
    id: int
    content: Content
    is_deleted: bool = False

    def encode(self) -> bytes:
        """Return the bytes of the value."""
        content = self.content
        fields: Json = {"subject": self.subject, "version": self.version, "id": self.id}
        if content.given_digest is not None:
            fields["md5"] = base64.b64encode(content.given_digest).decode()
        fields["schemaType"] = content.schema_type
        if content.references:
            fields["references"] = [reference_json(each) for each in content.references]
        if content.metadata is not None:
            fields["metadata"] = content.metadata
        if content.rule_set is not None:
            fields["ruleSet"] = content.rule_set
        fields |= {"schema": content.text, "deleted": self.is_deleted}
        return encode_json(fields)


@dataclass(frozen=True, slots=True)
class Change:
    """A record to be written; without a value it is a tombstone."""

    key: Key
    value: bytes | None


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """Return compact JSON in UTF-8, as Jackson writes it."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def read_key(data: bytes | None) -> Key | None:
    """Read a key; None for one of a type that this registry leaves alone.

    Raises:
        RecordError: it is no key of a registry.
    """
    fields = _object(data, "key")
    try:
        key_type = KeyType(str(fields.get("keytype")))
    except ValueError:
        return None
    if key_type is KeyType.NOOP:
        return NOOP
    if key_type is KeyType.CONTEXT:
        return Key(key_type, _text(fields, "context"))
    subject = fields.get("subject")
    if key_type is KeyType.SCHEMA:
        return Key.schema(_text(fields, "subject"), _number(fields, "version"))
    if subject is not None and not isinstance(subject, str):
        raise RecordError(f"the subject {subject!r:.100} is no text")
    # Some registries write the whole registry as the empty subject.
    return Key(key_type, subject or None)


def read_schema_value(data: bytes) -> SchemaValue:
    """Read the value of a version.

    Raises:
        RecordError: it is malformed.
    """
    fields = _object(data, "value")
    try:
        references = read_references(fields.get("references"))
    except SchemaError as error:
        raise RecordError(str(error)) from None
    metadata, rule_set = fields.get("metadata"), fields.get("ruleSet")
    content = Content(
        str(fields.get("schemaType") or "AVRO"),
        _text(fields, "schema"),
        references,
        metadata if isinstance(metadata, dict) else None,
        rule_set if isinstance(rule_set, dict) else None,
        _digest(fields.get("md5")),
    )
    return SchemaValue(
        _text(fields, "subject"),
        _number(fields, "version"),
        _number(fields, "id"),
        content,
        fields.get("deleted") is True,
    )


def read_fields(data: bytes) -> Json:
    """Read the value of another record.

    Raises:
        RecordError: it is no JSON object.
    """
    return _object(data, "value")


def _object(data: bytes | None, what: str) -> Json:
    if data is None:
        raise RecordError(f"it has no {what}")
    try:
        fields = loads_received(data)
    except ValueError as error:
        raise RecordError(f"its {what} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RecordError(f"its {what} is no JSON object")
    return fields


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise RecordError(f"its {name} {value!r:.100} is no text")
    return value


def _number(fields: Json, name: str) -> int:
    value = fields.get(name)
    if not is_int32(value):
        raise RecordError(f"its {name} {value!r:.100} is no number of 32 bits")
    return value


def _digest(value: object) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        digest = base64.b64decode(value, validate=True)
    except binascii.Error:
        return None
    return digest if len(digest) == 16 else None
