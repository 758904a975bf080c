"""Makes the JSON schema of pipeline files, for editors, from the declarations that the parser checks with.

What a key may hold follows from what its declaration says it takes, so a new kind of value is an entry here.
The schema knows keys, words and the form of names and durations; what belongs together in different keys, and
the syntax of other texts, only the parser checks.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kalda.pipelines.spec import cases, sections, values
from kalda.pipelines.spec.nodes import Key, Section
from kalda.pipelines.spec.values import ValueT, ValueType

Json: TypeAlias = "str | bool | list[Json] | dict[str, Json]"

FILE_NAME: Final = "kalda-pipeline.schema.json"
"""How `kalda pipeline init` calls the schema beside a file."""
TESTS_FILE_NAME: Final = "kalda-pipeline-test.schema.json"
"""How it calls that of the tests."""

_SCALAR: Final[dict[str, Json]] = {"type": ["string", "number", "boolean"]}
"""Editors read `5` as a number; to the parser every value is text."""
_VARIABLE: Final = r"\$\{"
"""What any value may have in it instead: `${NAME}`, which is replaced before the value is checked."""
_TEXTS: Final[dict[str, Json]] = {"type": ["object", "null"], "additionalProperties": _SCALAR}


def json_schema() -> dict[str, Json]:
    """Return the schema: draft 7 of JSON Schema, which editors know best."""
    return _schema("A pipeline file of Kalda", sections.SECTIONS)


def cases_json_schema() -> dict[str, Json]:
    """Return the schema of a file with tests of pipelines."""
    return _schema("Tests of Kalda's pipelines", cases.SECTIONS)


def _schema(title: str, described: Sequence[tuple[str, Section]]) -> dict[str, Json]:
    """Return the schema of a file whose top level is the first of the sections."""
    (_, file), *others = described
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        **_section(file),
        "definitions": {_definition_name(each): _section(each) for _, each in others},
    }


def _section(section: Section) -> dict[str, Json]:
    required: list[Json] = [key.name for key in section.keys if key.is_required]
    found: dict[str, Json] = {
        "type": "object",
        "description": section.help,
        "properties": {key.name: _property(key) for key in section.keys},
        "additionalProperties": False,
    }
    return found | ({"required": required} if required else {})


def _property(key: Key) -> dict[str, Json]:
    default = "" if key.default is None else f" Default: {key.default}."
    description = f"{key.help}{default}\n\nTakes {key.takes}."
    return {"description": description, "allOf": [_value(key)]}


def _value(key: Key) -> dict[str, Json]:
    section = _SECTIONS.get(key.name) if key.takes == "a mapping" else None
    return _of(section) if section is not None else _BY_TAKES[key.takes]


def _of(section: Section) -> dict[str, Json]:
    return {"$ref": f"#/definitions/{_definition_name(section)}"}


def _definition_name(section: Section) -> str:
    return section.title.replace(" ", "-")


def _one(kind: ValueType[ValueT]) -> dict[str, Json]:
    if kind.words:
        words: list[Json] = [*kind.words, *((True, False) if kind is values.BOOLEAN else ())]
        return {"anyOf": [{"enum": words}, {"type": "string", "pattern": _VARIABLE}]}
    if kind.pattern is not None:
        return {**_SCALAR, "pattern": f"^(?:{kind.pattern})$|{_VARIABLE}"}
    return _SCALAR


def _either(*choices: dict[str, Json]) -> dict[str, Json]:
    return {"anyOf": list(choices)}


def _many(item: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a list, where a single value is a list of one."""
    return _either(item, {"type": "array", "items": item})


def _named(item: dict[str, Json]) -> dict[str, Json]:
    return {"type": ["object", "null"], "additionalProperties": item}


_KINDS: Final = [
    each
    for module in (values, sections, cases)
    for each in vars(module).values()
    if isinstance(each, ValueType)
]


def _step(name: str) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {name: _SCALAR},
        "required": [name],
        "additionalProperties": False,
    }


_SECTIONS: Final = {
    "defaults": sections.DEFAULTS,
    "spark": sections.SPARK,
    "restart": sections.RESTART,
    "breaker": sections.BREAKER,
    "mirror": sections.MIRROR,
    "late": sections.LATE,
    "schema": sections.SCHEMA,
    "compact": sections.COMPACT,
}
"""What the keys hold that take a mapping with keys of its own."""

_BY_TAKES: Final[Mapping[str, dict[str, Json]]] = {
    **{kind.takes: _one(kind) for kind in _KINDS},
    **{f"a list of {kind.takes}": _many(_one(kind)) for kind in _KINDS},
    **dict.fromkeys(
        (
            "a URI or a directory",
            "a name or a URI",
            "a file",
            "a schema as text",
            "a condition in SQL",
            "a boolean expression in SQL",
            "keep, or the name of a table",
            "the name of a format",
            "the name of one of the `clusters`",
        ),
        _SCALAR,
    ),
    "a mapping of names to values": _TEXTS,
    "a mapping of names to such settings": _named(_TEXTS),
    "a list of columns": _many(_SCALAR),
    "a list of columns, or of year, month, day or hour of one, as `day(ts)`": _many(_SCALAR),
    cases.TESTS: {"type": "array", "items": _of(cases.TEST)},
    cases.RECORDS: {"type": "array", "items": _of(cases.RECORD)},
    cases.DEAD_LETTERS: {"type": "array", "items": _of(cases.DEAD_LETTER)},
    cases.ROWS: {"type": "array", "items": {"type": "object"}},
    cases.CONTENT: {},
    cases.NAMES: _many(_SCALAR),
    "a topic or a list of topics": _many(_one(values.TOPIC)),
    "a format": _either(_SCALAR, _of(sections.FORMAT)),
    "a list of pipelines": {"type": "array", "items": _of(sections.PIPELINE)},
    "a list of steps": _many(_either(_SCALAR, _step("python"), _step("sql"))),
    "a mapping of names to tables": _named(_of(sections.FROM_TABLE)),
    "a mapping of names to expectations": _named(_either(_SCALAR, _of(sections.EXPECTATION))),
    "a mapping with `topic`, `pattern` or `table`": _either(
        _of(sections.FROM_TOPIC), _of(sections.FROM_TABLE)
    ),
    "a mapping with `table` or `topic`": _either(_of(sections.TO_TABLE), _of(sections.TO_TOPIC)),
}
"""The schema of a value, by what the declaration of its key says that it takes."""
