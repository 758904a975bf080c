"""Writes the `kalda` command that shows or does what a page shows or does. Pure functions.

A command is complete but for the address of the cluster, which the command line has from its environment or
from ``--bootstrap-server``. Passwords are not in it.
"""

import re
from collections.abc import Iterable, Mapping

_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def quoted(word: str) -> str:
    """Return a word as a shell takes it; control characters as escapes of ``$'…'``.

    >>> quoted("a b"), quoted("it's"), quoted("a\\nb"), quoted("")
    ("'a b'", "'it'\\\\''s'", "$'a\\\\nb'", "''")
    """
    if _PLAIN.fullmatch(word):
        return word
    if all(each.isprintable() for each in word):
        escaped = word.replace("'", "'\\''")
        return f"'{escaped}'"
    parts = []
    for each in word:
        if each in "\\'":
            parts.append("\\" + each)
        elif each.isprintable():
            parts.append(each)
        else:
            parts.append(_ESCAPES.get(each) or "".join(f"\\x{byte:02x}" for byte in each.encode()))
    return f"$'{''.join(parts)}'"


_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def line(
    *words: str,
    options: Mapping[str, str | int | bool | None] | Iterable[tuple[str, str | int | bool | None]] = (),
) -> str:
    """Return a command: its words, then its options; an option that is None or False is left out.

    >>> line("topics", "create", "a b", options={"partitions": 3, "dry-run": True, "config": None})
    "kalda topics create 'a b' --partitions 3 --dry-run"
    """
    parts = ["kalda", *(quoted(each) for each in words)]
    pairs = options.items() if isinstance(options, Mapping) else options
    for name, value in pairs:
        if value is None or value is False:
            continue
        if value is True:
            parts.append(f"--{name}")
        else:
            text = str(value)
            # A value that begins with a dash would be taken for an option.
            parts.append(f"--{name}={quoted(text)}" if text.startswith("-") else f"--{name} {quoted(text)}")
    return " ".join(parts)
