"""Compares two texts of a schema line by line. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kalda.http.console.texts import bytes_text

LINES_MAX = 5_000
"""Of a text that is compared; longer ones are shown as they are."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a comparison."""

    kind: str
    """``same``, ``added`` or ``removed``."""
    text: str


def readable_text(text: str) -> str:
    """Return the text of a schema with one thing a line: JSON is indented, Protobuf is as it is."""
    shown, _ = bytes_text(text.encode("utf-8", "surrogatepass"))
    return shown


def compared(before: str, after: str) -> Sequence[DiffLine]:
    """Return the lines of two texts, with what was removed before what was added in its place."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > LINES_MAX:
        return [DiffLine("same", line) for line in new]
    lines = []
    for kind, old_begin, old_end, new_begin, new_end in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if kind == "equal":
            lines += [DiffLine("same", line) for line in new[new_begin:new_end]]
            continue
        lines += [DiffLine("removed", line) for line in old[old_begin:old_end]]
        lines += [DiffLine("added", line) for line in new[new_begin:new_end]]
    return lines
