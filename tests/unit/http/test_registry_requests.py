"""Bodies of requests to the registry: what is malformed gets a status, and no exception of another kind."""

import pytest

from kalda.http.errors import HttpError
from kalda.http.registry_api.requests import checked_rule_set, read_tag_change


@pytest.mark.parametrize(
    "more",
    [{"tags": "PII"}, {"tags": [1]}, {"params": "x"}, {"params": {"a": 1}}, {"mode": "UPGRADE"}],
)
def test_a_malformed_rule_is_refused(more: dict[str, object]) -> None:
    rule = {"name": "a", "type": "CEL", **more}

    with pytest.raises(HttpError) as refused:
        checked_rule_set({"domainRules": [rule]})
    assert (422, 42210) == (refused.value.status, refused.value.code)


@pytest.mark.parametrize("kind", ["record", None, 1, [], {}])
def test_a_tag_for_an_unknown_type_of_entity_is_refused(kind: object) -> None:
    tag = {"schemaEntity": {"entityPath": "R", "entityType": kind}, "tags": ["T"]}

    with pytest.raises(HttpError) as refused:
        read_tag_change({"tagsToAdd": [tag]}, "tagsToAdd", "tagsToRemove")
    assert (422, 42201) == (refused.value.status, refused.value.code)
