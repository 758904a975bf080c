"""Defines a finding of `kalda doctor`, and the order of findings. Values only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

SHOWN_MAX: Final = 5
"""How many partitions, topics or groups the evidence of one finding names; the others are counted."""


class Severity(IntEnum):
    """How bad a finding is."""

    ADVICE = 0
    """Nothing is wrong; an operator may want it differently. Not in the default output."""
    WARNING = 1
    """It will hurt when a broker, a disk or a client fails, or when load grows."""
    CRITICAL = 2
    """Data is unavailable, at risk, or open to others now."""

    @property
    def word(self) -> str:
        """The severity as the output shows it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, as the output shows it."""

    check: str
    """The name of the check, which programs may rely on: ``partitions.offline``."""
    severity: Severity
    what: str
    """What is wrong, as one sentence."""
    evidence: str
    """The values that were found."""
    why: str
    """What happens, or can happen, because of it."""
    mend: str
    """The command that mends it or that shows more, or the setting to change."""


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, the worst first; those of one severity keep their order."""
    return sorted(findings, key=lambda each: -each.severity)


def some(names: Iterable[object]) -> str:
    """Return the first names, and the number of those left out.

    >>> some(range(7))
    '0, 1, 2, 3, 4 and 2 more'
    """
    texts = [str(each) for each in names]
    more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
    return f"{', '.join(texts[:SHOWN_MAX])}{more}"


def counted(things: Sequence[object], one: str, many: str) -> str:
    """Return a number with the word for it.

    >>> counted([1], "partition has", "partitions have"), counted([], "topic", "topics")
    ('1 partition has', '0 topics')
    """
    return f"{len(things)} {one if len(things) == 1 else many}"
