"""Every field of every message that could name something is listed, with what it names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kalda.common.api_keys import ApiKey
from kalda.protocol.namespaces.kinds import GROUP, GROUP_OR_EMPTY, TOPIC, TRANSACTIONAL_ID
from kalda.protocol.namespaces.names import NO_NAMES, REFUSED, is_no_name, names_of
from kalda.protocol.registry import declared_keys, spec
from kalda.protocol.schema import BYTES, STRING, UUID_KIND, ArrayKind

APACHE = Path(__file__).parents[4] / "../shared/reference/kafka-messages"

ENTITIES = {
    "topicName": {TOPIC},
    "groupId": {GROUP, GROUP_OR_EMPTY},
    "transactionalId": {TRANSACTIONAL_ID},
}
"""What Apache's message definitions call the kinds."""


def fields(struct_class: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all texts, bytes and ids of a struct."""
    for field in struct_class.FIELDS:
        kind, name = field.kind, path + field.name
        while isinstance(kind, ArrayKind):
            kind, name = kind.element, name + "[]"
        if kind in (STRING, BYTES, UUID_KIND):
            yield name
        elif isinstance(kind, type):
            yield from fields(kind, f"{name}.")


def both(api_key: ApiKey) -> list[tuple[str, Any, set[str]]]:
    """Return the request and the response of an API with the paths that the table has for it."""
    api, names = spec(api_key), names_of(api_key)
    assert names is not None, f"{api_key.name} is in no table"
    return [
        (api.request_class.__name__, api.request_class, set(names.request)),
        (api.response_class.__name__, api.response_class, set(names.response)),
    ]


CLIENT_KEYS = [key for key in declared_keys() if key not in REFUSED]


def test_an_api_is_in_the_table_or_refused() -> None:
    """An API that nobody thought of would show the names of all namespaces."""
    assert [] == [key.name for key in declared_keys() if (names_of(key) is None) != (key in REFUSED)]


@pytest.mark.parametrize("api_key", CLIENT_KEYS, ids=lambda key: key.name)
def test_a_text_is_a_name_or_listed_as_none(api_key: ApiKey) -> None:
    """A new field of a message must not be forgotten: it may carry the name of another namespace's topic."""
    for name, message_class, listed in both(api_key):
        found = set(fields(message_class))
        forgotten = {path for path in found if path not in listed and not is_no_name(path)}
        assert set() == forgotten, f"{name} has fields of which it is not known what they name"
        assert set() == listed - found, f"{name} has no such fields"
        assert set() == {path for path in listed if is_no_name(path)}, f"{name} has fields in both lists"


def test_what_names_nothing_exists() -> None:
    """An entry that no field has any more would let a later field of that name pass unseen."""
    paths = {path for key in CLIENT_KEYS for _, each, _ in both(key) for path in fields(each)}
    unused = {end for end in NO_NAMES if not any(p == end or p.endswith(f".{end}") for p in paths)}
    assert set() == unused


@pytest.mark.skipif(not APACHE.is_dir(), reason="Apache's message definitions are not beside the checkout")
@pytest.mark.parametrize("api_key", CLIENT_KEYS, ids=lambda key: key.name)
def test_topics_groups_and_transactional_ids_are_those_of_apache(api_key: ApiKey) -> None:
    """Apache's definitions say of each field whether it is a topic, a group or a transactional id."""
    names = names_of(api_key)
    assert names is not None
    for message, listed in (
        (spec(api_key).request_class, names.request),
        (spec(api_key).response_class, names.response),
    ):
        definition = APACHE / f"{message.__name__}.json"
        if not definition.exists():
            continue
        for path, entity in entities(json.loads(without_comments(definition.read_text()))):
            assert listed.get(path) in ENTITIES[entity], f"{message.__name__}: {path} is a {entity}"


def without_comments(text: str) -> str:
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def entities(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path and the entity type of each field that has one."""
    shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}

    def walk(found: list[dict[str, Any]], path: str) -> Iterator[tuple[str, str]]:
        for field in found:
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
            name = path + name + ("[]" if field["type"].startswith("[]") else "")
            if field.get("entityType") in ENTITIES:
                yield name, field["entityType"]
            element = field["type"].removeprefix("[]")
            yield from walk(field.get("fields", shared.get(element, [])), f"{name}.")

    yield from walk(definition["fields"], "")
