"""Writes JSON as Jackson does for Java's libraries of Avro, whose text a registry stores and compares.

It differs from `json.dumps`: numbers have Java's form (``1.0E10``), and escapes have capitals (``\\u001F``).
"""

import json
import re
from decimal import Decimal
from typing import Final

_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_DECIMAL_MIN: Final = 1e-3
_DECIMAL_LIMIT: Final = 1e7


def java_json(value: object) -> str:
    """Return a value on one line without spaces.

    Args:
        value: What `json.loads` gives, nested at most some hundred levels.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return java_text(value)
        case int():
            return str(value)
        case float():
            return java_double(value)
        case list():
            return f"[{','.join(map(java_json, value))}]"
        case dict():
            return f"{{{','.join(f'{java_text(key)}:{java_json(each)}' for key, each in value.items())}}}"
    return json.dumps(value)


def java_text(value: str) -> str:
    """Return a text with quotes around it."""
    return f'"{_ESCAPED.sub(_escape, value)}"'


def java_double(value: float) -> str:
    """Return a number in the form of Java's ``Double.toString``.

    >>> java_double(1e10), java_double(0.1), java_double(100.0), java_double(1.5e-7)
    ('1.0E10', '0.1', '100.0', '1.5E-7')
    """
    size = abs(value)
    if size == 0 or _DECIMAL_MIN <= size < _DECIMAL_LIMIT:
        return repr(value)
    _, digits, exponent = Decimal(repr(size)).normalize().as_tuple()
    assert isinstance(exponent, int), value
    text = "".join(map(str, digits))
    sign = "-" if value < 0 else ""
    return f"{sign}{text[0]}.{text[1:] or '0'}E{len(text) - 1 + exponent}"


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT.get(character) or f"\\u{ord(character):04X}"
