"""Our Avro schemas beside those of Avro's Java library: texts, refusals and incompatibilities."""

import os
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from benchmarks.apache_kafka import NotAvailableError, maven_jars
from kalda.schemas.compatibility import incompatibilities
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse
from tests.property.test_schemas import AVRO
from tests.schema_pairs_avro import PAIRS

VERSION = "1.12.2"
PROGRAM = Path(__file__).parent / "java" / "AvroSchemas.java"
COUNT = 2_000
ERROR = "error: "
REDEFINED, MATCHES = "Can't redefine", "matches multiple fields"


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        return maven_jars(
            f"avro-{VERSION}", (f"org.apache.avro:avro:{VERSION}", "org.slf4j:slf4j-nop:1.7.36")
        )
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def random_texts() -> list[str]:
    """Schemas of all kinds, valid or not."""
    texts: list[str] = []

    @seed(int(os.environ.get("KALDA_SEED", "1")))
    @settings(max_examples=COUNT, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(AVRO)
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    return list(dict.fromkeys(texts))


def java_answers(jars: Path, lines: Sequence[str]) -> list[str]:
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", f"{jars}/*", str(PROGRAM)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.split("\n")[:-1]


def parsed(text: str) -> ParsedSchema | None:
    try:
        return parse(Schema(SchemaType.AVRO, text))
    except InvalidSchemaError:
        return None


def test_canonical_texts_and_refusals_are_javas(jars: Path, random_texts: list[str]) -> None:
    texts = [*random_texts, *(text for pair in PAIRS for text in (pair.old, pair.new))]
    answers = java_answers(jars, texts)
    assert len(texts) == len(answers)
    different = []
    for text, answer in zip(texts, answers, strict=True):
        schema = parsed(text)
        # Java takes two equal definitions of a record that contains itself as different ones.
        if schema is None and not answer.startswith(ERROR):
            different.append((text, "refused", answer))
        elif schema is not None and schema.canonical() != answer and REDEFINED not in answer:
            different.append((text, schema.canonical(), answer))
    assert [] == different
    assert 200 < sum(each.startswith(ERROR) for each in answers) < len(answers) - 200


def test_incompatibilities_are_javas(jars: Path, random_texts: list[str]) -> None:
    """Kind, place and message of each, in the same order."""
    valid = [text for text in random_texts if parsed(text) is not None]
    pairs = [*pairwise(valid), *((pair.new, pair.old) for pair in PAIRS)]
    answers = java_answers(jars, [f"{reader}\t{writer}" for reader, writer in pairs])
    assert len(pairs) == len(answers)
    different = []
    for (reader_text, writer_text), answer in zip(pairs, answers, strict=True):
        reader, writer = parsed(reader_text), parsed(writer_text)
        assert reader is not None
        assert writer is not None
        found = incompatibilities(reader, writer)
        ours = " | ".join(f"{each.type} {each.path} {each.message}" for each in found)
        # In Java a field whose alias is its own name matches itself twice.
        if ours != answer and not (answer.startswith(ERROR) and (MATCHES in answer or REDEFINED in answer)):
            different.append((reader_text, writer_text, ours, answer))
    assert [] == different
    assert sum(each.startswith(ERROR) for each in answers) < len(answers) // 10
