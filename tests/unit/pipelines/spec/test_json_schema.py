"""The JSON schema of pipeline files accepts the files of the project and finds what a parser would refuse."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kalda.pipelines.spec import cases
from kalda.pipelines.spec.json_schema import cases_json_schema, json_schema
from kalda.pipelines.spec.sections import SECTIONS
from kalda.tools.pipeline.init import cases_text, text_of

EXAMPLES = sorted((Path(__file__).resolve().parents[4] / "examples").glob("*/pipeline.yml"))
TYPES = {
    "string": str,
    "number": int | float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
SCHEMA: dict[str, Any] = json_schema()
TESTS_SCHEMA: dict[str, Any] = cases_json_schema()
DEFINITIONS: dict[str, Any] = SCHEMA["definitions"] | TESTS_SCHEMA["definitions"]

GOOD: dict[str, Any] = {
    "name": "shop",
    "storage": "state",
    "pipelines": [{"name": "a", "from": {"topic": "t"}, "to": {"table": "lake.t"}}],
}


def faults(value: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Yield what is wrong with a value, by the rules of JSON Schema that the schema uses."""
    known = {"$schema", "title", "description", "definitions", "type", "enum", "pattern", "anyOf", "allOf"}
    known |= {"$ref", "properties", "required", "additionalProperties", "items"}
    assert schema.keys() <= known, schema.keys() - known
    if "$ref" in schema:
        yield from faults(value, DEFINITIONS[schema["$ref"].removeprefix("#/definitions/")], path)
        return
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        is_number_only = "boolean" not in names and isinstance(value, bool)
        if is_number_only or not any(isinstance(value, TYPES[name]) for name in names):
            yield f"{path} is {type(value).__name__}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is {value}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{path} is {value}"
    if "anyOf" in schema and all(list(faults(value, each, path)) for each in schema["anyOf"]):
        yield f"{path} is none of the choices"
    for each in schema.get("allOf", ()):
        yield from faults(value, each, path)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from faults(item, schema["items"], f"{path}[{index}]")
    if isinstance(value, dict):
        yield from (f"{path} has no {name}" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            of_name = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if of_name is False:
                yield f"{path} has an unknown key {name}"
            elif of_name is not None:
                yield from faults(item, of_name, f"{path}.{name}")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_are_valid(path: Path) -> None:
    assert [] == list(faults(yaml.safe_load(path.read_text(encoding="utf-8")), SCHEMA))


@pytest.mark.parametrize("target", ["delta", "iceberg", "parquet", "topic"])
def test_a_file_of_init_is_valid(target: str) -> None:
    assert [] == list(faults(yaml.safe_load(text_of("p.yml", target)), SCHEMA))


@pytest.mark.parametrize("target", ["delta", "topic"])
def test_the_tests_of_init_are_valid(target: str) -> None:
    assert [] == list(faults(yaml.safe_load(cases_text("p.yml", target)), TESTS_SCHEMA))


@pytest.mark.parametrize(
    ("sections", "schema"), [(SECTIONS, SCHEMA), (cases.SECTIONS, TESTS_SCHEMA)], ids=["pipelines", "tests"]
)
def test_the_schema_has_every_key_of_the_reference(sections: Any, schema: Any) -> None:
    """A key whose kind of value the schema does not know makes it fail, here and not in an editor."""
    described = [schema, *schema["definitions"].values()]
    assert [list(section.names) for _, section in sections] == [
        list(each["properties"]) for each in described
    ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"storag": "x"}, " has an unknown key storag"),
        ({"name": "a/b"}, ".name is a/b"),
        ({"pipelines": {}}, ".pipelines is dict"),
        ({"defaults": {"on_error": "stop"}}, ".defaults.on_error is none of the choices"),
        ({"defaults": {"restart": {"backoff": "5 years"}}}, ".defaults.restart.backoff is 5 years"),
        ({"defaults": {"restart": 5}}, ".defaults.restart is int"),
        ({"cluster": {"security": {"protocol": "SSL"}}}, ".cluster.security is dict"),
        ({"pipelines": [{"name": "a", "from": {"tabel": "t"}}]}, ".pipelines[0].from is none of the choices"),
    ],
)
def test_a_wrong_file_is_not(change: dict[str, Any], fault: str) -> None:
    assert [] == list(faults(GOOD, SCHEMA))
    assert [fault] == list(faults(GOOD | change, SCHEMA))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"recrods": []}, ".tests[0] has an unknown key recrods"),
        ({"rows": [5]}, ".tests[0].rows[0] is int"),
        ({"dead_letters": [{"stage": "decode"}]}, ".tests[0].dead_letters[0] has no record"),
        ({"filtered": 0, "records": [{"value": {"a": [1]}, "key": "k", "timestamp": 5}]}, None),
    ],
)
def test_a_wrong_test_is_found(change: dict[str, Any], fault: str | None) -> None:
    file = {"tests": [{"name": "a", "records": [], **change}]}
    assert ([] if fault is None else [fault]) == list(faults(file, TESTS_SCHEMA))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "${NAME}"},
        {"defaults": {"on_error": "${ON_ERROR:-dlq}", "ledger": False}},
        {"defaults": {"ledger": "${LEDGER}", "trigger": "availableNow", "breaker": {"records_min": 5}}},
        {"cluster": None, "spark": {"settings": {"spark.sql.shuffle.partitions": 2}}},
        {"pipelines": [{"name": "a", "transform": "where x > 1", "from": {"topic": ["a", "b"]}}]},
        {"pipelines": [{"name": "a", "transform": [{"sql": "select 1"}, {"python": "a:f"}]}]},
        {"pipelines": [{"name": "a", "mirror": {"source": "x", "target": "y", "topics": ".*"}}]},
    ],
)
def test_what_editors_read_as_numbers_and_variables_is_valid(change: dict[str, Any]) -> None:
    assert [] == list(faults(GOOD | change, SCHEMA))
