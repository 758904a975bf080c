"""What is an Avro schema, the text that a registry stores of it, and its normal form."""

import json

import pytest

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Reference, Schema, SchemaType
from kalda.schemas.parsing import parse


def avro(text: str, *, is_new: bool = True) -> ParsedSchema:
    return parse(Schema(SchemaType.AVRO, text), is_new=is_new)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('"int"', '"int"'),
        (' {"type": "int"} ', '"int"'),
        ('{"type":"int", "doc":"dropped"}', '"int"'),
        ('{"type":"string","avro.java.string":"String"}', '{"type":"string","avro.java.string":"String"}'),
        ('{"logicalType":"date","type":"int"}', '{"type":"int","logicalType":"date"}'),
        ('["null", {"type":"array","x":1,"items":"long"}]', '["null",{"type":"array","items":"long","x":1}]'),
        ('{"values":"int","type":"map"}', '{"type":"map","values":"int"}'),
        (
            '{"aliases":["B","c.D"],"size":3,"name":"a.A","type":"fixed","doc":"d","p":null}',
            '{"type":"fixed","name":"A","namespace":"a","doc":"d","size":3,"p":null,"aliases":["B","c.D"]}',
        ),
        (
            '{"symbols":["X","Y"],"default":"Y","name":"E","type":"enum","doc":""}',
            '{"type":"enum","name":"E","doc":"","symbols":["X","Y"],"default":"Y"}',
        ),
        (
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"order":"ignore","q":[1],"aliases":["y"],'
                '"default":1.0,"doc":"d","type":"double","name":"x"},{"name":"z","type":"R","order":"ascending"}]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"x","type":"double","doc":"d",'
                '"default":1.0,"order":"ignore","aliases":["y"],"q":[1]},{"name":"z","type":"R"}]}'
            ),
        ),
        (
            (
                '{"type":"record","name":"n.R","fields":[{"name":"x","type":{"type":"fixed","name":"m.F","size":1}},'
                '{"name":"y","type":"m.F"},{"name":"z","type":{"type":"fixed","name":"G","namespace":"","size":1}}]}'
            ),
            (
                '{"type":"record","name":"R","namespace":"n","fields":[{"name":"x","type":{"type":"fixed","name":"F",'
                '"namespace":"m","size":1}},{"name":"y","type":"m.F"},{"name":"z","type":{"type":"fixed","name":"G",'
                '"namespace":"","size":1}}]}'
            ),
        ),
        ('{"type":"error","name":"R","fields":[]}', '{"type":"error","name":"R","fields":[]}'),
        ('/* a */ "int" // "b"', '"int"'),
        ('{"type":"record","name":"R","name":"S","fields":[]}', '{"type":"record","name":"S","fields":[]}'),
        (
            '{"type":"enum","name":"E","doc":"\\u00e9\\u0001\\"/","symbols":[]}',
            '{"type":"enum","name":"E","doc":"é\\u0001\\"/","symbols":[]}',
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"double","default":1e10}]}',
            '{"type":"record","name":"R","fields":[{"name":"x","type":"double","default":1.0E10}]}',
        ),
        (
            (
                '{"type":"record","name":"R","fields":[{"name":"x","type":"F"},'
                '{"name":"y","type":{"type":"fixed","name":"F","size":1}}]}'
            ),
            (
                '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"fixed","name":"F","size":1}},'
                '{"name":"y","type":"F"}]}'
            ),
        ),
    ],
)
def test_the_canonical_text_has_avros_order(text: str, canonical: str) -> None:
    made = avro(text).canonical()
    assert canonical == made
    assert made == avro(made).canonical()


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (
            '{"type":"bytes","b":1,"precision":9,"scale":2,"logicalType":"decimal","a":2}',
            '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"a":2,"b":1}',
        ),
        (
            '{"type":"int","b":1,"logicalType":"decimal","precision":3}',
            '{"type":"int","b":1,"logicalType":"decimal","precision":3}',
        ),
        ('{"type":"long","z":1,"logicalType":"my","a":2}', '{"type":"long","a":2,"logicalType":"my","z":1}'),
        (
            ('{"type":"record","name":"R","doc":"","aliases":["S","B"],"fields":[{"name":"x","type":"float",'
            '"default":1,"doc":"","aliases":["z","b"]}]}'),
            ('{"type":"record","name":"R","fields":[{"name":"x","type":"float","doc":"","default":1.0,'
            '"aliases":["b","z"]}],"aliases":["B","S"]}'),
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":["null","double"],"default":3}]}',
            '{"type":"record","name":"R","fields":[{"name":"x","type":["null","double"],"default":3.0}]}',
        ),
        ('{"type":"error","name":"R","fields":[]}', '{"type":"record","name":"R","fields":[]}'),
    ],
)  # fmt: skip
def test_the_normal_form_sorts_what_has_no_order(text: str, normal: str) -> None:
    made = avro(text).normalized()
    assert normal == made
    assert made == avro(made).normalized()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("int", "not JSON"),
        ("null", "Schema not yet supported: null"),
        ("12", "Schema not yet supported: 12"),
        ("{}", "No type: {}"),
        ('"Unknown"', "Undefined schema: Unknown"),
        ('{"type":"Unknown"}', '"Unknown" is not a defined name'),
        ('{"type":["int"]}', "No type"),
        ('{"type":"array"}', "Array has no items type"),
        ('{"type":"map"}', "Map has no values type"),
        ('{"type":"record","fields":[]}', "No name in schema"),
        ('{"type":"record","name":1,"fields":[]}', "No name in schema"),
        ('{"type":"record","name":"R"}', "Record has no fields"),
        ('{"type":"record","name":"int","fields":[]}', "Schemas may not be named after primitives: int"),
        ('{"type":"record","name":"1R","fields":[]}', "Illegal initial character: 1R"),
        ('{"type":"record","name":"a-b","fields":[]}', "Illegal character in: a-b"),
        ('{"type":"record","name":"é","fields":[]}', "Illegal character in: é"),
        ('{"type":"record","name":"a.1.R","fields":[]}', 'Namespace part "1" is invalid'),
        ('{"type":"record","name":"a..R","fields":[]}', "Empty name"),
        ('{"type":"record","name":"R","fields":[1]}', "No field name: 1"),
        ('{"type":"record","name":"R","fields":[{"type":"int"}]}', "No field name"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "No field type"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "Duplicate field a in record R",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}',
            'the field a has the order "up"; allowed are ascending, descending, ignore',
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
            'Invalid default for field a: "x" not a "int"',
        ),
        ('{"type":"record","name":"R","fields":[],"aliases":"x"}', "aliases not an array"),
        ('{"type":"record","name":"R","fields":[],"aliases":[1]}', "alias not a string: 1"),
        ('{"type":"enum","name":"E"}', "Enum has no symbols"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate enum symbol: A"),
        ('{"type":"enum","name":"E","symbols":["A b"]}', "Illegal character in: A b"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "The Enum Default: B is not in the"),
        ('{"type":"fixed","name":"F"}', "Invalid or no size"),
        ('{"type":"fixed","name":"F","size":"1"}', "Invalid or no size"),
        ('{"type":"fixed","name":"F","size":-1}', "the fixed F has the size -1"),
        ('[["int"]]', "Nested union"),
        ('["int","int"]', "Duplicate in union:int"),
        (
            '["F",{"type":"fixed","name":"F","size":1}]',
            "Duplicate in union:F",
        ),
        (
            '[{"type":"fixed","name":"F","size":1},{"type":"array","items":{"type":"fixed","name":"F","size":2}}]',
            "Can't redefine: F",
        ),
        (f'{{"type":"record","name":"{"R" * 2_000}","fields":[]}}', "has more than 1000 characters"),
        (f'{{"type":"fixed","name":"F","namespace":"{"n" * 2_000}","size":1}}', "has more than 1000"),
        ('{"type":"double","x":1e999}', "1e999 is not a finite number"),
        ('{"type":"int","x":"\\ud800"}', "half of a surrogate pair"),
        ("[" * 100_000, "nests deeper than 200"),
        ('{"type":"array","items":' * 300 + '"int"' + "}" * 300, "nests deeper than 200"),
    ],
)  # fmt: skip
def test_a_bad_schema_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        avro(text)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("kind", "value", "is_valid"),
    [
        ('"null"', "null", True),
        ('"int"', "2147483648", False),
        ('"long"', "2147483648", True),
        ('"int"', "1.0", False),
        ('"int"', "true", False),
        ('"double"', "1", True),
        ('"double"', '"1.5"', True),
        ('"bytes"', '"\\u00ff"', True),
        ('"string"', "1", False),
        ('["null","int"]', "1", True),
        ('["null","int"]', '"x"', False),
        ('{"type":"array","items":"int"}', "[1,2]", True),
        ('{"type":"array","items":"int"}', '[1,"x"]', False),
        ('{"type":"map","values":"int"}', '{"a":1}', True),
        ('{"type":"map","values":"int"}', '{"a":null}', False),
        ('{"type":"enum","name":"E","symbols":["A"]}', '"B"', True),
        ('{"type":"record","name":"I","fields":[{"name":"x","type":"int"}]}', '{"x":1}', True),
        ('{"type":"record","name":"I","fields":[{"name":"x","type":"int"}]}', "{}", False),
        ('{"type":"record","name":"I","fields":[{"name":"x","type":"int","default":4}]}', "{}", True),
        ('"R"', "{}", False),
    ],
)  # fmt: skip
def test_defaults_are_those_of_javas_library(kind: str, value: str, is_valid: bool) -> None:
    text = f'{{"type":"record","name":"R","fields":[{{"name":"f","type":{kind},"default":{value}}}]}}'
    if is_valid:
        avro(text)
    else:
        with pytest.raises(InvalidSchemaError):
            avro(text)
    avro(text, is_new=False)  # what is stored stays readable


def test_names_of_other_alphabets_stay_readable_where_they_are_stored() -> None:
    text = '{"type":"record","name":"Größe","fields":[]}'
    assert "Größe" == avro(text, is_new=False).name
    with pytest.raises(InvalidSchemaError):
        avro(text)


def test_a_name_may_come_from_a_reference() -> None:
    text = '{"type":"record","name":"x.R","fields":[{"name":"f","type":"F"},{"name":"g","type":"y.E"}]}'
    fixed = '{"type":"fixed","name":"x.F","size":1}'
    enum = '{"type":"enum","name":"y.E","symbols":[]}'
    references = (Reference("x.F", "f", 1), Reference("y.E", "e", 2))
    parsed = parse(Schema(SchemaType.AVRO, text, references), {"x.F": fixed, "y.E": enum})
    assert (
        '{"type":"record","name":"R","namespace":"x","fields":[{"name":"f","type":"F"},{"name":"g","type":"y.E"}]}'
        == parsed.canonical()
    )
    assert '"size":1' in parsed.formatted("resolved")
    assert parsed.canonical() == parsed.normalized()


def test_a_missing_reference_is_named() -> None:
    with pytest.raises(InvalidSchemaError, match='No schema reference found for subject "f" and version 1'):
        parse(Schema(SchemaType.AVRO, '"int"', (Reference("x.F", "f", 1),)))


def test_a_bad_reference_is_named() -> None:
    with pytest.raises(InvalidSchemaError, match=r"the reference x\.F: .*not JSON"):
        parse(Schema(SchemaType.AVRO, '"int"'), {"x.F": "{"})


def test_fingerprints_differ_by_text_references_metadata_and_rules() -> None:
    schemas = [
        Schema(SchemaType.AVRO, '"int"'),
        Schema(SchemaType.AVRO, '"long"'),
        Schema(SchemaType.AVRO, '"int"', metadata={"properties": {"a": "b"}}),
        Schema(SchemaType.AVRO, '"int"', rule_set={"domainRules": []}),
        Schema(SchemaType.AVRO, '"int"', (Reference("F", "f", 1),)),
    ]
    fixed = '{"type":"fixed","name":"F","size":1}'
    prints = [parse(each, {"F": fixed}).fingerprint() for each in schemas]
    assert 5 == len(set(prints))
    assert prints[0] == avro('{"type": "int"}').fingerprint()


def test_the_deepest_schema_that_is_allowed_has_texts() -> None:
    """The writers recurse, and the stack of Python is finite."""

    def chain(length: int) -> str:
        records = [
            {"type": "record", "name": f"R{index}", "fields": [{"name": "a", "type": f"R{index + 1}"}]}
            for index in range(length)
        ]
        return json.dumps([*records, {"type": "fixed", "name": f"R{length}", "size": 1}])

    parsed = avro(chain(98)[1:].rsplit("]", 1)[0].join("[]"))
    assert parsed.normalized() == parsed.canonical()
    with pytest.raises(InvalidSchemaError, match="more than 100 types inside each other"):
        avro(chain(5_000))
