"""Translates Java regular expressions, which `subscribePattern` takes, to patterns of Python's `re` module.

Syntax that both languages share is passed through, and some Java forms are translated. A form that Python
would match differently raises `UnsupportedPatternError`. No other exception may leave this module: `options`
turns this one into the user's error. Topic names are ASCII letters, digits, dot, dash and underscore, so
differences in Unicode never matter.
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
_FLAGS: Final = frozenset("ims-")
"""The inline flags that mean the same in both. Java's `x` also ignores blanks in classes; `u` and `U` are
refused with `re.ASCII`, `a` and `L` are Python's alone."""

_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\p\{(?:Is)?(?P<property>\w+)\}"
    r"|\(\?<(?P<group>[A-Za-z][A-Za-z0-9]*)>"
    r"|\(\?(?P<flags>[A-Za-z-]+)(?=[:)])"
    r"|(?P<python_group>\(\?[P#(])"
    r"|\\k<(?P<reference>\w+)>"
    # Java reads \0 as octal, and \101 as group 1 before "01"; Python reads both otherwise.
    r"|\\(?P<refused>[pPGRXhHvVzNucU0]|[1-9]\d\d)"
    r"|\\."
    r"|(?P<open>\[\^?\]?)"
    r"|(?P<close>\])"
    r"|(?P<intersection>&&)"
    r"|(?P<brace>\{(?!\d+(?:,\d*)?\}))"
    r"|.",
    re.DOTALL,
)


def translate_java_regex(pattern: str) -> re.Pattern[str]:
    r"""Compile a Java pattern; the caller decides whether it must match a whole name.

    Example: ``orders\.\p{Alpha}+`` becomes ``orders\.[a-zA-Z]+``.

    Raises:
        UnsupportedPatternError: the pattern is not valid, or uses what Python cannot express.
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
        elif kind == "group" and not depth:
            text = f"(?P<{token['group']}>"
        elif kind == "reference":
            text = f"(?P={token['reference']})"
        elif kind == "refused":
            raise UnsupportedPatternError(f"{text} is not supported in topic patterns")
        elif kind in ("flags", "python_group", "brace") and not depth:
            _check_shared(kind, text, token["flags"])
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
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise UnsupportedPatternError(f"not a valid regular expression: {error}") from None


def _check_shared(kind: str, text: str, flags: str | None) -> None:
    """Refuse inline flags, groups and braces outside a class that Java reads differently or not at all."""
    if kind == "flags" and not _FLAGS.issuperset(flags or ""):
        raise UnsupportedPatternError(f"{text} is not supported in topic patterns; the flags are i, m and s")
    if kind == "python_group":
        raise UnsupportedPatternError(f"{text} does not begin a group in Java's regular expressions")
    if kind == "brace":
        raise UnsupportedPatternError("{ is not followed by a count such as {2}, {2,} or {2,3}")


def _translate_property(name: str, *, inside_class: bool) -> str:
    members = _PROPERTIES.get(name)
    if members is None:
        raise UnsupportedPatternError(f"\\p{{{name}}} is not supported in topic patterns")
    return members if inside_class else f"[{members}]"
