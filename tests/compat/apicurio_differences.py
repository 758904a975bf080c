"""Why Apicurio's registry answers differently from Confluent's rules, by the pair.

Its rules for Avro are those of Avro's Java library, as Confluent's. Its rules for Protobuf and JSON Schema
are its own.
"""

import re
from dataclasses import dataclass
from typing import Final

from kalda.schemas.model import SchemaType


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some pairs are judged differently."""

    text: str
    type: SchemaType
    pairs: str
    """A pattern of the names of the pairs."""
    theirs: str
    """A pattern of the answer: ``True`` and ``False`` for compatible or not, or the text of an error."""


AVRO, JSON, PROTOBUF = SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF
_STRICTER, _LOOSER = "False", "True"
REASONS: Final = (
    Reason(
        "where two fields of the writer fit one of the reader, the request fails; Confluent's registry "
        "answers that the schema is incompatible",
        AVRO,
        "two aliases fit",
        "422 .*",
    ),
    Reason(
        "no type of a field may change; Confluent allows changes that the encoding bears",
        PROTOBUF,
        r"\w+ becomes (\w+|an enum)|a map's value changes within its group|an inner enum is added|"
        "fields swap numbers of one kind|a known type becomes one's own of the same shape",
        _STRICTER,
    ),
    Reason(
        "no label of a field may change; Confluent's rules look at those of numbers",
        PROTOBUF,
        ".*(no label|optional|required) .* becomes? .*|no label becomes .*|an optional .* becomes repeated|"
        "optional bytes become repeated text|the syntax changes|a removed number is reserved",
        _STRICTER,
    ),
    Reason(
        "fields, constants and calls keep number and name, and what is removed has to be reserved; Confluent "
        "has no such rule",
        PROTOBUF,
        "(a|all) fields? (is|are) (added|removed|renamed)|a field gets another number|a oneof is removed|"
        "a constant is .*|a used message gets a field|a service is removed|a message contains itself|"
        "fields swap numbers of one kind",
        _STRICTER,
    ),
    Reason(
        "fields that move into or between oneofs are not looked at, nor is what leaves one",
        PROTOBUF,
        ".*(oneof|move).*",
        _LOOSER,
    ),
    Reason(
        "the package and messages that are gone are not looked at",
        PROTOBUF,
        "(a|the) package .*|a message is .*|an enum becomes a message|an inner message is removed.*",
        _LOOSER,
    ),
    Reason(
        "an inner message of the name of an outer one is refused as bad syntax",
        PROTOBUF,
        "an inner message hides an outer one",
        "422 .*",
    ),
    Reason(
        "drafts 2019-09 and 2020-12 and their keywords are answered with an error",
        JSON,
        ".*",
        "500 .*",
    ),
    Reason(
        "a schema that is true or false, or that has an unknown dialect, is not recognised as JSON Schema",
        JSON,
        ".*",
        "registration fails: .*",
    ),
    Reason(
        "keywords are compared that Confluent's rules leave out: format, contains, propertyNames, if, "
        "Connect's type of bytes, and the exclusive limits of draft 4 as flags",
        JSON,
        "annotations: format changed|types: bytes of connect|arrays: contains is not compared|"
        "combined: conditions are not compared|objects: names of properties|numbers: flag of draft 4",
        _STRICTER,
    ),
    Reason(
        "a type that becomes a union, or a union of one in another form, is a change of the type; Confluent "
        "compares it with the members",
        JSON,
        "combined: .*|types: string to nullable|types: types of one",
        _STRICTER,
    ),
    Reason(
        "oneOf and anyOf of one member are the same, and so are const and enum of one value",
        JSON,
        "combined: anyOf of one to oneOf|enums: const to enum",
        _LOOSER,
    ),
    Reason(
        "a default does not make up for a property that is required, nor does a schema that allows anything "
        "or nothing make a new property harmless",
        JSON,
        "objects: (any|true|false) property added, .*|objects: required .*|"
        "arrays: (any|false) item added, .*|references: a default beside it",
        _STRICTER,
    ),
    Reason(
        "what additionalProperties, patterns and additionalItems cover is judged by rules of its own",
        JSON,
        "objects: (wider|narrower) property than covered|arrays: wider item than covered|"
        "objects: property of a pattern .*",
        "True|False",
    ),
)


def reason_for(kind: SchemaType, pair: str, theirs: str) -> Reason | None:
    """Return why the answers differ; None where no reason is known."""
    for each in REASONS:
        if each.type is kind and re.fullmatch(each.pairs, pair) and re.fullmatch(each.theirs, theirs):
            return each
    return None
