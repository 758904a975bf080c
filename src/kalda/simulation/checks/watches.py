"""Checks that a session of the coordination server gets the event of each watch that it sets: `SetWatches`.

A watch fires before its session reads a newer state of the znode. The event of a watch may arrive together
with the response to the read that set it, and is then delivered before the caller of the read goes on. So
each read has a callback of its own, `ReadWatch`, which knows whether the watch of this read has fired.
"""

from typing import Final

from kalda.zookeeper.port import WatchEvent


class SetWatches:
    """The watches of one session that have not fired."""

    def __init__(self) -> None:
        self._seen: Final[dict[str, int]] = {}
        """The transaction that had changed the znode last when the watch was set, by path."""

    def begin(self, path: str) -> "ReadWatch":
        """Return the callback for a read that sets a watch."""
        return ReadWatch(path, self._seen)

    def clear(self) -> None:
        """Forget all watches: the session has ended."""
        self._seen.clear()


class ReadWatch:
    """The watch that one read sets; the client calls it with the event."""

    def __init__(self, path: str, seen: dict[str, int]) -> None:
        self._path: Final = path
        self._seen: Final = seen
        self._before: Final = seen.get(path)
        self._has_fired = False

    def __call__(self, event: WatchEvent) -> None:
        """Note that the watch has fired, and with it those of earlier reads of the path."""
        self._has_fired = True
        self._seen.pop(self._path, None)

    def answered(self, changed: int) -> str | None:
        """Note the answer to the read; return what is wrong with it, None if nothing is.

        Args:
            changed: The transaction that changed the znode last, according to the answer.
        """
        before = self._before
        problem = None
        if before is not None and self._path in self._seen and changed != before:
            problem = f"{self._path} was changed by {changed:#x} after a watch was set at {before:#x}"
        if not self._has_fired:
            self._seen[self._path] = changed
        return problem
