"""Reads the options of a .proto file: ``(a.b).c = { d: 1 }``."""

from typing import Final

from kalda.schemas.protobuf.elements import Option, Word
from kalda.schemas.protobuf.tokens import Tokens

NESTING_MAX: Final = 64
"""Maps, lists and names inside each other."""

Value = str | Word | list[object] | dict[str, object] | Option


def read_options(tokens: Tokens) -> list[Option]:
    """Return the options in brackets, if any."""
    made: list[Option] = []
    if not tokens.take("["):
        return made
    while True:
        made.append(read_option(tokens))
        if tokens.take("]"):
            return made
        if not tokens.take(","):
            tokens.fail("Expected ',' or ']'")


def read_option(tokens: Tokens, separator: str = "=", depth: int = 0) -> Option:
    """Return a name with its value."""
    if depth > NESTING_MAX:
        tokens.fail(f"options nest deeper than {NESTING_MAX}")
    is_extension, is_parenthesized = tokens.peek() == "[", tokens.peek() == "("
    name = _wrapped(tokens) if is_extension or is_parenthesized else tokens.word()
    if is_extension:
        name = f"[{name}]"
    inner = _inner_names(tokens) if is_parenthesized else []
    if not (separator == ":" and tokens.peek() == "{") and not tokens.take(separator):
        tokens.fail(f"expected '{separator}' in option")
    value = _value(tokens, depth)
    for text, is_wrapped in reversed(inner):
        value = Option(text, value, is_wrapped)
    return Option(name, value, is_parenthesized)


def _wrapped(tokens: Tokens) -> str:
    close = ")" if tokens.take("(") else "]"
    if close == "]":
        tokens.require("[")
    word = tokens.word()
    if tokens.peek() == "/":  # "[type.googleapis.com/a.b]", an Any
        tokens.fail("expected ']'")
    tokens.require(close)
    return word


def _inner_names(tokens: Tokens) -> list[tuple[str, bool]]:
    """Return the names behind the first one, with whether each is in parentheses."""
    names: list[tuple[str, bool]] = []
    while tokens.peek() == ".":
        start = tokens.position()
        for text in tokens.word()[1:].split("."):
            if text:
                names.append((text, False))
            elif tokens.peek() == "(":
                names.append((_wrapped(tokens), True))
            else:
                tokens.fail("expected a name behind '.'", start)
        if len(names) > NESTING_MAX:
            tokens.fail(f"options nest deeper than {NESTING_MAX}", start)
    return names


def _value(tokens: Tokens, depth: int) -> Value:
    match tokens.peek():
        case "{":
            return _map(tokens, depth + 1)
        case "[":
            return _list(tokens, depth + 1)
        case '"' | "'":
            return tokens.quoted()
    return Word(tokens.word())


def _map(tokens: Tokens, depth: int) -> dict[str, object]:
    tokens.require("{")
    made: dict[str, object] = {}
    while not tokens.take("}"):
        option = read_option(tokens, ":", depth)
        value = option.value
        if option.name in made:
            known = made[option.name]
            values = made[option.name] = known if isinstance(known, list) else [known]
            values += value if isinstance(value, list) else [value]
        else:
            made[option.name] = value
        if not tokens.take(","):
            tokens.take(";")
    return made


def _list(tokens: Tokens, depth: int) -> list[object]:
    if depth > NESTING_MAX:
        tokens.fail(f"options nest deeper than {NESTING_MAX}")
    tokens.require("[")
    made: list[object] = []
    while not tokens.take("]"):
        made.append(_value(tokens, depth))
        if not tokens.take(",") and tokens.peek() != "]":
            tokens.fail("expected ',' or ']'")
    return made
