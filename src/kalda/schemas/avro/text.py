"""Reads the JSON of Avro schemas, which may have comments."""

import re
from typing import Final

from kalda.common.received_json import loads_received
from kalda.schemas.errors import InvalidSchemaError

NESTING_MAX: Final = 200
"""Open brackets inside each other; what reads and writes schemas recurses."""
# What is not closed ends with the text: a pattern that failed there would be tried at each character again.
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|/\*.*?(?:\*/|\Z)|//[^\n]*|[\[{]|[\]}]', re.DOTALL)


def loads_schema(text: str) -> object:
    """Return the value of a JSON text.

    Raises:
        InvalidSchemaError: It is not JSON, or nests too deeply.
    """
    depth = 0
    kept = []
    end = 0
    for found in _TOKEN.finditer(text):
        match text[found.start()]:
            case "[" | "{":
                depth += 1
                if depth > NESTING_MAX:
                    raise InvalidSchemaError(f"the schema nests deeper than {NESTING_MAX} levels")
            case "]" | "}":
                depth -= 1
            case "/":
                kept.append(text[end : found.start()])
                end = found.end()
    try:
        return loads_received(" ".join([*kept, text[end:]]))
    except ValueError as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from None
