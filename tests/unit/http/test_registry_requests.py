"""Bodies of requests to the registry: what is malformed gets a status, and no exception of another kind."""

import json

import pytest

from kalda.http.errors import HttpError
from kalda.http.registry.contents import read_references
from kalda.http.registry.records import RecordError, read_schema_value
from kalda.http.registry_api.requests import checked_rule_set, read_tag_change, whole_number
from kalda.schemas.errors import SchemaError


@pytest.mark.parametrize(
    "more",
    [{"tags": "PII"}, {"tags": [1]}, {"params": "x"}, {"params": {"a": 1}}, {"mode": "UPGRADE"}],
)
def test_a_malformed_rule_is_refused(more: dict[str, object]) -> None:
    rule = {"name": "a", "type": "CEL", **more}

    with pytest.raises(HttpError) as refused:
        checked_rule_set({"domainRules": [rule]})
    assert (422, 42210) == (refused.value.status, refused.value.code)


@pytest.mark.parametrize("version", [2**31, -(2**31) - 1, 10**30, True, "1", None])
def test_a_reference_to_a_version_that_is_no_number_of_32_bits_is_refused(version: object) -> None:
    """The digest of a schema has the version as 32 bits."""
    with pytest.raises(SchemaError, match="Invalid reference"):
        read_references([{"name": "a", "subject": "s", "version": version}])


@pytest.mark.parametrize("version", [2**31, 10**30])
def test_a_record_with_a_number_of_more_than_32_bits_is_refused(version: int) -> None:
    """A later one would get an id that no message can carry."""
    fields = {"subject": "s", "version": 1, "id": version, "schema": '"string"'}
    with pytest.raises(RecordError, match="is no number of 32 bits"):
        read_schema_value(json.dumps(fields).encode())


@pytest.mark.parametrize("value", [2**31, 10**30, True, "1", 1.5])
def test_an_id_that_is_no_number_of_32_bits_is_refused(value: object) -> None:
    with pytest.raises(HttpError, match="32 bits"):
        whole_number({"id": value}, "id", -1)


@pytest.mark.parametrize("kind", ["record", None, 1, [], {}])
def test_a_tag_for_an_unknown_type_of_entity_is_refused(kind: object) -> None:
    tag = {"schemaEntity": {"entityPath": "R", "entityType": kind}, "tags": ["T"]}

    with pytest.raises(HttpError) as refused:
        read_tag_change({"tagsToAdd": [tag]}, "tagsToAdd", "tagsToRemove")
    assert (422, 42201) == (refused.value.status, refused.value.code)
