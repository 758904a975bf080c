"""Laws of schemas: a text stays what it is when it is written again, and compatibility has directions."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kalda.schemas.compatibility import CompatibilityLevel, check, incompatibilities
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse

FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.sampled_from(("A", "B", "C", "n.D"))
FIELDS = st.sampled_from(("x", "y", "z"))
PRIMITIVES = st.sampled_from(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
PROPERTIES = st.dictionaries(
    st.sampled_from(("p", "q", "logicalType")), st.sampled_from(("date", "uuid", 1, None)), max_size=2
)


def _composite(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    field = st.fixed_dictionaries(
        {"name": FIELDS, "type": inner}, optional={"doc": st.text(max_size=3), "aliases": st.lists(FIELDS)}
    )
    return st.one_of(
        st.builds(lambda items, more: {"type": "array", "items": items, **more}, inner, PROPERTIES),
        st.builds(lambda values, more: {"type": "map", "values": values, **more}, inner, PROPERTIES),
        st.lists(inner, max_size=3),
        st.builds(
            lambda name, fields, more: {"type": "record", "name": name, "fields": fields, **more},
            NAMES,
            st.lists(field, max_size=3, unique_by=lambda each: str(each["name"])),
            PROPERTIES,
        ),
    )


_LEAVES = st.one_of(
    PRIMITIVES,
    NAMES,
    st.builds(lambda name, size: {"type": "fixed", "name": name, "size": size}, NAMES, st.integers(0, 3)),
    st.builds(
        lambda name, symbols: {"type": "enum", "name": name, "symbols": symbols},
        NAMES,
        st.lists(st.sampled_from(("S", "T", "U")), unique=True),
    ),
)
AVRO = st.recursive(_LEAVES, _composite, max_leaves=8).map(json.dumps)

_SCALARS = st.sampled_from(
    ("int32", "sint64", "string", "bytes", "double", "fixed32", "M0", "M1", "E", "map")
)
_LABELS = st.sampled_from(("", "optional ", "repeated "))


@st.composite
def protobuf(draw: st.DrawFn) -> str:
    """Return a file of two messages with fields and oneofs."""

    def body() -> str:
        tags = draw(st.lists(st.integers(1, 6), unique=True, max_size=5))
        plain, members = [], []
        for tag in tags:
            kind = draw(_SCALARS)
            if draw(st.integers(0, 3)) == 0 and kind != "map":
                members.append(f"{kind} f{tag} = {tag};")
            elif kind == "map":
                plain.append(f"map<string, int32> f{tag} = {tag};")
            else:
                plain.append(f"{draw(_LABELS)}{kind} f{tag} = {tag};")
        oneof = f"oneof {draw(st.sampled_from('op'))} {{ {' '.join(members)} }}" if members else ""
        return " ".join([*plain, oneof])

    return f'syntax = "proto3"; message M0 {{ {body()} }} message M1 {{ {body()} }} enum E {{ Z = 0; }}'


def parsed(kind: SchemaType, text: str) -> ParsedSchema | None:
    try:
        return parse(Schema(kind, text), is_new=False)
    except InvalidSchemaError:
        return None


@pytest.mark.parametrize(("kind", "texts"), [(SchemaType.AVRO, AVRO), (SchemaType.PROTOBUF, protobuf())])
def test_laws_of_one_schema(kind: SchemaType, texts: st.SearchStrategy[str]) -> None:
    @FEW
    @given(text=texts)
    def run(text: str) -> None:
        schema = parsed(kind, text)
        if schema is None:
            return
        canonical, normal = schema.canonical(), schema.normalized()
        again, from_normal = parsed(kind, canonical), parsed(kind, normal)
        assert again is not None, canonical
        assert from_normal is not None, normal
        assert canonical == again.canonical()
        assert normal == again.normalized()
        assert normal == from_normal.normalized()
        if '"aliases"' not in text:  # an alias may name another field of the same record
            assert [] == incompatibilities(schema, again)
            assert [] == incompatibilities(schema, from_normal)

    run()


@pytest.mark.parametrize(("kind", "texts"), [(SchemaType.AVRO, AVRO), (SchemaType.PROTOBUF, protobuf())])
def test_backward_is_forward_of_the_other(kind: SchemaType, texts: st.SearchStrategy[str]) -> None:
    @FEW
    @given(first=texts, second=texts)
    def run(first: str, second: str) -> None:
        a, b = parsed(kind, first), parsed(kind, second)
        if a is None or b is None:
            return
        levels = CompatibilityLevel
        backward, forward = check(levels.BACKWARD, a, [b]), check(levels.FORWARD, b, [a])
        assert [(each.type, each.path) for each in backward] == [(each.type, each.path) for each in forward]
        assert len(check(levels.FULL, a, [b])) == len(backward) + len(check(levels.FORWARD, a, [b]))
        assert [] == check(levels.NONE, a, [b])

    run()


@FEW
@given(text=AVRO, seed=st.integers())
def test_the_order_of_keys_has_no_meaning_in_the_normal_form(text: str, seed: int) -> None:
    schema = parsed(SchemaType.AVRO, text)
    shuffled = parsed(SchemaType.AVRO, json.dumps(_shuffled(json.loads(text), random.Random(seed))))
    assert (schema is None) == (shuffled is None)
    if schema is not None and shuffled is not None:
        assert schema.normalized() == shuffled.normalized()


@FEW
@given(text=protobuf(), seed=st.integers())
def test_the_order_of_fields_has_no_meaning_in_the_normal_form(text: str, seed: int) -> None:
    schema = parsed(SchemaType.PROTOBUF, text)
    assert schema is not None
    canonical = schema.canonical()
    lines = canonical.splitlines(keepends=True)
    fields = [index for index, line in enumerate(lines) if line.startswith("  ") and line[2] not in " o}m"]
    groups = [group for group in _runs(fields) if len(group) > 1]
    for group in groups:
        order = [lines[index] for index in group]
        random.Random(seed).shuffle(order)
        for index, line in zip(group, order, strict=True):
            lines[index] = line
    other = parsed(SchemaType.PROTOBUF, "".join(lines))
    assert other is not None
    assert schema.normalized() == other.normalized()


@FEW
@given(
    text=st.one_of(st.text(max_size=60), st.sampled_from(('{"type":', "message M {", 'syntax = "proto3"; ')))
)
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.PROTOBUF])
def test_junk_is_refused_with_our_error(kind: SchemaType, text: str) -> None:
    parsed(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            SchemaType.AVRO,
            (
                '{"type":"record","name":"R","fields":[{"name":"a","type":["null",{"type":"enum","name":"E",'
                '"symbols":["A"]}],"default":null}]}'
            ),
        ),
        (
            SchemaType.PROTOBUF,
            (
                'syntax = "proto3"; option (a).b = { c: [1, "x"] }; message M { reserved 2 to max; oneof o '
                "{ int32 a = 1; } } service S { rpc R (M) returns (stream M) {} }"
            ),
        ),
    ],
)
def test_every_prefix_is_refused_or_read(kind: SchemaType, text: str) -> None:
    assert parsed(kind, text) is not None
    for end in range(len(text)):
        parsed(kind, text[:end])


def _shuffled(value: object, chance: random.Random) -> object:
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: _shuffled(value[key], chance) for key in keys}
    return [_shuffled(each, chance) for each in value] if isinstance(value, list) else value


def _runs(indexes: list[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for each in indexes:
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs
