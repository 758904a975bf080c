"""Defines the content of a schema version: its text, references, metadata and rules, in Confluent's JSON.

Metadata and rule sets are kept as JSON objects, in the form that Confluent's registry writes: known fields in
a fixed order, maps and sets sorted. The digest over all of it is the schema's GUID.
"""

import hashlib
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeGuard

from kalda.schemas.errors import SchemaError
from kalda.schemas.model import Reference, Schema, SchemaType

Json = dict[str, Any]

CONFLUENT_VERSION: Final = "confluent:version"
"""A property of the metadata that holds the number of the version."""

_RULE_NAME: Final = re.compile(r"[^\W\d][\w-]{0,63}")
_MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
_RULE_TEXTS: Final = ("name", "doc", "kind", "mode", "type")
_RULE_LATER_TEXTS: Final = ("expr", "onSuccess", "onFailure")
_RULE_LISTS: Final = ("migrationRules", "domainRules", "encodingRules")


@dataclass(frozen=True)
class Content:
    """A schema with all that belongs to its identity."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Json | None = None
    rule_set: Json | None = None
    given_digest: bytes | None = None
    """What a record says; metadata that Confluent's registry encrypts would give another."""

    @cached_property
    def digest(self) -> bytes:
        """The MD5 digest of text, references, metadata and rules, as Confluent's registry computes it."""
        if self.given_digest is not None:
            return self.given_digest
        md5 = hashlib.md5(self.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
        for each in self.references:
            md5.update(each.name.encode() + each.subject.encode() + struct.pack(">i", each.version))
        if self.metadata is not None:
            md5.update(b"\1")
            for part in _metadata_parts(self.metadata):
                md5.update(part.encode())
        if self.rule_set is not None:
            md5.update(b"\1")
            for part in _rule_set_parts(self.rule_set):
                md5.update(part.encode())
        return md5.digest()

    @property
    def guid(self) -> str:
        """The digest as a UUID."""
        return str(uuid.UUID(bytes=self.digest))

    @property
    def schema(self) -> Schema:
        """What a parser takes.

        Raises:
            UnknownSchemaTypeError: the type is none that can be parsed.
        """
        return Schema(
            SchemaType.of(self.schema_type), self.text, self.references, self.metadata, self.rule_set
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no text."""
        return not self.text.strip()

    def with_text(self, text: str) -> "Content":
        """Return a copy with another text."""
        return replace(self, text=text, given_digest=None)

    def fields(self) -> Json:
        """Return the fields of a response that describe the content; empty ones are left out."""
        fields: Json = {"guid": self.guid, "schemaType": self.schema_type}
        if self.references:
            fields["references"] = [reference_json(each) for each in self.references]
        if self.metadata is not None:
            fields["metadata"] = self.metadata
        if self.rule_set is not None:
            fields["ruleSet"] = self.rule_set
        fields["schema"] = self.text
        return fields


def reference_json(reference: Reference) -> Json:
    """Return a reference as it stands in records and responses."""
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def is_int32(value: object) -> TypeGuard[int]:
    """Return whether a value of JSON is a whole number of 32 bits, as versions and ids are everywhere."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def read_references(value: object) -> tuple[Reference, ...]:
    """Read the references of a request or record.

    Raises:
        SchemaError: they are malformed.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise SchemaError(f"Invalid references: {value!r:.100} is no list")
    found = []
    for each in value:
        fields = each if isinstance(each, dict) else {}
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not is_int32(version):
            raise SchemaError(f"Invalid reference: {each!r:.200}; it takes a name, a subject and a version")
        found.append(Reference(name, subject, version))
    return tuple(found)


def read_metadata(value: object) -> Json | None:
    """Read metadata; its maps and sets are sorted.

    Raises:
        SchemaError: it is malformed.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise SchemaError(f"Invalid metadata: {value!r:.100} is no object")
    metadata: Json = {}
    tags, properties, sensitive = value.get("tags"), value.get("properties"), value.get("sensitive")
    if tags:
        metadata["tags"] = {
            str(name): _text_set(texts, f"tags of {name}") for name, texts in sorted(_object(tags, "tags"))
        }
    if properties:
        metadata["properties"] = {
            str(name): _text(text, f"property {name}")
            for name, text in sorted(_object(properties, "properties"))
        }
    if sensitive:
        metadata["sensitive"] = _text_set(sensitive, "sensitive")
    return metadata


def read_rule_set(value: object) -> Json | None:
    """Read a rule set and check what can be checked without running rules.

    Raises:
        SchemaError: a rule lacks something, or its name is used twice.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise SchemaError(f"Invalid rule set: {value!r:.100} is no object")
    names: set[str] = set()
    rule_set: Json = {}
    for kind, modes, words in (
        ("migrationRules", _MIGRATION_MODES, "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"),
        ("domainRules", _DOMAIN_MODES, "Domain rules can only be WRITE, READ, WRITEREAD"),
        ("encodingRules", _DOMAIN_MODES, "Encoding rules can only be WRITE, READ, WRITEREAD"),
    ):
        rules = value.get(kind)
        if not rules:
            continue
        if not isinstance(rules, list):
            raise SchemaError(f"{kind} is no list")
        rule_set[kind] = [_read_rule(each, names, modes, words) for each in rules]
    if value.get("enableAt") is not None:
        rule_set["enableAt"] = value["enableAt"]
    return rule_set


def merged_metadata(old: Json | None, new: Json | None) -> Json | None:
    """Return metadata in which what `new` has replaces or adds to what `old` has."""
    if old is None or new is None:
        return new if old is None else old
    tags = {name: list(texts) for name, texts in old.get("tags", {}).items()}
    for name, texts in new.get("tags", {}).items():
        tags[name] = sorted({*tags.get(name, ()), *texts})
    return read_metadata(
        {
            "tags": tags,
            "properties": {**old.get("properties", {}), **new.get("properties", {})},
            "sensitive": sorted({*old.get("sensitive", ()), *new.get("sensitive", ())}),
        }
    )


def merged_rule_sets(old: Json | None, new: Json | None) -> Json | None:
    """Return a rule set in which rules of `new` replace those of `old` with the same name."""
    if old is None or new is None:
        return new if old is None else old
    merged: Json = {}
    for kind in _RULE_LISTS:
        replaced = {rule["name"] for rule in new.get(kind, ())}
        rules = [rule for rule in old.get(kind, ()) if rule["name"] not in replaced] + new.get(kind, [])
        if rules:
            merged[kind] = rules
    enable_at = new.get("enableAt", old.get("enableAt"))
    if enable_at is not None:
        merged["enableAt"] = enable_at
    return merged


def without_rules(rule_set: Json, names: Iterable[str]) -> Json:
    """Return a rule set without the rules of some names."""
    left = dict(rule_set)
    removed = set(names)
    for kind in _RULE_LISTS:
        if kind in left:
            left[kind] = [rule for rule in left[kind] if rule["name"] not in removed]
    return left


def has_rule_type(rule_set: Json | None, rule_type: str) -> bool:
    """Return whether a rule of a type is in a rule set."""
    return any(
        rule.get("type") == rule_type for kind in _RULE_LISTS for rule in (rule_set or {}).get(kind, ())
    )


def version_in(metadata: Json | None) -> str | None:
    """Return the property ``confluent:version``."""
    version: str | None = (metadata or {}).get("properties", {}).get(CONFLUENT_VERSION)
    return version


def with_version(metadata: Json | None, version: int | None) -> Json:
    """Return metadata with the property ``confluent:version`` set, or removed for None."""
    properties = dict((metadata or {}).get("properties", {}))
    properties.pop(CONFLUENT_VERSION, None)
    if version is not None:
        properties[CONFLUENT_VERSION] = str(version)
    return read_metadata({**(metadata or {}), "properties": properties}) or {}


def _read_rule(value: object, names: set[str], modes: tuple[str, ...], words: str) -> Json:
    if not isinstance(value, dict):
        raise SchemaError(f"Invalid rule: {value!r:.100} is no object")
    name = value.get("name")
    if name is None:
        raise SchemaError("Missing rule name")
    if not name:
        raise SchemaError("Empty rule name")
    if not isinstance(name, str) or not _RULE_NAME.fullmatch(name):
        raise SchemaError(
            f"Illegal character in rule name: {name!s:.100}; it takes up to 64 letters, digits, _ and -"
        )
    if name in names:
        raise SchemaError(f"Found rule with duplicate name '{name}'")
    names.add(name)
    if value.get("type") is None:
        raise SchemaError(f"Missing rule type of rule {name}")
    mode = value.get("mode")
    if mode is not None and mode not in modes:
        raise SchemaError(f"{words}, and rule {name} has {mode!s:.100}")
    if mode is None:
        value = {**value, "mode": "WRITEREAD" if "WRITEREAD" in modes else "UPDOWN"}
    if value["mode"] not in ("WRITEREAD", "UPDOWN"):
        for action in ("onSuccess", "onFailure"):
            if "," in str(value.get(action) or ""):
                raise SchemaError(
                    f"Multiple actions only valid with WRITEREAD and UPDOWN, and rule {name} has "
                    f"{action}={value[action]!s:.100}"
                )
    rule: Json = {each: value[each] for each in _RULE_TEXTS if value.get(each)}
    if value.get("tags"):
        rule["tags"] = _text_set(value["tags"], f"tags of rule {name}")
    if value.get("params"):
        rule["params"] = {
            str(key): _text(text, f"parameter {key}")
            for key, text in sorted(_object(value["params"], f"params of rule {name}"))
        }
    rule |= {each: value[each] for each in _RULE_LATER_TEXTS if value.get(each)}
    rule["disabled"] = bool(value.get("disabled", False))
    return rule


def _object(value: object, what: str) -> Iterable[tuple[str, object]]:
    if not isinstance(value, dict):
        raise SchemaError(f"Invalid {what}: {value!r:.100} is no object")
    return value.items()


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"Invalid {what}: {value!r:.100} is no text")
    return value


def _text_set(value: object, what: str) -> list[str]:
    if not isinstance(value, list):
        raise SchemaError(f"Invalid {what}: {value!r:.100} is no list")
    return sorted({_text(each, what) for each in value})


def _metadata_parts(metadata: Mapping[str, Any]) -> Iterable[str]:
    for name, texts in metadata.get("tags", {}).items():
        yield name
        yield from texts
    for name, text in metadata.get("properties", {}).items():
        yield name
        yield text
    yield from metadata.get("sensitive", ())


def _rule_set_parts(rule_set: Mapping[str, Any]) -> Iterable[str]:
    text_of: Callable[[Json, str], str] = lambda rule, name: str(rule.get(name) or "")  # noqa: E731
    for kind in _RULE_LISTS:
        for rule in rule_set.get(kind, ()):
            for name in _RULE_TEXTS:
                yield text_of(rule, name)
            yield from rule.get("tags", ())
            for key, text in rule.get("params", {}).items():
                yield key
                yield text
            for name in _RULE_LATER_TEXTS:
                yield text_of(rule, name)
            if rule.get("disabled"):
                yield "\1"
    if rule_set.get("enableAt"):
        yield str(rule_set["enableAt"])
