"""Reads and writes the JSON of a schema, exactly: a number keeps its digits, a property its place.

The text is what Jackson writes for Confluent's registry, because registries that share a topic compare it.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.java_json import java_text

NESTING_MAX: Final = 100
"""Levels of objects and arrays; a schema of a hand-written type has fewer than twenty."""
_NUMBER_CHARACTERS_MAX: Final = 1_000
_EXPONENT_MAX: Final = 10_000
"""Of a decimal number: arithmetic with larger ones takes the memory of all their digits."""


def read(text: str) -> object:
    """Return the value of a JSON text; a number with a fraction or an exponent is a `Decimal`.

    Of a property that stands there twice, the last value counts, as in Jackson.

    Raises:
        InvalidSchemaError: The text is not JSON, is nested too deeply, or has half of a surrogate pair.
    """
    try:
        value = json.loads(text, parse_float=_decimal, parse_int=_integer, parse_constant=_constant)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise InvalidSchemaError(f"it is not JSON: {error}") from error
    _check_nesting(value)
    try:
        text.encode()
        if "\\u" in text:  # an escape may name half of a pair
            canonical(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("a text in it has half of a surrogate pair, such as \\ud800") from error
    return value


def canonical(value: object) -> str:
    """Return a value on one line without spaces, its properties in their order."""
    return _written(value, in_order=True)


def normalized(value: object) -> str:
    """Return a value on one line without spaces, its properties sorted by name."""
    return _written(value, in_order=False)


def _written(value: object, *, in_order: bool) -> str:
    match value:
        case str():
            return java_text(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            # Java's BigDecimal has no negative zero.
            return str(value if value else value.copy_abs())
        case dict():
            items = value.items() if in_order else sorted(value.items(), key=_java_order)
            members = [f"{java_text(key)}:{_written(each, in_order=in_order)}" for key, each in items]
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join([_written(each, in_order=in_order) for each in value])}]"
        case _:
            return "null"


def _java_order(item: tuple[str, object]) -> bytes:
    """Return what sorts as Java's strings do: by units of UTF-16."""
    return item[0].encode("utf-16-be", "surrogatepass")


def _check_nesting(value: object) -> None:
    level = [value]
    for _ in range(NESTING_MAX + 1):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return
        level = inner
    raise _too_deep()


def _too_deep() -> InvalidSchemaError:
    return InvalidSchemaError(f"it is nested more than {NESTING_MAX} levels deep")


def _integer(text: str) -> int:
    _check_length(text)
    return int(text)


def _decimal(text: str) -> Decimal:
    _check_length(text)
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise InvalidSchemaError(f"the number {text:.40} is not possible") from error
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > _EXPONENT_MAX:
        raise InvalidSchemaError(f"the exponent of the number {text:.40} is above {_EXPONENT_MAX}")
    return number


def _check_length(text: str) -> None:
    if len(text) > _NUMBER_CHARACTERS_MAX:
        raise InvalidSchemaError(
            f"the number {text:.20}... has {len(text)} digits; at most {_NUMBER_CHARACTERS_MAX} are allowed"
        )


def _constant(text: str) -> NoReturn:
    raise InvalidSchemaError(f"{text} is not JSON")
