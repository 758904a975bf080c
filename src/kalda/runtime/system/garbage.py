"""Schedules the collection of cyclic garbage: short collections under load, whole ones when idle.

A full collection of CPython traverses every object while the event loop waits. Most objects of a broker stay
for its whole life (modules, topics, committed offsets), so nearly all of that work finds nothing. Here each
full collection freezes the objects that survive it (`gc.freeze`), and the next one traverses new objects
only. Reference counts still free frozen objects. A cycle that becomes garbage after it was frozen waits for a
whole collection, which runs while the process is idle. A busy process makes one only after its frozen objects
have doubled, which bounds how much such garbage accumulates (docs/adr/0015).

Measured on a broker that loads 100,000 committed offsets (216,000 objects) beside other work: collections of
33 to 47 ms before, of 1.0 to 1.9 ms with this module; 88 MB of memory in both cases.

Only the commands import this module: a program that embeds a broker keeps its own collector settings.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

THRESHOLDS: Final = (700, 10, 1)
"""With CPython's 700, 10, 10 a full collection traverses up to 80,000 new objects in 8 ms; with these 15,000.
More collections cost little, because none traverses an object twice."""

CHECK_SECONDS: Final = 30.0

REST_SHARE_MAX: Final = 0.05
"""The share of one core up to which a process counts as idle."""

WHOLE_SECONDS_MIN: Final = 600.0
"""Seconds between whole collections of an idle process."""

FROZEN_GROWTH_MIN: Final = 200_000
"""Frozen objects since the last whole collection, and half of those that it left, that cause another in an
idle process: a transport of asyncio is a cycle of 1 KB in 8 objects, the log of a deleted topic one of 25."""

FROZEN_GROWTH_BUSY: Final = 500_000
"""The same for a busy process, and all of those that it left. A whole collection holds the event loop for 0.1
to 0.2 s per million objects."""

_CHECKS_MIN: Final = 2
"""Checks in a row that must find so many in a busy process: those of large requests are gone by then."""


@contextmanager
def collecting_in_steps() -> Iterator[None]:
    """Schedule collections as described above while the loop runs; restore the settings afterwards."""
    collecting = SteppedCollection()
    collecting.start(asyncio.get_running_loop())
    try:
        yield
    finally:
        collecting.stop()


class SteppedCollection:
    """Decides when to collect; a process has one."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None
        self._collected_at = self._checked_at = time.monotonic()
        self._used_seconds = time.process_time()
        self._frozen_count = 0
        """Frozen objects after the last whole collection."""
        self._doubled_checks = 0
        """Checks in a row that found what a busy process collects for."""
        self.has_worked = False
        """Whether the collector has run on new objects since the last whole collection."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Freeze the objects of the start, mostly modules, and collect in small steps from now on."""
        gc.freeze()
        _forget_survivors()
        self._frozen_count = gc.get_freeze_count()
        gc.set_threshold(*THRESHOLDS)
        # The commands of servers switch it off for their imports.
        gc.enable()
        gc.callbacks.append(self._on_collection)
        self._timer = loop.call_later(CHECK_SECONDS, self._check, loop)

    def stop(self) -> None:
        """Restore the collector's thresholds; collections stay on."""
        assert self._timer is not None, "stop without start"
        self._timer.cancel()
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def collect_whole(self) -> None:
        """Traverse every object."""
        gc.unfreeze()
        # The callback freezes the survivors.
        gc.collect()
        _forget_survivors()
        self._frozen_count = gc.get_freeze_count()
        self.has_worked = False

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"]:
            self.has_worked = True
            if info["generation"] == 2:
                gc.freeze()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now, used_seconds = time.monotonic(), time.process_time()
        share = (used_seconds - self._used_seconds) / max(now - self._checked_at, 1e-9)
        self._checked_at, self._used_seconds = now, used_seconds
        growth = gc.get_freeze_count() - self._frozen_count
        has_doubled = growth > max(FROZEN_GROWTH_BUSY, self._frozen_count)
        self._doubled_checks = self._doubled_checks + 1 if has_doubled else 0
        if self.has_worked and is_whole_due(
            now - self._collected_at,
            share,
            has_grown=growth > max(FROZEN_GROWTH_MIN, self._frozen_count // 2),
            has_doubled=self._doubled_checks >= _CHECKS_MIN,
        ):
            self.collect_whole()
            self._collected_at = now
            self._doubled_checks = 0
        self._timer = loop.call_later(CHECK_SECONDS, self._check, loop)


def is_whole_due(seconds: float, share: float, *, has_grown: bool = False, has_doubled: bool = False) -> bool:
    """Return whether a whole collection is due `seconds` after the last, with `share` of a core in use.

    `has_grown` and `has_doubled` say that the frozen objects have become many more since, or twice as many.
    """
    return has_doubled or (share <= REST_SHARE_MAX and (has_grown or seconds >= WHOLE_SECONDS_MIN))


def _forget_survivors() -> None:
    """Let the next full collection begin soon, after all objects were frozen.

    CPython puts it off until a quarter as many objects are new as the last one left, frozen or not: a million
    would make the next one traverse 250,000 new objects. This one finds hardly any, and leaves as few.
    """
    gc.collect()
