"""A verdict of `kalda migrate check` about one thing, and the order of verdicts. Values only."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Level(IntEnum):
    """How bad a finding is."""

    FITS = 0
    """Nothing to do."""
    LOOK = 1
    """The brokers can be replaced; an operator has to know or to decide something."""
    STOPS = 2
    """Kalda would not start, or something that the operator relies on would be gone."""

    @property
    def words(self) -> str:
        """The verdict in plain words."""
        return _WORDS[self]


_WORDS: Final = {
    Level.FITS: "fits",
    Level.LOOK: "look at this",
    Level.STOPS: "stops the migration",
}

EXIT_CODES: Final = {Level.FITS: 0, Level.LOOK: 3, Level.STOPS: 4}
"""Apart from 1 and 2, which mean that the command failed or was called in a wrong way."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one thing means for the migration."""

    level: Level
    subject: str
    """The thing: a setting's name, or a fixed word for a fact of the cluster or of a directory."""
    where: str
    """The file, broker or directory that it was found in."""
    text: str
    """What was found, and what to do."""


def worst(verdicts: Iterable[Verdict]) -> Level:
    """Return the highest level; FITS if there is no verdict."""
    return max((each.level for each in verdicts), default=Level.FITS)


def merged(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Join verdicts that differ in `where` only, in the order in which they came; the worst come first."""
    places: dict[tuple[Level, str, str], list[str]] = {}
    for each in verdicts:
        found = places.setdefault((each.level, each.subject, each.text), [])
        if each.where not in found:
            found.append(each.where)
    joined = [
        Verdict(level, subject, ", ".join(where), text) for (level, subject, text), where in places.items()
    ]
    return sorted(joined, key=lambda each: -each.level)
