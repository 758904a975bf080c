"""Two hundred pairs of JSON schemas at the seven levels."""

import json

import pytest

from kalda.schemas.compatibility import CompatibilityLevel, check
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse
from tests.unit.schemas.json.pairs import PAIRS, Json


def parsed(value: Json) -> ParsedSchema:
    return parse(Schema(SchemaType.JSON, json.dumps(value)))


def allowed(answer: str) -> set[CompatibilityLevel]:
    """Return the levels that allow a change, by whether it is compatible backward and forward."""
    directions = {"BACKWARD": "B" in answer, "FORWARD": "F" in answer, "FULL": answer == "BF"}
    return {
        level
        for level in CompatibilityLevel
        if level is CompatibilityLevel.NONE or directions[level.removesuffix("_TRANSITIVE")]
    }


@pytest.mark.parametrize(
    ("old", "new", "answer"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS]
)
def test_the_answer_is_confluents_at_every_level(old: Json, new: Json, answer: str) -> None:
    writer, reader = parsed(old), parsed(new)
    assert allowed(answer) == {level for level in CompatibilityLevel if not check(level, reader, [writer])}


@pytest.mark.parametrize(
    ("old", "new", "answer"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS]
)
def test_the_reverse_change_has_the_reverse_answer(old: Json, new: Json, answer: str) -> None:
    writer, reader = parsed(new), parsed(old)
    reverse = answer if answer in ("", "BF") else {"B": "F", "F": "B"}[answer]
    assert allowed(reverse) == {level for level in CompatibilityLevel if not check(level, reader, [writer])}


def test_there_are_two_hundred_pairs() -> None:
    assert 200 <= len(PAIRS)
    assert len(PAIRS) == len({name for name, *_ in PAIRS})
