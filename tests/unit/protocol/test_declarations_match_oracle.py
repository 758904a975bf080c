"""Every declaration against an independent description of the protocol, version by version.

The oracle is Apache's own schema files where they lie beside the checkout, else those that kafka-python
carries, which lack the oldest versions. Versions newer than Apache's files are looked up in kafka-python's.
The test prints which one it used and every (key, version) for which there is none.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kafka.protocol.schemas
import pytest

from kalda.protocol.schema import (
    RECORDS,
    UUID_KIND,
    ArrayKind,
    Field,
    FixedKind,
    Kind,
    Message,
    Struct,
    VersionRange,
    parse_versions,
)
from tests.property.protocol.declared_messages import MESSAGE_CLASSES

APACHE = Path(__file__).parents[3] / "../shared/reference/kafka-messages"
KAFKA_PYTHON = Path(kafka.protocol.schemas.__file__).parent / "resources"
ORACLE = APACHE if APACHE.is_dir() else KAFKA_PYTHON
ORACLE_NAME = "Apache's schemas" if ORACLE is APACHE else "kafka-python's schemas"

NEWER_THAN_ANY_ORACLE = {
    ("AcquireReadLeaseRequest", 0),
    ("AcquireReadLeaseResponse", 0),
    ("AlterFaultsRequest", 0),
    ("AlterFaultsResponse", 0),
    ("AlterNamespacesRequest", 0),
    ("AlterNamespacesResponse", 0),
    ("DescribeProcessRequest", 0),
    ("DescribeProcessResponse", 0),
    ("DescribeEventsRequest", 0),
    ("DescribeEventsResponse", 0),
    ("DeleteGroupsRequest", 3),
    ("DeleteGroupsResponse", 3),
    ("RouteNatsRequest", 0),
    ("RouteNatsResponse", 0),
    ("ReleaseReadLeaseRequest", 0),
    ("ReleaseReadLeaseResponse", 0),
    ("ApiVersionsRequest", 5),
    ("ApiVersionsResponse", 5),
    ("ConsumerGroupDescribeRequest", 1),
    ("ConsumerGroupDescribeResponse", 1),
    ("ConsumerGroupRegularExpressionKey", 16),
    ("ConsumerGroupRegularExpressionValue", 0),
    ("TxnOffsetCommitRequest", 6),
    ("TxnOffsetCommitResponse", 6),
    ("AlterShareGroupOffsetsRequest", 0),
    ("AlterShareGroupOffsetsResponse", 0),
    ("DeleteShareGroupOffsetsRequest", 0),
    ("DeleteShareGroupOffsetsResponse", 0),
    ("DescribeShareGroupOffsetsRequest", 0),
    ("DescribeShareGroupOffsetsResponse", 0),
    ("DescribeShareGroupOffsetsRequest", 1),
    ("DescribeShareGroupOffsetsResponse", 1),
    ("ReadShareGroupStateSummaryRequest", 1),
    ("ReadShareGroupStateSummaryResponse", 1),
    ("ShareAcknowledgeRequest", 1),
    ("ShareAcknowledgeResponse", 1),
    ("ShareAcknowledgeRequest", 2),
    ("ShareAcknowledgeResponse", 2),
    ("ShareFetchRequest", 1),
    ("ShareFetchResponse", 1),
    ("ShareFetchRequest", 2),
    ("ShareFetchResponse", 2),
    ("ShareGroupDescribeRequest", 1),
    ("ShareGroupDescribeResponse", 1),
    ("ShareGroupHeartbeatRequest", 1),
    ("ShareGroupHeartbeatResponse", 1),
    ("WriteShareGroupStateRequest", 1),
    ("WriteShareGroupStateResponse", 1),
}
"""KIP-1099, KIP-1242, KIP-1319, the regular expressions of KIP-848 and KIP-932 beyond its early access came
after Apache's files, and kafka-python has none of them. The read leases are Kalda's own."""

FIELDS_NEWER_THAN_ANY_ORACLE = {
    ("ConsumerGroupTargetAssignmentMetadataValue", "assignment_timestamp"),
    ("TransactionLogValue", "next_producer_epoch"),
    ("TransactionLogValue", "last_producer_epoch"),
    ("ReadShareGroupStateSummaryResponse", "leader_epoch"),
}
"""KIP-939 and KIP-1263 added tagged fields to versions that are in Apache's files without them. The
last one was added to a version that no release had served."""

IGNORABLE_SINCE_NEWER_VERSIONS = {
    ("ProduceRequest", "/topic_data/name"),
    ("ProduceResponse", "/responses/name"),
    ("OffsetCommitRequest", "/topics/name"),
    ("OffsetCommitResponse", "/topics/name"),
    ("OffsetFetchRequest", "/groups/topics/name"),
    ("TxnOffsetCommitRequest", "/topics/name"),
    ("TxnOffsetCommitResponse", "/topics/name"),
    ("OffsetFetchResponse", "/groups/topics/name"),
}
"""Version 13 of Produce, 10 of the two requests for offsets and 6 of TxnOffsetCommit replace names by ids;
Apache's files are older, with names in all versions."""


class Facts(NamedTuple):
    """What one version says of one field; equal facts mean equal bytes and equal rules."""

    name: str
    kind: str
    tag: int | None
    is_nullable: bool
    default: object
    parts: tuple["Facts", ...]


def load(name: str, oracle: Path = ORACLE) -> dict[str, Any]:
    """The oracle's description; one of no version where it has none."""
    if not (oracle / f"{name}.json").exists():
        # kafka-python is a client: what brokers say to each other and write to logs is unknown to it.
        return {"validVersions": "none", "fields": []}
    text = (oracle / f"{name}.json").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    loaded: dict[str, Any] = json.loads("\n".join(lines))
    shared = {struct["name"]: struct["fields"] for struct in loaded.get("commonStructs", [])}
    give_fields(loaded["fields"], shared)
    return loaded


def give_fields(fields: list[dict[str, Any]], shared: dict[str, list[dict[str, Any]]]) -> None:
    """Write the fields of a struct that several fields share into each of them."""
    for field in fields:
        if element_name(field["type"]) in shared:
            field["fields"] = shared[element_name(field["type"])]
        give_fields(field.get("fields", []), shared)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def element_name(kind: str) -> str:
    return kind.removeprefix("[]")


def field_versions(field: dict[str, Any]) -> VersionRange:
    """The versions that carry a field; some that are only ever tagged name them once."""
    return parse_versions(field["versions"] if "versions" in field else field["taggedVersions"])


def expected_facts(fields: list[dict[str, Any]], version: int) -> Iterator[Facts]:
    """The oracle's facts of one version, in order."""
    for field in fields:
        if not field_versions(field).includes(version):
            continue
        is_tagged = parse_versions(field.get("taggedVersions", "none")).includes(version)
        yield Facts(
            name=snake_case(field["name"]),
            kind=field["type"],
            tag=field["tag"] if is_tagged else None,
            is_nullable=parse_versions(field.get("nullableVersions", "none")).includes(version),
            default=expected_default(field),
            parts=tuple(expected_facts(field.get("fields", []), version)),
        )


def expected_default(field: dict[str, Any]) -> object:
    """The value that the oracle gives a field which nobody sets; structs are left to their parts."""
    default, kind = field.get("default") or "", field["type"]
    if default == "null":
        # A null without quotes is no default at all for Kafka's generator.
        return None
    if kind.startswith("[]"):
        return []
    if kind == "string":
        return default or ""
    if kind == "bool":
        return default in ("true", True)
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return uuid.UUID(int=0)
    if kind == "float64":
        return float(default or 0)
    return int(str(default or 0), 0) if re.fullmatch(r"u?int\d+", kind) else "struct"


def declared_facts(struct_class: type[Struct], version: int) -> Iterator[Facts]:
    """Our facts of one version, in order."""
    for field in struct_class.FIELDS:
        if field.versions.includes(version):
            element = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
            yield Facts(
                name=field.name,
                kind=declared_kind(field),
                tag=field.tag if field.tagged.includes(version) else None,
                is_nullable=field.nullable.includes(version),
                default="struct" if isinstance(field.default(), Struct) else field.default(),
                parts=() if isinstance(element, Kind) else tuple(declared_facts(element, version)),
            )


def without(names: set[str], facts: tuple[Facts, ...]) -> tuple[Facts, ...]:
    """The facts without fields of these names, at any depth."""
    return tuple(each._replace(parts=without(names, each.parts)) for each in facts if each.name not in names)


def declared_kind(field: Field) -> str:
    return field.kind.name if isinstance(field.kind, Kind) else field.kind.__name__


def ignorable_fields(fields: list[dict[str, Any]], path: str = "") -> dict[str, bool]:
    """By path, whether the oracle lets a version drop the field."""
    found = {}
    for field in fields:
        here = f"{path}/{snake_case(field['name'])}"
        found[here] = bool(field.get("ignorable", False))
        found |= ignorable_fields(field.get("fields", []), here)
    return found


def declared_ignorable(struct_class: type[Struct], path: str = "") -> dict[str, bool]:
    found = {}
    for field in struct_class.FIELDS:
        here = f"{path}/{field.name}"
        found[here] = field.ignorable
        element = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
        if not isinstance(element, Kind):
            found |= declared_ignorable(element, here)
    return found


def oracles(message_class: type[Message]) -> dict[int, dict[str, Any]]:
    """The versions of ours that are known to the oracle, or else to kafka-python, with the description."""
    found = {}
    ours = message_class.SCHEMA.versions
    for path in (KAFKA_PYTHON, ORACLE):
        oracle = load(message_class.__name__, path)
        theirs = parse_versions(oracle["validVersions"])
        for version in range(max(ours.lowest, theirs.lowest), min(ours.highest, theirs.highest) + 1):
            found[version] = oracle
    return found


@pytest.mark.parametrize("message_class", MESSAGE_CLASSES, ids=lambda cls: cls.__name__)
def test_declaration_says_what_the_oracle_says(message_class: type[Message]) -> None:
    """Names, order, kinds, tags, nulls and defaults of every version; keys and flexible versions too."""
    described = oracles(message_class)
    if not described:
        pytest.skip(f"{ORACLE_NAME} do not have it")
    schema = message_class.SCHEMA
    for version, oracle in described.items():
        assert schema.api_key == oracle.get("apiKey")
        assert schema.flexible == parse_versions(oracle["flexibleVersions"])
        newer = {name for message, name in FIELDS_NEWER_THAN_ANY_ORACLE if message == message_class.__name__}
        declared = without(newer, tuple(declared_facts(message_class, version)))
        assert declared == tuple(expected_facts(oracle["fields"], version)), f"version {version}"


@pytest.mark.skipif(ORACLE is not APACHE, reason="kafka-python's files say ignorable of fewer fields")
@pytest.mark.parametrize("message_class", MESSAGE_CLASSES, ids=lambda cls: cls.__name__)
def test_fields_are_ignorable_where_apache_says_so(message_class: type[Message]) -> None:
    """What may be dropped silently is part of the protocol: an admin client relies on being refused."""
    expected = ignorable_fields(load(message_class.__name__)["fields"])
    for path, is_ignorable in declared_ignorable(message_class).items():
        if (message_class.__name__, path) in IGNORABLE_SINCE_NEWER_VERSIONS:
            continue
        # Fields of versions that are newer than Apache's files are unknown to them.
        assert (path, is_ignorable) == (path, expected.get(path, is_ignorable))


def test_the_oracle_and_its_gaps_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A version that nothing checks must not look like one that was checked."""
    gaps = []
    for message_class in MESSAGE_CLASSES:
        schema, described = message_class.SCHEMA, oracles(message_class)
        gaps += [
            (schema.name, version)
            for version in range(schema.versions.lowest, schema.versions.highest + 1)
            if version not in described
        ]
    with capsys.disabled():
        listed = ", ".join(f"{name} v{version}" for name, version in gaps)
        sys.stdout.write(f"\nprotocol oracle: {ORACLE_NAME}; versions without one: {listed or 'none'}\n")
    if set(gaps) != NEWER_THAN_ANY_ORACLE:
        assert ORACLE is KAFKA_PYTHON
        # Output of a worker process is lost; the reason of a skip is not.
        pytest.skip(f"{ORACLE_NAME}: no oracle for {listed}")


def test_kinds_have_the_sizes_of_the_protocol() -> None:
    """The oracle names kinds but not their widths."""
    widths = {
        kind.name: kind.size
        for kind in vars(sys.modules[Kind.__module__]).values()
        if isinstance(kind, FixedKind)
    }
    expected = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}
    assert expected | {"float64": 8, "uuid": 16} == widths
    assert ("uuid", "records") == (UUID_KIND.name, RECORDS.name)
