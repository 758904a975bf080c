"""The registry's REST API over HTTP, with the statuses, codes and bodies of Confluent's registry."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from kalda import Producer
from tests.http_server import HttpCluster


def record(name: str, **fields: str) -> str:
    """The text of an Avro record."""
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed}, separators=(",", ":"))


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"s-{uuid.uuid4().hex[:8]}"


def register(client: httpx.Client, subject: str, schema: str, **more: Any) -> dict[str, Any]:
    response = client.post(f"/subjects/{subject}/versions", json={"schema": schema, **more})
    assert 200 == response.status_code, response.text
    found: dict[str, Any] = response.json()
    return found


def code(response: httpx.Response) -> tuple[int, int]:
    return response.status_code, response.json()["error_code"]


def test_a_schema_is_registered_once(client: httpx.Client, subject: str) -> None:
    first = register(client, subject, record("A", x="int"))
    again = register(
        client, subject, '{"type": "record", "name": "A", "fields": [{"name":"x","type":"int"}]}'
    )
    elsewhere = register(client, f"{subject}-2", record("A", x="int"))

    assert first["id"] == again["id"] == elsewhere["id"]
    assert 1 == again["version"]
    assert first["guid"] == elsewhere["guid"]


def test_a_version_and_an_id_are_read(client: httpx.Client, subject: str) -> None:
    schema = record("B", x="int")
    registered = register(client, subject, schema)

    version = client.get(f"/subjects/{subject}/versions/latest").json()
    assert (subject, 1, registered["id"], schema) == tuple(
        version[name] for name in ("subject", "version", "id", "schema")
    )
    assert version["deleted"] is False
    assert schema == client.get(f"/subjects/{subject}/versions/1/schema").text
    by_id = client.get(f"/schemas/ids/{registered['id']}?fetchMaxId=true").json()
    assert schema == by_id["schema"]
    assert registered["id"] <= by_id["maxId"]
    assert schema == client.get(f"/schemas/ids/{registered['id']}/schema").text
    assert [subject] == client.get(f"/schemas/ids/{registered['id']}/subjects").json()
    assert [{"subject": subject, "version": 1}] == client.get(
        f"/schemas/ids/{registered['id']}/versions"
    ).json()
    by_guid = client.get(f"/schemas/guids/{registered['guid']}").json()
    assert schema == by_guid["schema"]
    assert [{"context": ".", "id": registered["id"]}] == client.get(
        f"/schemas/guids/{registered['guid']}/ids"
    ).json()


def test_the_media_type_is_what_the_client_accepts(client: httpx.Client) -> None:
    assert "application/vnd.schemaregistry.v1+json" == client.get("/subjects").headers["content-type"]
    plain = client.get("/subjects", headers={"accept": "application/json"})
    assert "application/json" == plain.headers["content-type"]


def test_an_incompatible_schema_is_refused_unless_forced(client: httpx.Client, subject: str) -> None:
    register(client, subject, record("C", x="int"))
    body = {"schema": record("C", x="string")}

    refused = client.post(f"/subjects/{subject}/versions", json=body)
    assert (409, 40901) == code(refused)
    assert "TYPE_MISMATCH" in refused.json()["message"]
    assert "{oldSchemaVersion: 1}" in refused.json()["message"]
    verbose = client.post(f"/compatibility/subjects/{subject}/versions/latest?verbose=true", json=body).json()
    assert verbose["is_compatible"] is False
    assert verbose["messages"]
    assert {"is_compatible": False} == client.post(
        f"/compatibility/subjects/{subject}/versions", json=body
    ).json()
    assert 2 == client.post(f"/subjects/{subject}/versions?force=true", json=body).json()["version"]


def test_the_lenient_policy_lets_properties_be_added_to_a_json_schema(
    client: httpx.Client, subject: str
) -> None:
    def body(*names: str) -> dict[str, str]:
        properties = {name: {"type": "string"} for name in names}
        return {"schemaType": "JSON", "schema": json.dumps({"type": "object", "properties": properties})}

    assert 200 == client.post(f"/subjects/{subject}/versions", json=body("a")).status_code
    assert (409, 40901) == code(client.post(f"/subjects/{subject}/versions", json=body("a", "b")))
    unknown = client.put(f"/config/{subject}", json={"compatibilityPolicy": "soft"})
    assert 422 == unknown.status_code
    assert "it must be STRICT or LENIENT" in unknown.json()["message"]
    assert 200 == client.put(f"/config/{subject}", json={"compatibilityPolicy": "LENIENT"}).status_code
    assert 200 == client.post(f"/subjects/{subject}/versions", json=body("a", "b")).status_code


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/subjects/none/versions", None, (404, 40401)),
        ("GET", "/subjects/none/versions/1", None, (404, 40401)),
        ("GET", "/subjects/none/versions/zero", None, (422, 42202)),
        ("GET", "/subjects/none/versions/0", None, (422, 42202)),
        ("GET", "/schemas/ids/99999", None, (404, 40403)),
        ("GET", "/schemas/ids/x", None, (404, 404)),
        ("GET", "/schemas/ids/--5", None, (404, 404)),
        ("GET", "/schemas/ids/" + "9" * 5_000, None, (404, 404)),
        ("POST", "/subjects/none", {"schema": '"int"'}, (404, 40401)),
        ("POST", "/subjects/none/versions", {"schema": "no"}, (422, 42201)),
        ("POST", "/subjects/none/versions", {"schema": ""}, (422, 42201)),
        ("POST", "/subjects/none/versions", {"schema": "x", "schemaType": "THRIFT"}, (422, 42201)),
        ("POST", "/subjects/none/versions", {"schema": '"int"', "id": 7}, (422, 42205)),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, (422, 42208)),
        ("POST", "/compatibility/subjects/none/versions/1", {"schema": '"int"'}, (404, 40402)),
        ("PUT", "/config/none", {"compatibility": "SIDEWAYS"}, (422, 42203)),
        ("GET", "/config/none", None, (404, 40408)),
        ("DELETE", "/config/none", None, (404, 40401)),
        ("PUT", "/mode/none", {"mode": "READNOTHING"}, (422, 42204)),
        ("GET", "/mode/none", None, (404, 40409)),
        ("DELETE", "/subjects/none", None, (404, 40401)),
        ("DELETE", "/subjects/none/versions/1", None, (404, 40401)),
        ("GET", "/exporters", None, (501, 50101)),
        ("PATCH", "/subjects", None, (405, 405)),
        ("GET", "/subjects/a/b/c/d/e", None, (404, 404)),
    ],
)
def test_errors_have_confluents_codes(
    client: httpx.Client, method: str, path: str, body: object, expected: tuple[int, int]
) -> None:
    response = client.request(method, path, json=body) if body is not None else client.request(method, path)

    assert expected == code(response)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"schema": 1}', b'{"schema":"\\ud800"}'])
def test_a_malformed_body_is_an_error_of_the_client(client: httpx.Client, body: bytes) -> None:
    response = client.post("/subjects/none/versions", content=body)

    assert response.status_code in (400, 422)
    assert response.json()["message"]


def test_deletion_is_soft_then_permanent(client: httpx.Client, subject: str) -> None:
    register(client, subject, record("D", x="int"))
    second = register(client, subject, '{"type":"record","name":"D","fields":[]}')
    versions = f"/subjects/{subject}/versions"

    assert (404, 40407) == code(client.delete(f"{versions}/1?permanent=true"))
    assert 1 == client.delete(f"{versions}/1").json()
    assert (404, 40406) == code(client.delete(f"{versions}/1"))
    assert [2] == client.get(versions).json()
    assert [1, 2] == client.get(f"{versions}?deleted=true").json()
    assert [1] == client.get(f"{versions}?deletedOnly=true").json()
    assert [-1, 2] == client.get(f"{versions}?deletedAsNegative=true").json()
    assert client.get(f"{versions}/1?deleted=true").json()["deleted"] is True
    assert 1 == client.delete(f"{versions}/1?permanent=true").json()
    assert (404, 40405) == code(client.delete(f"/subjects/{subject}?permanent=true"))
    assert [2] == client.delete(f"/subjects/{subject}").json()
    assert (404, 40404) == code(client.delete(f"/subjects/{subject}"))
    assert subject in client.get("/subjects?deletedOnly=true").json()
    assert 200 == client.get(f"/schemas/ids/{second['id']}").status_code
    assert [2] == client.delete(f"/subjects/{subject}?permanent=true").json()
    assert (404, 40403) == code(client.get(f"/schemas/ids/{second['id']}"))
    assert second["id"] < register(client, subject, '"bytes"')["id"], "an id is never used again"


def test_references_are_resolved_and_protect_what_they_name(client: httpx.Client, subject: str) -> None:
    register(client, f"{subject}-address", record("Address", city="string"))
    reference = {"name": "Address", "subject": f"{subject}-address", "version": 1}
    person = record("Person", home="Address")
    registered = register(client, subject, person, references=[reference])

    assert [reference] == client.get(f"/subjects/{subject}/versions/1").json()["references"]
    path = f"/subjects/{subject}-address/versions/1"
    assert [registered["id"]] == client.get(f"{path}/referencedby").json()
    assert (422, 42206) == code(client.delete(path))
    missing = {"schema": person, "references": [{**reference, "version": 9}]}
    assert (422, 42201) == code(client.post(f"/subjects/{subject}/versions", json=missing))


def test_configurations_fall_back_to_the_global_one(client: httpx.Client, subject: str) -> None:
    assert {"compatibilityLevel": "BACKWARD"} == client.get("/config").json()
    assert {"compatibility": "FULL"} == client.put(
        f"/config/{subject}", json={"compatibility": "full"}
    ).json()
    assert {"compatibility": "FULL", "normalize": True} == client.put(
        f"/config/{subject}", json={"normalize": True}
    ).json()
    assert {"normalize": True, "compatibilityLevel": "FULL"} == client.get(f"/config/{subject}").json()
    assert {"compatibilityLevel": "BACKWARD"} == client.get(
        f"/config/{subject}-other?defaultToGlobal=true"
    ).json()
    assert "FULL" == client.delete(f"/config/{subject}").json()["compatibilityLevel"]
    assert (404, 40408) == code(client.get(f"/config/{subject}"))


def test_metadata_and_rules_are_kept_and_completed_by_the_configuration(
    client: httpx.Client, subject: str
) -> None:
    default = {"properties": {"owner": "team-a"}, "tags": {"b": ["PII"], "a": ["Z", "Y"]}}
    rules = {
        "domainRules": [{"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "1"}]
    }
    client.put(f"/config/{subject}", json={"defaultMetadata": default})

    registered = register(client, subject, record("M", x="int"), ruleSet=rules)

    assert {"a": ["Y", "Z"], "b": ["PII"]} == registered["metadata"]["tags"]
    assert "team-a" == registered["metadata"]["properties"]["owner"]
    assert "check" == registered["ruleSet"]["domainRules"][0]["name"]
    found = client.get(f"/subjects/{subject}/metadata?key=owner&value=team-a").json()
    assert registered["id"] == found["id"]
    bad = {"schema": '"int"', "ruleSet": {"domainRules": [{"name": "1", "type": "CEL", "mode": "UPGRADE"}]}}
    assert (422, 42210) == code(client.post(f"/subjects/{subject}-2/versions", json=bad))


def tags_of(path: str, kind: str, *tags: str) -> dict[str, Any]:
    return {"schemaEntity": {"entityPath": path, "entityType": kind}, "tags": list(tags)}


def test_tags_inside_a_schema_are_added_removed_and_propagated(client: httpx.Client, subject: str) -> None:
    """The cases of Confluent's own test of the resource."""
    plain = record("myrecord", f1="string")
    tagged = plain[:-1] + ',"confluent:tags":["TAG1"]}'
    of_record = tags_of("myrecord", "sr_record", "TAG1", "TAG2")
    register(client, subject, plain)

    second = register(client, subject, plain, schemaTagsToAdd=[of_record])
    found = client.get(f"/subjects/{subject}/versions/latest?findTags=*").json()
    assert (2, second["id"], [of_record]) == (found["version"], found["id"], found["schemaTags"])
    assert {"confluent:version": "2"} == found["metadata"]["properties"]
    assert "schemaTags" not in client.get(f"/subjects/{subject}/versions/latest").json()

    removed = {"newVersion": 3, "tagsToRemove": [tags_of(".myrecord", "sr_record", "TAG2")]}
    third = client.post(f"/subjects/{subject}/versions/latest/tags", json=removed).json()
    assert (3, tagged) == (third["version"], third["schema"])
    by_id = client.get(f"/schemas/ids/{third['id']}?subject={subject}&findTags=TAG1&findTags=X").json()
    assert [tags_of("myrecord", "sr_record", "TAG1")] == by_id["schemaTags"]
    assert "schemaTags" not in client.get(f"/schemas/ids/{third['id']}?findTags=TAG2").json()

    fields = '{"name":"f2","type":"string","default":"hi","confluent:tags":["TAG3"]}'
    evolved = f'{{"type":"record","name":"myrecord","fields":[{fields}]}}'
    fourth = register(client, subject, evolved, propagateSchemaTags=True)
    assert (4, evolved[:-1] + ',"confluent:tags":["TAG1"]}') == (fourth["version"], fourth["schema"])
    # The tag of the field that is gone is ignored.
    dropped = register(client, subject, record("myrecord"), propagateSchemaTags=True)
    assert record("myrecord")[:-1] + ',"confluent:tags":["TAG1"]}' == dropped["schema"]

    looked_up = client.post(
        f"/subjects/{subject}",
        json={"schema": record("myrecord"), "schemaTagsToAdd": [tags_of("myrecord", "sr_record", "TAG1")]},
    )
    assert dropped["id"] == looked_up.json()["id"]


def test_changes_of_tags_at_the_same_time_lose_none(client: httpx.Client, subject: str) -> None:
    register(client, subject, record("R"))
    wanted = {f"T{number}" for number in range(8)}

    def add(tag: str) -> int:
        body = {"tagsToAdd": [tags_of("R", "sr_record", tag)]}
        return client.post(f"/subjects/{subject}/versions/latest/tags", json=body).status_code

    with ThreadPoolExecutor(len(wanted)) as pool:
        assert [200] * len(wanted) == list(pool.map(add, wanted))
    (found,) = client.get(f"/subjects/{subject}/versions/latest?findTags=*").json()["schemaTags"]
    assert wanted == set(found["tags"])


def test_a_change_of_tags_changes_rules(client: httpx.Client, subject: str) -> None:
    def rule(name: str, expression: str) -> dict[str, Any]:
        return {"name": name, "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": expression}

    register(client, subject, record("R"), ruleSet={"domainRules": [rule("a", "1"), rule("b", "1")]})
    change = {"rulesToMerge": {"domainRules": [rule("b", "2"), rule("c", "2")]}, "rulesToRemove": ["a"]}
    changed = client.post(f"/subjects/{subject}/versions/1/tags", json=change).json()

    assert 2 == changed["version"]
    rules = changed["ruleSet"]["domainRules"]
    assert [("b", "2"), ("c", "2")] == [(each["name"], each["expr"]) for each in rules]
    both = {**change, "ruleSet": {"domainRules": [rule("d", "1")]}}
    assert (422, 42210) == code(client.post(f"/subjects/{subject}/versions/1/tags", json=both))
    owned = {"metadata": {"properties": {"owner": "team-a"}}}
    third = client.post(f"/subjects/{subject}/versions/latest/tags", json=owned).json()
    assert {"owner": "team-a", "confluent:version": "3"} == third["metadata"]["properties"]
    assert rules == third["ruleSet"]["domainRules"]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("missing/versions/1", {}, (404, 40401)),
        ("{subject}/versions/2", {}, (404, 40402)),
        ("{subject}/versions/x", {}, (422, 42202)),
        ("{subject}/versions/1", {"newVersion": 1}, (422, 42201)),
        ("{subject}/versions/1", {"tagsToAdd": [tags_of("no.such", "sr_field", "T")]}, (422, 42201)),
        ("{subject}/versions/1", {"tagsToAdd": [tags_of("R", "record", "T")]}, (422, 42201)),
        ("{subject}/versions/1", {"tagsToAdd": "T"}, (422, 42201)),
        ("{subject}/versions/1", {"tagsToAdd": [{"schemaEntity": "R", "tags": ["T"]}]}, (422, 42201)),
        ("{subject}/versions/1", {"metadata": []}, (422, 42201)),
        ("{subject}/versions/1", {"rulesToRemove": "a"}, (422, 42210)),
        ("{subject}/versions/1", {"rulesToMerge": {"domainRules": [{}]}}, (422, 42210)),
    ],
)
def test_a_change_of_tags_that_is_not_possible_is_refused(
    client: httpx.Client, subject: str, path: str, body: dict[str, Any], expected: tuple[int, int]
) -> None:
    register(client, subject, record("R"))

    assert expected == code(client.post(f"/subjects/{path.format(subject=subject)}/tags", json=body))


def test_modes_forbid_and_import(client: httpx.Client, subject: str) -> None:
    client.put(f"/mode/{subject}", json={"mode": "READONLY"})
    body = {"schema": record("E", x="int")}
    assert (422, 42205) == code(client.post(f"/subjects/{subject}/versions", json=body))
    assert (422, 42205) == code(client.put(f"/config/{subject}", json={"compatibility": "NONE"}))
    assert {"mode": "IMPORT"} == client.put(f"/mode/{subject}", json={"mode": "IMPORT"}).json()
    imported = client.post(f"/subjects/{subject}/versions", json={**body, "id": 70_000, "version": 5}).json()
    assert (70_000, 5) == (imported["id"], imported["version"])
    other = {"schema": record("F"), "id": 70_000, "version": 6}
    assert (422, 42205) == code(client.post(f"/subjects/{subject}/versions", json=other))
    assert "IMPORT" == client.delete(f"/mode/{subject}").json()["mode"]
    assert 70_000 < register(client, subject, record("E"))["id"]
    assert (422, 42205) == code(client.put(f"/mode/{subject}", json={"mode": "IMPORT"}))
    assert 200 == client.put(f"/mode/{subject}?force=true", json={"mode": "IMPORT"}).status_code


def test_contexts_have_ids_of_their_own(client: httpx.Client, subject: str) -> None:
    context = f".{subject}"
    first = register(client, f":{context}:a", record("G", x="int"))
    second = client.post(f"/contexts/{context}/subjects/b/versions", json={"schema": record("H")}).json()

    assert (1, 2) == (first["id"], second["id"])
    assert context in client.get("/contexts").json()
    assert [f":{context}:a", f":{context}:b"] == client.get(f"/contexts/{context}/subjects").json()
    assert record("H") == client.get(f"/contexts/{context}/schemas/ids/2").json()["schema"]
    assert record("H") == client.get(f"/schemas/ids/2?subject=:{context}:b").json()["schema"]
    client.put(f"/contexts/{context}/config", json={"compatibility": "NONE"})
    assert "NONE" == client.get(f"/config/:{context}:a?defaultToGlobal=true").json()["compatibilityLevel"]
    assert (422, 42211) == code(client.delete(f"/contexts/{context}"))
    for name in ("a", "b"):
        for permanent in ("false", "true"):
            client.delete(f"/subjects/:{context}:{name}?permanent={permanent}")
    assert 204 == client.delete(f"/contexts/{context}").status_code
    assert context not in client.get("/contexts").json()


def test_an_alias_stands_for_its_subject(client: httpx.Client, subject: str) -> None:
    register(client, subject, record("I", x="int"))
    client.put(f"/config/{subject}-alias", json={"alias": subject})

    assert [1] == client.get(f"/subjects/{subject}-alias/versions").json()
    listed = client.get(f"/schemas?subjectPrefix={subject}-alias&aliases=true").json()
    assert [subject] == [each["subject"] for each in listed]
    assert [f"{subject}-alias"] == listed[0]["aliases"]


def test_lists_are_paged(client: httpx.Client, subject: str) -> None:
    for number in range(3):
        register(client, f"{subject}-{number}", record(f"P{number}"))
    prefix = f"subjectPrefix={subject}"

    assert [f"{subject}-1"] == client.get(f"/subjects?{prefix}&offset=1&limit=1").json()
    assert 2 == len(client.get(f"/schemas?{prefix}&limit=2").json())
    assert 3 == len(client.get(f"/schemas?{prefix}&latestOnly=true").json())


def test_a_name_with_a_slash_is_one_subject(client: httpx.Client, subject: str) -> None:
    register(client, f"{subject}%2Fa%20b", record("J"))

    assert [f"{subject}/a b"] == client.get(f"/subjects?subjectPrefix={subject}").json()
    assert [1] == client.get(f"/subjects/{subject}%2Fa%20b/versions").json()


def test_a_schema_is_looked_up_by_its_text(client: httpx.Client, subject: str) -> None:
    registered = register(client, subject, record("K", x="int"))
    spaced = '{"name": "K", "type": "record", "fields": [{"type": "int", "name": "x"}]}'

    assert registered["id"] == client.post(f"/subjects/{subject}", json={"schema": spaced}).json()["id"]
    assert (404, 40403) == code(client.post(f"/subjects/{subject}", json={"schema": '"int"'}))


def test_metadata_of_the_server(http_cluster: HttpCluster, client: httpx.Client) -> None:
    assert (
        "schema-registry"
        == client.get("/v1/metadata/id").json()["scope"]["clusters"]["schema-registry-cluster"]
    )
    assert client.get("/v1/metadata/version").json()["version"]
    assert {"JSON", "PROTOBUF", "AVRO"} == set(client.get("/schemas/types").json())
    assert {} == client.get("/").json()


@pytest.mark.parametrize(
    ("schema_type", "old", "compatible", "incompatible"),
    [
        (
            "JSON",
            '{"type":"object","properties":{"x":{"type":"integer"}},"additionalProperties":false}',
            '{"type":"object","properties":{"x":{"type":"number"}},"additionalProperties":false}',
            '{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":false}',
        ),
        (
            "PROTOBUF",
            'syntax = "proto3"; message A { int32 x = 1; }',
            'syntax = "proto3"; message A { int32 x = 1; string y = 2; }',
            'syntax = "proto3"; message A { string x = 1; }',
        ),
    ],
)
def test_the_other_types_of_schemas(
    client: httpx.Client, subject: str, schema_type: str, old: str, compatible: str, incompatible: str
) -> None:
    first = register(client, subject, old, schemaType=schema_type)
    second = register(client, subject, compatible, schemaType=schema_type)

    assert schema_type == client.get(f"/schemas/ids/{first['id']}").json()["schemaType"]
    assert 2 == second["version"]
    body = {"schema": incompatible, "schemaType": schema_type}
    assert (409, 40901) == code(client.post(f"/subjects/{subject}/versions", json=body))
    assert (
        1
        == client.post(f"/subjects/{subject}", json={"schema": old, "schemaType": schema_type}).json()[
            "version"
        ]
    )


@pytest.mark.parametrize(
    ("schema_type", "before", "after"),
    [
        ("AVRO", record("R", x="int"), record("R", x="int", taken="int")),
        ("JSON", '{"properties":{"x":{}}}', '{"properties":{"x":{},"taken":{}}}'),
        (
            "PROTOBUF",
            'syntax = "proto3"; message R { int32 x = 1; }',
            'syntax = "proto3"; message R { oneof o { int32 x = 1; int32 taken = 2; } }',
        ),
    ],
)
def test_names_that_the_metadata_reserves_are_no_fields(
    client: httpx.Client, subject: str, schema_type: str, before: str, after: str
) -> None:
    """`validateFields`, which Confluent's registry has for its data contracts."""
    reserved = {"schemaType": schema_type, "metadata": {"properties": {"confluent:reserved": "taken, other"}}}
    client.put(f"/config/{subject}", json={"compatibility": "NONE", "validateFields": True})
    register(client, subject, before, **reserved)

    used = client.post(f"/subjects/{subject}/versions", json={"schema": after, **reserved})
    fewer = {**reserved, "metadata": {"properties": {"confluent:reserved": "taken"}}}
    removed = client.post(f"/subjects/{subject}/versions", json={"schema": before, **fewer})
    client.put(f"/config/{subject}", json={"validateFields": False})
    allowed = client.post(f"/subjects/{subject}/versions", json={"schema": after, **reserved})

    assert (409, 40901) == code(used)
    assert "the field 'taken' has a name that the metadata reserves" in used.text
    assert "{validateFields: 'true', compatibility: 'NONE'}" in used.text
    assert (409, 40901) == code(removed)
    assert "the name 'other', reserved by the version before, is not" in removed.text
    assert 200 == allowed.status_code


def test_what_is_not_supported_says_so(client: httpx.Client, subject: str) -> None:
    register(client, subject, record("T"))

    for method, path in (
        ("POST", "/associations"),
        ("PUT", "/associations/resources/r"),
        ("DELETE", "/associations/resources/r"),
        ("GET", "/exporters"),
    ):
        assert (501, 50101) == code(client.request(method, path, json={})), path
    assert [] == client.get("/associations/resources/-/orders").json()


def test_associations_that_another_registry_wrote_are_read(
    http_cluster: HttpCluster, client: httpx.Client
) -> None:
    """Serializers ask for them first, and have to use the same subject whichever registry they ask."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    resource = {"resourceName": topic, "resourceNamespace": "lkc-1", "resourceType": "topic"}
    value = {**resource, "tenant": "default", "resourceId": f"id-{topic}", "subject": "shared", "guid": "g",
             "associationType": "value", "lifecycle": "STRONG", "frozen": False}  # fmt: skip
    key = json.dumps(
        {"keytype": "ASSOC", "tenant": "default", **resource, "associationType": "value"}
    ).encode()

    def write(data: bytes | None) -> None:
        with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
            producer.send("_schemas", data, key).result(30)
        register(client, topic, record("W"), metadata={"properties": {"n": str(data)}})  # reads up to here

    write(json.dumps(value).encode())
    shown = {name: each for name, each in value.items() if name != "tenant"}

    def found(path: str) -> Any:
        return client.get(f"/associations/{path}").json()

    assert [shown] == found(f"resources/-/{topic}?associationType=value&resourceType=topic")
    assert [shown] == found(f"resources/lkc-1/{topic}?lifecycle=strong")
    assert [shown] == found(f"resources/id-{topic}")
    assert [shown] == [each for each in found("subjects/shared") if each["resourceName"] == topic]
    assert [] == found(f"resources/-/{topic}?associationType=key")
    assert [] == found(f"resources/lkc-2/{topic}")
    write(None)
    assert [] == found(f"resources/-/{topic}")
