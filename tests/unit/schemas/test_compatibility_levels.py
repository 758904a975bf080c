"""Compatibility levels: which versions are compared, in which direction, and what the messages say."""

from collections.abc import Iterator

import pytest

from kalda.schemas.compatibility import CompatibilityLevel, check, check_messages
from kalda.schemas.errors import UnknownCompatibilityLevelError
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse

ONE = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
TWO_REQUIRED = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
TWO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
)


def avro(text: str) -> ParsedSchema:
    return parse(Schema(SchemaType.AVRO, text))


@pytest.mark.parametrize(
    ("new", "older", "refusing"),
    [
        (TWO, [ONE], set()),
        (TWO_REQUIRED, [ONE], {"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}),
        (ONE, [TWO_REQUIRED], {"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}),
        (TWO_REQUIRED, [ONE, TWO], {"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
        (ONE, [TWO_REQUIRED, TWO], {"FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}),
        (ONE, [], set()),
    ],
)
def test_each_level_refuses_what_it_must(new: str, older: list[str], refusing: set[str]) -> None:
    parsed = [avro(text) for text in older]
    assert refusing == {level for level in CompatibilityLevel if check(level, avro(new), parsed)}


def test_the_messages_are_those_of_confluent() -> None:
    assert [
        (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' "
            "in the new schema has no default value and is missing in the old schema', additionalInfo:'b'}"
        ),
        "{oldSchemaVersion: 3}",
        f"{{oldSchema: '{ONE}'}}",
    ] == check_messages(CompatibilityLevel.BACKWARD, avro(TWO_REQUIRED), [(3, avro(ONE))])


def test_forward_messages_name_the_old_schema_as_the_reader() -> None:
    (first, *_) = check_messages(CompatibilityLevel.FORWARD, avro(ONE), [(1, avro(TWO_REQUIRED))])
    assert "in the old schema has no default value and is missing in the new schema" in first


@pytest.mark.parametrize(
    ("level", "asked_for"),
    [(CompatibilityLevel.BACKWARD, [3]), (CompatibilityLevel.BACKWARD_TRANSITIVE, [3, 2])],
)
def test_versions_are_asked_for_one_by_one_up_to_the_refusal(
    level: CompatibilityLevel, asked_for: list[int]
) -> None:
    """A parsed schema takes 100 times its text, and a subject has up to thousands of versions."""
    asked: list[int] = []

    def newest_first() -> Iterator[tuple[int, ParsedSchema]]:
        for number, text in ((3, TWO), (2, ONE), (1, ONE)):
            asked.append(number)
            yield number, avro(text)

    check_messages(level, avro(TWO_REQUIRED), newest_first())
    assert asked_for == asked


def test_a_long_old_schema_is_truncated() -> None:
    long = avro(
        f'{{"type":"record","name":"R","doc":"{"x" * 20_000}","fields":[{{"name":"a","type":"string"}}]}}'
    )
    *_, last = check_messages(CompatibilityLevel.BACKWARD, avro(ONE), [(1, long)])
    assert last.startswith("{oldSchema: <truncated> '{")
    assert 10 * 1024 + len("{oldSchema: <truncated> '...'}") == len(last)


def test_levels_are_read_in_any_case_and_others_are_refused() -> None:
    assert CompatibilityLevel.FULL is CompatibilityLevel.of("full")
    with pytest.raises(UnknownCompatibilityLevelError, match="SIDEWAYS; allowed are NONE, BACKWARD"):
        CompatibilityLevel.of("SIDEWAYS")
