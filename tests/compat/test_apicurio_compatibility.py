"""Our answers on compatibility beside those of Apicurio's registry, for each pair at each level."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.schemas.compatibility import CompatibilityLevel, check
from kalda.schemas.model import Schema, SchemaType
from kalda.schemas.parsing import parse
from tests.compat.apicurio import ApicurioRegistry, apicurio_registry
from tests.compat.apicurio_differences import reason_for
from tests.schema_pairs_avro import PAIRS as AVRO_PAIRS
from tests.schema_pairs_protobuf import PAIRS as PROTOBUF_PAIRS
from tests.unit.schemas.json.pairs import PAIRS as JSON_PAIRS


@dataclass(frozen=True, slots=True)
class Difference:
    """A pair that the two registries judge differently at a level."""

    type: SchemaType
    pair: str
    level: CompatibilityLevel
    ours: bool
    theirs: bool | str
    """Whether it is compatible, or the error of the request."""

    def __str__(self) -> str:
        return f"{self.type} {self.pair!r} at {self.level}: ours {self.ours}, Apicurio's {self.theirs}"


def all_pairs() -> Iterator[tuple[SchemaType, str, str, str]]:
    """Yield type, name, old and new text."""
    for kind, pairs in ((SchemaType.AVRO, AVRO_PAIRS), (SchemaType.PROTOBUF, PROTOBUF_PAIRS)):
        yield from ((kind, each.name, each.old, each.new) for each in pairs)
    for name, old, new, _ in JSON_PAIRS:
        yield SchemaType.JSON, name, _json_text(old), _json_text(new)


def _json_text(schema: object) -> str:
    """Return a schema with its dialect: Apicurio guesses by the text, whatever the request says."""
    if isinstance(schema, dict):
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    return json.dumps(schema)


def differences_of(
    registry: ApicurioRegistry, kind: SchemaType, name: str, old: str, new: str
) -> Iterator[Difference]:
    """Register the old schema and ask for the new one at each level."""
    subject = quote(f"{kind}-{name}", safe="")
    status, answer = registry.call(
        "POST", f"/subjects/{subject}/versions", {"schemaType": kind, "schema": old}
    )
    parsed = parse(Schema(kind, new)), parse(Schema(kind, old))
    for level in CompatibilityLevel:
        ours = not check(level, parsed[0], [parsed[1]])
        theirs: bool | str = f"registration fails: {answer}"
        if status == 200:
            registry.call("PUT", f"/config/{subject}", {"compatibility": level})
            code, found = registry.call(
                "POST",
                f"/compatibility/subjects/{subject}/versions/latest",
                {"schemaType": kind, "schema": new},
            )
            theirs = bool(found["is_compatible"]) if code == 200 else f"{code} {found}"
        if ours != theirs:
            yield Difference(kind, name, level, ours, theirs)


def test_answers_differ_only_where_a_reason_is_known(tmp_path: Path) -> None:
    """Confluent's own server is not to be had; each difference has a reason in its rules."""
    found: list[Difference] = []
    try:
        with apicurio_registry(tmp_path) as registry:
            for kind, name, old, new in all_pairs():
                found += differences_of(registry, kind, name, old, new)
    except NotAvailableError as error:
        pytest.skip(str(error))
    unexplained = [each for each in found if reason_for(each.type, each.pair, str(each.theirs)) is None]
    for kind, group in groupby(found, key=lambda each: each.type):
        print(kind, len(list(group)), "differences")
    (tmp_path / "differences.txt").write_text("\n".join(map(str, found)))
    assert [] == [str(each) for each in unexplained]
