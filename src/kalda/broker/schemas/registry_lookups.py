"""Keeps what a schema registry answered, and looks ids up in the background.

One lookup of an id runs at a time, whatever number of requests waits for it. After a failure all lookups fail
for a second, so that a registry that is away costs each request one wait at most, and no thread.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.schemas.payloads.record_check import KnownSchema, PayloadCheck, Wanted

_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")

logger: Final = logging.getLogger(__name__)

_WORKERS: Final = 4
"""Lookups at a time; each holds a thread while the registry is silent."""
_QUEUED_MAX: Final = 1_000
"""Ids that wait. Random bytes in place of ids would make any number of them."""
_FAILURE_SECONDS: Final = 1.0


class LookupFailedError(Exception):
    """No registry answers, or refuses; the message has the address and the reason."""


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The schema that a registry has under an id; without subjects if it has none."""

    subjects: frozenset[str] = frozenset()
    check: PayloadCheck | None = None
    problem: str = ""
    """Why there is no check."""


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """Bounds of what is kept and of waits; the settings ``kalda.schema.registry.…``."""

    cache_size: int
    missing_ttl_seconds: float
    wait_max_seconds: float


class _Waiter:
    """A request that waits for lookups."""

    __slots__ = ("_done", "ids", "timer", "wanted")

    def __init__(self, wanted: Collection[Wanted], done: Callable[[], None]) -> None:
        self.wanted: Final = wanted
        self.ids: Final = {schema_id for schema_id, _ in wanted}
        """What is not looked up yet."""
        self._done: Callable[[], None] | None = done
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Call back, once."""
        done, self._done = self._done, None
        if done is not None:
            if self.timer is not None:
                self.timer.cancel()
            done()


class RegistryLookups:
    """The schemas of one registry. Any thread may call `find`, `is_denied` and `problem`, the loop the rest.

    Args:
        read: Reads what is registered under an id; blocks and raises `LookupFailedError`.
    """

    def __init__(
        self, read: Callable[[int], ReadSchema], clock: Clock, background: Background, limits: LookupLimits
    ) -> None:
        self._read: Final = read
        self._clock: Final = clock
        self._background: Final = background
        self._limits: Final = limits
        self._schemas: Final[dict[int, KnownSchema]] = {}
        """The oldest first."""
        self._denied: Final[dict[Wanted, float]] = {}
        """When a lookup that was made for it did not find it; the oldest first."""
        self._waiters: Final[dict[int, list[_Waiter]]] = {}
        """By each id that is queued or looked up."""
        self._queue: Final[asyncio.Queue[int]] = asyncio.Queue(_QUEUED_MAX)
        self._failure: tuple[float, str] | None = None
        """Until when lookups fail, and why."""
        self._is_down = False

    def find(self, schema_id: int) -> KnownSchema | None:
        """Return the cached result for an id; None if there is none."""
        return self._schemas.get(schema_id)

    def is_denied(self, wanted: Wanted) -> bool:
        """Return whether a recent lookup, made for this, did not find it."""
        denied_at = self._denied.get(wanted)
        if denied_at is None:
            return False
        return self._clock.monotonic() - denied_at <= self._limits.missing_ttl_seconds

    def problem(self) -> str | None:
        """Return why lookups fail now; None if they may succeed."""
        failure = self._failure
        return None if failure is None or failure[0] < self._clock.monotonic() else failure[1]

    def wait(self, wanted: Collection[Wanted], done: Callable[[], None]) -> None:
        """Look ids up; call `done` when all are known, when a lookup failed, or when it took too long."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(wanted, done)
        waiter.timer = loop.call_later(self._limits.wait_max_seconds, self._expire, waiter)
        for schema_id in tuple(waiter.ids):
            waiters = self._waiters.get(schema_id)
            if waiters is None:
                try:
                    self._queue.put_nowait(schema_id)
                except asyncio.QueueFull:
                    self._fail(f"{_QUEUED_MAX} schema ids wait to be looked up")
                    waiter.ids.discard(schema_id)
                    continue
                waiters = self._waiters[schema_id] = []
            waiters.append(waiter)
        if not waiter.ids:
            loop.call_soon(waiter.end)

    async def run(self) -> None:
        """Look ids up until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(_WORKERS):
                tasks.create_task(self._work(), name=f"schema registry {number}")

    async def _work(self) -> None:
        while True:
            schema_id = await self._queue.get()
            # A lookup that began before a request came cannot prove that something is missing.
            asked = tuple(self._waiters.get(schema_id, ()))
            if self.problem() is None:
                try:
                    found = await self._background.call(partial(self._read, schema_id))
                except LookupFailedError as error:
                    self._fail(str(error))
                else:
                    self._keep(schema_id, found, asked)
            for waiter in self._waiters.pop(schema_id, ()):
                waiter.ids.discard(schema_id)
                if not waiter.ids or self.problem() is not None:
                    waiter.end()

    def _keep(self, schema_id: int, found: ReadSchema, asked: Iterable[_Waiter]) -> None:
        now = self._clock.monotonic()
        self._schemas.pop(schema_id, None)
        if found.subjects:
            self._schemas[schema_id] = KnownSchema(schema_id, found.subjects, found.check, found.problem)
            _bound(self._schemas, self._limits.cache_size)
        for waiter in asked:
            for wanted in waiter.wanted:
                if wanted[0] != schema_id:
                    continue
                is_missing = wanted[1] not in found.subjects if wanted[1] else not found.subjects
                self._denied.pop(wanted, None)
                if is_missing:
                    self._denied[wanted] = now
                    _bound(self._denied, self._limits.cache_size)
                if not found.subjects:
                    self._denied[schema_id, ""] = now
        if self._is_down:
            self._is_down, self._failure = False, None
            logger.info("the schema registry answers again")

    def _fail(self, problem: str) -> None:
        self._failure = self._clock.monotonic() + _FAILURE_SECONDS, problem
        if not self._is_down:
            self._is_down = True
            logger.warning(
                "schemas cannot be looked up, so records of topics with kalda.schema.validation… that need "
                "one are to be sent again: %s",
                problem,
            )

    def _expire(self, waiter: _Waiter) -> None:
        self._fail(f"the schema registry has not answered for {self._limits.wait_max_seconds:g} s")
        for schema_id in waiter.ids:
            waiters = self._waiters.get(schema_id, [])
            if waiter in waiters:
                waiters.remove(waiter)
        waiter.end()


def _bound(kept: dict[_KeyT, _ValueT], size_max: int) -> None:
    """Drop the oldest entries beyond the bound."""
    while len(kept) > size_max:
        del kept[next(iter(kept))]
