"""Translates Java's regular expressions, which `subscribePattern` takes, into those of Python's `re`.

Syntax that both languages share is passed through, and some Java forms are translated. A form that Python
would match differently raises `UnsupportedPatternError`. Topic names are ASCII letters, digits, dot, dash and
underscore, so differences in Unicode never matter.
"""

import re
from typing import Final


class UnsupportedPatternError(ValueError):
    """The pattern is not valid, or uses what Python cannot express."""


_PROPERTIES: Final = {
    # Java's POSIX classes, as the inside of a Python character class.
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": r"!-/:-@\[-`{-~",
}
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\p\{(?:Is)?(?P<property>\w+)\}"
    r"|\(\?<(?P<group>[A-Za-z]\w*)>"
    r"|\\k<(?P<reference>\w+)>"
    r"|\\(?P<refused>[pPGRXhHvVzNuc])"
    r"|\\."
    r"|(?P<open>\[\^?\]?)"
    r"|(?P<close>\])"
    r"|(?P<intersection>&&)"
    r"|.",
    re.DOTALL,
)


def translate_java_regex(pattern: str) -> re.Pattern[str]:
    r"""Compile a Java pattern for use with `fullmatch`.

    Example: ``orders\.\p{Alpha}+`` becomes ``orders\.[a-zA-Z]+``.

    Raises:
        UnsupportedPatternError: see there.
    """
    pieces: list[str] = []
    depth = 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        text = token[0]
        if kind == "quoted":
            text = re.escape(token["quoted"])
        elif kind == "property":
            text = _translate_property(token["property"], inside_class=depth > 0)
        elif kind == "group":
            text = f"(?P<{token['group']}>"
        elif kind == "reference":
            text = f"(?P={token['reference']})"
        elif kind == "refused":
            raise UnsupportedPatternError(f"{text} is not supported in topic patterns")
        elif kind == "open":
            depth += 1
            if depth > 1:
                raise UnsupportedPatternError("nested character classes are not supported in topic patterns")
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "intersection" and depth:
            raise UnsupportedPatternError("&& in character classes is not supported in topic patterns")
        pieces.append(text)
    try:
        # Java's \d, \w and \s are ASCII unless asked otherwise.
        return re.compile("".join(pieces), re.ASCII)
    except re.error as error:
        raise UnsupportedPatternError(f"not a valid regular expression: {error}") from None


def _translate_property(name: str, *, inside_class: bool) -> str:
    members = _PROPERTIES.get(name)
    if members is None:
        raise UnsupportedPatternError(f"\\p{{{name}}} is not supported in topic patterns")
    return members if inside_class else f"[{members}]"
