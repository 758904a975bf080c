"""Judges which changes of a setting may lose records, for topics and for brokers."""

from collections.abc import Callable
from typing import Final

from kalda.tools.state.steps import Risk

_UNLIMITED: Final = -1


def config_risk(name: str, before: str | None, after: str | None) -> Risk | None:
    """Return what a change of the effective value may lose; None for a value that is not known.

    A topic's and a broker's setting count alike: ``retention.ms`` and ``log.retention.ms``.
    """
    judge = _JUDGES.get(name.removeprefix("log."))
    if judge is None or before == after:
        return None
    return judge(before, after)


def _limit_falls(before: str | None, after: str | None) -> Risk | None:
    """Judge a limit of what is kept, where -1 is no limit."""
    old, new = _number(before), _number(after)
    if new is None:
        # What the setting becomes is not known, so it may be less, unless nothing was kept longer before.
        return Risk.SHORTER_RETENTION if old is not None else None
    if new == _UNLIMITED or (old is not None and old != _UNLIMITED and new >= old):
        return None
    return Risk.SHORTER_RETENTION


def _policy_changes(before: str | None, after: str | None) -> Risk | None:
    """Judge ``cleanup.policy``: each policy that is added deletes records that are kept now."""
    added = _names(after) - _names(before)
    return Risk.SHORTER_RETENTION if added or after is None else None


def _becomes_true(before: str | None, after: str | None) -> Risk | None:
    return Risk.LESS_DURABILITY if (after or "").lower() == "true" else None


def _becomes_less(before: str | None, after: str | None) -> Risk | None:
    old, new = _number(before), _number(after)
    if old is None or (new is not None and new >= old):
        return None
    return Risk.LESS_DURABILITY


_JUDGES: Final[dict[str, Callable[[str | None, str | None], Risk | None]]] = {
    "retention.ms": _limit_falls,
    "retention.minutes": _limit_falls,
    "retention.hours": _limit_falls,
    "retention.bytes": _limit_falls,
    "delete.retention.ms": _limit_falls,
    "cleaner.delete.retention.ms": _limit_falls,
    "cleanup.policy": _policy_changes,
    "unclean.leader.election.enable": _becomes_true,
    "min.insync.replicas": _becomes_less,
}


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _names(text: str | None) -> set[str]:
    return {name.strip() for name in (text or "").split(",") if name.strip()}
