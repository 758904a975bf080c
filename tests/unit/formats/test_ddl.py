"""Schema texts."""

import pyarrow as pa
import pytest

from kalda.formats.ddl import parse_schema, to_ddl
from kalda.formats.spec import FormatError


def test_ddl_is_read_and_written() -> None:
    """What a user declares comes back equal from the Arrow schema."""
    text = (
        "id bigint NOT NULL, `odd name` string, "
        "l array<struct<a: int, m: map<string, decimal(10,2)>>>, t timestamp"
    )

    schema = parse_schema(text)

    assert text == to_ddl(schema)
    assert schema == parse_schema(to_ddl(schema))


def test_other_forms_of_ddl_mean_the_same() -> None:
    expected = parse_schema("a int, b string")

    assert expected == parse_schema(
        "A INTEGER COMMENT 'it''s', B VARCHAR(10)".replace("A ", "a ").replace("B ", "b ").replace("''", "")
    )
    assert expected == parse_schema("struct<a:int,b:string>")
    assert expected == parse_schema(expected)
    assert expected == parse_schema(
        '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{}},'
        '{"name":"b","type":"string","nullable":true}]}'
    )


def test_json_schemas_are_read() -> None:
    schema = parse_schema(
        '{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"t":{"type":"string",'
        '"format":"date-time"},"x":{"type":["null","number"]},'
        '"l":{"type":"array","items":{"type":"boolean"}},'
        '"o":{"oneOf":[{"type":"null"},{"type":"string"}]},"m":{"type":"object"}}}'
    )

    assert (
        "id bigint NOT NULL, t timestamp, x double, l array<boolean>, o string, m map<string, string>"
        == to_ddl(schema)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text ends"),
        ("a", "the text ends where a word is expected"),
        ("a int,", "the text ends"),
        ("a int b int", "'b' is not expected"),
        ("a int, a string", "declared twice"),
        ("a array<int", "the text ends where > is expected"),
        ("a decimal(40,2)", "out of range"),
        ("a int; b int", "unexpected character at '; b int'"),
        ("{oops", "not JSON"),
        ('{"type":"string"}', "columns are expected"),
        ('{"type":"object","properties":{"a":{"type":["string","integer"]}}}', "$.a"),
        ("a " + "array<" * 100 + "int" + ">" * 100, "nest deeper"),
    ],
)
def test_malformed_schemas_are_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_schema(text)

    assert message in str(caught.value)


def test_types_without_counterpart_are_refused() -> None:
    with pytest.raises(FormatError, match="no counterpart"):
        to_ddl(pa.schema([("a", pa.duration("s"))]))
