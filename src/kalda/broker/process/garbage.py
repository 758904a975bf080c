"""When a process looks for cyclic garbage: in small steps while it serves, everything while it rests.

CPython's full collections look at every object there is, and the event loop waits. What a broker holds is
for the most part there to stay (modules, topics, committed offsets), so nearly all of that is for nothing.
Here each full collection moves what it has seen out of the collector's sight (`gc.freeze`): the next one
looks at what is new only. Reference counts free what is frozen as ever. What they cannot free, cycles that
broke off after they were frozen, waits for a whole collection: one is made while the process rests, and at
the latest an hour after the last one, which bounds what such garbage adds up to (see docs/adr/0015).

Measured with a broker that loads 100,000 committed offsets (216,000 objects), beside other work: collections
of 33 to 47 ms before, of 1.0 to 1.9 ms since; 88 MB of memory both ways.

The one thing not to break: this is the process's, not a library's; whoever embeds a broker keeps their own
collector's settings.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

THRESHOLDS: Final = (700, 10, 1)
"""CPython's are 700, 10, 10: a full collection then finds up to 80,000 new objects, 8 ms; with these 15,000.
More of them cost little, since none looks at an object twice."""

CHECK_SECONDS: Final = 30.0

REST_SHARE_MAX: Final = 0.05
"""The share of one core up to which a process rests."""

WHOLE_SECONDS_MIN: Final = 600.0
"""Between whole collections, however quiet it is."""

WHOLE_SECONDS_MAX: Final = 3600.0
"""After that one is made even while the process works; it takes 0.1 to 0.2 s per million objects."""


@contextmanager
def collecting_in_steps() -> Iterator[None]:
    """Collect garbage as told above while a loop runs; the settings are as before afterwards."""
    collecting = SteppedCollection()
    collecting.start(asyncio.get_running_loop())
    try:
        yield
    finally:
        collecting.stop()


class SteppedCollection:
    """Decides when to collect; one a process."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None
        self._collected_at = self._checked_at = time.monotonic()
        self._used_seconds = time.process_time()
        self.has_worked = False
        """Whether the collector has had anything to look at since the last whole collection."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hide what the start has left, modules for the most part, and go on in small steps."""
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._on_collection)
        self._timer = loop.call_later(CHECK_SECONDS, self._check, loop)

    def stop(self) -> None:
        """Be as before."""
        assert self._timer is not None, "it was started"
        self._timer.cancel()
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def collect_whole(self) -> None:
        """Look at every object."""
        gc.unfreeze()
        # What is left is frozen by the callback.
        gc.collect()
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
        if self.has_worked and is_whole_due(now - self._collected_at, share):
            self.collect_whole()
            self._collected_at = now
        self._timer = loop.call_later(CHECK_SECONDS, self._check, loop)


def is_whole_due(seconds: float, share: float) -> bool:
    """Return whether to look at everything, `seconds` after the last time; `share` of a core is in use."""
    return seconds >= (WHOLE_SECONDS_MIN if share <= REST_SHARE_MAX else WHOLE_SECONDS_MAX)
