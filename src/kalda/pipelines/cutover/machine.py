"""Decides the next phase of a cut-over from the outcome of the one before. Pure: no cluster, clock or file.

The rule behind the table: once writers may be held, every end of a phase leads either to `SWITCHED` or, by
`RELEASE`, to writers that go on in the source; a process that ends in between leaves a phase that goes on.
"""

from dataclasses import replace
from enum import Enum
from typing import Final

from kalda.pipelines.cutover.journal import Fence, Journal, Phase

ROUNDS_MAX: Final = 3
"""How often records may arrive behind a cut: others wait for as long as a writer is not held."""

_NEXT: Final = {
    Phase.CHECK: Phase.PREPARE,
    Phase.PREPARE: Phase.FOLLOW,
    Phase.FOLLOW: Phase.PLAN_FENCE,
    Phase.PLAN_FENCE: Phase.FENCE,
    Phase.FENCE: Phase.DRAIN,
    Phase.DRAIN: Phase.GROUPS,
    Phase.GROUPS: Phase.VERIFY,
    Phase.VERIFY: Phase.SETTLE,
    Phase.SETTLE: Phase.SWITCHED,
    Phase.RELEASE: Phase.ABORTED,
}
ENDS: Final = frozenset({Phase.SWITCHED, Phase.ABORTED})


class Outcome(Enum):
    """How a phase ended."""

    DONE = "done"
    NOT_HELD = "not held"
    """Records arrive in spite of the fence."""
    MOVED = "moved"
    """Records arrived, or groups went on, behind the cut."""
    FAILED = "failed"
    """The phase cannot be completed, or not in time."""
    STOPPED = "stopped"
    """The operator asks to give up."""


def advance(journal: Journal, outcome: Outcome, now_ms: int, reason: str = "") -> Journal:
    """Return the journal with the phase that follows.

    Args:
        journal: with what the phase has changed beside the phase itself.
        outcome: how its phase ended.
        now_ms: the time since the epoch.
        reason: why, for every outcome but `DONE`.
    """
    assert journal.phase not in ENDS, f"{journal.phase} is followed by no phase"
    if outcome is Outcome.DONE:
        return _entered(journal, _NEXT[journal.phase], now_ms)
    if outcome is Outcome.NOT_HELD:
        assert journal.phase is Phase.FENCE, f"{journal.phase} holds nobody"
        if journal.methods:
            return _entered(journal, Phase.PLAN_FENCE, now_ms)
    if outcome is Outcome.MOVED:
        assert journal.phase is Phase.VERIFY, f"{journal.phase} looks for nothing behind the cut"
        if journal.rounds < ROUNDS_MAX:
            return _entered(replace(journal, rounds=journal.rounds + 1), Phase.DRAIN, now_ms)
    if journal.is_fenced or journal.fence != Fence():
        if journal.phase is Phase.RELEASE:
            # Writers are held still; the next start, or the next try, lets them go.
            return journal
        return _entered(replace(journal, reason=reason), Phase.RELEASE, now_ms)
    return _entered(replace(journal, reason=reason), Phase.ABORTED, now_ms)


def _entered(journal: Journal, phase: Phase, now_ms: int) -> Journal:
    if phase is Phase.FENCE and journal.fenced_ms is None:
        return replace(journal, phase=phase, fenced_ms=now_ms)
    if phase in ENDS and journal.open_ms is None:
        return replace(journal, phase=phase, open_ms=now_ms)
    return replace(journal, phase=phase)
