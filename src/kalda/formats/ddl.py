"""Translates schema texts to Arrow schemas: Spark DDL, Spark's JSON form and JSON Schema; and Arrow to Spark
DDL.

Types are those of Spark SQL as Spark maps them to Arrow: ``timestamp`` is microseconds in UTC,
``timestamp_ntz`` microseconds without a zone. A schema from here is what a user declares; decoders enforce
it.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

import pyarrow as pa

from kalda.formats.spec import FormatError, close_match

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

SIMPLE_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}

_TOKEN: Final = re.compile(
    r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([^\W\d]\w*)|(\d+)|([<>(),:]))",
    re.UNICODE,
)
DEPTH_MAX: Final = 64
"""Deeper types than this are a mistake, and Python's stack is finite."""


def parse_schema(schema: str | pa.Schema) -> pa.Schema:
    """Return the Arrow schema of a text: DDL (``id bigint, ts timestamp``), Spark's JSON or a JSON Schema.

    Raises:
        FormatError: The text is malformed, or it declares no column, or two columns of one name.
    """
    if isinstance(schema, pa.Schema):
        return _checked(schema)
    if schema.lstrip().startswith("{"):
        try:
            document = json.loads(schema)
        except ValueError as error:
            raise FormatError(f"the schema starts with {{ and is not JSON: {error}") from error
        kind = (
            _spark_json(document, 0) if document.get("type") == "struct" else _json_schema(document, "$", 0)
        )
    else:
        kind = _DdlParser(schema).columns()
    if not pa.types.is_struct(kind):
        raise FormatError(f"the schema is {kind}; columns are expected")
    return _checked(pa.schema(list(kind)))


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of one Spark SQL type, for example ``array<decimal(10,2)>``."""
    parser = _DdlParser(text)
    kind = parser.type(0)
    parser.expect_end()
    return kind


def to_ddl(schema: pa.Schema) -> str:
    """Return the columns as Spark DDL.

    Raises:
        FormatError: A type has no counterpart in Spark.
    """
    return ", ".join(
        f"{_quoted(f.name)} {type_ddl(f.type)}{'' if f.nullable else ' NOT NULL'}" for f in schema
    )


def type_ddl(kind: pa.DataType) -> str:
    """Return one Arrow type as a Spark SQL type."""
    types = pa.types
    if types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(f.name)}: {type_ddl(f.type)}' for f in kind)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{type_ddl(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{type_ddl(kind.key_type)}, {type_ddl(kind.item_type)}>"
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_large_string(kind):
        return "string"
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "binary"
    names = {
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }
    if kind not in names:
        raise FormatError(f"the Arrow type {kind} has no counterpart in Spark SQL")
    return names[kind]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def _checked(schema: pa.Schema) -> pa.Schema:
    if not len(schema):
        raise FormatError("the schema declares no column")
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise FormatError(f"the schema declares the column {name!r} twice")
    return schema


class _DdlParser:
    """Reads Spark DDL token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._index = 0
        position = 0
        end = len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise FormatError(
                    f"the schema {text!r} has an unexpected character at {text[position:][:20]!r}"
                )
            kind = ("name", "text", "word", "number", "mark")[cast(int, match.lastindex) - 1]
            self._tokens.append((kind, match.group(cast(int, match.lastindex))))
            position = match.end()

    def columns(self) -> pa.DataType:
        """Read ``name type [NOT NULL] [COMMENT 'text'], …`` to the end; ``struct<…>`` alone is the same."""
        if self._peek("word") == "struct" and len(self._tokens) > 1 and self._tokens[1][1] == "<":
            kind = self.type(0)
        else:
            kind = pa.struct(self._fields("", 0))
        self.expect_end()
        return kind

    def type(self, depth: int) -> pa.DataType:
        """Read one type."""
        if depth > DEPTH_MAX:
            raise self._error(f"types nest deeper than {DEPTH_MAX}")
        name = self._take("word").lower()
        if name == "array":
            self._take("mark", "<")
            kind = pa.list_(self.type(depth + 1))
            self._take("mark", ">")
            return kind
        if name == "map":
            self._take("mark", "<")
            key = self.type(depth + 1)
            self._take("mark", ",")
            kind = pa.map_(key, self.type(depth + 1))
            self._take("mark", ">")
            return kind
        if name == "struct":
            self._take("mark", "<")
            kind = pa.struct(self._fields(">", depth + 1))
            self._take("mark", ">")
            return kind
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name in ("varchar", "char", "character"):
            self._take("mark", "(")
            self._take("number")
            self._take("mark", ")")
            return pa.string()
        if name not in SIMPLE_TYPES:
            allowed = [*SIMPLE_TYPES, "decimal", "array", "map", "struct", "varchar", "char"]
            raise self._error(
                f"{name!r} is not a type{close_match(name, allowed)}; allowed: {', '.join(sorted(allowed))}"
            )
        return SIMPLE_TYPES[name]

    def expect_end(self) -> None:
        """Raise when tokens are left."""
        if self._index < len(self._tokens):
            raise self._error(f"{self._tokens[self._index][1]!r} is not expected")

    def _decimal(self) -> pa.DataType:
        if self._peek("mark") != "(":
            return pa.decimal128(10, 0)
        self._take("mark", "(")
        precision = int(self._take("number"))
        scale = 0
        if self._peek("mark") == ",":
            self._take("mark", ",")
            scale = int(self._take("number"))
        self._take("mark", ")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self._error(
                f"decimal({precision},{scale}) is out of range: precision 1 to 38, scale up to the precision"
            )
        return pa.decimal128(precision, scale)

    def _fields(self, end: str, depth: int) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            name = self._take("name", None, "word")
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self._peek("mark") == ":":
                self._take("mark", ":")
            kind = self.type(depth)
            required = False
            if self._word("not"):
                self._take("word", "null")
                required = True
            if self._word("comment"):
                self._take("text")
            if any(name == field.name for field in fields):
                raise self._error(f"the column {name!r} is declared twice")
            fields.append(pa.field(name, kind, nullable=not required))
            if self._peek("mark") != ",":
                break
            self._take("mark", ",")
        if end and self._peek("mark") != end:
            raise self._error(f"{end!r} is missing")
        return fields

    def _word(self, word: str) -> bool:
        if (self._peek("word") or "").lower() == word:
            self._index += 1
            return True
        return False

    def _peek(self, kind: str) -> str | None:
        if self._index < len(self._tokens) and self._tokens[self._index][0] == kind:
            return self._tokens[self._index][1]
        return None

    def _take(self, kind: str, value: str | None = None, other: str = "") -> str:
        if self._index >= len(self._tokens):
            raise self._error(f"the text ends where {value or 'a ' + kind} is expected")
        found_kind, found = self._tokens[self._index]
        if found_kind not in (kind, other) or (value is not None and found.lower() != value):
            raise self._error(f"{found!r} stands where {value or 'a ' + kind} is expected")
        self._index += 1
        return found

    def _error(self, problem: str) -> FormatError:
        return FormatError(f"in the schema {self._text.strip()!r}: {problem}")


def _spark_json(node: object, depth: int) -> pa.DataType:
    """Return the type of Spark's JSON form (``df.schema.json()``)."""
    if depth > DEPTH_MAX:
        raise FormatError(f"the schema's types nest deeper than {DEPTH_MAX}")
    if isinstance(node, str):
        return parse_type(node)
    if isinstance(node, dict):
        match node.get("type"):
            case "struct":
                return pa.struct(
                    [
                        pa.field(
                            f["name"], _spark_json(f["type"], depth + 1), nullable=f.get("nullable", True)
                        )
                        for f in node.get("fields", [])
                    ]
                )
            case "array":
                return pa.list_(_spark_json(node.get("elementType"), depth + 1))
            case "map":
                return pa.map_(
                    _spark_json(node.get("keyType"), depth + 1), _spark_json(node.get("valueType"), depth + 1)
                )
    raise FormatError(f"{node!r} is not a type of Spark's JSON schema")


_JSON_SCHEMA_FORMATS: Final = {"date-time": TIMESTAMP, "date": pa.date32()}


def _json_schema(node: object, path: str, depth: int) -> pa.DataType:
    """Return the type of a JSON Schema: object, array, string, integer, number, boolean, or one of these
    or null."""
    if not isinstance(node, dict) or depth > DEPTH_MAX:
        raise FormatError(
            f"the JSON Schema at {path} is {str(node)[:80]!r}; an object with a type is expected"
        )
    kind = node.get("type", "object" if "properties" in node else None)
    if kind is None:
        options = [n for n in node.get("oneOf") or node.get("anyOf") or [] if n.get("type") != "null"]
        if len(options) == 1:
            return _json_schema(options[0], path, depth + 1)
    if isinstance(kind, list):
        kinds = [k for k in kind if k != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    match kind:
        case "object" if node.get("properties"):
            required = node.get("required", [])
            return pa.struct(
                [
                    pa.field(
                        name, _json_schema(child, f"{path}.{name}", depth + 1), nullable=name not in required
                    )
                    for name, child in node["properties"].items()
                ]
            )
        case "object":
            values = node.get("additionalProperties")
            return pa.map_(
                pa.string(),
                _json_schema(values, f"{path}.*", depth + 1) if isinstance(values, dict) else pa.string(),
            )
        case "array":
            return pa.list_(_json_schema(node.get("items"), f"{path}[]", depth + 1))
        case "string":
            return _JSON_SCHEMA_FORMATS.get(node.get("format", ""), pa.string())
        case "integer":
            return pa.int64()
        case "number":
            return pa.float64()
        case "boolean":
            return pa.bool_()
    raise FormatError(
        f"the JSON Schema at {path} has type {node.get('type')!r}; one of object, array, string, integer, "
        "number, boolean is expected, alone or with null. Declare the columns as DDL instead"
    )
