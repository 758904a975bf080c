"""`kalda schemas` against a registry with Confluent's REST API."""

import base64
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from tests.integration.formats.registry_server import RegistryServer, registry_server
from tests.integration.tools.commands import Commands

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
COMMON = 'syntax = "proto3"; message Money { int64 cents = 1; }'
PRICE = 'syntax = "proto3"; import "common.proto"; message Price { Money money = 1; }'


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def test_a_schema_from_its_file_to_its_end(registry: RegistryServer, tmp_path: Path) -> None:
    kalda, at = Commands("127.0.0.1:1"), ("--registry", registry.url)
    (tmp_path / "order.avsc").write_text(AVRO)
    (tmp_path / "common.proto").write_text(COMMON)
    (tmp_path / "price.proto").write_text(PRICE)

    registered = kalda.json("schemas", "register", "orders-value", "--file", tmp_path / "order.avsc", *at)
    kalda("schemas", "register", "common", "--file", tmp_path / "common.proto", *at)
    reference = "--reference=common.proto=common:1"
    kalda("schemas", "register", "prices-value", "--file", tmp_path / "price.proto", reference, *at)
    listed = kalda("schemas", "list", *at)
    described = kalda("schemas", "describe", "prices-value", *at)
    order = kalda("schemas", "describe", "orders-value", *at)
    by_id = kalda.json("schemas", "describe", "--id", 1, *at)
    compatible = kalda("schemas", "test", "orders-value", "--file", tmp_path / "order.avsc", *at)
    registry.incompatible.add("orders-value")
    refused = kalda.refused("schemas", "test", "orders-value", "--file", tmp_path / "order.avsc", *at)
    kalda("schemas", "delete", "orders-value", *at)

    assert {"subject": "orders-value", "id": 1, "version": 1} == registered
    assert [
        ["common", "1", "1", "2", "PROTOBUF"],
        ["orders-value", "1", "1", "1", "AVRO"],
        ["prices-value", "1", "1", "3", "PROTOBUF"],
    ] == listed.rows
    assert ["prices-value", "1", "3", "PROTOBUF", "BACKWARD", "common:1"] == described.rows[0]
    assert PRICE in described.stdout
    assert '  "name": "Order",' in order.stdout.splitlines()
    assert [{"subject": "orders-value", "version": 1}] == by_id["versions"]
    assert "The schema is compatible with orders-value." in compatible.stdout
    assert (1, True) == (refused.code, "TYPE_MISMATCH" in refused.stdout)
    assert ["common", "prices-value"] == sorted(registry.subjects)


def test_a_copy_has_the_same_ids_versions_references_and_levels(
    registry: RegistryServer, tmp_path: Path
) -> None:
    """The schema with the lowest id refers to a later one; the import registers that one first."""
    kalda, file = Commands("127.0.0.1:1"), tmp_path / "schemas.jsonl"
    references: list[dict[str, str | int]] = [{"name": "common.proto", "subject": "zcommon", "version": 1}]
    registry.schemas[4] = {"schema": PRICE, "schemaType": "PROTOBUF", "references": references}
    registry.subjects["prices-value"] = [4]
    registry.schemas[7] = {"schema": COMMON, "schemaType": "PROTOBUF"}
    registry.subjects["zcommon"] = [7]
    registry.schemas[9] = {"schema": AVRO}
    registry.subjects["orders-value"] = [9]
    registry.levels["orders-value"] = "FULL"

    exported = kalda("schemas", "export", file, "--registry", registry.url)
    to_stdout = kalda("schemas", "export", "--registry", registry.url)
    with registry_server() as copy:
        planned = kalda.json("schemas", "import", file, "--dry-run", "--registry", copy.url)
        was_empty = not copy.subjects
        done = kalda("schemas", "import", file, "--registry", copy.url)
        again = kalda.json("schemas", "import", file, "--registry", copy.url)
        copied = deepcopy((copy.schemas, copy.subjects, copy.levels, copy.modes))

        copy.subjects["orders-value"] = [4]
        other = kalda.refused("schemas", "import", file, "--registry", copy.url)

    assert "Wrote 4 lines" in exported.stdout
    assert file.read_text() == to_stdout.stdout
    assert {"registered": 3, "present": 0, "levels": 1, "dry_run": True} == planned
    assert was_empty
    assert "Registered 3 versions and 1 compatibility level; already there: 0 versions." in done.stdout
    assert {"registered": 0, "present": 3, "levels": 0, "dry_run": False} == again
    assert (registry.schemas, registry.subjects, registry.levels, {}) == copied
    assert "orders-value has version 1 with the id 4, and the file has it with the id 9" in other.stderr


def test_credentials_come_from_a_file(registry: RegistryServer, tmp_path: Path) -> None:
    registry.credentials.add(f"Basic {base64.b64encode(b'alice:secret').decode()}")
    registry.register("orders-value", AVRO)
    config = tmp_path / "client.properties"
    config.write_text(f"schema.registry.url={registry.url}\nbasic.auth.user.info=alice:secret\n")
    kalda = Commands("127.0.0.1:1")

    listed = kalda.json("schemas", "list", "--command-config", config)
    refused = kalda.refused("schemas", "list", "--registry", registry.url)

    assert ["orders-value"] == [each["subject"] for each in listed["subjects"]]
    assert "the registry refuses the credentials" in refused.stderr
    assert "secret" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("describe",), "name a subject, or an id by --id"),
        (("list", "--registry", "127.0.0.1:8081"), "127.0.0.1:8081 is no address of a registry"),
        (
            ("list", "--registry", "http://127.0.0.1:1"),
            "the schema registry does not answer; check --registry",
        ),
        (("register", "s", "--file", "schema.txt"), "schema.txt does not say the type of its schema"),
        (("register", "s", "--file", "none.avsc"), "none.avsc cannot be read"),
        (("import", "none.jsonl"), "none.jsonl cannot be read"),
    ],
)
def test_wrong_words_get_one_line(arguments: tuple[str, ...], expected: str) -> None:
    refused = Commands("127.0.0.1:1").refused("schemas", *arguments)

    assert expected in refused.stderr
    assert 1 == len(refused.stderr.splitlines())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "is no line of an export"),
        ("[]", "is no line of an export"),
        (json.dumps({"subject": "s", "version": 1, "id": 1}), "is no version of an export"),
        (json.dumps({"subject": "s", "version": 1, "id": 1, "schema": 5}), "is no version of an export"),
        (
            json.dumps({"subject": "s", "version": 1, "id": 1, "schema": "", "references": [1]}),
            "is no version of an export",
        ),
    ],
)
def test_files_that_are_no_export_are_refused(tmp_path: Path, line: str, expected: str) -> None:
    file = tmp_path / "schemas.jsonl"
    file.write_text(f"{line}\n")

    refused = Commands("127.0.0.1:1").refused("schemas", "import", file)

    assert f"schemas.jsonl:1 {expected}" in refused.stderr


def test_subjects_are_part_of_the_state(registry: RegistryServer, bootstrap: str, tmp_path: Path) -> None:
    """A pull writes a file for each subject; a push gives another registry the same, in the right order."""
    kalda, folder = Commands(bootstrap), tmp_path / "staging"
    registry.register("zcommon", COMMON, "PROTOBUF")
    references: list[dict[str, str | int]] = [{"name": "common.proto", "subject": "zcommon", "version": 1}]
    registry.register("prices-value", PRICE, "PROTOBUF", references)
    registry.register("orders-value", AVRO)
    registry.levels["orders-value"] = "FULL"
    only = ("--only", "subjects")

    kalda("state", "pull", folder, *only, "--registry", registry.url)
    files = sorted(path.name for path in (folder / "subjects").iterdir())
    same = kalda("state", "diff", folder, *only)
    linted = kalda("state", "lint", folder)
    with registry_server() as other:
        other.register("left-over", AVRO)
        at = (*only, "--registry", other.url)
        refused = kalda.refused("state", "push", folder, "--yes", *at)
        kalda("state", "push", folder, "--yes", "--allow-delete-subjects", *at)
        again = kalda("state", "diff", folder, *at)
        pushed = sorted(other.subjects), other.levels

    assert ["orders-value.yml", "prices-value.yml", "zcommon.yml"] == files
    assert "nothing to change" in same.stdout
    assert "3 files, no faults" in linted.stdout
    assert "- subject left-over   needs --allow-delete-subjects" in refused.stdout
    assert (["orders-value", "prices-value", "zcommon"], {"orders-value": "FULL"}) == pushed
    assert "nothing to change" in again.stdout


def test_faults_of_subjects_are_found_without_a_registry(tmp_path: Path) -> None:
    folder = tmp_path / "staging"
    (folder / "subjects").mkdir(parents=True)
    (folder / "subjects" / "a.yml").write_text("subject: a\ntype: AVRO\ncompatibility: SOME\nschema: '{'\n")
    (folder / "subjects" / "b.yml").write_text("subject: b\ntype: XML\nschema: x\n")
    (folder / "subjects" / "c.yml").write_text("subject: c\ntype: JSON\nschema: '{}'\nreferences: {x: y}\n")

    linted = Commands("127.0.0.1:1").refused("state", "lint", folder)
    pushed = Commands("127.0.0.1:1").refused("state", "diff", folder)

    assert "a.yml: the schema of type AVRO is no JSON" in linted.stdout
    assert "compatibility=SOME is not one of" in linted.stdout
    assert "type=XML is not one of AVRO, JSON, PROTOBUF" in linted.stdout
    assert "x: y is no reference; it takes SUBJECT:VERSION" in linted.stdout
    assert "type=XML" in pushed.stderr
