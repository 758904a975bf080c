"""Emits what happens to a group's offsets other than by its members: a reset, a deletion.

What is decided happens when it is written: operations emit with `when_written`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from kalda.cluster.history.author import RequestAuthor, author_details
from kalda.common.errors import ErrorCode
from kalda.coordinator.runtime.coordinator_shard import OnWritten
from kalda.events.event import EventKind, EventSink, Plain

GetAuthor: TypeAlias = Callable[[], RequestAuthor]
"""Describes the request that changes offsets. Called only if there is an event."""

NO_OFFSET: Final = -1
"""The offset before a reset of a partition that had none, or whose offset is not known here."""

_CHANGES_MAX: Final = 8
"""The changes that an event has; the others are counted."""


def when_written(note: Callable[[], None]) -> OnWritten:
    """Return what calls `note` if the records of an operation are committed, for `Result.on_written`."""

    def on_written(code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            note()

    return on_written


def note_reset(
    events: EventSink,
    group_id: str,
    topic: str,
    changes: Sequence[tuple[int, int, int]],
    author: GetAuthor | None,
    *,
    is_often: bool = False,
) -> None:
    """Emit that a client that is no member set offsets: of each partition the one before, and the new one.

    If the group's own consumers may do it all the time (`is_often`), the events of an author are counted.
    """
    details: dict[str, Plain] = {
        "offsets": [list(each) for each in changes[:_CHANGES_MAX]],
        "partitions_count": len(changes),
        **_author(author),
    }
    emit = events.emit_seldom if is_often else events.emit
    emit(EventKind.OFFSETS_RESET, {"group": group_id, "topic": topic}, details)


def note_deleted(
    events: EventSink,
    offsets: Iterable[tuple[str, str]],
    reason: str,
    author: GetAuthor | None = None,
) -> None:
    """Emit that offsets, each of a group and a topic, are deleted: one event for each topic."""
    for (group_id, topic), count in Counter(offsets).items():
        details: dict[str, Plain] = {"reason": reason, "partitions_count": count, **_author(author)}
        events.emit(EventKind.OFFSETS_DELETED, {"group": group_id, "topic": topic}, details)


def note_group_deleted(events: EventSink, group_id: str, author: GetAuthor | None) -> None:
    """Emit that a client deleted a group, and all offsets with it."""
    details: dict[str, Plain] = {"reason": "a client deleted the group (DeleteGroups)", **_author(author)}
    events.emit(EventKind.OFFSETS_DELETED, {"group": group_id}, details)


def _author(author: GetAuthor | None) -> dict[str, str]:
    return {} if author is None else author_details(author())
