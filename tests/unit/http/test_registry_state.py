"""The state of a registry is what its records say, however they are read."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.http.errors import HttpError
from kalda.http.registry.changes import (
    Registration,
    decide_config,
    decide_context_deletion,
    decide_mode,
    decide_registration,
    decide_subject_deletion,
    decide_version_deletion,
)
from kalda.http.registry.contents import Content
from kalda.http.registry.evaluation import Evaluation
from kalda.http.registry.records import NOOP, Change, Key, KeyType, SchemaValue, read_key
from kalda.http.registry.state import Mode, State
from kalda.schemas.model import Reference


def content(text: str, *references: Reference) -> Content:
    return Content("AVRO", text, references)


def apply(state: State, changes: list[Change]) -> None:
    for change in changes:
        state.apply(change.key.encode(), change.value)


def register(state: State, subject: str, text: str, *references: Reference, **more: Any) -> int:
    schema = content(text, *references)
    decision = decide_registration(state, Registration(subject, schema, **more), Evaluation(schema, (), []))
    apply(state, decision.changes)
    assert decision.version is not None
    return decision.version.id


def schema_record(subject: str, version: int, schema_id: int, text: str, **more: Any) -> tuple[bytes, bytes]:
    value = {"subject": subject, "version": version, "id": schema_id, "schema": text, **more}
    return Key.schema(subject, version).encode(), json.dumps(value).encode()


def test_keys_have_the_bytes_of_confluents_registry() -> None:
    """The cleaner of a log compares keys byte by byte."""
    assert b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}' == Key.schema("a", 1).encode()
    assert b'{"keytype":"CONFIG","subject":"a","magic":0}' == Key(KeyType.CONFIG, "a").encode()
    assert b'{"keytype":"CONFIG","magic":0}' == Key(KeyType.CONFIG).encode()
    assert b'{"keytype":"NOOP","magic":0}' == NOOP.encode()
    assert (
        b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}' == Key(KeyType.DELETE_SUBJECT, "a").encode()
    )
    assert (
        b'{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}'
        == Key(KeyType.CONTEXT, ".x").encode()
    )


def test_values_have_the_fields_of_confluents_registry_in_their_order() -> None:
    reference = Reference("A", "a", 1)
    value = SchemaValue("s", 2, 3, Content("JSON", '"é"', (reference,), {"properties": {"k": "v"}}), True)

    assert (
        '{"subject":"s","version":2,"id":3,"schemaType":"JSON",'
        '"references":[{"name":"A","subject":"a","version":1}],"metadata":{"properties":{"k":"v"}},'
        '"schema":"\\"é\\"","deleted":true}'
    ) == value.encode().decode()


def test_records_of_older_registries_are_read() -> None:
    """Without a type, and with the fields of the key in another order, as Karapace writes them."""
    state = State()
    state.apply(
        b'{"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}',
        b'{"subject": "a", "version": 1, "id": 7, "schema": "\\"int\\"", "deleted": false}',
    )
    state.apply(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')

    found = state.latest("a")
    assert found is not None
    assert ("AVRO", 7) == (found.content.schema_type, found.id)
    assert {"compatibilityLevel": "FULL"} == state.configs[None]


def test_other_forms_of_a_key_are_remembered_until_they_are_deleted() -> None:
    """A tombstone for our form alone would leave the old record in the topic, to come back later."""
    state = State()
    form = b'{"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"}'
    state.apply(form, schema_record("a", 1, 7, '"int"')[1])

    key = read_key(form)
    assert key is not None
    assert [form] == state.other_keys[key]
    state.apply(form, None)
    assert {} == state.other_keys


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"[]", b"{}"),
        (b"\xff\xfe", b"{}"),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":1,"version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":"1"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b""),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"[]"),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            b'{"subject":"a","version":1,"id":"x"}',
        ),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"mode":"UPSIDE"}'),
        (b'{"keytype":"CONFIG","subject":"a","magic":0}', b"1"),
        (b'{"keytype":"CONFIG","subject":1,"magic":0}', b"{}"),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"version":"x"}'),
        (b'{"keytype":"NOOP","magic":0}', b'{"maxIds":{".":"x"}}'),
        (b'{"keytype":"ASSOC","magic":0}', b"{}"),
        (b'{"keytype":"CONTEXT","magic":0}', b"{}"),
    ],
)
def test_what_cannot_be_read_has_no_effect(key: bytes | None, value: bytes) -> None:
    state = State()

    state.apply(key, value)

    assert {} == state.subjects
    assert {} == state.configs
    assert {} == state.modes


@given(st.binary(max_size=80), st.none() | st.binary(max_size=80))
def test_junk_never_raises(key: bytes, value: bytes | None) -> None:
    State().apply(key, value)


def test_an_id_denotes_one_schema_whichever_process_wrote_it() -> None:
    """Two writers for a moment: the first record counts, and the other is to be taken out of the topic."""
    state = State()
    state.apply(*schema_record("a", 1, 1, '"int"'))
    state.apply(*schema_record("b", 1, 1, '"string"'))

    assert ["a"] == state.subjects_in(None)
    assert [Key.schema("b", 1)] == list(state.refused)
    state.apply(Key.schema("b", 1).encode(), None)
    assert not state.refused


def test_ids_are_not_used_again_after_the_schema_is_gone() -> None:
    """Even when the records of the schema are compacted away: the NOOP record keeps the highest id."""
    state = State()
    assert 1 == register(state, "a", '"int"')
    apply(state, decide_subject_deletion(state, "a", is_permanent=False).changes)
    removal = decide_subject_deletion(state, "a", is_permanent=True).changes

    compacted = State()
    apply(compacted, [each for each in removal if each.value is not None])

    assert NOOP == removal[0].key
    assert 2 == register(compacted, "a", '"string"')


def test_a_deleted_version_is_found_by_its_id_until_it_is_gone() -> None:
    state = State()
    register(state, "a", '"int"')
    apply(state, decide_version_deletion(state, "a", 1, is_permanent=False).changes)
    assert state.by_id(1, ".") is not None
    assert state.latest("a") is None

    apply(state, decide_version_deletion(state, "a", 1, is_permanent=True).changes)
    assert state.by_id(1, ".") is None


def test_the_same_schema_registered_again_replaces_its_deleted_version() -> None:
    state = State()
    register(state, "a", '"int"')
    apply(state, decide_version_deletion(state, "a", 1, is_permanent=False).changes)

    assert 1 == register(state, "a", '"int"')
    assert [2] == [each.number for each in state.versions("a")]


def test_references_are_counted_by_context() -> None:
    state = State()
    register(state, ":.x:a", '"int"')
    register(state, ":.x:b", '"B"', Reference("A", "a", 1))

    assert [(".x", 2)] == state.references_to(":.x:a", 1, with_deleted=False)
    assert [] == state.references_to("a", 1, with_deleted=False)
    with pytest.raises(HttpError) as error:
        decide_version_deletion(state, ":.x:a", 1, is_permanent=False)
    assert 42206 == error.value.code


def test_import_mode_clears_deleted_versions_and_needs_no_others() -> None:
    state = State()
    register(state, "a", '"int"')
    with pytest.raises(HttpError) as error:
        decide_mode(state, None, Mode.IMPORT, is_forced=False)
    assert 42205 == error.value.code
    apply(state, decide_version_deletion(state, "a", 1, is_permanent=False).changes)

    apply(state, decide_mode(state, None, Mode.IMPORT, is_forced=False).changes)

    assert {} == state.subjects
    assert 9 == register(state, "a", '"int"', id=9, version=4)
    assert [4] == [each.number for each in state.versions("a")]


SUBJECTS = ("a", "b", ":.x:a")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from(SUBJECTS), st.integers(0, 3)),
        st.tuples(st.just("refer"), st.sampled_from(SUBJECTS), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from(SUBJECTS), st.integers(1, 4)),
        st.tuples(st.just("remove"), st.sampled_from(SUBJECTS), st.integers(1, 4)),
        st.tuples(st.just("delete subject"), st.sampled_from(SUBJECTS), st.integers(0, 1)),
        st.tuples(st.just("config"), st.sampled_from(SUBJECTS), st.integers(0, 2)),
        st.tuples(st.just("mode"), st.sampled_from(SUBJECTS), st.integers(0, 4)),
        st.tuples(st.just("context"), st.just(":.x:"), st.just(0)),
    ),
    max_size=40,
)


def decide(state: State, kind: str, subject: str, number: int) -> list[Change]:
    if kind in ("register", "refer"):
        target = subject.rpartition(":")[2]
        references = (Reference("A", target, max(number, 1)),) if kind == "refer" else ()
        schema = content(f'"{kind}{number}"', *references)
        registration = Registration(subject, schema)
        return decide_registration(state, registration, Evaluation(schema, (), [])).changes
    if kind in ("delete", "remove"):
        return decide_version_deletion(state, subject, number, is_permanent=kind == "remove").changes
    if kind == "delete subject":
        return decide_subject_deletion(state, subject, is_permanent=bool(number)).changes
    if kind == "config":
        level = ("NONE", "FULL", None)[number]
        return decide_config(state, subject, {"compatibilityLevel": level})[0].changes
    if kind == "mode":
        return decide_mode(state, subject, [None, *Mode][number], is_forced=False).changes
    return decide_context_deletion(state, subject).changes


def described(state: State) -> object:
    return (
        state.subjects,
        {
            name: (
                {number: entry.versions for number, entry in context.by_id.items()},
                context.by_digest,
                context.max_id,
            )
            for name, context in state.contexts.items()
        },
        state.named_contexts,
        state.configs,
        state.modes,
        state.referrers,
    )


@settings(max_examples=300)
@given(OPERATIONS)
def test_replaying_the_log_gives_the_same_state(operations: list[tuple[str, str, int]]) -> None:
    """And no id ever denotes two schemas, whatever was deleted in between."""
    state = State()
    log: list[Change] = []
    schemas: dict[tuple[str, int], str] = {}
    for kind, subject, number in operations:
        try:
            changes = decide(state, kind, subject, number)
        except HttpError:
            continue
        log += changes
        apply(state, changes)
        for context_name, context in state.contexts.items():
            for schema_id, entry in context.by_id.items():
                assert entry.content.text == schemas.setdefault((context_name, schema_id), entry.content.text)
                assert schema_id <= context.max_id
    assert not state.refused

    replayed = State()
    apply(replayed, log)
    assert described(state) == described(replayed)

    compacted = State()
    last = {change.key: index for index, change in enumerate(log)}
    kept = [each for index, each in enumerate(log) if last[each.key] == index]
    apply(compacted, kept)
    assert state.configs == compacted.configs
    assert {name: context.max_id for name, context in state.contexts.items()} == {
        name: context.max_id for name, context in compacted.contexts.items()
    }
